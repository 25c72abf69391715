package sitemap_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/sitemap"
	"github.com/ampcors/ampcors/internal/servertest"
)

// A site serves files, each with an ETag.
type site struct {
	mu    sync.Mutex
	files map[string]string
	asked []string // paths, with " 304" after those that were not sent
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.files[r.URL.Path]
	if target, isRedirect := strings.CutPrefix(text, "->"); isRedirect {
		http.Redirect(w, r, target, http.StatusMovedPermanently)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		s.asked = append(s.asked, r.URL.Path+" 304")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.asked = append(s.asked, r.URL.Path)
	_, _ = io.WriteString(w, text)
}

func newReader(t *testing.T, s *site, cfg sitemap.Config) *sitemap.Reader {
	cfg.HTTPClient = servertest.Loopback(t, s)
	return sitemap.New(cfg)
}

const home = "https://www.example.com"

// urlset returns a sitemap. An entry is a path, or a path, a space and its lastmod.
func urlset(entries ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" ` +
		`xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">`)
	for _, e := range entries {
		path, lastMod, hasLastMod := strings.Cut(e, " ")
		fmt.Fprintf(&b, "\n<url><loc>\n %s%s </loc><image:image><image:loc>%s/x.png</image:loc></image:image>", home, path, home)
		if hasLastMod {
			fmt.Fprintf(&b, "<lastmod>%s</lastmod>", lastMod)
		}
		b.WriteString("</url>")
	}
	return b.String() + "</urlset>"
}

// index returns a sitemap index. Its entries are as those of urlset.
func index(entries ...string) string {
	return strings.NewReplacer("urlset", "sitemapindex", "<url>", "<sitemap>", "</url>", "</sitemap>").Replace(urlset(entries...))
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// update updates the state, and returns the paths of the pages to announce. Before that, the state is written
// and read as JSON, so that nothing is lost if a program ends before it has announced a page.
func update(t *testing.T, r *sitemap.Reader, s *sitemap.State, path string) []string {
	t.Helper()
	data, err := json.Marshal(s)
	*s = sitemap.State{}
	if err := errors.Join(err, json.Unmarshal(data, s)); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), s, home+path); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return pending(s)
}

func pending(s *sitemap.State) (paths []string) {
	for _, u := range s.PendingURLs() {
		paths = append(paths, strings.TrimPrefix(u, home))
	}
	return paths
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestNewAndChangedPagesAreFound(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": urlset("/a 2026-11-22T10:00:00Z", "/b", "/c 2026-11-22", "/d?x=1&amp;y=%7e")}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	if !s.IsNew() {
		t.Error("the zero State is not new")
	}
	want(t, update(t, r, &s, "/s.xml"), "/a", "/b", "/c", "/d?x=1&y=~")
	if s.IsNew() {
		t.Error("a State with pages is new")
	}
	s.Done(home+"/a", home+"/b", home+"/c", home+"/d?x=1&y=~", home+"/never-seen")
	want(t, update(t, r, &s, "/s.xml"))

	web.files["/s.xml"] = urlset("/a 2026-11-22T11:00:00+01:00", "/b", "/c 2026-11-23", "/e", "/") // the same time in another zone
	want(t, update(t, r, &s, "/s.xml"), "/", "/c", "/e")
	s.Done(home + "/c")
	want(t, update(t, r, &s, "/s.xml"), "/", "/e") // until they are done

	web.files["/s.xml"] = urlset("/a 2026-11-22T11:00+01:00", "/b 2026-11-24", "/c 2026-11-22", "/e") // an earlier date is no change
	want(t, update(t, r, &s, "/s.xml"), "/", "/b", "/e")
}

func TestTheSitemapsOfAnIndexAreRead(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/index.xml":    index("/timed.xml.gz 2026-11-22T10:00:00Z", "/dated.xml 2026-11-22", "/odd.xml {{DATE}}", "/plain.xml"),
		"/odd.xml":      urlset("/o"),
		"/timed.xml.gz": zipped(urlset("/a", "/b")),
		"/dated.xml":    urlset("/c 2026-11-22"),
		"/plain.xml":    urlset("/d"),
	}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	want(t, update(t, r, &s, "/index.xml"), "/a", "/b", "/c", "/d", "/o")
	s.Done(s.PendingURLs()...)
	web.asked = nil
	want(t, update(t, r, &s, "/index.xml"))
	want(t, web.asked, "/index.xml", "/dated.xml 304", "/odd.xml 304", "/plain.xml 304")

	web.files["/index.xml"] = index("/timed.xml.gz 2026-11-22T11:00:00Z", "/dated.xml 2026-11-22", "/plain.xml")
	web.files["/timed.xml.gz"] = zipped(urlset("/a", "/b", "/e"))
	web.files["/dated.xml"] = urlset("/c 2026-11-22", "/f") // again on the same day
	want(t, update(t, r, &s, "/index.xml"), "/e", "/f")
}

// A file that fails is read again, and does not affect the others.
func TestAFileThatFailsIsReadAgain(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/index.xml":  index("/a.xml 2026-11-22T10:00:00Z", "/b.xml 2026-11-22T10:00:00Z", "/nested.xml"),
		"/a.xml":      urlset("/a")[:100] + "<url><loc>" + home + "/half</loc></url>",
		"/b.xml":      urlset("/b"),
		"/nested.xml": index("/c.xml"),
	}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	err := r.Update(t.Context(), &s, home+"/index.xml")
	for _, text := range []string{"/a.xml: ", "/nested.xml: it is a sitemap index in a sitemap index"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %s", err, text)
		}
	}
	want(t, pending(&s), "/b")
	web.files["/a.xml"] = urlset("/a")
	_ = r.Update(t.Context(), &s, home+"/index.xml")
	want(t, pending(&s), "/a", "/b")
}

