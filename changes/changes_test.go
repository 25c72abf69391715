package changes_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/changes"
	"github.com/ampcors/ampcors/indexnow"
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

func newReader(t *testing.T, s *site, cfg changes.Config) *changes.Reader {
	cfg.HTTPClient = servertest.Loopback(t, s)
	return changes.New(cfg)
}

const home = "https://www.example.com"

// sitemap returns a sitemap. An entry is a path, or a path, a space and its lastmod.
func sitemap(entries ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">`)
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

// index returns a sitemap index. Its entries are as those of sitemap.
func index(entries ...string) string {
	return strings.NewReplacer("urlset", "sitemapindex", "<url>", "<sitemap>", "</url>", "</sitemap>").Replace(sitemap(entries...))
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// update updates the state, and returns the paths of the pages to announce.
func update(t *testing.T, r *changes.Reader, s *changes.State, path string) []string {
	t.Helper()
	if err := r.Update(t.Context(), s, home+path); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return pending(s)
}

func pending(s *changes.State) (paths []string) {
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
	web := &site{files: map[string]string{"/s.xml": sitemap("/a 2026-11-22T10:00:00Z", "/b", "/c 2026-11-22", "/d?x=1&amp;y=%7e")}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	if !s.IsNew() {
		t.Error("the zero State is not new")
	}
	want(t, update(t, r, &s, "/s.xml"), "/a", "/b", "/c", "/d?x=1&y=~")
	if s.IsNew() {
		t.Error("a State with pages is new")
	}
	s.Done(home+"/a", home+"/b", home+"/c", home+"/d?x=1&y=~", home+"/never-seen")
	want(t, update(t, r, &s, "/s.xml"))

	web.files["/s.xml"] = sitemap("/a 2026-11-22T11:00:00+01:00", "/b", "/c 2026-11-23", "/e", "/") // the same time in another zone
	want(t, update(t, r, &s, "/s.xml"), "/", "/c", "/e")
	s.Done(home + "/c")
	want(t, update(t, r, &s, "/s.xml"), "/", "/e") // until they are done

	web.files["/s.xml"] = sitemap("/a 2026-11-22T11:00+01:00", "/b 2026-11-24", "/c 2026-11-22", "/e") // an earlier date is no change
	want(t, update(t, r, &s, "/s.xml"), "/", "/b", "/e")
}

// A state survives JSON, so nothing is lost if a program ends before it has announced a page.
func TestAStateIsJSON(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": sitemap("/a 2026-11-22", "/b")}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	update(t, r, &s, "/s.xml")
	s.Done(home + "/a")
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again changes.State
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	want(t, update(t, r, &again, "/s.xml"), "/b")
	want(t, web.asked, "/s.xml", "/s.xml 304")
	web.files["/s.xml"] = sitemap("/a 2026-11-23", "/b")
	if err := r.Update(t.Context(), &again, home+"/s.xml"); err != nil || !maps.Equal(again.Pending, map[string]string{home + "/a": "2026-11-23", home + "/b": ""}) {
		t.Errorf("%v, %v", again.Pending, err)
	}
}

func TestTheSitemapsOfAnIndexAreRead(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/index.xml":    index("/timed.xml.gz 2026-11-22T10:00:00Z", "/dated.xml 2026-11-22", "/plain.xml"),
		"/timed.xml.gz": zipped(sitemap("/a", "/b")),
		"/dated.xml":    sitemap("/c 2026-11-22"),
		"/plain.xml":    sitemap("/d"),
	}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	want(t, update(t, r, &s, "/index.xml"), "/a", "/b", "/c", "/d")
	s.Done(s.PendingURLs()...)
	web.asked = nil
	want(t, update(t, r, &s, "/index.xml"))
	want(t, web.asked, "/index.xml", "/dated.xml 304", "/plain.xml 304")

	web.files["/index.xml"] = index("/timed.xml.gz 2026-11-22T11:00:00Z", "/dated.xml 2026-11-22", "/plain.xml")
	web.files["/timed.xml.gz"] = zipped(sitemap("/a", "/b", "/e"))
	web.files["/dated.xml"] = sitemap("/c 2026-11-22", "/f") // again on the same day
	want(t, update(t, r, &s, "/index.xml"), "/e", "/f")
}

// A file that fails is read again, and does not affect the others.
func TestAFileThatFailsIsReadAgain(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/index.xml":  index("/a.xml 2026-11-22T10:00:00Z", "/b.xml 2026-11-22T10:00:00Z", "/nested.xml"),
		"/a.xml":      sitemap("/a")[:100] + "<url><loc>" + home + "/half</loc></url>",
		"/b.xml":      sitemap("/b"),
		"/nested.xml": index("/c.xml"),
	}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	err := r.Update(t.Context(), &s, home+"/index.xml")
	for _, text := range []string{"/a.xml: ", "/nested.xml: it is a sitemap index in a sitemap index"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %s", err, text)
		}
	}
	want(t, pending(&s), "/b")
	web.files["/a.xml"] = sitemap("/a")
	_ = r.Update(t.Context(), &s, home+"/index.xml")
	want(t, pending(&s), "/a", "/b")
}

