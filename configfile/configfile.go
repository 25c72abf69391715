// Package configfile reads an [ampcors.Config] from a file, and follows the file while the
// server runs.
//
// The file is JSON. Its members are the fields of [ampcors.Config], but a duration is a string such as
// "10m". This package adds four members: publishersFile, for lists that are long or written by other
// programs; cachesFile; source, which says how a database is asked (see [File.SourceConfig]); and
// $schema, for editors. If a file has source, Set must give a Source. An example:
//
//	{
//		"publishers": ["www.example.com", "*.news.example"],
//		"publishersFile": "publishers.txt",
//		"credentialed": true,
//		"maxAge": "10m"
//	}
//
// publishersFile names a text file with more publishers, one on each line. The name is
// relative to the JSON file's directory. Empty lines, spaces, tabs and comments that begin
// with "#" are skipped. The last line must end in a line break too, so that a truncated
// name is not read as another one. The list must have a publisher, so that an emptied file
// does not deny every publisher.
//
// cachesFile names a copy of https://cdn.ampproject.org/caches.json, the registry of AMP Caches, in
// place of the member caches; see [cacheurl.ParseCaches]. Its changes apply like changes of
// publishersFile, and it must have a cache. Read a new one before you install it: whoever runs a cache
// can give any origin below its domain to any page.
//
// No problem in any of these files is ignored, except unknown members in cachesFile, because the registry may add
// some. A member that is unknown or occurs twice, a value of the wrong type, and everything that [ampcors.New] or, in
// source, [source.New] finds is an error. Up to 100 errors are reported at once, each with its place and what would
// be right (errors of cachesFile count as one).
package configfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/strictjson"
	"github.com/ampcors/ampcors/source"
)

const (
	maxFile     = 1 << 30 // bytes; a list has about 20 for each publisher
	maxProblems = 100     // reported at most, so that a wrong file does not fill the log

	publishersFile = "publishersFile"
	cachesFile     = "cachesFile"
)