// Elements of the protocol may have a prefix. Those of other protocols are no pages.
func TestElementsAreKnownByThePrefixOfTheRoot(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": `<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" ` +
		`xmlns:x="x"><s:url><x:loc>` + home +
		`/x</x:loc><s:loc><![CDATA[` + home + `/a?b&]]>c</s:loc><s:lastmod> 2026 </s:lastmod><x:lastmod>2027</x:lastmod></s:url>` +
		`<x:url><x:loc>` + home + `/y</x:loc></x:url><x:more><s:url><s:loc>` + home + `/z</s:loc></s:url></x:more></s:urlset>`}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	want(t, update(t, r, &s, "/s.xml"), "/a?b&c")
	if s.Pending[home+"/a?b&c"] != "2026" {
		t.Errorf("%q", s.Pending)
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/empty.xml": " \n",
		"/page":      "<!DOCTYPE html><html></html>",
		"/text":      "not a URL",
		"/xml":       "<urlset><url>",
		"/cut.gz":    zipped(urlset("/a"))[:40],
		"/not.gz":    "\x1f\x8b not gzip",
		"/loop":      "->/loop",
		"/latin":     `<?xml version="1.0" encoding="ISO-8859-1"?><urlset/>`,
		"/ends.xml":  "<urlset></urlset></urlset>",
		"/more.xml":  "<urlset></urlset>\n<div>",
		"/other.xml": "<urlset><url></loc></urlset>",
	}}
	r := newReader(t, web, sitemap.Config{MaxBytes: 1000})
	for file, text := range map[string]string{
		home + "/missing":   "the answer is 404; want 200",
		home + "/empty.xml": "it is empty",
		home + "/page": "its root element is not one of a sitemap (urlset, sitemapindex, rss or feed); its media type is text/html, and " +
			"28 bytes were read",
		home + "/text":      "it is neither XML nor a list of URLs; its media type is text/plain, and 9 bytes were read",
		home + "/xml":       "its XML has an error at line 1",
		home + "/ends.xml":  "its XML has an error at line 1",
		home + "/more.xml":  "something is behind the end of its root element, at line 2",
		home + "/other.xml": "its XML has an error at line 1",
		home + "/latin":     "its XML declaration names another encoding",
		home + "/cut.gz":    "unexpected EOF",
		home + "/not.gz":    "gzip: ",
		home + "/loop":      "it redirects ten times",
		"www.example.com":   "is not the URL of a file",
		"file:///etc/hosts": "is not the URL of a file",
	} {
		var s sitemap.State
		err := r.Update(t.Context(), &s, file)
		if problem := (*sitemap.Error)(nil); !errors.As(err, &problem) || problem.File != file || !strings.Contains(err.Error(), text) ||
			!s.IsNew() {
			t.Errorf("%s: %v, %+v; want %s", file, err, s, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Update(ctx, new(sitemap.State), home+"/xml"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Two files, or one, may have several lastmods of a page, of which some are no dates: each run sees all of them, and none is a change.
func TestSeveralLastModsOfAPageAreNoChange(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{}}
	r := newReader(t, web, sitemap.Config{})
	for name, texts := range map[string][]string{
		"no dates":           {"2017-1-3", "2017-1-4"},
		"a date and no date": {"2013-12-21T02:58:00+00:00", "-0001-11-30T00:00:00+00:00"},
		"in the other order": {"-0001-11-30T00:00:00+00:00", "2013-12-21T02:58:00+00:00"},
		"three":              {"a", "b", "c"},
		"twelve":             strings.Fields("a b c d e f g h i j k l"),
	} {
		t.Run(name, func(t *testing.T) {
			var s sitemap.State
			file := func(texts ...string) string {
				text := ""
				for _, lastMod := range texts {
					text += "<url><loc>" + home + "/a</loc><lastmod>" + lastMod + "</lastmod></url>"
				}
				return "<urlset>" + text + "</urlset>"
			}
			announced := func(texts ...string) bool {
				t.Helper()
				web.files["/s.xml"] = file(texts...)
				if err := r.Update(t.Context(), &s, home+"/s.xml"); err != nil {
					t.Error(err)
				}
				urls := s.PendingURLs()
				s.Done(urls...)
				return len(urls) > 0
			}
			if !announced(texts...) {
				t.Error("a new page is not announced")
			}
			for range 3 {
				if announced(texts...) {
					t.Error("it is announced again")
				}
			}
			if !announced(append(texts[1:], "2026-11-26T10:00:00Z")...) {
				t.Error("a change is not announced")
			}
			if announced(append(texts[1:], "2026-11-26T10:00:00Z")...) {
				t.Error("and it is announced again")
			}
			if !announced("2026-11-26T11:00:00Z") {
				t.Error("a later date is not announced")
			}
		})
	}
}

func TestAnUnaskedNotModifiedIsAnError(t *testing.T) {
	t.Parallel()
	r := sitemap.New(sitemap.Config{HTTPClient: servertest.Loopback(t,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }))})
	var s sitemap.State
	if err := r.Update(t.Context(), &s, home+"/a.xml"); err == nil || !strings.Contains(err.Error(), "the answer is 304; want 200") ||
		!s.IsNew() {
		t.Errorf("%v", err)
	}
}

func TestAWrongContentEncodingIsNamed(t *testing.T) {
	t.Parallel()
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "<urlset><url><loc>https://www.example.com/1</loc></url></urlset>")
	})
	r := sitemap.New(sitemap.Config{HTTPClient: servertest.Loopback(t, server)})
	if err := r.Update(t.Context(), new(sitemap.State), home+"/a.xml"); err == nil ||
		!strings.Contains(err.Error(), "its Content-Encoding is gzip, but it is not compressed with gzip") {
		t.Error(err)
	}
}

// What an error has of a redirect is bounded: an index may have 50,000 files that redirect.
func TestARedirectToALongURLKeepsLittle(t *testing.T) {
	t.Parallel()
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://other.example/"+strings.Repeat("a", 60_000), http.StatusFound)
	})
	r := sitemap.New(sitemap.Config{HTTPClient: servertest.Loopback(t, server)})
	err := r.Update(t.Context(), new(sitemap.State), home+"/a.xml")
	if to := (*sitemap.RedirectError)(nil); !errors.As(err, &to) || to.To != "https://other.example" {
		t.Error(err)
	}
}

func TestPagesReturnsTheURLsOfAFile(t *testing.T) {
	t.Parallel()
	if urls, err := sitemap.Pages(strings.NewReader(zipped(urlset("/a", "/b 2026")))); err != nil ||
		!slices.Equal(urls, []string{home + "/a", home + "/b"}) {
		t.Errorf("%q, %v", urls, err)
	}
	for _, text := range []string{"", "\x1f\x8b", "x", index("/a.xml")} {
		if urls, err := sitemap.Pages(strings.NewReader(text)); urls != nil || err == nil || !strings.HasPrefix(err.Error(), "sitemap: ") {
			t.Errorf("%q: %q, %v", text, urls, err)
		}
	}
}

// A file of this machine has no host: its pages may be on any, its sitemaps on Config.Hosts. Otherwise it is read as
// one on the web.
func TestALocalFileHasNoHost(t *testing.T) {
	t.Parallel()
	two := "<urlset><url><loc>https://a.example/1</loc></url><url><loc>https://b.example/2</loc></url>"
	for _, test := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{name: "two hosts", text: two + "</urlset>", want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "gzip", text: zipped(two + "</urlset>"), want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "gzip, and zeros", text: zipped(two+"</urlset>") + strings.Repeat("\x00", 5000),
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "gzip, and a line break", text: zipped(two+"</urlset>") + "\r\n", want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "gzip in three members, with zeros between", text: zipped(two) + "\x00\x00" + zipped("") + zipped("</urlset>") + "\x00",
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "gzip, and a comment", text: zipped(two+"</urlset>") + "<!-- made by x -->",
			want: []string{"https://a.example/1", "https://b.example/2"}, err: "it has other bytes behind the end of its gzip data"},
		{name: "gzip, and a second member that is truncated", text: zipped(two+"</urlset>") + zipped("</urlset>")[:12],
			want: []string{"https://a.example/1", "https://b.example/2"}, err: "unexpected EOF"},
		{name: "truncated", text: two, want: []string{"https://a.example/1", "https://b.example/2"},
			err: "sitemap: dir/x: its XML has an error at line 1"},
		{name: "empty", text: "", err: "sitemap: dir/x: it is empty"},
		{name: "a list", text: "https://a.example/1\nhttps://b.example/2", want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "a list with a mark", text: "\uFEFFhttps://a.example/1\r\n\r\nHTTPS://b.example/2\n",
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "ASCII", text: `<?xml version="1.0" encoding="US-ASCII"?>` + two + "</urlset>",
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "a wrong line between others", text: "https://a.example/1\r\n\r\nb.example/2\r\nhttps://b.example/3",
			want: []string{"https://a.example/1", "https://b.example/3"},
			err:  "line 3 (11 bytes) is not a URL that begins with https:// or http://"},
		{name: "a date behind a URL", text: "https://a.example/1\nhttps://b.example/2 2026-11-28\nhttps://b.example/3\n",
			want: []string{"https://a.example/1", "https://b.example/3"},
			err:  "line 2 (30 bytes) has a space in it; want one URL on a line, and nothing else"},
		{name: "a relative URL", text: "<urlset><url><loc>/1</loc></url></urlset>",
			err: "url[0] (2 bytes) is not a URL that begins with https:// or http://"},
		{name: "a % that escapes nothing", text: "https://a.example/1\nhttps://a.example/100%-cotton", want: []string{"https://a.example/1"},
			err: "line 2 (29 bytes) has a % without two hexadecimal digits after it; want %25 for a percent sign"},
		{name: "a backslash", text: "https://a.example/1\nhttps://a.example\\a", want: []string{"https://a.example/1"},
			err: `line 2 (19 bytes) has a \, which browsers read as /; want / or %5C`},
		{name: "a port", text: "https://a.example:8080/1", err: `line 1 (24 bytes) has the port "…"; want none, or the default`},
		{name: "RSS", text: `<rss version="2.0" ` +
			`xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>T</title><link>https://a.example/</link><atom:link ` +
			`href="https://a.example/feed"/>` +
			`<item><title>a</title><link>https://a.example/1</link><atom:link href="https://a.example/x"/><pubDate>Wed, 25 Nov 2026 09:00:00 ` +
			`+0200</pubDate></item><item><link>https://b.example/2</link></item></channel></rss>`,
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "RSS without an item", text: `<rss version="2.0"><channel><title>T</title></channel></rss>`},
		{name: "Atom", text: `<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://a.example/"/><entry><link rel="edit" ` +
			`href="https://a.example/x"/><link href="https://a.example/1"/><link rel="enclosure" ` +
			`href="https://a.example/y"/><updated>2026-11-25T09:00:00Z</updated></entry>` +
			`<entry><link rel="alternate" href=" https://b.example/2 "/></entry></feed>`,
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "a bare &", text: two + "<url><loc>https://a.example/?a&b</loc></url></urlset>",
			want: []string{"https://a.example/1", "https://b.example/2"}, err: "at line 1: an & that begins no entity of XML: write &amp;"},
		{name: "a no-break space of HTML", text: two + "<url><loc>&nbsp;</loc></url></urlset>",
			want: []string{"https://a.example/1", "https://b.example/2"}, err: "an & that begins no entity of XML"},
		{name: "a control character", text: "<urlset>\n\x01</urlset>", err: "at line 2: a control character, which XML does not allow"},
		{name: "an element that is not closed", text: "<urlset><url></urlset>", err: "an end tag that does not belong to the open element"},
		{name: "a script behind the end", text: two + "</urlset><script>", want: []string{"https://a.example/1", "https://b.example/2"},
			err: "something is behind the end of its root element"},
		{name: "two marks", text: "\uFEFF\uFEFF<urlset/>", err: "it begins with two byte order marks"},
		{name: "U+200B", text: "\u200B<urlset/>", err: "it begins with an invisible character (U+200B"},
		{name: "U+00A0", text: "\u00A0<urlset/>", err: "it begins with an invisible character (U+00A0"},
		{name: "UTF-16", text: "\xff\xfe<\x00u\x00", err: "it is UTF-16; want UTF-8"},
		{name: "UTF-16 without a mark", text: "\x00<\x00u", err: "it is UTF-16; want UTF-8"},
		{name: "a prefix that an entry binds", text: `<urlset ` +
			`xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://a.example/1</loc></url><s:url ` +
			`xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><s:loc>https://a.example/2</s:loc></s:url></urlset>`,
			want: []string{"https://a.example/1"}, err: "some of its url elements have another prefix than the root element, and are not read"},
		{name: "a feed with a long text", text: `<rss><channel><item><link>https://a.example/1</link><description><![CDATA[` +
			strings.Repeat("x", 100_000) + `]]></description></item><item><link>https://b.example/2</link></item></channel></rss>`,
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "a feed with a long text behind a text", text: `<rss><channel><item><link>https://a.example/1</link><description>a<![CDATA[` +
			strings.Repeat("x", 100_000) + `]]></description></item></channel></rss>`, want: []string{"https://a.example/1"}},
		{name: "lines that end in a carriage return", text: "https://a.example/1\rhttps://b.example/2\r",
			want: []string{"https://a.example/1", "https://b.example/2"}},
		{name: "an entry without a URL", text: "<urlset><url><lastmod>2026</lastmod></url></urlset>", err: "url[0] (0 bytes) has no URL"},
		{name: "gzip in gzip", text: zipped(zipped("<urlset/>")), err: "it is compressed with gzip twice"},
		{name: "an index", text: index("/xml"), err: "sitemap[0] (27 bytes) is a sitemap, and is on another host, which is not allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := sitemap.New(sitemap.Config{Open: func(name string) (io.ReadCloser, error) {
				if name != "dir/x" {
					return nil, fs.ErrNotExist
				}
				return io.NopCloser(strings.NewReader(test.text)), nil
			}})
			var s sitemap.State
			err := r.Update(t.Context(), &s, "dir/x")
			if got := s.PendingURLs(); !slices.Equal(got, test.want) || (err != nil) != (test.err != "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v", got, err)
			}
			if err := r.Update(t.Context(), &s, ""); err == nil || !strings.Contains(err.Error(), "is not the URL of a file") {
				t.Error(err)
			}
			if err := r.Update(t.Context(), &s, "dir/y"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "dir/y") {
				t.Error(err)
			}
		})
	}
}

