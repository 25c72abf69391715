package ampcors_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ampcors/ampcors"
)

// valueErrors returns the ValueErrors that err joins. It fails if err has any other error.
func valueErrors(t *testing.T, err error) []*ampcors.ValueError {
	t.Helper()
	problems := slices.Collect(ampcors.ValueErrors(err))
	var lines []string
	for _, problem := range problems {
		lines = append(lines, problem.Error())
	}
	if err == nil || strings.Join(lines, "\n") != err.Error() {
		t.Fatalf("%v is not made of ValueErrors alone", err)
	}
	return problems
}

func TestDefaultCachesReturnsACopyOfTheRegistry(t *testing.T) {
	caches := ampcors.DefaultCaches()
	if len(caches) != 2 || caches[0].CacheDomain != "cdn.ampproject.org" || caches[1].CacheDomain != "www.bing-amp.com" {
		t.Errorf("DefaultCaches() = %+v", caches)
	}
	if err := (ampcors.Config{Publishers: []string{"example.com"}, Caches: caches}).Validate(); err != nil {
		t.Error(err)
	}
	caches[0].CacheDomain = "evil.example"
	if ampcors.DefaultCaches()[0].CacheDomain != "cdn.ampproject.org" {
		t.Error("a caller can change the registry for other callers")
	}
}

func TestParseCachesReadsTheRegistrysFormat(t *testing.T) {
	data, err := json.Marshal(map[string]any{"caches": ampcors.DefaultCaches(), "new": "members may come", "NEW": "in any case"})
	if err != nil {
		t.Fatal(err)
	}
	caches, err := ampcors.ParseCaches(strings.NewReader(string(data)))
	if err != nil || !slices.Equal(caches, ampcors.DefaultCaches()) {
		t.Errorf("ParseCaches = %+v, %v", caches, err)
	}
}

// An empty list trusts no AMP Cache: own origins, Origins and emails are allowed, and nothing else.
func TestAnEmptyListOfCachesTrustsNone(t *testing.T) {
	cfg := ampcors.Config{
		Publishers: []string{"www.example.com", "*.tenant.example"}, Caches: []ampcors.Cache{}, Origins: []string{"http://localhost:8080"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}},
	}
	m := newMiddleware(t, cfg)
	for origin, want := range map[string]ampcors.Reason{
		"https://www.example.com":                  ampcors.ReasonOwnOrigin,
		"https://a.tenant.example":                 ampcors.ReasonOwnOrigin,
		"http://localhost:8080":                    ampcors.ReasonExtraOrigin,
		cacheOrigin:                                ampcors.ReasonUnknownHost,
		"https://www-example-com.www.bing-amp.com": ampcors.ReasonUnknownHost,
		"https://cdn.ampproject.org":               ampcors.ReasonUnknownHost,
		"https://" + plainHash("www.example.com") + ".cdn.ampproject.org": ampcors.ReasonUnknownHost,
		"https://www.other.example":                                       ampcors.ReasonUnknownHost,
	} {
		if d := m.CheckOrigin(origin); d.Reason != want {
			t.Errorf("%s: %s; want %s", origin, d.Reason, want)
		}
	}
	if d := m.Check(&http.Request{Method: "GET", Header: headers("AMP-Email-Sender: news@example.com")}); d.Reason != ampcors.ReasonEmail {
		t.Errorf("an email: %s", d.Reason)
	}
	if got := m.Config().Caches; got == nil || len(got) != 0 {
		t.Errorf("Config has the caches %v", got)
	}
	// A pattern never matches a host of a cache, trusted or not.
	cfg.Publishers = []string{"*.ampproject.org"}
	if m, err := ampcors.New(cfg); err == nil && m.CheckOrigin(cacheOrigin).Allowed {
		t.Error("a pattern allows a cache")
	}
}

// Metrics have the ID as a label, which must be UTF-8.
func TestTheIDOfACacheIsUTF8(t *testing.T) {
	_, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Caches: []ampcors.Cache{{ID: "x\xff", CacheDomain: "amp.example.com"}}})
	if err == nil || !strings.Contains(err.Error(), "cannot be printed") {
		t.Error(err)
	}
}