// An Error is a problem at one place in a file.
type Error struct {
	File   string
	Line   int    // from 1; 0 if the problem is the whole file
	Column int    // in characters, from 1
	Path   string // of the value, such as "email.senders[0]"; "" for the file as a whole, and in publishersFile
	Reason string // what is wrong
	Want   string // what would be right
	Err    error  // the cause, such as a *badvalue.Error; it may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": " + strictjson.Problem{Path: e.Path, Reason: e.Reason, Want: e.Want}.String())
	return b.String()
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// A File is the configuration in a file. [Inline] has the same methods, except New.
type File struct {
	Path string
	// Set, if not nil, sets what a file cannot hold: Source, Denied and Observe. It is called at each
	// reading of a file that is JSON, even if the file has other errors, so it must only set fields.
	Set func(*ampcors.Config)
	// CachesFile, if not empty, is what the member cachesFile would name, for a program that has it from elsewhere,
	// such as a flag. A relative name is relative to the working directory. It is followed, too. A file that has
	// caches or cachesFile as well is an error, at each reading.
	CachesFile string
}

// Inline is a configuration that is a part of something else, such as an environment variable or
// another server's configuration. Only the publishersFile and the cachesFile that it may name are files.
type Inline struct {
	Name string // for errors
	Dir  string // of a relative publishersFile or cachesFile; if empty, these must be absolute
	JSON []byte // what the file would contain
	Set  func(*ampcors.Config)
}

// Config reads and checks the configuration. An error is one or more *[Error], joined: at most 100, and one
// that counts the others. To make a Middleware, use New or Watch: Config and [ampcors.New] together check
// each publisher twice.
func (f File) Config() (ampcors.Config, error) { return config(f.Path, f.read) }

// Config is [File.Config].
func (in Inline) Config() (ampcors.Config, error) { return config(in.Name, in.read) }

// New returns a Middleware for the configuration. Errors are as for [File.Config].
func (f File) New() (*ampcors.Middleware, error) {
	mw, _, err := f.Watch(WatcherConfig{})
	return mw, err
}

// SourceConfig returns the member "source", for [source.New]. It checks syntax, names and types of the whole JSON,
// but values only in source, and ids in caches. A Watcher does not apply changes of source.
func (f File) SourceConfig() (source.Config, error) {
	in, _, err := f.inline()
	if err != nil {
		return source.Config{}, err
	}
	return in.SourceConfig()
}

// SourceConfig is [File.SourceConfig].
func (in Inline) SourceConfig() (source.Config, error) {
	d := newDecoder(in.Name, in.JSON)
	if d.decodeFile() {
		d.locate(d.sourceErrors(), publisherLines{})
	}
	if len(d.problems) > 0 {
		return source.Config{}, d.join(publisherLines{})
	}
	return d.result.Asked, nil
}

func (f File) read() contents {
	in, file, err := f.inline()
	c := contents{files: snapshot{file}, err: err}
	if err == nil {
		c.parse(in, f.CachesFile)
	}
	return c
}

// inline reads the file itself.
func (f File) inline() (Inline, fileState, error) {
	file := look(f.Path)
	text, err := file.read()
	if err != nil {
		err = &Error{File: f.Path, Reason: "cannot be read: " + reason(err), Err: err}
	}
	return Inline{Name: f.Path, Dir: filepath.Dir(f.Path), JSON: []byte(text), Set: f.Set}, file, err
}

func (in Inline) read() (c contents) {
	c.parse(in, "")
	return c
}

func config(name string, read func() contents) (ampcors.Config, error) {
	c, err := stable(name, read)
	if err != nil {
		return ampcors.Config{}, err
	}
	if err := c.use(ampcors.Config.Validate); err != nil {
		return ampcors.Config{}, err
	}
	return c.cfg, nil
}

// sourceErrors returns what is wrong in the member "source", as joined *[badvalue.Error]s.
func (d *decoder) sourceErrors() error {
	err := d.result.Asked.Validate()
	for problem := range badvalue.All(err) {
		problem.Path = "source." + problem.Path
	}
	return err
}

// Marshal returns cfg as JSON that [Inline] reads. It has no Source, Denied and Observe.
func Marshal(cfg ampcors.Config) ([]byte, error) {
	maxAge := ""
	if cfg.MaxAge != 0 {
		maxAge = cfg.MaxAge.String()
	}
	return json.Marshal(struct {
		ampcors.Config
		MaxAge string `json:"maxAge,omitempty"` // in place of Config's, which would be a number
	}{cfg, maxAge})
}

// stable reads until no file changes during a read.
func stable(name string, read func() contents) (contents, error) {
	// A directory of files can be replaced, as Kubernetes does, after one file is read and
	// before the other. That is rare, and the next try succeeds.
	for range 10 {
		if c := read(); c.files.haveNotChanged() {
			return c, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return contents{}, &Error{File: name, Reason: "changes all the time", Want: "a file that is replaced as a whole"}
}

// contents are what was read of the files.
type contents struct {
	files   snapshot // that were read, or that could not be read
	err     error    // why nothing could be read
	decoder *decoder
	lines   publisherLines
	cfg     ampcors.Config
}

// parse parses the JSON, and reads the list that it names. If in.Dir is "", the list must have
// an absolute path. ownCaches is a file of AMP Caches that the program names.
func (c *contents) parse(in Inline, ownCaches string) {
	d := newDecoder(in.Name, in.JSON)
	if !d.decodeFile() {
		c.err = d.join(publisherLines{})
		return
	}
	if name, ok := d.named(publishersFile, d.result.PublishersFile, in.Dir); ok {
		if text, ok := c.readNamed(d, publishersFile, name); ok {
			c.lines = d.addPublishers(name, text)
		}
	}
	if name, ok := d.named(cachesFile, d.result.CachesFile, in.Dir); ok {
		c.readCaches(d, name)
	}
	if ownCaches != "" {
		c.readOwnCaches(d, ownCaches)
	}
	c.decoder, c.cfg = d, d.result.Config
	if in.Set != nil {
		in.Set(&c.cfg)
	}
}

// named returns the path of the file that a member of the JSON names. ok is false if there is none.
func (d *decoder) named(member, name, dir string) (path string, ok bool) {
	offset, ok := d.document.StringAt(member)
	if !ok {
		return "", false
	}
	if filepath.IsAbs(name) {
		return name, true
	}
	if dir == "" {
		d.report(offset, member, fmt.Sprintf("%.80q is a relative path, and this configuration has no directory", name),
			"an absolute path", nil)
		return "", false
	}
	return filepath.Join(dir, name), true
}

// readNamed reads the file that a member names. ok is false if it cannot be read, which is reported.
func (c *contents) readNamed(d *decoder, member, name string) (text string, ok bool) {
	file := look(name)
	text, err := file.read()
	if len(c.files) > 0 && file.info != nil && file.isSame(c.files[0]) {
		err = errors.New("it is this file itself")
	}
	c.files = append(c.files, file)
	if err != nil {
		d.report(d.document.Offset(member), member, fmt.Sprintf("cannot be read: %s: %s", name, reason(err)), "", err)
	}
	return text, err == nil
}

// readCaches reads the AMP Caches.
func (c *contents) readCaches(d *decoder, name string) {
	offset := d.document.Offset(cachesFile)
	if d.document.Has("caches") {
		d.report(offset, cachesFile, "is set, and so is caches", "one of them", nil)
	}
	text, ok := c.readNamed(d, cachesFile, name)
	if !ok {
		return
	}
	caches, err := cacheurl.ParseCaches(strings.NewReader(text))
	if err != nil {
		d.report(offset, cachesFile, "cannot be used: "+name+": "+onOneLine(err), "", err)
		return
	}
	d.result.Caches = caches
}

// onOneLine returns the text of joined errors of values.
func onOneLine(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "ampcors: "), "\nampcors: ", "; ")
}

// readOwnCaches reads the AMP Caches of a file that the program names. If the JSON has caches too, neither silently
// wins.
func (c *contents) readOwnCaches(d *decoder, name string) {
	for _, member := range []string{"caches", cachesFile} {
		if d.document.Has(member) {
			d.report(d.document.Offset(member), member, "is set, and the program was started with the caches of "+name,
				"one of them", nil)
		}
	}
	file := look(name)
	text, err := file.read()
	c.files = append(c.files, file)
	if err != nil {
		d.problems = append(d.problems, &problem{file: name,
			Problem: strictjson.Problem{Reason: "cannot be read: " + reason(err), Err: err}})
		return
	}
	if d.result.Caches, err = cacheurl.ParseCaches(strings.NewReader(text)); err != nil {
		d.problems = append(d.problems, &problem{file: name,
			Problem: strictjson.Problem{Reason: "cannot be used: " + onOneLine(err)}})
	}
}

// use calls use with the configuration. If the files have errors, it only validates the
// configuration, so that all errors are reported at once.
func (c *contents) use(use func(ampcors.Config) error) error {
	if c.err != nil {
		return c.err
	}
	sourceErr := c.decoder.sourceErrors()
	if c.decoder.document.Has("source") && c.cfg.Source == nil {
		sourceErr = errors.Join(sourceErr, &badvalue.Error{Code: badvalue.Useless, Path: "source",
			Reason: "says how a database is asked, and no database is named",
			Want:   "a database, or remove it"})
	}
	if len(c.decoder.problems) > 0 || sourceErr != nil {
		use = ampcors.Config.Validate
	}
	if err := errors.Join(sourceErr, use(c.cfg)); err != nil {
		c.decoder.locate(err, c.lines)
		if len(c.decoder.problems) == 0 {
			return err // not about a value
		}
	}
	if len(c.decoder.problems) > 0 {
		return c.decoder.join(c.lines)
	}
	return nil
}

// reason returns why a file cannot be read, without the file's name.
func reason(err error) string {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// join joins the first errors, those of the JSON file before those of the text file.
func (d *decoder) join(lines publisherLines) error {
	slices.SortStableFunc(d.problems, func(a, b *problem) int {
		if isA, isB := a.file == d.file, b.file == d.file; isA != isB {
			if isA {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Offset, b.Offset)
	})
	errs := make([]error, 0, maxProblems+1)
	data := string(d.data)
	for i, p := range d.problems {
		e := &Error{p.file, p.line, p.column, p.Path, p.Reason, p.Want, p.Err}
		switch {
		case i == maxProblems:
			errs = append(errs, &Error{File: p.file, Reason: fmt.Sprintf("%d more errors", len(d.problems)-i)})
			return errors.Join(errs...)
		case p.line > 0:
		case p.file == d.file:
			e.Line, e.Column = position(data, p.Offset)
		default:
			publisher, isPublisher := p.Err.(*badvalue.Error)
			if !isPublisher {
				break // a file as a whole
			}
			var ok bool
			if e.Line, e.Column, ok = lines.at(p.Offset, publisher.Value); !ok {
				e.File, e.Path = d.file, fmt.Sprintf("publishers[%d]", p.Offset) // set by the program
			}
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// publisherLines locates publishers in a text file.
type publisherLines struct {
	file       string
	text       string
	first, end int // their indices in Publishers
}

// addPublishers adds the publishers in a text file.
func (d *decoder) addPublishers(file, text string) publisherLines {
	lines := publisherLines{file: file, text: text, first: len(d.result.Publishers)}
	if problem := encodingProblem(file, text); problem != nil {
		d.problems = append(d.problems, problem)
		return lines
	}
	isTruncated := text != "" && !strings.HasSuffix(text, "\n")
	if isTruncated {
		truncated := problemAt(file, text, len(text), "the last line has no line break: the file may be truncated",
			"a line break at the end")
		truncated.Offset = math.MaxInt
		d.problems = append(d.problems, truncated)
		text = text[:strings.LastIndexByte(text, '\n')+1] // the other lines are checked
		lines.text = text
	}
	if i := strings.IndexByte(strings.ReplaceAll(text, "\r\n", "\n\n"), '\r'); i >= 0 {
		d.problems = append(d.problems, problemAt(file, text, i, "has a carriage return inside a line",
			"lines that end in a line feed"))
		return lines
	}
	d.result.Publishers = slices.Grow(d.result.Publishers, strings.Count(text, "\n")) // there may be millions
	for line := range strings.Lines(text) {
		if publisher := trimLine(line); publisher != "" {
			d.result.Publishers = append(d.result.Publishers, publisher)
		}
	}
	if lines.end = len(d.result.Publishers); lines.end == lines.first && !isTruncated {
		d.problems = append(d.problems, problemAt(file, text, 0, "names no publisher", "at least one, or no publishersFile"))
	}
	return lines
}

// trimLine returns the publisher on a line of a list, or "".
func trimLine(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return strings.Trim(line, " \t\r\n")
}

// at returns the position of the publisher with this index in the text file. ok is false if
// the file has another one there.
func (l *publisherLines) at(index int, publisher string) (line, column int, ok bool) {
	for text := range strings.Lines(l.text) {
		line++
		found := trimLine(text)
		if found == "" {
			continue
		}
		if index == l.first {
			if found != publisher {
				break
			}
			return line, 1 + utf8.RuneCountInString(text[:strings.Index(text, found)]), true
		}
		index--
	}
	return 0, 0, false
}

// encodingProblem reports why data is not UTF-8 text; nil if it is.
func encodingProblem(file, data string) *problem {
	if strings.HasPrefix(data, "\ufeff") {
		return problemAt(file, data, 0, "begins with a byte order mark", "UTF-8 without one")
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRuneInString(data[i:])
		if r == utf8.RuneError && size == 1 {
			return problemAt(file, data, i, "is not UTF-8", "UTF-8")
		}
		i += size
	}
	return nil
}

// position converts an offset to a line and column.
func position(data string, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	line = 1 + strings.Count(before, "\n")
	column = 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return line, column
}

// A snapshot is the state of files at one time.
type snapshot []fileState

type fileState struct {
	name string
	info os.FileInfo // nil if there is none
	err  error
}

// look follows symbolic links, so that it notices when one of them is replaced.
func look(name string) fileState {
	info, err := os.Stat(name)
	if err != nil {
		info = nil
	}
	return fileState{name, info, err}
}

// isSame reports whether f and other are the same file in the same state.
func (f fileState) isSame(other fileState) bool {
	if f.info == nil || other.info == nil {
		return f.info == nil && other.info == nil
	}
	return f.info.Size() == other.info.Size() && f.info.ModTime().Equal(other.info.ModTime()) &&
		os.SameFile(f.info, other.info) && changed(f.info) == changed(other.info)
}

func (s snapshot) haveNotChanged() bool { return s.equal(s.again()) }

// again returns the state of the same files now.
func (s snapshot) again() snapshot {
	now := make(snapshot, len(s))
	for i, f := range s {
		now[i] = look(f.name)
	}
	return now
}

func (s snapshot) equal(other snapshot) bool {
	return slices.EqualFunc(s, other, func(a, b fileState) bool { return a.name == b.name && a.isSame(b) })
}

// read reads the file. It must be a regular file: to read a named pipe could block forever.
func (f *fileState) read() (string, error) {
	if f.err != nil {
		return "", f.err
	}
	if !f.info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	if f.info.Size() > maxFile {
		return "", errors.New("it is longer than 1 GiB")
	}
	file, err := os.Open(f.name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var b strings.Builder
	b.Grow(int(f.info.Size()))
	_, err = io.Copy(&b, io.LimitReader(file, maxFile))
	return b.String(), err
}