func TestPagesOfFeedsAreFound(t *testing.T) {
	t.Parallel()
	const item = "<item><title>T</title><link>%s/rss%d</link><pubDate>Sun, 22 Nov 2026 10:0%d:00 GMT</pubDate></item>"
	web := &site{files: map[string]string{
		"/rss":  `<?xml version="1.0"?><rss version="2.0"><channel><title>T</title>` + fmt.Sprintf(item+item, home, 1, 0, home, 2, 0) + `<item><description>no link</description></item></channel></rss>`,
		"/atom": `<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><id>1</id><link href="/atom1"/><published>2026-11-22T10:00:00Z</published><updated>2026-11-22T10:00:00Z</updated></entry></feed>`,
		"/json": `{"version": "https://jsonfeed.org/version/1.1", "title": "T", "items": [{"id": "1", "url": "` + home + `/json1", "content_text": ""}]}`,
		"/rdf":  `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel><title>T</title></channel><item><title>T</title><link>` + home + `/rdf1</link></item></rdf:RDF>`,
		"/text": "\uFEFF" + home + "/text1\r\n\r\n" + home + "/text2\n",
	}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	for path, pages := range map[string][]string{
		"/rss": {"/rss1", "/rss2"}, "/atom": {"/atom1"}, "/json": {"/json1"}, "/rdf": {"/rdf1"}, "/text": {"/text1", "/text2"},
	} {
		want(t, update(t, r, &s, path), pages...)
		s.Done(s.PendingURLs()...)
		want(t, update(t, r, &s, path))
	}
	web.files["/rss"] = strings.Replace(web.files["/rss"], "10:00:00 GMT</pubDate></item><item>", "11:11:11 GMT</pubDate></item>  <item>", 1)
	web.files["/atom"] = strings.Replace(web.files["/atom"], "<updated>2026-11-22T10", "<updated>2026-11-22T11", 1)
	want(t, update(t, r, &s, "/rss"), "/rss1")
	want(t, update(t, r, &s, "/atom"), "/atom1", "/rss1")
}

// A site cannot announce the pages of another one.
func TestOtherHostsAreErrors(t *testing.T) {
	t.Parallel()
	other := strings.ReplaceAll(sitemap("/theirs"), home, "https://other.example")
	web := &site{files: map[string]string{
		"/s.xml":      strings.Replace(other, "</urlset>", "<url><loc>"+home+"/ours</loc></url><url><loc>ftp://www.example.com/</loc></url><url><loc></loc></url></urlset>", 1),
		"/index.xml":  strings.ReplaceAll(index("/s2.xml"), home, "https://other.example"),
		"/s2.xml":     other,
		"/moved.xml":  "->https://other.example/s2.xml",
		"/moved2.xml": "->/s3.xml",
		"/s3.xml":     sitemap("/moved"),
	}}
	r := newReader(t, web, changes.Config{})
	for path, test := range map[string]struct {
		err   string
		pages []string
	}{
		"/s.xml":      {`url[0] "https://other.example/theirs" is on another host than the file; want a URL of www.example.com`, []string{"/ours"}},
		"/index.xml":  {`sitemap[0] "https://other.example/s2.xml" is on another host than the file`, nil},
		"/moved.xml":  {`it redirects to the host "other.example"; use the URL there`, nil},
		"/moved2.xml": {"", []string{"/moved"}},
	} {
		var s changes.State
		err := r.Update(t.Context(), &s, home+path)
		if (err == nil) != (test.err == "") || !strings.Contains(fmt.Sprint(err), test.err) {
			t.Errorf("%s: %v; want %s", path, err, test.err)
		}
		want(t, pending(&s), test.pages...)
	}
	var s changes.State
	if err := r.Update(t.Context(), &s, home+"/s.xml"); !errors.As(err, new(*ampcors.ValueError)) || strings.Count(err.Error(), "url[") != 3 {
		t.Errorf("%v", err)
	}
	s = changes.State{}
	if err := newReader(t, web, changes.Config{OtherHosts: true}).Update(t.Context(), &s, home+"/index.xml"); err != nil {
		t.Error(err)
	}
	want(t, pending(&s), "https://other.example/theirs")
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{
		"/empty.xml":  " \n",
		"/page":       "<!DOCTYPE html><html></html>",
		"/text":       "not a URL",
		"/xml":        "<urlset><url>",
		"/cut.gz":     zipped(sitemap("/a"))[:40],
		"/not.gz":     "\x1f\x8b not gzip",
		"/bomb.gz":    zipped(strings.Repeat(" ", 2000)),
		"/loop":       "->/loop",
		"/feed":       "{x}",
		"/other.json": "{}",
		"/deep.xml":   strings.Repeat("<rss>", 120),
	}}
	r := newReader(t, web, changes.Config{MaxBytes: 1000})
	for file, text := range map[string]string{
		home + "/missing":    "the answer is 404; want 200",
		home + "/empty.xml":  "it is empty",
		home + "/page":       `its root element is "html"`,
		home + "/text":       `it is neither XML nor a list of URLs: it has the line "not a URL"`,
		home + "/xml":        "its XML has an error",
		home + "/cut.gz":     "unexpected EOF",
		home + "/not.gz":     "gzip: ",
		home + "/bomb.gz":    "it has more than 1000 bytes",
		home + "/loop":       "it redirects ten times",
		home + "/feed":       "it is not a JSON Feed",
		home + "/other.json": "want a version of jsonfeed.org",
		home + "/deep.xml":   "nested more than 100 deep",
		"www.example.com":    "is not the URL of a file",
		"file:///etc/hosts":  "is not the URL of a file",
	} {
		var s changes.State
		err := r.Update(t.Context(), &s, file)
		if problem := (*changes.Error)(nil); !errors.As(err, &problem) || problem.File != file || !strings.Contains(err.Error(), text) || !s.IsNew() {
			t.Errorf("%s: %v, %+v; want %s", file, err, s, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Update(ctx, new(changes.State), home+"/xml"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPagesReturnsTheURLsOfAFile(t *testing.T) {
	t.Parallel()
	if urls, err := changes.Pages(strings.NewReader(zipped(sitemap("/a", "/b 2026")))); err != nil || !slices.Equal(urls, []string{home + "/a", home + "/b"}) {
		t.Errorf("%q, %v", urls, err)
	}
	for _, text := range []string{"", "\x1f\x8b", "x", index("/a.xml")} {
		if urls, err := changes.Pages(strings.NewReader(text)); urls != nil || err == nil || !strings.HasPrefix(err.Error(), "changes: ") {
			t.Errorf("%q: %q, %v", text, urls, err)
		}
	}
}

// Other people's files cost no more than their size.
func TestAFileCostsNoMoreThanItsSize(t *testing.T) {
	t.Parallel()
	namespaces := "<rss><channel"
	for i := range 5000 {
		namespaces += fmt.Sprintf(` xmlns:a%d="u"`, i)
	}
	many := strings.Repeat(home+"/a\n", 50_001)
	for name, test := range map[string]struct{ text, err string }{
		"nested elements":     {`<rss xmlns:x="u"><channel><item>` + strings.Repeat("<x:a>", 3_000_000), "nested more than 100 deep"},
		"nested bases":        {"<rss><channel>" + strings.Repeat(`<a xml:base="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/">`, 20_000), "nested more than 100 deep"},
		"namespaces":          {namespaces + ">" + strings.Repeat("<a/>", 20_000) + "</channel></rss>", ""},
		"comments":            {`<rss><channel><item><link>` + strings.Repeat("a<!---->", 500_000) + `</link></item></channel></rss>`, "escaped; want at most 8000"},
		"entries":             {"<urlset>" + strings.Repeat("<url/>", 50_001) + "</urlset>", "more than 50000 entries"},
		"entries of a text":   {many, "more than 50000 entries"},
		"entries of JSON":     {`{"version": "https://jsonfeed.org/version/1.1", "items": [{}` + strings.Repeat(",{}", 50_000) + "]}", "more than 50000 entries"},
		"entries of others":   {strings.Repeat("http://a\n", 50_000), "and 49990 more"},
		"entity":              {`<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc></url></urlset>`, "invalid character entity"},
		"the index of itself": {index("/f", "/f", "/f"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := &site{files: map[string]string{"/f": zipped(test.text)}}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a second is enough
			defer cancel()
			var s changes.State
			err := newReader(t, web, changes.Config{}).Update(ctx, &s, home+"/f")
			if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || len(err.Error()) > 10_000) {
				t.Errorf("%.300v", err)
			}
			if len(web.asked) != 1 {
				t.Errorf("%d requests", len(web.asked))
			}
		})
	}
}

// A page is announced once, although two files, or two entries, have different dates for it.
func TestAPageWithTwoDatesIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	feed := func(paths ...string) string {
		var b strings.Builder
		for _, p := range paths {
			fmt.Fprintf(&b, `<entry><link rel="self" href="/self"/><link rel="alternate" href="%s%s"/><updated>2026-11-22T10:00:00Z</updated></entry>`, home, p)
		}
		return `<feed xmlns="http://www.w3.org/2005/Atom">` + b.String() + `</feed>`
	}
	web := &site{files: map[string]string{"/s.xml": sitemap("/a 2026-11-22", "/b 2026-11-22", "/b 2026-11-23"), "/feed": feed("/a", "/b")}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
	both := func() []string {
		update(t, r, &s, "/s.xml")
		return update(t, r, &s, "/feed")
	}
	want(t, both(), "/a", "/b")
	s.Done(s.PendingURLs()...)
	web.files["/s.xml"], web.files["/feed"] = sitemap("/b 2026-11-23", "/b 2026-11-22", "/a 2026-11-22", "/c 2026-11-23"), feed("/a", "/b", "/c")
	want(t, both(), "/c")
}

// A file of which an entry is skipped is read again: its error must not be forgotten.
func TestSkippedPagesStayAnError(t *testing.T) {
	t.Parallel()
	web := &site{files: map[string]string{"/s.xml": strings.ReplaceAll(sitemap("/a", "/b"), home, "https://shop.example.com")}}
	var s changes.State
	for range 2 {
		err := newReader(t, web, changes.Config{}).Update(t.Context(), &s, home+"/s.xml")
		if problem := (*changes.Error)(nil); !errors.As(err, &problem) || problem.Skipped != 2 {
			t.Errorf("%v", err)
		}
	}
	if err := newReader(t, web, changes.Config{OtherHosts: true}).Update(t.Context(), &s, home+"/s.xml"); err != nil || len(s.Pending) != 2 {
		t.Errorf("%v, %v", s.Pending, err)
	}
}

// A lastmod that is no time does not keep a sitemap of an index from being read again.
func TestASitemapWhoseLastmodHasNoTimeIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, lastMod := range []string{"Tue, 24 Nov 2026", "{{DATE}}", "2026-11-24"} {
		web := &site{files: map[string]string{"/i.xml": index("/s.xml " + lastMod), "/s.xml": sitemap("/a")}}
		r := newReader(t, web, changes.Config{})
		var s changes.State
		update(t, r, &s, "/i.xml")
		web.files["/s.xml"] = sitemap("/a", "/b")
		want(t, update(t, r, &s, "/i.xml"), "/a", "/b")
	}
}

// Everything that is accepted can be submitted, and everything that is submitted can be done.
func TestPagesAreThoseOfIndexNow(t *testing.T) {
	t.Parallel()
	client, err := indexnow.New(indexnow.Config{Key: "73134416ae45434d98edc086e0bf6740", Logger: slog.New(slog.DiscardHandler), HTTPClient: &http.Client{Transport: answers{}}})
	if err != nil {
		t.Fatal(err)
	}
	web := &site{files: map[string]string{"/s.xml": sitemap("", "/?", "/a b", "/%7e%c3", "/?a[]=|'", "/../x/./y", "/"+strings.Repeat("x", 7970), "/"+strings.Repeat("x", 7980))}}
	r := newReader(t, web, changes.Config{})
	var s changes.State
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
	web := &site{files: map[string]string{"/s.xml": sitemap("/%7e?a[]=%c3|", "")}}
	var s changes.State
	want(t, update(t, newReader(t, web, changes.Config{ForCaches: true}), &s, "/s.xml"), "", "/%7e?a[]=%c3|")
}

// A port is another server.
func TestAPortIsAnotherHost(t *testing.T) {
	t.Parallel()
	var asked []string
	web := servertest.Loopback(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host)
		switch r.URL.Path {
		case "/i.xml":
			_, _ = io.WriteString(w, strings.ReplaceAll(index("/s.xml"), home+"/s", "http://www.example.com:6379/s"))
		case "/r.xml":
			http.Redirect(w, r, "http://www.example.com:22/s.xml", http.StatusFound)
		default:
			_, _ = io.WriteString(w, sitemap("/production"))
		}
	}))
	var s changes.State
	for _, path := range []string{"/i.xml", "/r.xml", "/s.xml"} {
		if err := changes.New(changes.Config{HTTPClient: web}).Update(t.Context(), &s, home+":8443"+path); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("%s: %v", path, err)
		}
	}
	want(t, asked, "www.example.com:8443", "www.example.com:8443", "www.example.com:8443")
	want(t, pending(&s))
}