func TestParseCachesRejectsABadListWithIndexAndField(t *testing.T) {
	entry := func(id, domain string) string { return fmt.Sprintf(`{"id": %q, "cacheDomain": %q}`, id, domain) }
	good := entry("google", "cdn.ampproject.org")
	for _, test := range []struct{ list, field, reason string }{
		{list: ``, field: "caches", reason: "names no cache"},
		{list: entry("", "amp.example.com"), field: "caches[0].id", reason: "is empty"},
		{list: good + "," + entry("google", "amp.example.com"), field: "caches[1].id", reason: "also the id of cache 0"},
		{list: good + "," + entry("b", ""), field: "caches[1].cacheDomain", reason: "is empty"},
		{list: good + "," + entry("b", "https://amp.example.com"), field: "caches[1].cacheDomain", reason: "has a scheme"},
		{list: `{"id": "b", "cacheDomain": "amp.example.com", "cacheDomain": "amp.example.net"}`, field: "caches[0]", reason: "occurs twice"},
		{list: `{"id": "b", "cacheDomain": "amp.example.com", "cachedomain": "amp.example.net"}`, field: "caches[0]", reason: "in another case"},
		{list: `{"id": "b", "ID": "c", "cacheDomain": "amp.example.com"}`, field: "caches[0]", reason: "in another case"},
		{list: `{"id": "a\u0000b", "cacheDomain": "amp.example.com"}`, field: "caches[0].id", reason: "cannot be printed"},
		{list: `{"id": "a\nb", "cacheDomain": "amp.example.com"}`, field: "caches[0].id", reason: "cannot be printed"},
		{list: entry("b", "AMP.example.com"), field: "caches[0].cacheDomain", reason: "not in lower-case ASCII"},
		{list: entry("b", "bücher.example"), field: "caches[0].cacheDomain", reason: "not in lower-case ASCII"},
		{list: entry("b", "com"), field: "caches[0].cacheDomain", reason: "has no dot"},
		{list: entry("b", "co.uk"), field: "caches[0].cacheDomain", reason: "is a public suffix"},
		{list: entry("b", "github.io"), field: "caches[0].cacheDomain", reason: "is a public suffix"},
		{list: entry("b", "kawasaki.jp"), field: "caches[0].cacheDomain", reason: "is a public suffix"},
		{list: entry("b", strings.Repeat("a.", 90)+"example.com"), field: "caches[0].cacheDomain", reason: "leaves no room"},
		{list: strings.Repeat(good+",", 101) + good, field: "caches", reason: "more than 100 caches"},
		{list: good + `, 1`, field: "caches[1]", reason: "not of the right type"},
		{list: good + `, {"id": "b", "cacheDomain": 1}`, field: "caches[1].cacheDomain", reason: "not of the right type"},
		{list: good + "," + entry("b", "cdn.ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: good + "," + entry("b", "ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: good + "," + entry("b", "x.cdn.ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: `{"id":"b","cacheDomain":"amp.example.com","updateCacheApiDomainSuffix":"a:1"}`, field: "caches[0].updateCacheApiDomainSuffix", reason: "has a port"},
		{list: `{"id":"b","cacheDomain":"amp.example.com","thirdPartyFrameDomainSuffix":"a b.c"}`, field: "caches[0].thirdPartyFrameDomainSuffix", reason: "character"},
	} {
		t.Run(fmt.Sprintf("%.40s", test.list), func(t *testing.T) {
			_, err := ampcors.ParseCaches(strings.NewReader(`{"caches": [` + test.list + `]}`))
			if err == nil {
				t.Errorf("%s is accepted", test.list)
				return
			}
			if problems := valueErrors(t, err); len(problems) != 1 || !strings.Contains(err.Error(), test.field+" ") || !strings.Contains(problems[0].Reason, test.reason) {
				t.Errorf("%s: %v; want %s and %q", test.list, err, test.field, test.reason)
			}
		})
	}
	if _, err := ampcors.ParseCaches(strings.NewReader(`{"caches": [` + entry("", "") + "," + entry("", "com") + `]}`)); len(valueErrors(t, err)) != 4 {
		t.Errorf("four problems are reported as %v", err)
	}
}

func TestParseCachesRejectsUnreadableInput(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, test := range []struct {
		r    io.Reader
		want string
	}{
		{r: nil, want: "no list"},
		{r: strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "caches": [{"id": "b", "cacheDomain": "b.example.com"}]}`), want: `"caches" is a member that occurs twice`},
		{r: strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "CACHES": [{"id": "b", "cacheDomain": "b.example.com"}]}`), want: `"CACHES" is a member that occurs twice, or in another case`},
		{r: strings.NewReader(`{"cache\u017f": [{"id": "b", "cacheDomain": "b.example.com"}]}`), want: "in another case"},
		{r: strings.NewReader("{\n\n!"), want: "line 3"},
		{r: strings.NewReader("{\n\"caches\": 1}"), want: "line 2"},
		{r: strings.NewReader(`{"caches": []} trailing`), want: "line 1"},
		{r: strings.NewReader(`{"caches": [`), want: "line 1"},
		{r: strings.NewReader(`null`), want: "names no cache"},
		{r: strings.NewReader(strings.Repeat(" ", 1<<20) + "{}"), want: "longer than 1 MiB"},
		{r: iotest.ErrReader(broken), want: "the disk is gone"},
	} {
		t.Run(fmt.Sprintf("%.40s", test.want), func(t *testing.T) {
			if _, err := ampcors.ParseCaches(test.r); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q", err, test.want)
			}
		})
	}
}
