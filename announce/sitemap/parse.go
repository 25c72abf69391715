package sitemap

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// An entry is a page or a sitemap of a file.
type entry struct {
	url, modified string
	isSitemap     bool
	index         int // in the file
	line          int // of a text file; otherwise 0
}

// problem returns why a line of a text file is not exactly one URL, or nil.
func (e entry) problem() error {
	switch {
	case e.line == 0:
		return nil
	case strings.ContainsAny(e.url, " \t"):
		return errors.New("has a space in it; want one URL on a line, and nothing else")
	case !isURL.MatchString(e.url):
		return errors.New("is not a URL that begins with https:// or http://")
	}
	return nil
}

// place returns the place of an entry in its file, such as "url[3]" or "line 4".
func (e entry) place() string {
	if e.line > 0 {
		return fmt.Sprintf("line %d", e.line)
	}
	if e.isSitemap {
		return fmt.Sprintf("sitemap[%d]", e.index)
	}
	return fmt.Sprintf("url[%d]", e.index)
}

// All limits are checked before memory is taken for what is beyond them.
const (
	maxEntries = 50_000 // of a sitemap or an index: https://www.sitemaps.org/protocol.html
	// bytes of a tag with its attributes, of a text between tags, or of a comment; in feeds, where a text may be a
	// whole page, 8 MiB of a text or a comment
	maxToken = 64 << 10
	maxDepth = 100    // of elements
	maxText  = 10_000 // bytes of a URL or a date
)