// If a file of the last Update is not given any more, its pages are not gone, unless MaxGone is 1. The State has no password.
func TestPagesOfAFileThatIsNotGivenAreNotGone(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "https://a.example/1", "b": "https://a.example/2"}
	update := func(s *sitemap.State, maxGone float64, names ...string) error {
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(files["b"])), Request: r}, nil
		})}
		return sitemap.New(sitemap.Config{HTTPClient: client, FindGone: true, MaxGone: maxGone, Open: func(name string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(files[name])), nil
		}}).Update(t.Context(), s, names...)
	}
	var s sitemap.State
	if err := update(&s, 0, "a", "https://user:secret@a.example/b.txt"); err != nil {
		t.Fatal(err)
	}
	s.Done(s.PendingURLs()...)
	if text, err := json.Marshal(s); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("%s, %v", text, err)
	}
	for range 2 {
		if err := update(&s, 0, "a"); !errors.Is(err, sitemap.ErrNoneGone) ||
			!strings.Contains(err.Error(), "https://a.example/b.txt was read before") || strings.Contains(err.Error(), "secret") ||
			len(s.PendingURLs()) > 0 {
			t.Errorf("%v, %q", err, s.PendingURLs())
		}
	}
	if err := update(&s, 1, "a"); err != nil || !slices.Equal(s.PendingURLs(), []string{"https://a.example/2"}) {
		t.Errorf("%v, %q", err, s.PendingURLs())
	}
	if err := update(&s, 0, "a"); err != nil {
		t.Error(err)
	}

	// A run that cannot tell holds back what was gone, also for a program that stores the State meanwhile.
	files["a"] = "<urlset>"
	if err := update(&s, 0, "a"); err == nil {
		t.Error("a truncated file is no error")
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var stored sitemap.State
	if err := json.Unmarshal(text, &stored); err != nil || len(stored.Gone) != 1 || len(stored.PendingURLs()) > 0 || len(s.PendingURLs()) > 0 {
		t.Errorf("%s: %q, %q", text, stored.PendingURLs(), s.PendingURLs())
	}
}

// The pages before the end of a truncated gzip file are found. How many that are depends on the version of Go, which may keep a block
// of the file back.
func TestATruncatedGzipFile(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "https://a.example/%x\n", sha256.Sum256([]byte(strconv.Itoa(i))))
	}
	whole := zipped(text.String())
	r := sitemap.New(sitemap.Config{Open: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(whole[:len(whole)*3/4])), nil
	}})
	var s sitemap.State
	err := r.Update(t.Context(), &s, "x.txt.gz")
	if n := len(s.PendingURLs()); n < 10_000 || n >= 20_000 || err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("%d pages, %v", n, err)
	}
}

