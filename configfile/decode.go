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
)

// contents are what a JSON file can hold.
type contents struct {
	ampcors.Config
	PublishersFile string `json:"publishersFile"`
}

// A decoder decodes a JSON file more strictly than encoding/json, and remembers where each
// value stood.
type decoder struct {
	file    string
	data    []byte
	tokens  *json.Decoder
	result  contents
	offsets map[string]int   // by path
	lists   map[string][]int // the offsets of a list's elements, by path
	faults  []*Error
}

func (d *decoder) fault(offset int, path, reason, want string, err error) {
	d.faults = append(d.faults, &Error{File: d.file, Path: path, Reason: reason, Want: want, Err: err, where: offset})
}

// decodeFile decodes the file. If it returns false, the file is no JSON.
func (d *decoder) decodeFile() bool {
	if fault := encodingFault(d.file, d.data); fault != nil {
		d.faults = append(d.faults, fault)
		return false
	}
	var raw json.RawMessage
	if err := json.Unmarshal(d.data, &raw); err != nil {
		offset := len(d.data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && !strings.HasPrefix(err.Error(), "unexpected end") {
			offset = int(syntax.Offset) - 1 // that of the octet that should not be there
		}
		d.fault(offset, "", "is not JSON: "+err.Error(), "", err)
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

// skip reads what is left of the value that t begins.
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

var durationType = reflect.TypeFor[time.Duration]()

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
		d.fault(offset, path, reason, want, nil)
		d.skip(t)
	}
	switch {
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
			mismatch("a list, or to leave it out")
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

// kind tells what a value that begins with t is.
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
	// A number would be one of nanoseconds, which nobody means.
	s, ok := t.(string)
	duration, err := time.ParseDuration(s)
	if !ok || err != nil {
		mismatch(`a duration such as "10m" or "90s"`)
		return
	}
	v.SetInt(int64(duration))
}

func (d *decoder) decodeList(path string, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // an empty list is not the same as none
	var offsets []int
	for i := 0; d.tokens.More(); i++ {
		v.Grow(1)
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if isStrings := v.Type().Elem().Kind() == reflect.String; isStrings {
			// Without a path for each, of which there may be millions.
			offset := d.next()
			offsets = append(offsets, offset)
			t := d.token()
			if s, ok := t.(string); ok {
				v.Index(i).SetString(s)
			} else {
				d.fault(offset, fmt.Sprintf("%s[%d]", path, i), "is "+kind(t), "a string", nil)
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
			d.fault(offset, fmt.Sprintf("%.80q", memberPath), "is unknown", "one of "+strings.Join(names, ", "), nil)
			d.skip(d.token())
		case seen[name]:
			d.fault(offset, memberPath, "occurs twice", "it once", nil)
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
			continue // the embedded Config itself, and what no file can say
		}
		names = append(names, name)
		fields[name] = v.FieldByIndex(f.Index)
	}
	return names, fields
}

// locate adds the faults that validation found.
func (d *decoder) locate(err error, lines publisherLines) {
	reported := make(map[int]bool) // by offset
	for _, f := range d.faults {
		if f.File == d.file {
			reported[f.where] = true
		}
	}
	hasFaults := len(d.faults) > 0
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		e := err.(*ampcors.ValueError)
		reason := fmt.Sprintf("%.80q %s", e.Value, e.Reason)
		if e.Value == "" && e.Index < 0 {
			reason = e.Reason
		}
		path, offset := d.find(e)
		isMissing := e.Field == "Publishers" && e.Index < 0
		switch {
		case e.Field == "Publishers" && lines.first <= e.Index && e.Index < lines.end:
			d.faults = append(d.faults, &Error{File: lines.file, Reason: reason, Want: e.Want, Err: e, where: e.Index})
		case hasFaults && isMissing, reported[offset]:
			// What could not be decoded is missing here, which is no other fault.
		default:
			d.fault(offset, path, reason, e.Want, e)
		}
	}
}

// find returns the path of a value and its offset, or that of what it is missing from.
func (d *decoder) find(e *ampcors.ValueError) (path string, offset int) {
	list, member, _ := strings.Cut(e.Field, "[]") // as in "Caches[].cacheDomain"
	t := reflect.TypeFor[ampcors.Config]()
	for name := range strings.SplitSeq(list, ".") {
		f, ok := t.FieldByName(name)
		if !ok {
			return e.Field, d.offsets[""]
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if path != "" {
			path += "."
		}
		path, t = path+tag, f.Type
	}
	outer, ok := d.offsets[path]
	if !ok {
		outer = d.offsets[""]
	}
	if e.Index < 0 {
		return path, outer
	}
	element := fmt.Sprintf("%s[%d]", path, e.Index)
	if offsets := d.lists[path]; e.Index < len(offsets) {
		return element, offsets[e.Index]
	}
	path = element + member
	if offset, ok := d.offsets[path]; ok {
		return path, offset
	}
	if offset, ok := d.offsets[element]; ok {
		return path, offset
	}
	return path, outer
}
