// Package strictjson decodes JSON more strictly than encoding/json, and remembers where each value is.
// A member that is unknown, occurs twice or differs from a known one in case is a problem.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors/badvalue"
)

// A Problem is one value that is not as the Go type wants it.
type Problem struct {
	Offset int    // in bytes
	Path   string // of the value, such as "email.senders[0]"; "" for the whole document
	Reason string // completing "the value ..."
	Want   string // what would be right; "" if Reason says it
	Err    error  // the cause, if there is one
}

// String returns the problem in a sentence, without its place.
func (p Problem) String() string {
	text := strings.TrimPrefix(p.Path+" "+p.Reason, " ")
	switch p.Want {
	case "":
		return text
	case badvalue.RemoveIt:
		return text + "; " + p.Want
	}
	return text + "; want " + p.Want
}

// Options change what is decoded.
type Options struct {
	// IgnoreUnknown skips unknown members, unless they differ from a known one only in case.
	IgnoreUnknown bool

	// String, if not nil, decodes a string in place of an object into v, a pointer to a struct.
	// It returns nil or a Problem without Offset and Path.
	String func(s string, v any) *Problem
}

// A Document is a decoded JSON document.
type Document struct {
	Problems []Problem
	options  Options
	data     []byte
	tokens   *json.Decoder
	offsets  map[string]int   // by path
	lists    map[string][]int // the offsets of a list's elements, by path
}

// Decode decodes data into v, a pointer to a struct of strings, bools, ints, durations, lists and
// structs. If data is not JSON, that is the only Problem, and its Err is encoding/json's.
func Decode(data []byte, v any, options Options) *Document {
	d := &Document{options: options, data: data, offsets: make(map[string]int), lists: make(map[string][]int)}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		offset := len(data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && !strings.HasPrefix(err.Error(), "unexpected end") {
			offset = int(syntax.Offset) - 1 // of the unexpected byte
		}
		d.Problems = []Problem{{Offset: offset, Reason: "is not JSON: " + err.Error(), Want: comma(err.Error()), Err: err}}
		return d
	}
	d.tokens = json.NewDecoder(bytes.NewReader(data))
	d.tokens.UseNumber()
	d.decode("", reflect.ValueOf(v).Elem())
	return d
}

// StringAt returns the offset of the string at a path; false if there is another value or none.
func (d *Document) StringAt(path string) (offset int, ok bool) {
	offset, ok = d.offsets[path]
	return offset, ok && d.data[offset] == '"'
}

// Has reports whether there is a value at a path.
func (d *Document) Has(path string) bool {
	_, ok := d.offsets[path]
	return ok
}

func (d *Document) report(offset int, path, reason, want string) {
	d.Problems = append(d.Problems, Problem{Offset: offset, Path: path, Reason: reason, Want: want})
}

// next returns the offset at which the next token begins.
func (d *Document) next() int {
	offset := int(d.tokens.InputOffset())
	return offset + len(d.data[offset:]) - len(bytes.TrimLeft(d.data[offset:], " \t\r\n,:"))
}

// token returns the next token. There is one, because the file is JSON.
func (d *Document) token() json.Token {
	t, err := d.tokens.Token()
	if err != nil && err != io.EOF {
		panic(err)
	}
	return t
}

// skip reads the rest of the value that begins with t.
func (d *Document) skip(t json.Token) {
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

var durationType = reflect.TypeFor[time.Duration]()

// decode decodes the next value into v.
func (d *Document) decode(path string, v reflect.Value) {
	offset := d.next()
	d.offsets[path] = offset
	t := d.token()
	s, isString := t.(string)
	mismatch := func(want string) {
		d.report(offset, path, "is "+kind(t), want)
		d.skip(t)
	}
	switch {
	case isString && d.options.String != nil && v.Kind() == reflect.Struct:
		if problem := d.options.String(s, v.Addr().Interface()); problem != nil {
			problem.Offset, problem.Path = offset, path
			d.Problems = append(d.Problems, *problem)
		}
	case v.Type() == durationType:
		duration, err := time.ParseDuration(s)
		if !isString || err != nil {
			// A number would be in nanoseconds, which no user expects.
			mismatch(`a duration such as "10m" or "90s"`)
			return
		}
		v.SetInt(int64(duration))
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
		if isString {
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
	default:
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

func (d *Document) decodeList(path string, v reflect.Value) {
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
				d.report(offset, fmt.Sprintf("%s[%d]", path, i), "is "+kind(t), "a string")
				d.skip(t)
			}
			continue
		}
		d.decode(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
	d.token() // "]"
	d.lists[path] = offsets
}

func (d *Document) decodeObject(path string, v reflect.Value) {
	names, fields := Members(v)
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
		case !ok && d.options.IgnoreUnknown && !isSpelledOtherwise(name, names):
			d.skip(d.token())
		case !ok:
			reason, want := "is unknown", "one of "+strings.Join(names, ", ")
			if known := nearest(name, names); known != "" {
				reason, want = fmt.Sprintf("is unknown; did you mean %q?", known), ""
			}
			d.report(offset, fmt.Sprintf("%.80q", memberPath), reason, want)
			d.skip(d.token())
		case seen[name]:
			d.report(offset, memberPath, "occurs twice", "it once")
			d.skip(d.token())
		default:
			seen[name] = true
			d.decode(memberPath, field)
		}
	}
	d.token() // "}"
}

// Members returns the members that an object can have, in the order of the struct.
func Members(v reflect.Value) (names []string, fields map[string]reflect.Value) {
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

// isSpelledOtherwise reports whether a name differs from one of names only in case: encoding/json takes
// it for that one.
func isSpelledOtherwise(name string, names []string) bool {
	return slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(name, known) })
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

// Offset returns the offset of the value at a path. If the value is missing, it returns the
// offset of the object or list that should have it.
func (d *Document) Offset(path string) int {
	for {
		if offset, ok := d.offsets[path]; ok {
			return offset
		}
		list, index, isElement := CutIndex(path)
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

// CutIndex cuts the index off the path of an element, such as "publishers[3]".
func CutIndex(path string) (list string, index int, isElement bool) {
	i := strings.LastIndexByte(path, '[')
	if i < 0 || path[len(path)-1] != ']' {
		return "", 0, false
	}
	index, err := strconv.Atoi(path[i+1 : len(path)-1])
	return path[:i], index, err == nil
}

// comma returns what would be right if the cause of a syntax error is most likely a comma before its place;
// otherwise "".
func comma(text string) string {
	switch {
	case strings.Contains(text, "invalid character '}' looking for beginning of object key"),
		strings.Contains(text, "invalid character ']' looking for"):
		return "no comma before it"
	case strings.Contains(text, "invalid character '\"' after object key:value pair"),
		strings.Contains(text, "invalid character '\"' after array element"):
		return "a comma before it"
	}
	return ""
}