// Other hosts are read only where Config.Hosts names them, or if the file that was given is on that host.
func TestOtherHostsAreReadOnlyIfNamed(t *testing.T) {
	t.Parallel()
	page := func(u string) string { return "<urlset><url><loc>" + u + "</loc></url></urlset>" }
	elsewhere := "<sitemapindex><sitemap><loc>https://maps.example/own.xml</loc></sitemap></sitemapindex>"
	files := map[string]string{
		"https://www.example.com/robots.txt": "User-agent: *\nDisallow:\nSITEMAP : https://www.example.com/index.xml # all\nSitemap: " +
			"https://www.example.com/shop.xml\n",
		"https://www.example.com/index.xml":   elsewhere,
		"https://www.example.com/shop.xml":    page("https://shop.example/1"),
		"https://maps.example/own.xml":        page("https://www.example.com/1"),
		"https://www.example.com/none.xml":    "User-agent: *\n",
		"https://empty.example/robots.txt":    "User-agent: *\n",
		"https://loop.example/robots.txt":     "Sitemap: https://loop.example/a/robots.txt\n",
		"https://loop.example/a/robots.txt":   "Sitemap: https://loop.example/b/robots.txt\n",
		"https://lines.example/robots.txt":    "User-agent: *\rSitemap: https://lines.example/a.xml\t# main\r",
		"https://lines.example/a.xml":         page("https://lines.example/1"),
		"https://nested.example/robots.txt":   "Sitemap: https://nested.example/index.xml",
		"https://nested.example/index.xml":    "<sitemapindex><sitemap><loc>https://nested.example/index2.xml</loc></sitemap></sitemapindex>",
		"https://nested.example/index2.xml":   "<sitemapindex></sitemapindex>",
		"https://www.example.com/foreign.xml": page("https://maps.example/1"),
	}
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		text, ok := files[r.URL.String()]
		if r.URL.Path == "/moved.xml" {
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"https://maps.example/own.xml"}}, Body: http.NoBody,
				Request: r}, nil
		}
		if !ok {
			return nil, fmt.Errorf("%s is not there", r.URL)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	})}
	for _, test := range []struct {
		name, file string
		hosts      []string
		want       []string
		err        string
	}{
		{name: "robots.txt", file: "https://www.example.com/robots.txt", hosts: []string{"MAPS.example", "shop.example"},
			want: []string{"https://shop.example/1", "https://www.example.com/1"}},
		{name: "pages of another host", file: "https://www.example.com/shop.xml",
			err: "url[0] (22 bytes) is on another host, which is not allowed; want a URL of www.example.com, the host of the file"},
		{name: "sitemaps on another host", file: "https://www.example.com/index.xml",
			err: "sitemap[0] (28 bytes) is on another host, which is not allowed"},
		{name: "an index whose sitemaps are elsewhere", file: "https://www.example.com/index.xml", hosts: []string{"maps.example"},
			want: []string{"https://www.example.com/1"}},
		{name: "a redirect to another host", file: "https://www.example.com/moved.xml", err: "it redirects to another host"},
		{name: "a redirect to a named host", file: "https://www.example.com/moved.xml", hosts: []string{"maps.example"},
			want: []string{"https://www.example.com/1"}},
		{name: "a host with another port", file: "https://www.example.com/shop.xml", hosts: []string{"shop.example:8443"},
			err: "is on another host"},
		{name: "robots.txt without a sitemap", file: "https://empty.example/robots.txt", err: "it names no sitemap"},
		{name: "robots.txt with carriage returns", file: "https://lines.example/robots.txt", want: []string{"https://lines.example/1"}},
		{name: "robots.txt in robots.txt", file: "https://loop.example/robots.txt", err: "a/robots.txt: it is neither XML nor a list of URLs"},
		{name: "an index in an index", file: "https://nested.example/robots.txt", err: ""},
		{name: "another text", file: "https://www.example.com/none.xml", err: "it is neither XML nor a list of URLs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s sitemap.State
			err := sitemap.New(sitemap.Config{HTTPClient: client, Hosts: test.hosts}).Update(t.Context(), &s, test.file)
			if got := s.PendingURLs(); !slices.Equal(got, test.want) || (err != nil) != (test.err != "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A repeated reads a long text without holding it in memory. It notes the most memory that is in use
// meanwhile.
type repeated struct {
	before, text, after string
	times               int64
	most                *uint64

	at, measured int64
}

func (r *repeated) Read(p []byte) (n int, err error) {
	middle := int64(len(r.before)) + r.times*int64(len(r.text))
	for n < len(p) {
		var rest string
		switch at := r.at; {
		case at < int64(len(r.before)):
			rest = r.before[at:]
		case at < middle:
			rest = r.text[(at-int64(len(r.before)))%int64(len(r.text)):]
		case at < middle+int64(len(r.after)):
			rest = r.after[at-middle:]
		default:
			return n, io.EOF
		}
		copied := copy(p[n:], rest)
		n, r.at = n+copied, r.at+int64(copied)
	}
	if r.at-r.measured > 1<<20 || r.at == int64(n) {
		r.measured = r.at
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		*r.most = max(*r.most, m.HeapAlloc)
	}
	return n, nil
}

// heapInUse returns how many bytes are in use after garbage collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever a site answers, an Update takes little memory and ends.
func TestAnyFileTakesLittleMemory(t *testing.T) {
	const (
		url     = "<url><loc>" + home + "/a</loc></url>"
		tooLong = "it has more than "
		child   = "<sitemap><loc>" + home + "/%d%s</loc></sitemap>"
	)
	endless := int64(1 << 40)
	maxBytes := int64(8 << 20)
	if os.Getenv("AMPCORS_CI") == "1" { // and not "race"
		maxBytes = 0 // the default
	}
	for name, test := range map[string]struct {
		file     repeated
		times    int64
		err      string
		isZipped bool
	}{
		"attributes": {file: repeated{before: "<urlset", text: ` a=""`, times: endless},
			err: "a tag, text or comment of more than 65536 bytes"},
		"attributes of a feed": {file: repeated{before: "<feed><entry", text: ` a=""`, times: endless},
			err: "a tag, text or comment of more than 65536 bytes"},
		"attributes of a feed, behind a text": {file: repeated{before: "<rss><channel>a<item", text: ` a=""`, times: endless},
			err: "a tag, text or comment of more than 65536 bytes"},
		"attributes of many": {file: repeated{before: "<urlset>", text: "<url" + strings.Repeat(` a=""`, 12_000) + "/>", times: endless},
			err: tooLong},
		"namespaces": {file: repeated{before: "<urlset>", text: "<a" + strings.Repeat(` xmlns:a="b"`, 5000) + ">", times: endless},
			err: "nested more than 100 deep"},
		"elements": {file: repeated{before: "<urlset>", text: "<a>", times: endless}, err: "nested more than 100 deep"},
		"names": {file: repeated{before: "<urlset>", text: "<" + strings.Repeat("a", 65_000) + ">", times: endless},
			err: "nested more than 100 deep"},
		"a name":      {file: repeated{before: "<", text: "a", times: endless}, err: "a tag, text or comment"},
		"a comment":   {file: repeated{before: "<urlset><!--", text: "-a", times: endless}, err: "a tag, text or comment"},
		"comments":    {file: repeated{before: "<urlset><url><loc>a", text: "<!---->a", times: endless}, err: tooLong},
		"text":        {file: repeated{before: "<urlset><url><loc>", text: "a<b/>", times: endless}, err: tooLong},
		"a directive": {file: repeated{before: "<!DOCTYPE", text: " <!ENTITY a 'b'>", times: endless}, err: "a tag, text or comment"},
		"an entity":   {file: repeated{before: "<urlset><url><loc>&", text: "a", times: endless}, err: "a tag, text or comment"},
		"entities": {file: repeated{before: `<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>`,
			text: "&b;", times: 5, after: "</loc></url></urlset>"}, err: "its XML has an error"},
		"pages":       {file: repeated{before: "<urlset>", text: url, times: endless}, err: "more than 50000 entries"},
		"empty pages": {file: repeated{before: "<urlset>", text: "<url/>", times: endless}, err: "more than 50000 entries"},
		"lines":       {file: repeated{text: home + "/a\n", times: endless}, err: "more than 50000 entries"},
		"wrong lines": {file: repeated{text: "http://a\n", times: endless}, err: "more than 50000 entries"},
		"empty lines": {file: repeated{text: "\n", times: endless}, err: tooLong},
		"a line":      {file: repeated{text: "https://a", times: endless}, err: "a line of more than 10000 bytes"},
		"sitemaps": {file: repeated{before: "<sitemapindex>", text: fmt.Sprintf(child, 1, strings.Repeat("a", 7000)), times: endless},
			err: tooLong},
		"the same sitemap": {file: repeated{before: "<sitemapindex>", text: fmt.Sprintf(child, 1, ""), times: 900, after: "</sitemapindex>"},
			err: "a sitemap index in a sitemap index"},
		"other sitemaps": {file: repeated{before: "<sitemapindex>", text: "<sitemap><loc>" + strings.Repeat("https://other.example/", 400) +
			"</loc></sitemap>", times: endless}, err: tooLong},
		"zipped attributes": {file: repeated{before: "<urlset", text: ` a=""`, times: 30_000_000}, isZipped: true,
			err: "a tag, text or comment of more than 65536 bytes"},
		"zipped white space": {file: repeated{text: " ", times: 60 << 20}, isZipped: true, err: tooLong},
	} {
		t.Run(name, func(t *testing.T) {
			before := heapInUse()
			var most uint64
			var zipping sync.WaitGroup
			open := func() io.ReadCloser {
				file := test.file
				file.most = &most
				if !test.isZipped {
					return io.NopCloser(&file)
				}
				r, w := io.Pipe()
				zipping.Go(func() {
					z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
					_, err := io.Copy(z, &file)
					_ = w.CloseWithError(errors.Join(err, z.Close()))
				})
				return r
			}
			web := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: open()}, nil
			})}
			var s sitemap.State
			err := sitemap.New(sitemap.Config{HTTPClient: web, MaxBytes: maxBytes}).Update(t.Context(), &s, home+"/f")
			if err == nil || !strings.Contains(err.Error(), test.err) || len(err.Error()) > 10_000 {
				t.Errorf("%.300v; want %s", err, test.err)
			}
			zipping.Wait() // it ends when the body is closed
			if used := int64(most) - before; used > 64<<20 {
				t.Errorf("%d MB were in use", used>>20)
			}
		})
	}
}

