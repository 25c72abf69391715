package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/badvalue"
)

// A runLog is a file with a line of JSON for each answer of a cache or an engine. The nil pointer discards them.
type runLog struct {
	file *os.File
	json *json.Encoder
	err  error // the first
}

// addRunLog adds the flag --log. open opens its file, behind what is in it.
func addRunLog(cmd *cobra.Command) (open func() (*runLog, error)) {
	name := cmd.Flags().String("log", "", "file to which a line of JSON is added for each answer, with its time, URLs "+
		"and error")
	return func() (*runLog, error) {
		if *name == "" {
			return nil, nil
		}
		file, err := os.OpenFile(*name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		warnOfMode(cmd.ErrOrStderr(), *name, 0o022, "others may change the log: chmod 600 it")
		return &runLog{file: file, json: json.NewEncoder(file)}, nil
	}
}

// flushed adds an answer of a cache.
func (l *runLog) flushed(p flushedPage) {
	p.URL = badvalue.Masked(p.URL)
	l.write(struct {
		Time time.Time `json:"time"`
		flushedPage
	}{time.Now().UTC(), p})
}

// submitted adds an answer of an engine.
func (l *runLog) submitted(b indexnow.Batch, problem *indexnow.Error) {
	if l == nil {
		return
	}
	line := struct {
		Time     time.Time `json:"time"`
		Host     string    `json:"host"`
		Accepted bool      `json:"accepted"`
		Pending  bool      `json:"pending,omitempty"` // the engine still checks the key
		Status   int       `json:"status,omitempty"`
		Error    string    `json:"error,omitempty"`
		URLs     []string  `json:"urls"`
	}{Time: time.Now().UTC(), Host: b.Host, Accepted: problem == nil, Pending: b.Pending}
	for _, u := range b.URLs {
		line.URLs = append(line.URLs, maskKey(u))
	}
	if problem != nil {
		line.Status, line.Error = problem.Status, problem.Error()
	}
	l.write(line)
}

func (l *runLog) write(line any) {
	if l != nil && l.err == nil {
		l.err = l.json.Encode(line)
	}
}

// close closes the file, and returns the first error.
func (l *runLog) close() error {
	if l == nil {
		return nil
	}
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}