func TestFilesAreReadAsBrowsersReadURLs(t *testing.T) {
	t.Parallel()
	const feed = `<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="post1"/></entry></feed>`
	var users []string
	web := servertest.Loopback(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		users = append(users, user)
		switch r.URL.Path {
		case "/feed":
			http.Redirect(w, r, "/blog/feed", http.StatusFound)
		case "/i.xml":
			_, _ = io.WriteString(w, index("/s.xml"))
		case "/s.xml":
			_, _ = io.WriteString(w, sitemap("/a"))
		case "/names.xml":
			_, _ = io.WriteString(w, strings.ReplaceAll(sitemap("/b"), "www.example.com", "bücher.example"))
		case "/guid":
			_, _ = io.WriteString(w, `<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><atom:link href="/self"/><item><guid>`+home+`/guid</guid><atom:link href="/self"/></item><item><guid isPermaLink="false">17</guid></item></channel></rss>`)
		default:
			_, _ = io.WriteString(w, feed)
		}
	}))
	r := changes.New(changes.Config{HTTPClient: web})
	var s changes.State
	for _, file := range []string{home + "/feed", "https://user:s3cret@www.example.com/blog/feed2", "https://user:s3cret@www.example.com/i.xml", home + "/guid", "https://xn--bcher-kva.example/names.xml"} {
		if err := r.Update(t.Context(), &s, file); err != nil {
			t.Error(err)
		}
	}
	want(t, pending(&s), "/a", "/blog/post1", "/guid", "https://xn--bcher-kva.example/b")
	want(t, users, "", "", "user", "user", "user", "", "")
	err := r.Update(t.Context(), &s, "https://user:s3cret@www.example.com:99999999/")
	data, _ := json.Marshal(s)
	if text := fmt.Sprint(err, string(data)); err == nil || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

// FuzzUpdate checks that no file makes the reader panic, and that what it finds are pages of the
// host, which can be marked as done.
func FuzzUpdate(f *testing.F) {
	for _, seed := range []string{sitemap("/a 2026"), index("/a"), zipped(sitemap("/b")), `<rss><channel><item><link>/a</link></item></channel></rss>`, `<feed><entry><link href="//x/"/></entry></feed>`, `{"version": "1", "items": [{"url": "a"}]}`, home} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := changes.New(changes.Config{MaxBytes: 1 << 20, HTTPClient: &http.Client{Transport: file(data)}})
		var s changes.State
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