// A roundTrip is a Transport of one function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The sitemaps of an index take little memory too, and their errors.
func TestAnIndexTakesLittleMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString("<sitemapindex>")
	for i := range 1000 {
		fmt.Fprintf(&b, "<sitemap><loc>%s/%d%s</loc></sitemap>", home, i, strings.Repeat("a", 2000))
	}
	for i := range 100 { // escaped, these are too long
		fmt.Fprintf(&b, "<sitemap><loc>%s/%d%s</loc></sitemap>", home, i, strings.Repeat(`"`, 9000))
	}
	files, text := 0, b.String()+"</sitemapindex>"
	var most uint64
	web := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"x/" + strings.Repeat("y", 60_000)}},
			Body: io.NopCloser(strings.NewReader("no"))}
		if files++; r.URL.Path == "/index.xml" {
			answer.Body = io.NopCloser(strings.NewReader(text))
		}
		return answer, nil
	})}
	before := heapInUse()
	var s sitemap.State
	err := sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), &s, home+"/index.xml")
	if err == nil || files != 1001 || len(err.Error()) > 200_000 || !strings.Contains(err.Error(), "901 more files have errors") ||
		!strings.Contains(err.Error(), "sitemap[1000] (9025 bytes) has more than 2048 bytes") {
		t.Errorf("%d files; %.3000v", files, err)
	}
	if used := int64(most) - before; used > 64<<20 {
		t.Errorf("%d MB were in use", used>>20)
	}
}

// The sitemaps of an index redirect to URLs that are as long as headers may be. These URLs are not kept.
func TestRedirectsTakeLittleMemory(t *testing.T) {
	const all = 500
	var index strings.Builder
	index.WriteString("<sitemapindex>")
	for i := range all {
		fmt.Fprintf(&index, "<sitemap><loc>%s/%d</loc></sitemap>", home, i)
	}
	index.WriteString("</sitemapindex>")
	for _, findGone := range []bool{false, true} {
		before, after, files := heapInUse(), int64(0), 0
		web := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			answer := &http.Response{StatusCode: http.StatusOK, Request: r.Clone(r.Context())}
			if files++; r.URL.Path == "/index.xml" {
				answer.Body = io.NopCloser(strings.NewReader(index.String()))
				return answer, nil
			}
			if files == 1+all {
				after = heapInUse()
			}
			answer.Request.URL.Path += strings.Repeat("a", 60_000)
			answer.Body = io.NopCloser(strings.NewReader(home + r.URL.Path))
			return answer, nil
		})}
		var s sitemap.State
		err := sitemap.New(sitemap.Config{HTTPClient: web, FindGone: findGone}).Update(t.Context(), &s, home+"/index.xml")
		if err != nil || files != 1+all || len(s.Pending) != all {
			t.Errorf("%d files, %d pages, %v", files, len(s.Pending), err)
		}
		if used := after - before; used > 5<<20 {
			t.Errorf("gone pages are looked for: %t: %d MB are kept", findGone, used>>20)
		}
	}
}

// A site with pages without end fills the State to its limit, and no further.
func TestAStateHasALimit(t *testing.T) {
	t.Parallel()
	files := 0
	web := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		text := index("/1.xml", "/2.xml", "/3.xml")
		if files++; r.URL.Path != "/index.xml" {
			var paths []string
			for i := range 400 {
				paths = append(paths, fmt.Sprintf("%s/%d %d", r.URL.Path, i, files)) // another lastmod each time
			}
			text = urlset(paths...)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
	})}
	const most = 100_000
	size := func(s sitemap.State) (n int) {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	r := sitemap.New(sitemap.Config{HTTPClient: web, MaxState: most})
	var s sitemap.State
	for range 5 {
		err := r.Update(t.Context(), &s, home+"/index.xml")
		if err == nil || !errors.Is(err, sitemap.ErrStateFull) || len(s.Pending) < 600 || size(s) > most {
			t.Fatalf("%v; %d pages, %d bytes", err, len(s.Pending), size(s))
		}
	}
	// With more, nothing was lost.
	r = sitemap.New(sitemap.Config{HTTPClient: web})
	if err := r.Update(t.Context(), &s, home+"/index.xml"); err != nil || len(s.Pending) != 1200 || len(s.Files) != 3 {
		t.Errorf("%v; %d pages, %d files", err, len(s.Pending), len(s.Files))
	}
}

