package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/html/charset"
)

// A content is what a file lists: pages, or sitemaps if it is a sitemap index.
type content struct{ pages, sitemaps []entry }

// An entry is a page or a sitemap of a file.
type entry struct{ url, modified string }

const (
	maxEntries = 50_000 // of a sitemap or an index: https://www.sitemaps.org/protocol.html
	maxDepth   = 100    // of elements; feeds contain HTML
	maxText    = 10_000 // bytes of a URL or a date
)

var errTooMany = fmt.Errorf("it has more than %d entries", maxEntries)

// Pages returns the URLs in a sitemap or feed, as they are written there. It is for files that
// are not on the web. A sitemap index is an error.
func Pages(file io.Reader) (urls []string, err error) {
	data, err := New(Config{}).read(file)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	c, err := parse(context.Background(), data)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	if len(c.sitemaps) > 0 {
		return nil, errors.New("changes: it is a sitemap index; use its sitemaps")
	}
	for _, p := range c.pages {
		urls = append(urls, p.url)
	}
	return urls, nil
}

// parse parses a sitemap, a sitemap index, a feed, or a text file with a URL on each line.
func parse(ctx context.Context, data []byte) (content, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\uFEFF")))
	switch {
	case len(data) == 0:
		return content{}, errors.New("it is empty")
	case data[0] == '{':
		return parseJSONFeed(data)
	case data[0] != '<':
		return parseText(data)
	}
	return parseXML(ctx, data)
}

// The elements that list a page or a sitemap, by the root element: those of the protocol of
// sitemaps, RSS 2.0 and 1.0, and Atom (RFC 4287).
var entryOf = map[string]string{"urlset": "url", "sitemapindex": "sitemap", "rss": "item", "RDF": "item", "feed": "entry"}

// dublinCore is the namespace of the date in RSS 1.0.
const dublinCore = "http://purl.org/dc/elements/1.1/"

// parseXML does not use a library for feeds: those that exist need a stack as deep as the file
// nests, and time or memory in its square. Other people's feeds can nest a million elements in
// some kilobytes.
func parseXML(ctx context.Context, data []byte) (c content, err error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	d.CharsetReader = charset.NewReaderLabel
	d.Entity = xml.HTMLEntity // some feeds have &nbsp;
	var root, name, space string
	var fields map[string]string // of the entry that is open
	depth, entryDepth := 0, 0
	text, field := "", ""
	for n := 0; ; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return content{}, ctx.Err()
		}
		token, err := d.Token()
		switch {
		case err != nil && root == "":
			return content{}, fmt.Errorf("it is not XML: %w", err)
		case err == io.EOF:
			return c, nil
		case err != nil:
			return content{}, fmt.Errorf("its XML has an error: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return content{}, fmt.Errorf("its elements are nested more than %d deep", maxDepth)
			}
			switch {
			case depth == 1:
				if root = t.Name.Local; entryOf[root] == "" {
					return content{}, fmt.Errorf("its root element is %.50q; want a sitemap (urlset or sitemapindex) or a feed (rss, RDF or feed)", root)
				}
				name = entryOf[root]
			case fields == nil && t.Name.Local == name && depth <= 3: // rss has a channel between them
				fields, entryDepth, space = make(map[string]string), depth, t.Name.Space
			case fields != nil && depth == entryDepth+1 && (t.Name.Space == space || t.Name.Space == dublinCore):
				field, text = t.Name.Local, ""
				addAttributes(fields, t)
			}
		case xml.CharData:
			if field != "" && depth == entryDepth+1 && len(text) <= maxText {
				text += string(t[:min(len(t), maxText+1)])
			}
		case xml.EndElement:
			switch {
			case field != "" && depth == entryDepth+1:
				if text = strings.TrimSpace(text); fields[field] == "" {
					fields[field] = text
				}
				field = ""
			case fields != nil && depth == entryDepth:
				e := entry{url: or(fields["loc"], fields["link"], fields["guid"]), modified: normalize(or(fields["lastmod"], fields["updated"], fields["published"], fields["pubDate"], fields["date"]))}
				switch {
				case name == "sitemap":
					c.sitemaps = append(c.sitemaps, e)
				case e.url != "" || root == "urlset": // some items of feeds have only text
					c.pages = append(c.pages, e)
				}
				if len(c.pages)+len(c.sitemaps) > maxEntries {
					return content{}, errTooMany
				}
				fields = nil
			}
			depth--
		}
	}
}

