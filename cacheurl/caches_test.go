package cacheurl_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

func TestDefaultCachesReturnsACopyOfTheRegistry(t *testing.T) {
	caches := cacheurl.DefaultCaches()
	if len(caches) < 2 || caches[0].CacheDomain != "cdn.ampproject.org" || caches[1].CacheDomain != "www.bing-amp.com" {
		t.Errorf("DefaultCaches() = %+v; want Google's and Bing's first", caches)
	}
	if err := cacheurl.ValidateCaches(caches); err != nil {
		t.Error(err)
	}
	caches[0].CacheDomain = "evil.example"
	if cacheurl.DefaultCaches()[0].CacheDomain != "cdn.ampproject.org" {
		t.Error("a caller can change the registry for other callers")
	}
}

func TestParseCachesReadsTheRegistrysFormat(t *testing.T) {
	data, err := json.Marshal(map[string]any{"caches": cacheurl.DefaultCaches(), "new": "members may come", "NEW": "in any case"})
	if err != nil {
		t.Fatal(err)
	}
	caches, err := cacheurl.ParseCaches(strings.NewReader(string(data)))
	if err != nil || !slices.Equal(caches, cacheurl.DefaultCaches()) {
		t.Errorf("ParseCaches = %+v, %v", caches, err)
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
		{list: good + "," + entry("b", "cdn.ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: entry("b", "ampproject.net"), field: "caches[0].cacheDomain",
			reason: "is where third-party frames such as ads run (ampproject.net)"},
		{list: entry("b", "d-1.ampproject.net"), field: "caches[0].cacheDomain", reason: "is where third-party frames"},
		{list: entry("b", "www.bing-amp.net"), field: "caches[0].cacheDomain", reason: "is where third-party frames"},
		{list: `{"id": "b", "cacheDomain": "cache.example", "thirdPartyFrameDomainSuffix": "cache.example"}`, field: "caches[0].cacheDomain",
			reason: "is where third-party frames such as ads run (cache.example)"},
		{list: `{"id": "a", "cacheDomain": "a.example", "thirdPartyFrameDomainSuffix": "frames.example"},` + entry("b", "x.frames.example"),
			field: "caches[1].cacheDomain", reason: "is where third-party frames"},
		{list: good + "," + entry("b", "ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: good + "," + entry("b", "x.cdn.ampproject.org"), field: "caches[1].cacheDomain", reason: "overlaps with that of cache 0"},
		{list: `{"id":"b","cacheDomain":"amp.example.com","updateCacheApiDomainSuffix":"a:1"}`, field: "caches[0].updateCacheApiDomainSuffix",
			reason: "has a port"},
		{list: `{"id":"b","cacheDomain":"amp.example.com","thirdPartyFrameDomainSuffix":"a b.c"}`, field: "caches[0].thirdPartyFrameDomainSuffix",
			reason: "character"},
	} {
		t.Run(fmt.Sprintf("%.40s", test.list), func(t *testing.T) {
			_, err := cacheurl.ParseCaches(strings.NewReader(`{"caches": [` + test.list + `]}`))
			if err == nil {
				t.Errorf("%s is accepted", test.list)
				return
			}
			if problems := slices.Collect(badvalue.All(err)); len(problems) != 1 || problems[0].Error() != err.Error() ||
				!strings.Contains(err.Error(), test.field+" ") || !strings.Contains(problems[0].Reason, test.reason) {
				t.Errorf("%s: %v; want %s and %q", test.list, err, test.field, test.reason)
			}
		})
	}
	if _, err := cacheurl.ParseCaches(strings.NewReader(`{"caches": [` + entry("", "") + "," + entry("", "com") +
		`]}`)); len(slices.Collect(badvalue.All(err))) != 4 || strings.Count(err.Error(), "\n") != 3 {
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
		{r: strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "caches": [{"id": "b", "cacheDomain": ` +
			`"b.example.com"}]}`),
			want: "caches occurs twice"},
		{r: strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "CACHES": [{"id": "b", "cacheDomain": ` +
			`"b.example.com"}]}`),
			want: `"CACHES" is unknown; did you mean "caches"?`},
		{r: strings.NewReader(`{"cache\u017f": [{"id": "b", "cacheDomain": "b.example.com"}]}`), want: "is unknown; did you mean"},
		{r: strings.NewReader("{\n\n!"), want: "line 3"},
		{r: strings.NewReader("{\n\"caches\": 1}"), want: "line 2"},
		{r: strings.NewReader(`{"caches": []} trailing`), want: "line 1"},
		{r: strings.NewReader(`{"caches": [`), want: "line 1"},
		{r: strings.NewReader(`{}`), want: "names no cache"},
		{r: strings.NewReader(`null`), want: "is null; want an object"},
		{r: strings.NewReader(`{"caches": [{"id": "b", "cacheDomain": "amp.example.com", "cacheDomain": "amp.example.net"}]}`),
			want: "caches[0].cacheDomain occurs twice"},
		{r: strings.NewReader(`{"caches": [{"id": "b", "cacheDomain": "amp.example.com", "cachedomain": "amp.example.net"}]}`),
			want: `"caches[0].cachedomain" is unknown; did you mean "cacheDomain"?`},
		{r: strings.NewReader(`{"caches": [{"id": "b", "ID": "c", "cacheDomain": "amp.example.com"}]}`), want: `"caches[0].ID" is unknown`},
		{r: strings.NewReader(`{"caches": [1]}`), want: "caches[0] is 1; want an object"},
		{r: strings.NewReader(`{"caches": [{"id": "b", "cacheDomain": 1}]}`), want: "caches[0].cacheDomain is 1; want a string"},
		{r: strings.NewReader(strings.Repeat(" ", 1<<20) + "{}"), want: "longer than 1 MiB"},
		{r: iotest.ErrReader(broken), want: "the disk is gone"},
	} {
		t.Run(fmt.Sprintf("%.40s", test.want), func(t *testing.T) {
			if _, err := cacheurl.ParseCaches(test.r); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q", err, test.want)
			}
		})
	}
}
