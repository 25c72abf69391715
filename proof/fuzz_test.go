package proof

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// fuzzConfig allows publishers of every kind, so that mutations come near to one.
var fuzzConfig = ampcors.Config{
	Publishers: []string{
		"example.com", "www.example.com", "en-us.example.com", "a-b.c-d.example", "a.b", "0-a.b-0",
		"xn-shop.com", "in--trouble.com", "bücher.ch", "faß.de", "日本-語.jp", "hello.مصر", "my_site.example.com",
		"this-is-another-very-long-domain-name-with-75-chars-example.com",
		"*.example.net", "*.日本.jp", "*.com",
	},
	Origins:                               []string{"https://playground.amp.dev", "http://localhost:8080"},
	DangerouslyAllowPublicSuffixWildcards: true,

	RequestHeaders: []string{"X-Requested-With", "Authorization"},
	Methods:        []string{"PUT"},
}

var fuzzPlainConfig = oracleConfigOf(fuzzConfig)

// FuzzCheckOrigin uses a value as an Origin and as a prefix below a cache domain. The
// decision must be the oracle's, and must be the same if a Source has the publishers. If
// the value is a publisher domain, every form of it must be accepted.
func FuzzCheckOrigin(f *testing.F) {
	m, err := ampcors.New(fuzzConfig)
	if err != nil {
		f.Fatal(err)
	}
	sourceConfig, _ := mwtest.WithSource(f, fuzzConfig)
	asked, err := ampcors.New(sourceConfig)
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range fuzzPlainConfig.domains {
		prefix, _ := cacheurl.DomainPrefix(d)
		f.Add("https://" + prefix + ".cdn.ampproject.org")
		f.Add("https://" + plainHash(d) + ".www.bing-amp.com")
		f.Add("https://" + d)
		f.Add(prefix)
		f.Add(d)
	}
	for _, s := range []string{
		"null", "", "https://", "https://cdn.ampproject.org", "https://.cdn.ampproject.org", "http://example.com",
		"https://a.b.cdn.ampproject.org", "https://evilcdn.ampproject.org", "https://example.com.", "https://EXAMPLE.com",
		"0-0", "0--0", "0---0", "0-a-0", "0-ab--c-com-0", "xn--", "xn---", "xn--0-a-0", "xn--shop-com", "a---b-c", "-a-b", "a-b-",
		"xn--0---x-com-0-cbb", "xn--foo-ru-com", "xn--fa-de-mqa", "0-xn----bcher--kva-ch-0", "a-0x1f", "a-1", "１-example-com",
		"xn--xn---com-e1a", "bücher.ch", "BÜCHER.CH", "xn--bcher-kva.ch",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, origin := range []string{s, "https://" + s, "https://" + s + ".cdn.ampproject.org", "https://" + s + ".www.bing-amp.com"} {
			d := m.CheckOrigin(origin)
			allowed, publisher, cache := plainCheckOrigin(t, fuzzPlainConfig, origin)
			if d.Allowed != allowed {
				t.Fatalf("CheckOrigin(%q).Allowed = %t (%s); want %t", origin, d.Allowed, d.Reason, allowed)
			}
			if allowed && (d.Publisher != publisher || d.CacheID != cache) {
				t.Fatalf("CheckOrigin(%q) is publisher %q, cache %q; want %q, %q", origin, d.Publisher, d.CacheID, publisher, cache)
			}
			if d2 := asked.CheckOrigin(origin); d2 != d {
				t.Fatalf("with a Source, CheckOrigin(%q) = %+v; want %+v", origin, d2, d)
			}
			if e := m.Explain(origin); e.Decision != d {
				t.Fatalf("Explain(%q).Decision = %+v; want %+v", origin, e.Decision, d)
			}
		}

		want := plainReverse(t, s)
		if got, err := cacheurl.PublisherDomain(s); got != want || (err == nil) != (want != "") {
			t.Fatalf("PublisherDomain(%q) = %q, %v; want %q", s, got, err, want)
		}

		domain, verr := cacheurl.CanonicalDomain(s)
		if verr != nil {
			return
		}
		if plainDomain(plainText(domain)) != domain || plainParse(domain) != domain {
			t.Fatalf("CanonicalDomain(%q) = %q, which is no publisher domain", s, domain)
		}
		checkForms(t, domain)
	})
}

