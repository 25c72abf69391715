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
	"strings"
)

// An entry is a page or a sitemap of a file.
type entry struct {
	url, modified string
	isSitemap     bool
	index         int // in the file
}

// place returns the place of an entry in its file, such as "url[3]".
func (e entry) place() string {
	if e.isSitemap {
		return fmt.Sprintf("sitemap[%d]", e.index)
	}
	return fmt.Sprintf("url[%d]", e.index)
}

// All limits are checked before memory is taken for what is beyond them.
const (
	maxEntries = 50_000   // of a sitemap or an index: https://www.sitemaps.org/protocol.html
	maxToken   = 64 << 10 // bytes of a tag with its attributes, of a text between tags, or of a comment
	maxDepth   = 100      // of elements
	maxText    = 10_000   // bytes of a URL or a date
)

// Pages returns the URLs in a sitemap, as they are written there. It is for programs that
// read pages and do not announce them, such as pages of a development server with a port. A sitemap index is an error.
func Pages(file io.Reader) (urls []string, err error) {
	err = parse(context.Background(), file, "", defaultMaxBytes, false, func(e entry) error {
		if e.isSitemap {
			return errors.New("it is a sitemap index; use its sitemaps")
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
func parse(ctx context.Context, file io.Reader, mediaType string, maxBytes int64, isRobots bool, found func(entry) error) error {
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
	switch {
	case isRobots && first != '<':
		return p.robots(buffered)
	case first == '<':
		return p.xml(buffered)
	}
	return p.text(buffered)
}

// A parser reads the entries of one file.
type parser struct {
	ctx     context.Context
	found   func(entry) error
	about   func() string // what an error says about the file
	entries int
}

// add passes on an entry.
func (p *parser) add(url, modified string, isSitemap bool) error {
	if p.entries == maxEntries {
		return fmt.Errorf("it has more than %d entries", maxEntries)
	}
	p.entries++
	return p.found(entry{url, normalize(modified), isSitemap, p.entries - 1})
}

// entryOf has the elements that list a page or a sitemap, by the root element.
var entryOf = map[string]string{"urlset": "url", "sitemapindex": "sitemap"}

var (
	errToken   = fmt.Errorf("it has a tag, text or comment of more than %d bytes", maxToken)
	errCharset = errors.New("it is not UTF-8, which the protocol requires")
)

// A tokenReader limits what is read for one token.
type tokenReader struct {
	*bufio.Reader
	left int
	err  error // why reading ended
}

func (t *tokenReader) ReadByte() (c byte, err error) {
	if t.left == 0 {
		t.err = errToken
		return 0, t.err
	}
	t.left--
	c, t.err = t.Reader.ReadByte()
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
	var kind string     // of the entries
	var url, modified string
	hasOthers := false     // elements that are no entries
	var text *bytes.Buffer // of the field that is open
	// isIn reports whether an element of the protocol is the innermost one, at its depth.
	isIn := func(depth int, name string) bool {
		return len(open) == depth && open[depth-1] == xml.Name{Space: open[0].Space, Local: name}
	}
	for n := 0; ; n++ {
		if n%1000 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		tokens.left = maxToken
		token, err := d.RawToken()
		switch {
		case err == nil:
		case err == io.EOF && len(open) == 0 && kind != "":
			if hasOthers && p.entries == 0 {
				return fmt.Errorf("none of its elements is a %s of the protocol, with the prefix of the root element%s", kind, p.about())
			}
			return nil
		case errors.Is(err, errCharset):
			return errCharset
		case tokens.err != nil && tokens.err != io.EOF:
			return tokens.err
		default:
			return p.xmlError(d)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if open = append(open, t.Name); len(open) > maxDepth {
				return fmt.Errorf("its elements are nested more than %d deep", maxDepth)
			}
			switch {
			case len(open) == 1 && kind != "":
				line, _ := d.InputPos()
				return fmt.Errorf("something is behind the end of its root element, at line %d", line)
			case len(open) == 1:
				if kind = entryOf[t.Name.Local]; kind == "" {
					return fmt.Errorf("its root element is not that of a sitemap (urlset or sitemapindex)%s", p.about())
				}
			case isIn(2, kind):
				url, modified = "", ""
			case len(open) == 2:
				hasOthers = true
			case isIn(3, "loc"), isIn(3, "lastmod"):
				text = new(bytes.Buffer)
			}
		case xml.CharData:
			if text != nil && len(open) == 3 {
				text.Write(t[:min(len(t), maxText+1-text.Len())]) // one byte too many shows that it is too long
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != t.Name {
				return p.xmlError(d)
			}
			switch {
			case text != nil && isIn(3, "loc"):
				url, text = cmp.Or(url, trimmed(text)), nil
			case text != nil && isIn(3, "lastmod"):
				modified, text = cmp.Or(modified, trimmed(text)), nil
			case isIn(2, kind):
				if err := p.add(url, modified, kind == "sitemap"); err != nil {
					return err
				}
			}
			open = open[:len(open)-1]
		}
	}
}

// trimmed returns a text without white space, which would stay in memory.
func trimmed(text *bytes.Buffer) string { return string(bytes.TrimSpace(text.Bytes())) }

// xmlError returns an error of the XML. Those of encoding/xml quote the file.
func (p *parser) xmlError(d *xml.Decoder) error {
	line, _ := d.InputPos()
	return fmt.Errorf("its XML has an error at line %d%s", line, p.about())
}

var isURL = regexp.MustCompile(`^(?i:https?://)`)

// text reads a list of URLs.
func (p *parser) text(in *bufio.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxText)
	for lines.Scan() {
		if p.entries%1000 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
			continue
		case !isURL.MatchString(line):
			return fmt.Errorf("it is neither XML nor a list of URLs%s", p.about())
		}
		if err := p.add(line, "", false); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("it has a line of more than %d bytes%s", maxText, p.about())
	}
	return lines.Err()
}

// robots reads the lines of robots.txt that name sitemaps, https://www.sitemaps.org/protocol.html#submit_robots
func (p *parser) robots(in *bufio.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxText)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		if !strings.EqualFold(strings.TrimSpace(field), "sitemap") {
			continue
		}
		value, _, _ = strings.Cut(value, " #")
		if err := p.add(strings.TrimSpace(value), "", true); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("it has a line of more than %d bytes%s", maxText, p.about())
	}
	if lines.Err() == nil && p.entries == 0 {
		return errors.New("it names no sitemap")
	}
	return lines.Err()
}