// addAttributes adds the fields that are in attributes: Atom's link to the page itself, and whether
// an RSS guid is a URL.
func addAttributes(fields map[string]string, t xml.StartElement) {
	attribute := func(name string) string {
		for _, a := range t.Attr {
			if a.Name.Local == name && a.Name.Space == "" {
				return a.Value
			}
		}
		return ""
	}
	switch rel := attribute("rel"); {
	case t.Name.Local == "link" && (rel == "" || rel == "alternate") && fields["link"] == "":
		fields["link"] = strings.TrimSpace(attribute("href"))
	case t.Name.Local == "guid" && attribute("isPermaLink") == "false":
		fields["guid"] = " " // not empty, so that its text is ignored
	}
}

// or returns the first text that is not only white space.
func or(texts ...string) string {
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			return text
		}
	}
	return ""
}

// normalize returns a lastmod, which is a W3C date (https://www.w3.org/TR/NOTE-datetime), or the
// date of RSS (RFC 822), in UTC if it has a time. Anything else is returned as it is.
func normalize(lastMod string) string {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.RFC1123Z, time.RFC1123, "Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 MST", "2 Jan 2006 15:04:05 -0700"} {
		if at, err := time.Parse(layout, lastMod); err == nil {
			return at.UTC().Format(time.RFC3339Nano)
		}
	}
	return lastMod
}

// hasTime reports whether a lastmod is a date with a time.
func hasTime(lastMod string) bool {
	_, err := time.Parse(time.RFC3339, lastMod)
	return err == nil
}

// isLater reports whether a lastmod is later than another one. A date is as late as any time of its
// day. If one of them is neither, it is later if it is another.
func isLater(lastMod, than string) bool {
	const day = len("2006-01-02")
	_, err1 := time.Parse("2006-01-02", lastMod[:min(day, len(lastMod))])
	_, err2 := time.Parse("2006-01-02", than[:min(day, len(than))])
	if err1 != nil || err2 != nil {
		return lastMod != "" && lastMod != than
	}
	if !hasTime(lastMod) || !hasTime(than) {
		return lastMod[:day] > than[:day]
	}
	at1, _ := time.Parse(time.RFC3339, lastMod)
	at2, _ := time.Parse(time.RFC3339, than)
	return at1.After(at2)
}

func parseText(data []byte) (c content, err error) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !strings.HasPrefix(line, "https://") && !strings.HasPrefix(line, "http://") {
			return content{}, fmt.Errorf("it is neither XML nor a list of URLs: it has the line %.100q", line)
		}
		if c.pages = append(c.pages, entry{url: line}); len(c.pages) > maxEntries {
			return content{}, errTooMany
		}
	}
	return c, nil
}

// parseJSONFeed parses a JSON Feed (https://www.jsonfeed.org/version/1.1/).
func parseJSONFeed(data []byte) (c content, err error) {
	var feed struct {
		Version string `json:"version"`
		Items   []struct {
			URL       string `json:"url"`
			Modified  string `json:"date_modified"`
			Published string `json:"date_published"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &feed); err != nil {
		return content{}, fmt.Errorf("it is not a JSON Feed: %w", err)
	}
	if !strings.Contains(feed.Version, "jsonfeed.org") {
		return content{}, errors.New("it is not a JSON Feed: want a version of jsonfeed.org")
	}
	if len(feed.Items) > maxEntries {
		return content{}, errTooMany
	}
	for _, item := range feed.Items {
		if url := strings.TrimSpace(item.URL); url != "" {
			c.pages = append(c.pages, entry{url, normalize(or(item.Modified, item.Published))})
		}
	}
	return c, nil
}
