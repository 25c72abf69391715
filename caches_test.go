package ampcors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// valueErrors returns the ValueErrors that err joins. It fails if err has any other error.
func valueErrors(t *testing.T, err error) []*ValueError {
	t.Helper()
	problems := slices.Collect(ValueErrors(err))
	if err == nil || joinValueErrors(problems).Error() != err.Error() {
		t.Fatalf("%v is not made of ValueErrors alone", err)
	}
	return problems
}

func TestDefaultCachesReturnsACopyOfTheRegistry(t *testing.T) {
	caches := DefaultCaches()
	if len(caches) != 2 || caches[0].CacheDomain != "cdn.ampproject.org" || caches[1].CacheDomain != "www.bing-amp.com" {
		t.Errorf("DefaultCaches() = %+v", caches)
	}
	if problems := checkCaches("caches", caches); problems != nil {
		t.Error(joinValueErrors(problems))
	}
	caches[0].CacheDomain = "evil.example"
	if DefaultCaches()[0].CacheDomain != "cdn.ampproject.org" {
		t.Error("a caller can change the registry for other callers")
	}
}

func TestParseCachesReadsTheRegistrysFormat(t *testing.T) {
	data, err := json.Marshal(map[string]any{"caches": DefaultCaches(), "new": "members may come", "NEW": "in any case"})
	if err != nil {
		t.Fatal(err)
	}
	caches, err := ParseCaches(strings.NewReader(string(data)))
	if err != nil || !slices.Equal(caches, DefaultCaches()) {
		t.Errorf("ParseCaches = %+v, %v", caches, err)
	}
}

func TestParseCachesRejectsABadListWithIndexAndField(t *testing.T) {
	entry := func(id, domain string) string { return fmt.Sprintf(`{"id": %q, "cacheDomain": %q}`, id, domain) }
	good := entry("google", "cdn.ampproject.org")
	for _, test := range []struct{ list, field, reason string }{
		{``, "caches", "names no cache"},
		{entry("", "amp.example.com"), "caches[0].id", "is empty"},
		{good + "," + entry("google", "amp.example.com"), "caches[1].id", "also the id of cache 0"},
		{good + "," + entry("b", ""), "caches[1].cacheDomain", "is empty"},
		{good + "," + entry("b", "https://amp.example.com"), "caches[1].cacheDomain", "has a scheme"},
		{`{"id": "b", "cacheDomain": "amp.example.com", "cacheDomain": "amp.example.net"}`, "caches[0]", "occurs twice"},
		{`{"id": "b", "cacheDomain": "amp.example.com", "cachedomain": "amp.example.net"}`, "caches[0]", "in another case"},
		{`{"id": "b", "ID": "c", "cacheDomain": "amp.example.com"}`, "caches[0]", "in another case"},
		{`{"id": "a\u0000b", "cacheDomain": "amp.example.com"}`, "caches[0].id", "cannot be printed"},
		{`{"id": "a\nb", "cacheDomain": "amp.example.com"}`, "caches[0].id", "cannot be printed"},
		{entry(strings.Repeat("b", 101), "amp.example.com"), "caches[0].id", "longer than 100 bytes"},
		{entry("b", "AMP.example.com"), "caches[0].cacheDomain", "not in lower-case ASCII"},
		{entry("b", "bücher.example"), "caches[0].cacheDomain", "not in lower-case ASCII"},
		{entry("b", "com"), "caches[0].cacheDomain", "has no dot"},
		{entry("b", "co.uk"), "caches[0].cacheDomain", "is a public suffix"},
		{entry("b", "github.io"), "caches[0].cacheDomain", "is a public suffix"},
		{entry("b", "kawasaki.jp"), "caches[0].cacheDomain", "is a public suffix"},
		{entry("b", strings.Repeat("a.", 90)+"example.com"), "caches[0].cacheDomain", "leaves no room"},
		{strings.Repeat(good+",", 101) + good, "caches", "more than 100 caches"},
		{good + `, 1`, "caches[1]", "not of the right type"},
		{good + `, {"id": "b", "cacheDomain": 1}`, "caches[1].cacheDomain", "not of the right type"},
		{good + "," + entry("b", "cdn.ampproject.org"), "caches[1].cacheDomain", "overlaps with that of cache 0"},
		{good + "," + entry("b", "ampproject.org"), "caches[1].cacheDomain", "overlaps with that of cache 0"},
		{good + "," + entry("b", "x.cdn.ampproject.org"), "caches[1].cacheDomain", "overlaps with that of cache 0"},
		{`{"id":"b","cacheDomain":"amp.example.com","updateCacheApiDomainSuffix":"a:1"}`, "caches[0].updateCacheApiDomainSuffix", "has a port"},
		{`{"id":"b","cacheDomain":"amp.example.com","thirdPartyFrameDomainSuffix":"a b.c"}`, "caches[0].thirdPartyFrameDomainSuffix", "character"},
	} {
		_, err := ParseCaches(strings.NewReader(`{"caches": [` + test.list + `]}`))
		if err == nil {
			t.Errorf("%s is accepted", test.list)
			continue
		}
		if problems := valueErrors(t, err); len(problems) != 1 || !strings.Contains(err.Error(), test.field+" ") || !strings.Contains(problems[0].Reason, test.reason) {
			t.Errorf("%s: %v; want %s and %q", test.list, err, test.field, test.reason)
		}
	}
	if _, err := ParseCaches(strings.NewReader(`{"caches": [` + entry("", "") + "," + entry("", "com") + `]}`)); len(valueErrors(t, err)) != 4 {
		t.Errorf("four problems are reported as %v", err)
	}
}

func TestParseCachesRejectsUnreadableInput(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, test := range []struct {
		r    io.Reader
		want string
	}{
		{nil, "no list"},
		{strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "caches": [{"id": "b", "cacheDomain": "b.example.com"}]}`), `"caches" is a member that occurs twice`},
		{strings.NewReader(`{"caches": [{"id": "a", "cacheDomain": "a.example.com"}], "CACHES": [{"id": "b", "cacheDomain": "b.example.com"}]}`), `"CACHES" is a member that occurs twice, or in another case`},
		{strings.NewReader(`{"cache\u017f": [{"id": "b", "cacheDomain": "b.example.com"}]}`), "in another case"},
		{strings.NewReader("{\n\n!"), "line 3"},
		{strings.NewReader("{\n\"caches\": 1}"), "line 2"},
		{strings.NewReader(`{"caches": []} trailing`), "line 1"},
		{strings.NewReader(`{"caches": [`), "line 1"},
		{strings.NewReader(`null`), "names no cache"},
		{strings.NewReader(strings.Repeat(" ", maxCachesJSON) + "{}"), "longer than 1 MiB"},
		{iotest.ErrReader(broken), "the disk is gone"},
	} {
		if _, err := ParseCaches(test.r); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v; want %q", err, test.want)
		}
	}
}