// Pages returns the URLs in a sitemap, as they are written there. It is for programs that
// read pages and do not announce them, such as pages of a development server with a port. A sitemap index is an error.
func Pages(file io.Reader) (urls []string, err error) {
	err = parse(context.Background(), file, "", defaultMaxBytes, false, func(e entry) error {
		if e.isSitemap {
			return errors.New("it is a sitemap index; use its sitemaps")
		}
		if problem := e.problem(); problem != nil {
			return fmt.Errorf("%s %w", e.place(), problem)
		}
		urls = append(urls, e.url)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sitemap: %w", err)
	}
	return urls, nil
}

// parse parses a sitemap, a sitemap index, a text file with a URL on each line, or robots.txt, and calls found
// with each entry. It ends with the first error of found.
func parse(ctx context.Context, file io.Reader, mediaType string, maxBytes int64, isRobots bool,
	found func(entry) error) error {
	content, err := plain(file, maxBytes)
	if err != nil {
		return err
	}
	buffered := bufio.NewReader(content)
	if mark, _ := buffered.Peek(3); string(mark) == "\uFEFF" {
		_, _ = buffered.Discard(3)
	}
	first := byte(' ')
	for first == ' ' || first == '\t' || first == '\r' || first == '\n' {
		if first, err = buffered.ReadByte(); err == io.EOF {
			return errors.New("it is empty")
		} else if err != nil {
			return err
		}
	}
	if err := buffered.UnreadByte(); err != nil {
		return err
	}
	p := parser{ctx: ctx, found: found, about: func() string {
		if mediaType != "" {
			return fmt.Sprintf("; its media type is %s, and %d bytes were read", mediaType, content.consumed())
		}
		return fmt.Sprintf("; %d bytes were read", content.consumed())
	}}
	start, _ := buffered.Peek(8)
	for _, e := range encodings {
		if bytes.HasPrefix(start, []byte(e.start)) {
			return fmt.Errorf("%s%s", e.problem, p.about())
		}
	}
	switch {
	case isRobots && first != '<':
		return p.robots(buffered)
	case first == '<':
		return p.xml(buffered)
	}
	return p.text(buffered)
}

// encodings are beginnings of files that an editor does not show.
var encodings = []struct{ start, problem string }{
	{"\uFEFF", "it begins with two byte order marks (U+FEFF); want at most one"},
	{"\u200B", "it begins with an invisible character (U+200B, zero width space); remove it"},
	{"\u00A0", "it begins with an invisible character (U+00A0, no-break space); remove it"},
	{"\xff\xfe", "it is UTF-16; want UTF-8, which the protocol requires"},
	{"\xfe\xff", "it is UTF-16; want UTF-8, which the protocol requires"},
	{"<\x00", "it is UTF-16; want UTF-8, which the protocol requires"},
	{"\x00<", "it is UTF-16; want UTF-8, which the protocol requires"},
	{"\x1f\x8b", "it is compressed with gzip twice; want once"},
}

// A parser reads the entries of one file.
type parser struct {
	ctx     context.Context
	found   func(entry) error
	about   func() string // what an error says about the file
	entries int
	line    int // of a text file, the current one
}

// add passes on an entry.
func (p *parser) add(url, modified string, isSitemap bool) error {
	if p.entries == maxEntries {
		return fmt.Errorf("it has more than %d entries", maxEntries)
	}
	p.entries++
	return p.found(entry{url, normalize(modified), isSitemap, p.entries - 1, p.line})
}

// A format is how an XML file lists pages or sitemaps.
type format struct {
	depth            int    // of an entry; the root element has 1
	entry            string // the element of a page or a sitemap
	url              string // the element in it that has the URL, or, of Atom, names it in its href
	modified         []string
	isFeed           bool // it has many elements that are no entries
	isOfSitemaps     bool
	isURLInAttribute bool
}

// formats has the formats of https://www.sitemaps.org/protocol.html (sitemaps, indexes, RSS 2.0, Atom 0.3 and 1.0),
// by their root elements.
var formats = map[string]*format{
	"urlset":       {depth: 2, entry: "url", url: "loc", modified: []string{"lastmod"}},
	"sitemapindex": {depth: 2, entry: "sitemap", url: "loc", modified: []string{"lastmod"}, isOfSitemaps: true},
	"rss":          {depth: 3, entry: "item", url: "link", modified: []string{"pubDate"}, isFeed: true},
	"feed": {depth: 2, entry: "entry", url: "link", modified: []string{"updated", "modified"}, isFeed: true,
		isURLInAttribute: true},
}

// maxFeedToken is maxToken of a text or a comment in a feed. (Attributes take ten times what they have in the file.)
const maxFeedToken = 8 << 20

var (
	errToken   = fmt.Errorf("it has a tag, text or comment of more than %d bytes", maxToken)
	errCharset = errors.New("its XML declaration names another encoding; want UTF-8, which the protocol requires")
)

// A tokenReader limits what is read for one token: maxToken of a tag, and most of all others.
type tokenReader struct {
	*bufio.Reader
	most int
	n    int   // bytes of this token
	tag  bool  // it is a tag: "<" without "!"
	last byte  // what was read last
	err  error // why reading ended
}

// begin begins a token. Of a text, the decoder has read the "<" behind it, too.
func (t *tokenReader) begin(most int) { t.most, t.n, t.tag = most, 0, t.last == '<' }

func (t *tokenReader) ReadByte() (c byte, err error) {
	if t.n >= t.most || t.tag && t.n >= maxToken {
		t.err = errToken
		return 0, t.err
	}
	c, t.err = t.Reader.ReadByte()
	switch {
	case t.n == 0 && c == '<':
		t.tag = true
	case t.last == '<' && c == '!': // a comment, a directive or CDATA
		t.tag = false
	}
	t.n++
	t.last = c
	return c, t.err
}

// xml reads a sitemap or an index. It does not use Decoder.Token, which keeps all namespaces of all
// open elements. An element is one of the protocol if it has the same prefix as the root element.
func (p *parser) xml(in *bufio.Reader) error {
	tokens := &tokenReader{Reader: in}
	d := xml.NewDecoder(tokens) // uses ReadByte only
	d.CharsetReader = func(charset string, in io.Reader) (io.Reader, error) {
		switch strings.ToLower(charset) {
		case "utf8", "us-ascii", "ascii": // parts, and other names, of UTF-8
			return in, nil
		}
		return nil, errCharset
	}
	var open []xml.Name // elements
	var kind *format
	var url, modified string
	hasOthers := false     // elements that are no entries
	hasPrefix := false     // entries that bind another prefix than the root element's to the protocol
	var text *bytes.Buffer // of the field that is open
	// isIn reports whether an element of the protocol is the innermost one, at its depth.
	isIn := func(depth int, name string) bool {
		return len(open) == depth && open[depth-1] == xml.Name{Space: open[0].Space, Local: name}
	}
	for n := 0; ; n++ {
		if n%1000 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		most := maxToken
		if kind != nil && kind.isFeed {
			most = maxFeedToken
		}
		tokens.begin(most)
		token, err := d.RawToken()
		switch {
		case err == nil:
		case err == io.EOF && len(open) == 0 && kind != nil:
			if hasOthers && p.entries == 0 && !kind.isFeed {
				return fmt.Errorf("none of its elements is a %s of the protocol, with the prefix of the root element%s", kind.entry,
					p.about())
			}
			if hasPrefix && !kind.isFeed {
				return fmt.Errorf("some of its %s elements have another prefix than the root element, and are not read", kind.entry)
			}
			return nil
		case errors.Is(err, errCharset):
			return errCharset
		case tokens.err != nil && tokens.err != io.EOF:
			return tokens.err
		default:
			return p.xmlError(d, err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if open = append(open, t.Name); len(open) > maxDepth {
				return fmt.Errorf("its elements are nested more than %d deep", maxDepth)
			}
			switch {
			case len(open) == 1 && kind != nil:
				line, _ := d.InputPos()
				return fmt.Errorf("something is behind the end of its root element, at line %d", line)
			case len(open) == 1:
				if kind = formats[t.Name.Local]; kind == nil {
					return fmt.Errorf("its root element is not one of a sitemap (urlset, sitemapindex, rss or feed)%s", p.about())
				}
			case isIn(kind.depth, kind.entry):
				url, modified = "", ""
			case len(open) == kind.depth:
				hasOthers, hasPrefix = true, hasPrefix || t.Name.Local == kind.entry && isProtocol(t.Attr, t.Name.Space)
			case kind.isURLInAttribute && isIn(kind.depth+1, kind.url):
				url = cmp.Or(url, alternate(t.Attr))
			case isIn(kind.depth+1, kind.url), slices.ContainsFunc(kind.modified,
				func(name string) bool { return isIn(kind.depth+1, name) }):
				text = new(bytes.Buffer)
			}
		case xml.CharData:
			if text != nil && len(open) == kind.depth+1 {
				text.Write(t[:min(len(t), maxText+1-text.Len())]) // one byte too many shows that it is too long
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != t.Name {
				return p.xmlError(d, nil)
			}
			switch {
			case text != nil && isIn(kind.depth+1, kind.url):
				url, text = cmp.Or(url, trimmed(text)), nil
			case text != nil && len(open) == kind.depth+1:
				modified, text = cmp.Or(modified, trimmed(text)), nil
			case isIn(kind.depth, kind.entry):
				if err := p.add(url, modified, kind.isOfSitemaps); err != nil {
					return err
				}
			}
			open = open[:len(open)-1]
		}
	}
}

// trimmed returns a text without white space, which would stay in memory.
func trimmed(text *bytes.Buffer) string { return string(bytes.TrimSpace(text.Bytes())) }

// isProtocol reports whether an element binds its prefix to the protocol's namespace.
func isProtocol(attrs []xml.Attr, prefix string) bool {
	return slices.ContainsFunc(attrs, func(a xml.Attr) bool {
		isOwn := a.Name.Space == "xmlns" && a.Name.Local == prefix ||
			prefix == "" && a.Name.Space == "" && a.Name.Local == "xmlns"
		return isOwn && strings.HasPrefix(a.Value, "http://www.sitemaps.org/schemas/sitemap/")
	})
}

// alternate returns the URL of an Atom link to the page itself, or "".
func alternate(attrs []xml.Attr) (url string) {
	for _, a := range attrs {
		switch {
		case a.Name.Space == "" && a.Name.Local == "rel" && a.Value != "alternate":
			return ""
		case a.Name.Space == "" && a.Name.Local == "href" && len(a.Value) <= maxText:
			url = strings.Clone(strings.TrimSpace(a.Value))
		}
	}
	return url
}

// xmlErrors are the likely causes of errors of encoding/xml, whose texts quote the file, by their beginnings.
var xmlErrors = []struct{ begin, cause string }{
	{"invalid character entity", "an & that begins no entity of XML: write &amp; for each & of a URL"},
	{"illegal character code", "a control character, which XML does not allow"},
	{"invalid UTF-8", "bytes that are not UTF-8"},
	{"unexpected EOF", "it ends too early"},
	{"unescaped < inside", "a < in an attribute: write &lt;"},
}

// xmlError returns an error of the XML. If err is nil, an end tag does not fit.
func (p *parser) xmlError(d *xml.Decoder, err error) error {
	line, _ := d.InputPos()
	cause := ""
	if err == nil {
		cause = ": an end tag that does not belong to the open element"
	}
	if syntax := (*xml.SyntaxError)(nil); errors.As(err, &syntax) {
		for _, e := range xmlErrors {
			if strings.HasPrefix(syntax.Msg, e.begin) {
				cause = ": " + e.cause
			}
		}
	}
	return fmt.Errorf("its XML has an error at line %d%s%s", line, cause, p.about())
}

var isURL = regexp.MustCompile(`^(?i:https?://)`)

// lines calls f with each line, without the space around it. Lines end in a line feed, a carriage return or both,
// as RFC 9309 has it for robots.txt.
func (p *parser) lines(in io.Reader, f func(line string) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxText)
	lines.Split(func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		switch i := bytes.IndexAny(data, "\r\n"); {
		case i < 0:
		case data[i] == '\r' && i+1 == len(data) && !atEOF:
			return 0, nil, nil // perhaps a line feed follows
		case data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n':
			return i + 2, data[:i], nil
		default:
			return i + 1, data[:i], nil
		}
		return bufio.ScanLines(data, atEOF)
	})
	for n := 0; lines.Scan(); n++ {
		if n%1000 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		if err := f(strings.TrimSpace(lines.Text())); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("it has a line of more than %d bytes%s", maxText, p.about())
	}
	return lines.Err()
}

// text reads a list of URLs.
func (p *parser) text(in *bufio.Reader) error {
	defer func() { p.line = 0 }()
	return p.lines(in, func(line string) error {
		switch p.line++; {
		case line == "":
			return nil
		case !isURL.MatchString(line) && p.entries == 0:
			return fmt.Errorf("it is neither XML nor a list of URLs%s", p.about())
		}
		return p.add(line, "", false)
	})
}

// robots reads the lines of robots.txt that name sitemaps, https://www.sitemaps.org/protocol.html#submit_robots
func (p *parser) robots(in *bufio.Reader) error {
	err := p.lines(in, func(line string) error {
		field, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(strings.TrimSpace(field), "sitemap") {
			return nil
		}
		value, _, _ = strings.Cut(strings.ReplaceAll(value, "\t", " "), " #")
		return p.add(strings.TrimSpace(value), "", true)
	})
	if err == nil && p.entries == 0 {
		return errors.New("it names no sitemap")
	}
	return err
}