// FuzzRequest sends whole requests. Lines of one header are separated by "\n".
func FuzzRequest(f *testing.F) {
	var ms []*ampcors.Middleware
	var configs []ampcors.Config
	for _, change := range []func(*ampcors.Config){
		func(*ampcors.Config) {},
		func(cfg *ampcors.Config) { cfg.ReportOnly = true },
		func(cfg *ampcors.Config) {
			cfg.Credentialed = true
			cfg.DangerouslyAllowHTTPOwnOrigins = true
			cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin = true
		},
	} {
		cfg := fuzzConfig
		change(&cfg)
		m, err := ampcors.New(cfg)
		if err != nil {
			f.Fatal(err)
		}
		ms, configs = append(ms, m), append(configs, cfg)
	}
	const none = "\x00" // the header is not there
	f.Add(uint8(0), "GET", "https://www-example-com.cdn.ampproject.org", none, none, none, none, none)
	f.Add(uint8(1), "OPTIONS", "https://www-example-com.cdn.ampproject.org", "PUT", "content-type, x-requested-with", none, none, none)
	f.Add(uint8(2), "OPTIONS", "https://example.com", "POST", "amp-same-origin\n,,Authorization ,", none, none, "Accept")
	f.Add(uint8(0), "POST", none, none, none, "true", "same-origin", none)
	f.Add(uint8(2), "POST", "http://example.com", none, none, "true", none, "Origin")
	f.Add(uint8(0), "POST", "null\nnull", none, none, none, "cross-site", none)
	f.Fuzz(func(t *testing.T, config uint8, method, origin, asked, headers, amp, site, vary string) {
		m := ms[int(config)%len(ms)]
		cfg := configs[int(config)%len(ms)]
		r := &http.Request{Method: method, Header: http.Header{}}
		set := func(key, value string) {
			if value != none {
				r.Header[http.CanonicalHeaderKey(key)] = strings.Split(value, "\n")
			}
		}
		set("Origin", origin)
		set("Access-Control-Request-Method", asked)
		set("Access-Control-Request-Headers", headers)
		set("AMP-Same-Origin", amp)
		set("Sec-Fetch-Site", site)
		rec := httptest.NewRecorder()
		if vary != none {
			rec.Header()["Vary"] = []string{vary}
		}

		ran := false
		d := m.Check(r)
		m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })).ServeHTTP(rec, r)

		checkCORSHeaders(t, m, cfg, r, rec.Header(), d)
		if before := []string{vary}; method != http.MethodOptions {
			if vary == none {
				before = nil
			}
			checkVary(t, before, rec.Header()["Vary"])
		}
		if !d.Allowed && !cfg.ReportOnly && (ran || rec.Code != http.StatusForbidden) {
			t.Fatalf("denied (%s), but the status is %d and the handler ran: %t", d.Reason, rec.Code, ran)
		}
		if cfg.ReportOnly && !d.Allowed && !ran {
			t.Fatalf("ReportOnly denied: %+v", d)
		}
		isSafe := method == "GET" || method == "HEAD" || method == "OPTIONS"
		if len(r.Header["Origin"]) == 0 && d.Allowed && !isSafe && amp != "true" && !cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin {
			t.Fatalf("%s without Origin is allowed: %s", method, d.Reason)
		}
		preflight := method == http.MethodOptions && len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
		if d.Allowed && ran == preflight {
			t.Fatalf("allowed (%s), a preflight: %t, the handler ran: %t", d.Reason, preflight, ran)
		}
	})
}

// checkCORSHeaders fails if the CORS headers of a response do not follow from the decision.
func checkCORSHeaders(t *testing.T, m *ampcors.Middleware, cfg ampcors.Config, r *http.Request, h http.Header, d ampcors.Decision) {
	t.Helper()
	acao := h["Access-Control-Allow-Origin"]
	switch {
	case len(acao) > 1, len(acao) == 1 && !slices.Equal(acao, r.Header["Origin"]):
		t.Fatalf("Access-Control-Allow-Origin = %q for Origin %q", acao, r.Header["Origin"])
	case len(acao) == 1 && !d.Allowed:
		t.Fatalf("a denied request got Access-Control-Allow-Origin: %+v", d)
	case len(acao) == 1 && !m.CheckOrigin(acao[0]).Allowed:
		t.Fatalf("Access-Control-Allow-Origin %q is not allowed by itself", acao)
	case len(acao) == 0:
		for key := range maps.Keys(h) {
			if strings.HasPrefix(key, "Access-Control-") {
				t.Fatalf("%s without Access-Control-Allow-Origin", key)
			}
		}
	}
	if slices.Contains(h["Access-Control-Allow-Headers"], "*") ||
		strings.Contains(strings.ToLower(h.Get("Access-Control-Allow-Headers")), "amp-same-origin") && d.Reason != ampcors.ReasonOwnOrigin {
		t.Fatalf("Access-Control-Allow-Headers = %q for %s", h["Access-Control-Allow-Headers"], d.Reason)
	}
	if cred := h["Access-Control-Allow-Credentials"]; len(cred) > 0 && !cfg.Credentialed {
		t.Fatalf("Access-Control-Allow-Credentials = %q without Credentialed", cred)
	}
}

// checkVary fails unless Origin was added to the line that was there before, if any.
func checkVary(t *testing.T, before, got []string) {
	t.Helper()
	want := []string{"Origin"}
	if len(before) > 0 {
		want = []string{before[0] + ", Origin"}
		if slices.ContainsFunc(strings.Split(before[0], ","), func(member string) bool {
			return strings.EqualFold(strings.Trim(member, " \t"), "Origin")
		}) {
			want = before
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Vary = %q; want %q", got, want)
	}
}