// A user and password are sent to the same host only, and never from https to http.
func TestCredentials(t *testing.T) {
	t.Parallel()
	var asked []string
	web := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		_, password, _ := r.BasicAuth()
		asked = append(asked, r.URL.Scheme+"://"+r.URL.Host+r.URL.Path+" "+password)
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(urlset("/a"))),
			Request: r}
		switch r.URL.Path {
		case "/i.xml":
			text := strings.ReplaceAll(index("/1.xml", "/2.xml"), home+"/2.xml", "http://www.example.com/2.xml")
			answer.Body = io.NopCloser(strings.NewReader(text))
		case "/moved.xml":
			answer.StatusCode = http.StatusFound
			answer.Header.Set("Location", "http://www.example.com/i.xml")
		case "/there.xml":
			answer.StatusCode = http.StatusFound
			answer.Header.Set("Location", home+"/1.xml")
		}
		return answer, nil
	})}
	for file, requests := range map[string][]string{
		"https://user:s3cret@www.example.com/i.xml": {home + "/i.xml s3cret", home + "/1.xml s3cret", "http://www.example.com/2.xml "},
		"https://user:s3cret@www.example.com/moved.xml": {home + "/moved.xml s3cret", "http://www.example.com/i.xml ", home + "/1.xml s3cret",
			"http://www.example.com/2.xml "},
		"http://user:s3cret@www.example.com/i.xml": {"http://www.example.com/i.xml s3cret", home + "/1.xml s3cret",
			"http://www.example.com/2.xml s3cret"},
		"https://user:s3cret@www.example.com/there.xml": {home + "/there.xml s3cret", home + "/1.xml s3cret"},
	} {
		asked = nil
		var s sitemap.State
		if err := sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), &s, file); err != nil {
			t.Error(err)
		}
		want(t, asked, requests...)
		if data, _ := json.Marshal(s); strings.Contains(string(data), "s3cret") {
			t.Errorf("%s", data)
		}
	}
}

// Two hosts whose URLs look alike are two hosts. A port is another server.
func TestHostsAreToldApart(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"https://[fd00::1]:8443", "https://[fd00::1:8443]"},
		{"https://www.example.com:8443", "https://www.example.com"}, {"https://www.example.com:8443", "http://www.example.com:6379"},
		{"https://straße.example", "https://strasse.example"}, {"https://www.example.com", "https://www.example.com.evil.example"},
	} {
		var users []string
		asked := make(map[string]bool)
		web := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked[r.URL.Host] = true
			if _, password, ok := r.BasicAuth(); ok {
				users = append(users, r.URL.Host+" "+password)
			}
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader("<sitemapindex><sitemap><loc>" + pair[1] + "/s.xml</loc></sitemap></sitemapindex>")), Request: r}
			switch r.URL.Path {
			case "/moved.xml":
				answer.StatusCode = http.StatusFound
				answer.Header.Set("Location", pair[1]+"/s.xml")
			case "/pages.xml":
				answer.Body = io.NopCloser(strings.NewReader("<urlset><url><loc>" + pair[1] + "/</loc></url></urlset>"))
			}
			return answer, nil
		})}
		var s sitemap.State
		from := strings.Replace(pair[0], "https://", "https://user:s3cret@", 1)
		for _, path := range []string{"/index.xml", "/moved.xml", "/pages.xml"} {
			err := sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), &s, from+path)
			if err == nil || !strings.Contains(err.Error(), "another host") || len(asked) != 1 || len(s.Pending) > 0 {
				t.Errorf("%q: %v, asked %v, %v", pair, err, asked, s.Pending)
			}
		}
		if len(users) != 3 {
			t.Errorf("%q: %q, asked %v", pair, users, asked)
		}
	}
}

// Whoever can choose the URL does not see in an error what a server of an internal network answered.
func TestErrorsDoNotQuoteAnswers(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	file := func(text string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	for _, answer := range []string{
		secret + "\r\n\r\n", "HTTP/1.1 " + secret + "\r\n\r\n", "HTTP/1.1 500 " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://" + secret + ".internal/\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: " + secret + "://%zz\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secret + "\r\n",
		file(secret), file("http://" + secret + "\n"), file("<" + secret + "/>"), file("<urlset><" + secret + "></urlset>"), file("<urlset>&" +
			secret + ";</urlset>"),
		file("<urlset><url><loc>" + secret + "</loc></url></urlset>"),
		file("<urlset><url><loc>http://u:" + secret + "@www.example.com/</loc></url></urlset>"),
		file("<urlset><url><loc>http://www.example.com:80/%" + secret + "</loc></url></urlset>"),
		file(`<?xml version="` + secret + `"?><urlset/>`),
		file(`<?xml version="1.0" encoding="` + secret + `"?><urlset/>`), file("<urlset a=" + secret +
			"/>"), file("<sitemapindex><sitemap><loc>" + secret + "</loc></sitemap></sitemapindex>"),
		file("<urlset><url><loc>http://www.example.com/" + strings.Repeat(secret, 1200) + "</loc></url></urlset>"),
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var answered atomic.Int32
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				answered.Add(1)
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}
		}()
		web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
		}}}
		err = sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), new(sitemap.State), "http://www.example.com/s.xml")
		if err == nil || strings.Contains(err.Error(), secret) || answered.Load() == 0 {
			t.Errorf("%.80q, answered %d times: %v", answer, answered.Load(), err)
		}
		_ = listener.Close()
	}
}

// An answer with many headers is an error, and a long ETag is not kept.
func TestHeadersHaveALimit(t *testing.T) {
	t.Parallel()
	web := servertest.Loopback(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+strings.Repeat("e", 2000)+`"`)
		for i := range len(r.URL.Query()["header"]) * 10_000 {
			w.Header().Set(fmt.Sprintf("X-%d", i), "a")
		}
		_, _ = io.WriteString(w, urlset("/a"))
	}))
	var s sitemap.State
	if err := sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), &s, home+"/?header"); err == nil ||
		!strings.Contains(err.Error(), "the request failed") {
		t.Error(err)
	}
	if err := sitemap.New(sitemap.Config{HTTPClient: web}).Update(t.Context(), &s, home+"/"); err != nil || len(s.Pending) != 1 ||
		s.Files[home+"/"].ETag != "" {
		t.Errorf("%v, %+v", err, s)
	}
}

// Of an index with too many sitemaps, the first ones are read.
func TestAnIndexHasALimit(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/i.xml": index("/1.xml", "/2.xml", "/3.xml", "/4.xml")}}
	for _, n := range "1234" {
		web.files[fmt.Sprintf("/%c.xml", n)] = urlset(fmt.Sprintf("/%c", n))
	}
	var s sitemap.State
	err := newReader(t, web, sitemap.Config{MaxFiles: 2}).Update(t.Context(), &s, home+"/i.xml")
	if problem := (*sitemap.Error)(nil); !errors.As(err, &problem) || problem.Skipped != 2 ||
		!strings.Contains(err.Error(), "it lists 2 sitemaps more than the 2 that are allowed") {
		t.Error(err)
	}
	want(t, pending(&s), "/1", "/2")
}

// A page is announced once, although two files, or two entries, have different dates for it.
func TestAPageWithTwoDatesIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": urlset("/a 2026-11-22", "/b 2026-11-22", "/b 2026-11-23"),
		"/news.xml": urlset("/a 2026-11-22T10:00:00Z", "/b 2026-11-22T10:00:00Z")}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	both := func() []string {
		update(t, r, &s, "/s.xml")
		return update(t, r, &s, "/news.xml")
	}
	want(t, both(), "/a", "/b")
	s.Done(s.PendingURLs()...)
	web.files["/s.xml"] = urlset("/b 2026-11-23", "/b 2026-11-22", "/a 2026-11-22", "/c 2026-11-23")
	web.files["/news.xml"] = urlset("/a 2026-11-22T10:00:00Z", "/b 2026-11-22T10:00:00Z", "/c 2026-11-22T10:00:00Z")
	want(t, both(), "/c")
}

