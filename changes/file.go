package changes

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"
	"golang.org/x/net/html/charset"
)

// A fetched is the answer to a request for a file.
type fetched struct {
	data        []byte // not compressed
	notModified bool   // as the last time
	state       File
}

// fetch fetches a file, unless it is the same as the last time.
func (r *Reader) fetch(ctx context.Context, file string, known File) (fetched, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file, nil)
	if err != nil {
		return fetched{}, err
	}
	request.Header.Set("User-Agent", r.cfg.UserAgent)
	for header, value := range map[string]string{"If-None-Match": known.ETag, "If-Modified-Since": known.LastModified} {
		if value != "" {
			request.Header.Set(header, value)
		}
	}
	resp, err := r.http.Do(request)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which Error has
	}
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return fetched{notModified: true, state: known}, nil
	case http.StatusOK:
	default:
		return fetched{}, fmt.Errorf("the answer is %d; want 200", resp.StatusCode)
	}
	data, err := r.read(resp.Body)
	return fetched{data: data, state: File{ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}}, err
}

// read reads a file, and decompresses it.
func (r *Reader) read(body io.Reader) ([]byte, error) {
	buffered := bufio.NewReader(body)
	body = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" { // a file such as sitemap.xml.gz
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		body = unzipped
	}
	data, err := io.ReadAll(io.LimitReader(body, r.cfg.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > r.cfg.MaxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", r.cfg.MaxBytes)
	}
	return data, nil
}

// A content is what a file lists: pages, or sitemaps if it is a sitemap index.
type content struct{ pages, sitemaps []entry }

// An entry is a page or a sitemap of a file.
type entry struct{ url, modified string }

// Pages returns the URLs in a sitemap or feed, as they are written there. It is for files that
// are not on the web. A sitemap index is an error.
func Pages(file io.Reader) (urls []string, err error) {
	data, err := New(Config{}).read(file)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	c, err := parse(data)
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
func parse(data []byte) (content, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\uFEFF")))
	switch {
	case len(data) == 0:
		return content{}, errors.New("it is empty")
	case data[0] == '{':
		return parseFeed(data)
	case data[0] != '<':
		return parseText(data)
	}
	decoder := newDecoder(data)
	for {
		token, err := decoder.Token()
		if err != nil {
			return content{}, fmt.Errorf("it is not XML: %w", err)
		}
		if root, ok := token.(xml.StartElement); ok {
			switch root.Name.Local {
			case "urlset", "sitemapindex":
				return parseSitemap(decoder)
			case "rss", "RDF", "feed":
				return parseFeed(data)
			}
			return content{}, fmt.Errorf("its root element is %.50q; want a sitemap (urlset or sitemapindex) or a feed (rss, RDF or feed)", root.Name.Local)
		}
	}
}

func newDecoder(data []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(data))
	d.CharsetReader = charset.NewReaderLabel
	return d
}

// parseSitemap parses what is in the root element.
func parseSitemap(d *xml.Decoder) (c content, err error) {
	for {
		token, err := d.Token()
		if err != nil {
			return content{}, fmt.Errorf("its XML has an error: %w", err)
		}
		switch element := token.(type) {
		case xml.EndElement:
			return c, nil
		case xml.StartElement:
			var fields struct {
				Loc     string `xml:"loc"`
				LastMod string `xml:"lastmod"`
			}
			if err := d.DecodeElement(&fields, &element); err != nil {
				return content{}, fmt.Errorf("its XML has an error: %w", err)
			}
			e := entry{strings.TrimSpace(fields.Loc), normalize(fields.LastMod)}
			switch element.Name.Local {
			case "url":
				c.pages = append(c.pages, e)
			case "sitemap":
				c.sitemaps = append(c.sitemaps, e)
			}
		}
	}
}

// normalize returns a lastmod, which is a W3C date (https://www.w3.org/TR/NOTE-datetime), in UTC if
// it has a time. Anything else is returned as it is, and the page has changed if it differs from
// before.
func normalize(lastMod string) string {
	lastMod = strings.TrimSpace(lastMod)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if at, err := time.Parse(layout, lastMod); err == nil {
			return at.UTC().Format(time.RFC3339Nano)
		}
	}
	return lastMod
}

func parseText(data []byte) (c content, err error) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !strings.HasPrefix(line, "https://") && !strings.HasPrefix(line, "http://") {
			return content{}, fmt.Errorf("it is neither XML nor a list of URLs: it has the line %.100q", line)
		}
		c.pages = append(c.pages, entry{url: line})
	}
	return c, nil
}

func parseFeed(data []byte) (c content, err error) {
	feed, err := gofeed.NewParser().Parse(bytes.NewReader(data))
	if err != nil {
		return content{}, fmt.Errorf("it is not a feed: %w", err)
	}
	for _, item := range feed.Items {
		modified := item.Published
		if item.PublishedParsed != nil {
			modified = item.PublishedParsed.UTC().Format(time.RFC3339Nano)
		}
		if item.UpdatedParsed != nil {
			modified = item.UpdatedParsed.UTC().Format(time.RFC3339Nano)
		} else if item.Updated != "" {
			modified = item.Updated
		}
		if link := strings.TrimSpace(item.Link); link != "" { // some items have only text
			c.pages = append(c.pages, entry{link, modified})
		}
	}
	return c, nil
}
