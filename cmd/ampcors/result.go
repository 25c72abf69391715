package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// A format is a way to write results.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

// Set makes format a pflag.Value, so that an unknown format is an error before anything is done.
func (f *format) Set(value string) error {
	if value != string(formatText) && value != string(formatJSON) {
		return errors.New("want text or json")
	}
	*f = format(value)
	return nil
}

func (f *format) String() string { return string(*f) }

func (f *format) Type() string { return "format" }

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command) *format {
	f := formatText
	cmd.Flags().VarP(&f, "output", "o", "how results are written: text or json")
	return &f
}

// A result is the answer to one argument.
type result struct {
	Input      string `json:"input"`
	Output     any    `json:"output,omitempty"`
	Error      string `json:"error,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds, if the other side said so
}

// answer calls f for each argument or, if there are none, for each line of standard input.
// It writes the results as text, or as one JSON list. If f returns an error, answer writes
// the error, goes on with the next argument, and returns an exitError: with code 3 if all errors are
// retryable, otherwise with code 1.
func answer(cmd *cobra.Command, args []string, output format, f func(arg string) (any, error)) error {
	inputs, err := inputs(cmd, args)
	if err != nil {
		return err
	}
	return answerAll(cmd, inputs, output, f)
}

// answerAll does the same for inputs, of which there may be none.
func answerAll(cmd *cobra.Command, inputs []string, output format, f func(input string) (any, error)) error {
	results, failed := []result{}, []error{}
	for _, input := range inputs {
		if cmd.Context().Err() != nil {
			return errInterrupted
		}
		r := result{Input: input}
		out, err := f(input)
		if err != nil {
			r.Error, r.RetryAfter, failed = packages.Replace(inOurWords(err).Error()), retryAfter(err), append(failed, err)
		} else {
			r.Output = out
		}
		results = append(results, r)
		switch lines, isList := out.([]string); {
		case output != formatText:
		case err != nil:
			complain(cmd.ErrOrStderr(), r.Error)
		case isList:
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(lines, "\n"))
		default:
			fmt.Fprintln(cmd.OutOrStdout(), out)
		}
	}
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	}
	return failure(failed)
}

// count returns a number with its noun.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