// Everything that is accepted can be submitted, and everything that is submitted can be done.
func TestPagesAreThoseOfIndexNow(t *testing.T) {
	t.Parallel()
	client, err := indexnow.New(indexnow.Config{Key: "73134416ae45434d98edc086e0bf6740", Logger: slog.New(slog.DiscardHandler),
		HTTPClient: &http.Client{Transport: answers{}}})
	if err != nil {
		t.Fatal(err)
	}
	web := &site{files: map[string]string{"/s.xml": urlset("", "/?", "/a b", "/%7e%c3", "/?a[]=|'", "/../x/./y", "/"+strings.Repeat("x", 7970),
		"/"+strings.Repeat("x", 7980))}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	if err := r.Update(t.Context(), &s, home+"/s.xml"); err == nil || !strings.Contains(err.Error(), "has 8004 bytes, escaped") {
		t.Errorf("%v", err)
	}
	report, err := client.Submit(t.Context(), s.PendingURLs()...)
	if err != nil || len(s.Pending) != 7 {
		t.Errorf("%d pages, %v", len(s.Pending), err)
	}
	s.Done(report.Batches[0].URLs...)
	want(t, pending(&s))
}

// For AMP Caches, URLs keep their bytes.
func TestPagesForCaches(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": urlset("/%7e?a[]=%c3|", "")}}
	var s sitemap.State
	want(t, update(t, newReader(t, web, sitemap.Config{ForCaches: true}), &s, "/s.xml"), "", "/%7e?a[]=%c3|")
}

func TestURLsAreAbsoluteAndOnTheFilesHost(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/old.xml": "->/blog/s.xml", "/blog/s.xml": urlset("/a"),
		"/names.xml":    strings.ReplaceAll(urlset("/b"), "www.example.com", "bücher.example"),
		"/relative.xml": "<urlset><url><loc>/c</loc></url></urlset>",
	}}
	r := newReader(t, web, sitemap.Config{})
	var s sitemap.State
	for _, file := range []string{home + "/old.xml", "https://xn--bcher-kva.example/names.xml"} {
		if err := r.Update(t.Context(), &s, file); err != nil {
			t.Error(err)
		}
	}
	want(t, pending(&s), "/a", "https://xn--bcher-kva.example/b")
	if err := r.Update(t.Context(), &s, home+"/relative.xml"); err == nil ||
		!strings.Contains(err.Error(), `url[0] (2 bytes) is not a URL that begins with https:// or http://`) {
		t.Error(err)
	}
	for file, text := range map[string]string{"https://user:s3cret@www.example.com:99999999/": "invalid port",
		"https://user:s3cret@%zz/": "is not the URL of a file"} {
		if err := sitemap.New(sitemap.Config{}).Update(t.Context(), &s, file); err == nil || !strings.Contains(err.Error(), text) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v; want %s", err, text)
		}
	}
}

// FuzzUpdate checks that no file makes the reader panic, and that what it finds are pages of the
// host, which can be marked as done.
func FuzzUpdate(f *testing.F) {
	for _, seed := range []string{urlset("/a 2026"), index("/a"), zipped(urlset("/b")),
		`<a:urlset><a:url><a:loc>/a</a:loc></a:url></a:urlset>`, home} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := sitemap.New(sitemap.Config{MaxBytes: 1 << 20, HTTPClient: &http.Client{Transport: file(data)}})
		var s sitemap.State
		_ = r.Update(t.Context(), &s, home+"/file")
		for _, u := range s.PendingURLs() {
			if !strings.HasPrefix(u, home+"/") && !strings.HasPrefix(u, "http://www.example.com/") {
				t.Errorf("%q", u)
			}
		}
		s.Done(s.PendingURLs()...)
		if len(s.Pending) > 0 {
			t.Errorf("%q", s.Pending)
		}
	})
}

// A file is the answer to every request.
type file []byte

func (f file) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(f))}, nil
}

func TestPagesThatAreGone(t *testing.T) {
	t.Parallel()
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("/many/%02d", i)
	}
	web := &site{files: map[string]string{
		"/index.xml": index("/a.xml 2026-11-22T10:00:00Z", "/b.xml"), "/a.xml": urlset("/1", "/2"), "/b.xml": urlset("/3"),
		"/other.xml": urlset(append(many, "/2")...),
	}}
	r := newReader(t, web, sitemap.Config{FindGone: true})
	var s sitemap.State
	all := func() error { return r.Update(t.Context(), &s, home+"/index.xml", home+"/other.xml") }
	if err := all(); err != nil {
		t.Fatal(err)
	}
	s.Done(s.PendingURLs()...)
	none := func(when string, because string) {
		t.Helper()
		if err := all(); (err == nil) != (because == "") || because != "" &&
			(!errors.Is(err, sitemap.ErrNoneGone) || !strings.Contains(err.Error(), because)) {
			t.Errorf("%s: %v; want %q", when, err, because)
		}
		want(t, pending(&s))
	}
	none("nothing has changed", "")
	web.files["/a.xml"] = urlset("/1")
	none("another sitemap lists it", "")
	web.files["/a.xml"] = urlset()
	delete(web.files, "/b.xml")
	none("a sitemap cannot be read", "not everything could be read")
	web.files["/b.xml"] = urlset("/3") + "<"
	none("a sitemap is truncated", "not everything could be read")
	web.files["/b.xml"] = strings.Replace(urlset("/3"), home+"/3", "https://other.example/", 1)
	none("an entry is skipped", "not everything could be read")
	web.files["/b.xml"] = "->/a.xml"
	none("two are the same", "it is the same file as https://www.example.com/a.xml, because one redirects to the other")
	web.files["/b.xml"], web.files["/other.xml"] = urlset("/3"), urlset("/2")
	none("too many are gone", "31 of 33 are no longer listed")
	web.files["/b.xml"], web.files["/other.xml"] = urlset(), urlset()
	none("all are empty", "no page is listed")

	web.files["/b.xml"], web.files["/other.xml"] = urlset("/new"), urlset(append(many[:25:25], "/2")...)
	if err := all(); err != nil { // and /1 and /3
		t.Fatal(err)
	}
	want(t, pending(&s), "/1", "/3", "/many/25", "/many/26", "/many/27", "/many/28", "/many/29", "/new")
	s.Done(home+"/1", home+"/many/25")
	text, err := json.Marshal(s)
	if s = (sitemap.State{}); err != nil || json.Unmarshal(text, &s) != nil {
		t.Fatal(err)
	}
	web.files["/b.xml"] = urlset("/3") // it has come back, and /new was never announced
	if err := all(); err != nil {
		t.Fatal(err)
	}
	want(t, pending(&s), "/many/26", "/many/27", "/many/28", "/many/29")
	s.Done(s.PendingURLs()...)
	web.files["/b.xml"] = urlset("/3", "/many/29")
	if err := all(); err != nil {
		t.Fatal(err)
	}
	want(t, pending(&s), "/many/29") // is new again
	if asked := strings.Join(web.asked, " "); strings.Contains(asked, "304") {
		t.Errorf("a file was not read: %s", asked)
	}

	// A limit of memory never makes a page look gone.
	full := 0
	for limit := int64(2_000); limit < 20_000; limit += 100 {
		var copied sitemap.State
		if err := json.Unmarshal(text, &copied); err != nil {
			t.Fatal(err)
		}
		copied.Done(copied.PendingURLs()...)
		web.files["/b.xml"] = urlset("/new")
		small := newReader(t, web, sitemap.Config{FindGone: true, MaxState: limit})
		err := small.Update(t.Context(), &copied, home+"/index.xml", home+"/other.xml")
		if isFull := errors.Is(err, sitemap.ErrStateFull); isFull != errors.Is(err, sitemap.ErrNoneGone) || len(copied.Gone) > 0 ||
			isFull != (err != nil) {
			t.Errorf("%d bytes: %v, gone: %v", limit, err, copied.Gone)
		} else if isFull {
			full++
		}
	}
	if full < 10 || full > 170 {
		t.Errorf("the limit was reached %d times", full)
	}
}

