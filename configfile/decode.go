package configfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/strictjson"
	"github.com/ampcors/ampcors/source"
)

// A file has the members that a JSON file can have.
type file struct {
	ampcors.Config
	PublishersFile string `json:"publishersFile,omitempty"` // a text file with a publisher on each line
	// a copy of https://cdn.ampproject.org/caches.json, to use in place of caches
	CachesFile string `json:"cachesFile,omitempty"`
	// how a database is asked, if serve-proxy, serve-authz or your program has one
	Asked  source.Config `json:"source,omitzero"`
	Schema string        `json:"$schema,omitempty"` // for editors: the URL or path of schema.json
}

// A decoder collects what is wrong with a JSON file and the files that it names.
type decoder struct {
	file     string
	data     []byte
	document *strictjson.Document
	result   file
	problems []*problem
}

// A problem is in the JSON file or in one that it names. Of a publisher in a text file, Offset is its index in
// Publishers.
type problem struct {
	strictjson.Problem
	file         string
	line, column int // if they do not follow from Offset
}

// problemAt returns a problem at an offset of a file's text.
func problemAt(file, text string, offset int, reason, want string) *problem {
	line, column := position(text, offset)
	return &problem{strictjson.Problem{Reason: reason, Want: want}, file, line, column}
}

func newDecoder(file string, data []byte) *decoder { return &decoder{file: file, data: data} }

func (d *decoder) report(offset int, path, reason, want string, err error) {
	d.problems = append(d.problems, &problem{Problem: strictjson.Problem{Offset: offset, Path: path, Reason: reason,
		Want: want, Err: err}, file: d.file})
}

// decodeFile decodes the file. It returns false if the file is not JSON in UTF-8.
func (d *decoder) decodeFile() bool {
	if problem := encodingProblem(d.file, string(d.data)); problem != nil {
		d.problems = append(d.problems, problem)
		return false
	}
	d.document = strictjson.Decode(d.data, &d.result, strictjson.Options{String: cacheByID})
	for _, p := range d.document.Problems {
		d.problems = append(d.problems, &problem{Problem: p, file: d.file})
	}
	return len(d.problems) == 0 || d.document.Has("")
}

// cacheByID decodes the id of one of the default caches, in place of an object.
func cacheByID(id string, v any) *strictjson.Problem {
	cache, ok := v.(*cacheurl.Cache)
	if !ok {
		return &strictjson.Problem{Reason: fmt.Sprintf("is %.80q", id), Want: "an object"}
	}
	var known []string
	for _, c := range cacheurl.DefaultCaches() {
		if c.ID == id {
			*cache = c
			return nil
		}
		known = append(known, strconv.Quote(c.ID))
	}
	return &strictjson.Problem{
		Reason: fmt.Sprintf("%.80q is not the id of a known cache", id),
		Want:   strings.Join(known, " or ") + ", or an object as in caches.json",
	}
}

// locate adds the problems that validation of the whole Config found, with their positions.
func (d *decoder) locate(err error, lines publisherLines) {
	reported := make(map[int]bool) // by offset
	for _, problem := range d.problems {
		if problem.file == d.file {
			reported[problem.Offset] = true
		}
	}
	hasProblems := len(d.problems) > 0
	for e := range badvalue.All(err) {
		reason := fmt.Sprintf("%.80q %s", e.Value, e.Reason)
		if e.Value == "" && !strings.Contains(e.Path, "[") {
			reason = e.Reason
		}
		list, index, isElement := strictjson.CutIndex(e.Path)
		offset := d.document.Offset(e.Path)
		switch {
		case isElement && list == "publishers" && lines.first <= index && index < lines.end:
			d.problems = append(d.problems, &problem{Problem: strictjson.Problem{Offset: index, Reason: reason, Want: e.Want,
				Err: e}, file: lines.file})
		case hasProblems && e.Path == "publishers", reported[offset]:
			// Already reported: the value is missing because it could not be decoded.
		default:
			d.report(offset, e.Path, reason, e.Want, e)
		}
	}
}
