package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
)

// A file has the members that a JSON file can have.
type file struct {
	ampcors.Config
	PublishersFile string         `json:"publishersFile"` // a text file with a publisher on each line
	CachesFile     string         `json:"cachesFile"`     // a file in the format of https://cdn.ampproject.org/caches.json, in place of caches
	Lookup         source.Options `json:"lookup"`         // the options of a source.Cache, if the program has one
	Schema         string         `json:"$schema"`        // for editors: the URL or path of schema.json
}

// A decoder decodes a JSON file more strictly than encoding/json, and remembers where each
// value is.
type decoder struct {
	file     string
	data     []byte
	tokens   *json.Decoder
	result   file
	offsets  map[string]int   // by path
	lists    map[string][]int // the offsets of a list's elements, by path
	problems []*Error
}

func newDecoder(file string, data []byte) *decoder {
	return &decoder{file: file, data: data, offsets: make(map[string]int), lists: make(map[string][]int)}
}

func (d *decoder) report(offset int, path, reason, want string, err error) {
	d.problems = append(d.problems, &Error{File: d.file, Path: path, Reason: reason, Want: want, Err: err, where: offset})
}

// decodeFile decodes the file. It returns false if the file is not JSON in UTF-8.
func (d *decoder) decodeFile() bool {
	if problem := encodingProblem(d.file, string(d.data)); problem != nil {
		d.problems = append(d.problems, problem)
		return false
	}
	var raw json.RawMessage
	if err := json.Unmarshal(d.data, &raw); err != nil {
		offset := len(d.data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && !strings.HasPrefix(err.Error(), "unexpected end") {
			offset = int(syntax.Offset) - 1 // of the unexpected byte
		}
		d.report(offset, "", "is not JSON: "+err.Error(), "", err)
		return false
	}
	d.tokens = json.NewDecoder(bytes.NewReader(d.data))
	d.tokens.UseNumber()
	d.decode("", reflect.ValueOf(&d.result).Elem())
	return true
}

// next returns the offset at which the next token begins.
func (d *decoder) next() int {
	offset := int(d.tokens.InputOffset())
	return offset + len(d.data[offset:]) - len(bytes.TrimLeft(d.data[offset:], " \t\r\n,:"))
}

// token returns the next token. There is one, because the file is JSON.
func (d *decoder) token() json.Token {
	t, err := d.tokens.Token()
	if err != nil && err != io.EOF {
		panic(err)
	}
	return t
}

// skip reads the rest of the value that begins with t.
func (d *decoder) skip(t json.Token) {
	for depth := 0; ; t = d.token() {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
	}
}

var (
	cacheType    = reflect.TypeFor[ampcors.Cache]()
	durationType = reflect.TypeFor[time.Duration]()
)

// decode decodes the next value into v.
func (d *decoder) decode(path string, v reflect.Value) {
	offset := d.next()
	d.offsets[path] = offset
	t := d.token()
	mismatch := func(want string) {
		reason := "is " + kind(t)
		if path == "" {
			reason = "the file " + reason
		}
		d.report(offset, path, reason, want, nil)
		d.skip(t)
	}
	switch {
	case v.Type() == cacheType && t != json.Delim('{'):
		d.decodeCacheID(path, offset, t, v.Addr().Interface().(*ampcors.Cache), mismatch)
	case v.Type() == durationType:
		d.decodeDuration(t, v, mismatch)
	case v.Kind() == reflect.Struct:
		if t != json.Delim('{') {
			mismatch("an object")
			return
		}
		d.decodeObject(path, v)
	case v.Kind() == reflect.Slice:
		if t != json.Delim('[') {
			mismatch("a list, or remove it")
			return
		}
		d.decodeList(path, v)
	case v.Kind() == reflect.String:
		if s, ok := t.(string); ok {
			v.SetString(s)
		} else {
			mismatch("a string")
		}
	case v.Kind() == reflect.Bool:
		if b, ok := t.(bool); ok {
			v.SetBool(b)
		} else {
			mismatch("true or false")
		}
	default: // int
		n, ok := t.(json.Number)
		if i, err := strconv.ParseInt(string(n), 10, v.Type().Bits()); ok && err == nil {
			v.SetInt(i)
		} else {
			mismatch("a whole number")
		}
	}
}

// kind describes the value that begins with t.
func kind(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(t)
	case string:
		return fmt.Sprintf("%.80q", t)
	case json.Number:
		return fmt.Sprintf("%.80s", t)
	}
	if t == json.Delim('{') {
		return "an object"
	}
	return "a list"
}

func (d *decoder) decodeDuration(t json.Token, v reflect.Value, mismatch func(want string)) {
	// A number is not accepted: it would be in nanoseconds, which no user expects.
	s, ok := t.(string)
	duration, err := time.ParseDuration(s)
	if !ok || err != nil {
		mismatch(`a duration such as "10m" or "90s"`)
		return
	}
	v.SetInt(int64(duration))
}