// A page that was rejected is not pending until its lastmod is later, and is forgotten when it is not listed.
func TestARejectedPageIsPendingAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	list := func(entries ...string) map[string]string {
		return map[string]string{"/sitemap.xml": urlset(entries...)}
	}
	s := &site{files: list("/a 2024-01-01", "/b 2024-01-01")}
	r := newReader(t, s, sitemap.Config{})
	var state sitemap.State
	want(t, update(t, r, &state, "/sitemap.xml"), "/a", "/b")
	state.Done(home + "/a")
	state.Reject(home+"/b", "engine", "422")
	state.Reject(home+"/c", "engine", "422")
	data, _ := json.Marshal(state)
	if !strings.Contains(string(data), `"rejected":{"`+home+`/b":{"lastmod":"2024-01-01","code":"engine","reason":"422"}}`) {
		t.Errorf("%s", data)
	}
	want(t, update(t, r, &state, "/sitemap.xml"))
	s.files = list("/a 2024-01-01", "/b 2024-01-02")
	want(t, update(t, r, &state, "/sitemap.xml"), "/b")
	state.Reject(home+"/b", "engine", "422 again")
	s.files = list("/a 2024-01-01", "/b 2024-01-03")
	want(t, update(t, r, &state, "/sitemap.xml"), "/b")
	if state.Done(home + "/b"); len(state.Rejected) != 0 {
		t.Errorf("%+v", state.Rejected)
	}
	// Gone pages.
	r = newReader(t, s, sitemap.Config{FindGone: true})
	s.files = list("/a 2024-01-01", "/b 2024-01-03", "/c")
	want(t, update(t, r, &state, "/sitemap.xml"), "/c")
	state.Reject(home+"/c", "engine", "422")
	s.files = list("/a 2024-01-01")
	want(t, update(t, r, &state, "/sitemap.xml"), "/b") // it was accepted once
	if state.Reject(home+"/b", "engine", "422"); len(state.Rejected) != 0 || len(state.Announced) != 1 || len(state.Gone) != 0 {
		t.Errorf("%+v", state)
	}
}

func TestPagesThatAreGoneAddUp(t *testing.T) {
	t.Parallel()
	pages := make([]string, 100)
	for i := range pages {
		pages[i] = fmt.Sprintf("/%02d", i)
	}
	web := &site{files: map[string]string{"/s.xml": urlset()}}
	var s sitemap.State
	finds := func(maxGone float64) error {
		return newReader(t, web, sitemap.Config{FindGone: true, MaxGone: maxGone}).Update(t.Context(), &s, home+"/s.xml")
	}
	if err := finds(0); err != nil { // there is nothing to lose
		t.Error(err)
	}
	web.files["/s.xml"] = urlset(pages...)
	if err := finds(0); err != nil {
		t.Fatal(err)
	}
	web.files["/s.xml"] = urlset()
	if err := finds(0); !errors.Is(err, sitemap.ErrNoneGone) || len(s.Pending) != 100 {
		t.Errorf("an empty sitemap: %v, %d pending", err, len(s.Pending))
	}
	s.Done(s.PendingURLs()...)
	web.files["/s.xml"] = urlset(pages[10:]...)
	if err := finds(0); err != nil || len(s.Gone) != 10 {
		t.Errorf("ten of a hundred: %v, %d", err, len(s.Gone))
	}
	web.files["/s.xml"] = urlset(pages[20:]...)
	if err := finds(0); !errors.Is(err, sitemap.ErrNoneGone) || !errors.Is(err, sitemap.ErrManyGone) || len(s.Gone) != 10 {
		t.Errorf("ten more: %v, %d", err, len(s.Gone))
	}
	if urls := s.PendingURLs(); len(urls) != 0 {
		t.Errorf("the first ten are announced, although more are gone than may be: %q", urls)
	}
	for _, notAShare := range []float64{-1, 10, math.NaN()} {
		if err := finds(notAShare); !errors.Is(err, sitemap.ErrManyGone) {
			t.Errorf("a share of %v: %v", notAShare, err)
		}
	}
	if err := finds(1); err != nil || len(s.Gone) != 20 || len(s.PendingURLs()) != 20 {
		t.Errorf("all may be gone: %v, %d", err, len(s.Gone))
	}
	// A Reader that does not look for gone pages sees that one has come back, and has changed.
	web.files["/s.xml"] = urlset(append(pages[20:], "/00", "/01 2026-11-22")...)
	if err := newReader(t, web, sitemap.Config{}).Update(t.Context(), &s, home+"/s.xml"); err != nil || len(s.Gone) != 18 ||
		len(s.PendingURLs()) != 1 {
		t.Errorf("two have come back: %v, %d gone, %q", err, len(s.Gone), pending(&s))
	}
}

// cancelOnClose cancels a context when the body of an answer is closed.
type cancelOnClose struct {
	io.Reader
	cancel context.CancelFunc
}

func (c cancelOnClose) Close() error {
	c.cancel()
	return nil
}

// If the context ends between two sitemaps, the pages of the second one are not gone.
func TestNothingIsGoneIfTheContextEnds(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/index.xml": index("/a.xml", "/b.xml"), "/a.xml": urlset("/1"), "/b.xml": urlset("/2")}}
	var s sitemap.State
	if err := newReader(t, web, sitemap.Config{FindGone: true}).Update(t.Context(), &s, home+"/index.xml"); err != nil {
		t.Fatal(err)
	}
	s.Done(s.PendingURLs()...)
	ctx, cancel := context.WithCancel(t.Context())
	r := sitemap.New(sitemap.Config{FindGone: true, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response,
		error) {
		resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
		resp.Body = io.NopCloser(strings.NewReader(web.files[r.URL.Path]))
		if r.URL.Path == "/a.xml" {
			resp.Body = cancelOnClose{resp.Body, cancel}
		}
		return resp, nil
	})}})
	if err := r.Update(ctx, &s, home+"/index.xml"); !errors.Is(err, context.Canceled) || !errors.Is(err, sitemap.ErrNoneGone) ||
		len(s.Gone) > 0 {
		t.Errorf("%v; gone: %v", err, s.Gone)
	}
}

// An Error shows URLs without passwords, and not the other lines of a text, which may be anything.
func TestSkippedEntriesHoldNoPassword(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/s.txt": home + "/a\nhttps://jane:hunter2@www.example.com/b\npassword hunter2\nhttps:/\\jane:hunter2@other.example/\n",
		"/s.xml": strings.ReplaceAll(urlset("/b"), home+"/b", "https://jane:hunter2@other.example/"),
	}}
	for file, shown := range map[string]string{"/s.txt": "https://…@www.example.com/b", "/s.xml": "https://…@other.example/"} {
		var s sitemap.State
		err := newReader(t, web, sitemap.Config{}).Update(t.Context(), &s, home+file)
		if problem := (*sitemap.Error)(nil); !errors.As(err, &problem) || problem.Skipped == 0 || !slices.Contains(problem.Entries, shown) ||
			strings.Contains(fmt.Sprint(err, problem.Entries), "hunter2") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// An Error names the first ten entries that were skipped, also when the file is read again.
func TestTenSkippedEntriesAreNamed(t *testing.T) {
	t.Parallel()
	for n, more := range map[int]string{10: "", 12: "\nand 2 more"} {
		web := &site{files: map[string]string{"/s.xml": strings.ReplaceAll(urlset(make([]string, n)...), home+" ", "https://other.example/ ")}}
		var s sitemap.State
		for range 2 {
			err := newReader(t, web, sitemap.Config{}).Update(t.Context(), &s, home+"/s.xml")
			if problem := (*sitemap.Error)(nil); !errors.As(err, &problem) || problem.Skipped != n || strings.Count(err.Error(), "url[") != 10 ||
				!strings.HasSuffix(err.Error(), more) || strings.Contains(err.Error(), "more") != (more != "") {
				t.Errorf("%d entries: %v", n, err)
			}
		}
	}
}