// decodeCacheID decodes a cache that is not an object. It must be the id of a known cache.
func (d *decoder) decodeCacheID(path string, offset int, t json.Token, cache *ampcors.Cache, mismatch func(want string)) {
	id, ok := t.(string)
	if !ok {
		mismatch(`an object, or an id such as "google"`)
		return
	}
	quoted, _ := json.Marshal(id) // a string has no error
	if problem := (*ampcors.ValueError)(nil); errors.As(cache.UnmarshalJSON(quoted), &problem) {
		d.report(offset, path, fmt.Sprintf("%.80q %s", id, problem.Reason), problem.Want, problem)
	}
}

func (d *decoder) decodeList(path string, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // an empty list is not the same as none
	var offsets []int
	for i := 0; d.tokens.More(); i++ {
		v.Grow(1)
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if isStrings := v.Type().Elem().Kind() == reflect.String; isStrings {
			// No path for each element: there may be millions.
			offset := d.next()
			offsets = append(offsets, offset)
			t := d.token()
			if s, ok := t.(string); ok {
				v.Index(i).SetString(s)
			} else {
				d.report(offset, fmt.Sprintf("%s[%d]", path, i), "is "+kind(t), "a string", nil)
				d.skip(t)
			}
			continue
		}
		d.decode(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
	d.token() // "]"
	d.lists[path] = offsets
}

func (d *decoder) decodeObject(path string, v reflect.Value) {
	names, fields := members(v)
	seen := make(map[string]bool)
	for d.tokens.More() {
		offset := d.next()
		name := d.token().(string)
		memberPath := name
		if path != "" {
			memberPath = path + "." + name
		}
		field, ok := fields[name]
		switch {
		case !ok:
			reason, want := "is unknown", "one of "+strings.Join(names, ", ")
			if known := nearest(name, names); known != "" {
				reason, want = fmt.Sprintf("is unknown; did you mean %q?", known), ""
			}
			d.report(offset, fmt.Sprintf("%.80q", memberPath), reason, want, nil)
			d.skip(d.token())
		case seen[name]:
			d.report(offset, memberPath, "occurs twice", "it once", nil)
			d.skip(d.token())
		default:
			seen[name] = true
			d.decode(memberPath, field)
		}
	}
	d.token() // "}"
}

// members returns the members that an object can have, in the order of the struct.
func members(v reflect.Value) (names []string, fields map[string]reflect.Value) {
	fields = make(map[string]reflect.Value)
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue // the embedded Config itself, or a field that a file cannot set
		}
		names = append(names, name)
		fields[name] = v.FieldByIndex(f.Index)
	}
	return names, fields
}

// nearest returns the one of names that is nearest to a misspelled name, or "" if none is
// near.
func nearest(name string, names []string) (found string) {
	const most = 2 // edits, such as "publisher" for publishers or "tll" for ttl
	if len(name) > 100 {
		return "" // no name is so long
	}
	least := most + 1
	for _, n := range names {
		if edits := distance(strings.ToLower(name), strings.ToLower(n)); edits < least && edits < len(n)/2+1 {
			found, least = n, edits
		}
	}
	return found
}

// distance returns the Levenshtein distance: how many bytes must be inserted, removed or
// replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// locate adds the problems that validation of the whole Config found, with their positions.
func (d *decoder) locate(err error, lines publisherLines) {
	reported := make(map[int]bool) // by offset
	for _, problem := range d.problems {
		if problem.File == d.file {
			reported[problem.where] = true
		}
	}
	hasProblems := len(d.problems) > 0
	for e := range ampcors.ValueErrors(err) {
		reason := fmt.Sprintf("%.80q %s", e.Value, e.Reason)
		if e.Value == "" && !strings.Contains(e.Path, "[") {
			reason = e.Reason
		}
		list, index, isElement := cutIndex(e.Path)
		offset := d.offset(e.Path)
		switch {
		case isElement && list == "publishers" && lines.first <= index && index < lines.end:
			d.problems = append(d.problems, &Error{File: lines.file, Reason: reason, Want: e.Want, Err: e, where: index})
		case hasProblems && e.Path == "publishers", reported[offset]:
			// Already reported: the value is missing because it could not be decoded.
		default:
			d.report(offset, e.Path, reason, e.Want, e)
		}
	}
}

// offset returns the offset of the value at a path. If the value is missing, it returns the
// offset of the object or list that should have it.
func (d *decoder) offset(path string) int {
	for {
		if offset, ok := d.offsets[path]; ok {
			return offset
		}
		list, index, isElement := cutIndex(path)
		if offsets := d.lists[list]; isElement && index < len(offsets) {
			return offsets[index]
		}
		if i := strings.LastIndexByte(path, '.'); !isElement && i >= 0 {
			list = path[:i]
		} else if !isElement {
			list = ""
		}
		path = list
	}
}

// cutIndex cuts the index off the path of an element, such as "publishers[3]".
func cutIndex(path string) (list string, index int, isElement bool) {
	i := strings.LastIndexByte(path, '[')
	if i < 0 || path[len(path)-1] != ']' {
		return "", 0, false
	}
	index, err := strconv.Atoi(path[i+1 : len(path)-1])
	return path[:i], index, err == nil
}
