package ampcors_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func TestExplainShowsEachStepUpToTheDecision(t *testing.T) {
	m := mwtest.New(t, ampcors.Config{
		Publishers: []string{"www.example.com", "en-us.example.com", "bücher.ch", "é-x.com", "*.example.net"},
		Origins:    []string{mwtest.PlaygroundOrigin},
		Email:      ampcors.Email{Senders: []string{"news@example.com"}},
	})
	const ok, bad = "+", "-"
	for origin, want := range map[string]string{
		mwtest.CacheOrigin: "+scheme=https +cache=cdn.ampproject.org +prefix=www-example-com +unwrapped=www-example-com " +
			"+publisher=www.example.com +allowlist=www.example.com +verdict=Allowed",
		mwtest.WildOrigin: "+scheme=https +cache=cdn.ampproject.org +prefix=blog-example-net +unwrapped=blog-example-net " +
			"+publisher=blog.example.net +allowlist=blog.example.net +verdict=Allowed",
		mwtest.IDNOrigin: "+scheme=https +cache=cdn.ampproject.org +prefix=xn--bcher-ch-65a +unwrapped=bücher-ch " +
			"+publisher=xn--bcher-kva.ch +allowlist=xn--bcher-kva.ch +verdict=Allowed",
		mwtest.HashOrigin: "+scheme=https +cache=cdn.ampproject.org +prefix=" + mwtest.Hash("www.example.com") +
			" +allowlist=www.example.com +verdict=Allowed",
		mwtest.OwnOrigin:        "+scheme=https +cache=none +publisher=www.example.com +allowlist=www.example.com +verdict=Allowed",
		mwtest.PlaygroundOrigin: "+allowlist=https://playground.amp.dev +verdict=Allowed",
		"https://0-en--us-example-com-0.www.bing-amp.com": "+scheme=https +cache=www.bing-amp.com +prefix=0-en--us-example-com-0 " +
			"+unwrapped=en--us-example-com +publisher=en-us.example.com +allowlist=en-us.example.com +verdict=Allowed",
		"https://xn--0---x-com-0-cbb.cdn.ampproject.org": "+scheme=https +cache=cdn.ampproject.org +prefix=xn--0---x-com-0-cbb " +
			"+unwrapped=é--x-com +publisher=xn---x-9ia.com +allowlist=xn---x-9ia.com +verdict=Allowed",
		mwtest.EvilOrigin: "+scheme=https +cache=cdn.ampproject.org +prefix=evil-example +unwrapped=evil-example " +
			"+publisher=evil.example -allowlist= -verdict=Denied",
		mwtest.UnknownHashOrigin: "+scheme=https +cache=cdn.ampproject.org " +
			"+prefix=v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq -allowlist= -verdict=Denied",
		"https://en--us-example-com.cdn.ampproject.org": "+scheme=https +cache=cdn.ampproject.org +prefix=en--us-example-com " +
			"+unwrapped=en--us-example-com -publisher= -verdict=Denied",
		"https://cdn.ampproject.org":           "+scheme=https +cache=cdn.ampproject.org -prefix= -verdict=Denied",
		"https://a.b-c.cdn.ampproject.org":     "+scheme=https +cache=cdn.ampproject.org -prefix=a.b-c -verdict=Denied",
		"https://abc.cdn.ampproject.org":       "+scheme=https +cache=cdn.ampproject.org -prefix=abc -verdict=Denied",
		"https://evil.example":                 "+scheme=https +cache=none +publisher=evil.example -allowlist= -verdict=Denied",
		"https://xn--zzzzz999.example":         "+scheme=https +cache=none -publisher=xn--zzzzz999.example -verdict=Denied",
		"https://localhost":                    "+scheme=https +cache=none -publisher=localhost -verdict=Denied",
		"https://www.example.com:8443":         "+scheme=https -cache=www.example.com:8443 -verdict=Denied",
		"http://www.example.com":               "-scheme=http -verdict=Denied",
		mwtest.MailOrigin:                      "-allowlist=https://mail.google.com -verdict=Denied",
		"null":                                 "-scheme=null -verdict=Denied",
		"":                                     "-scheme= -verdict=Denied",
		"example.com":                          "-scheme= -verdict=Denied",
		"https://" + strings.Repeat("a", 1000): "-scheme= -verdict=Denied",
	} {
		t.Run(fmt.Sprintf("%.40s", origin), func(t *testing.T) {
			e := m.Explain(origin)
			var got []string
			for _, step := range e.Steps {
				mark := bad
				if step.OK {
					mark = ok
				}
				got = append(got, mark+step.Name+"="+step.Value)
				if step.Detail == "" {
					t.Errorf("%.60q: step %q has no detail", origin, step.Name)
				}
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%.60q is explained as\n%s; want\n%s", origin, got, want)
			}
			if e.Decision != m.CheckOrigin(origin) {
				t.Errorf("%.60q: Explain decides %+v, CheckOrigin %+v", origin, e.Decision, m.CheckOrigin(origin))
			}
		})
	}
}

// A page on a cache that the configuration leaves out is not taken for a publisher's own.
func TestExplainNamesACacheThatIsNotTrusted(t *testing.T) {
	m, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Caches: cacheurl.DefaultCaches()[:1]})
	if err != nil {
		t.Fatal(err)
	}
	want := ampcors.Step{Name: "cache", Value: "none", Detail: "It is below www.bing-amp.com, an AMP Cache that is not among those trusted " +
		"here."}
	if steps := m.Explain("https://www-example-com.www.bing-amp.com").Steps; len(steps) != 3 || steps[1] != want {
		t.Errorf("%+v", steps)
	}
}

func TestExplainSaysWhatIsWrongWithAPrefix(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	for origin, want := range map[string]string{
		"https://cdn.ampproject.org":                                   "names no publisher",
		"https://a.b-c.cdn.ampproject.org":                             "more than one label",
		"https://a.b.cdn.ampproject.org":                               "more than one label",
		"https://abc.cdn.ampproject.org":                               "not a hash",
		"https://en--us-example-com.cdn.ampproject.org":                "not wrapped",
		"https://0-a-b-0.cdn.ampproject.org":                           "without need",
		"https://xn--foo-com.cdn.ampproject.org":                       "Neither listed", // read as xn-foo.com
		"https://xn--xn---com-e1a.cdn.ampproject.org":                  "not canonical punycode",
		"https://ampproject.net":                                       "anybody's page",
		"https://xn--bcher-ch-65A.cdn.ampproject.org":                  "not canonical punycode",
		"https://evil-example.cdn.ampproject.org":                      "Neither listed",
		mwtest.UnknownHashOrigin:                                       "A pattern cannot match a hash",
		mwtest.CacheOrigin:                                             "Listed in Publishers",
		mwtest.WildOrigin:                                              "Matched by a pattern",
		"https://example-net.cdn.ampproject.org":                       "example.net is not below *.example.net: list it, too.",
		"https://example.net":                                          "example.net is not below *.example.net: list it, too.",
		mwtest.HashOrigin:                                              "The hash prefix of this publisher",
		"https://www.example.com:8443":                                 "allowed only by Origins",
		"https://WWW.example.com":                                      "upper case",
		"https://www.example.com/a":                                    "no path",
		"https://www.example.com:x":                                    "no path",
		"https://localhost":                                            "Only Origins allows it",
		"https://" + strings.Repeat("a-", 32) + "a.cdn.ampproject.org": "1 to 63",
	} {
		t.Run(fmt.Sprintf("%.40s", origin), func(t *testing.T) {
			steps := m.Explain(origin).Steps
			if got := steps[len(steps)-2].Detail; !strings.Contains(got, want) {
				t.Errorf("%s: %q; want %q", origin, got, want)
			}
		})
	}
}

// What is not https is not always an attack.
func TestExplainSaysWhatASchemeIs(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	const development = "Only Origins allows it: list it there while you develop"
	for origin, want := range map[string]string{
		"http://localhost:3000":               development,
		"http://app.localhost":                development,
		"http://127.0.0.1:8000":               development,
		"http://192.168.0.10":                 development,
		"http://8.8.8.8":                      "Only https keeps others on the network",
		"http://www.example.com":              "Only https keeps others on the network",
		"http://localhost.evil.example":       "Only https keeps others on the network",
		"capacitor://localhost":               "each app that is made with the same framework has this origin",
		"chrome-extension://abcdefghijklmnop": "host_permissions",
		"moz-extension://0-1":                 "host_permissions",
		"HTTPS://www.example.com":             "a scheme in lower case",
		" https://www.example.com":            "a scheme in lower case",
		"://www.example.com":                  "a scheme in lower case",
	} {
		steps := m.Explain(origin).Steps
		if steps[0].Name != "scheme" || steps[0].OK || !strings.Contains(steps[0].Detail, want) {
			t.Errorf("%s: %+v; want %q", origin, steps[0], want)
		}
	}
}

// TestEachReasonIsExplained has a request for each Reason. The step before the verdict must be about that reason.
func TestEachReasonIsExplained(t *testing.T) {
	cfg := ampcors.Config{
		Publishers: []string{"www.example.com"}, Origins: []string{mwtest.PlaygroundOrigin}, Methods: []string{"PUT"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}}, Source: mwtest.NewDatabase().Remembered(t),
	}
	working := mwtest.New(t, cfg)
	down := mwtest.NewDatabase()
	down.Fail(errors.New("down"))
	cfg.Source = down.Remembered(t)
	broken := mwtest.New(t, cfg)
	preflight := func(origin, method, headers string) []string {
		return []string{"Origin: " + origin, "Access-Control-Request-Method: " + method, "Access-Control-Request-Headers: " + headers}
	}
	explained := make(map[ampcors.Reason]bool)
	for _, test := range []struct {
		reason ampcors.Reason
		method string
		url    string
		lines  []string
		step   string
		value  string
		detail string // a part of it
	}{
		{ampcors.ReasonOwnOrigin, "POST", "/", []string{"Origin: " + mwtest.OwnOrigin}, "allowlist", "www.example.com", "Listed in Publishers."},
		{ampcors.ReasonCacheOrigin, "GET", "/", []string{"Origin: " + mwtest.CacheOrigin}, "allowlist", "www.example.com",
			"Listed in Publishers."},
		{ampcors.ReasonCacheOrigin, "OPTIONS", "/", preflight(mwtest.CacheOrigin, "PUT", "content-type"), "preflight", "PUT", "are allowed"},
		{ampcors.ReasonCacheOriginHash, "GET", "/", []string{"Origin: " + mwtest.HashOrigin}, "allowlist", "www.example.com",
			"The hash prefix of this publisher, which is listed"},
		{ampcors.ReasonExtraOrigin, "GET", "/", []string{"Origin: " + mwtest.PlaygroundOrigin}, "allowlist", mwtest.PlaygroundOrigin,
			"Listed in Origins."},
		{ampcors.ReasonEmail, "GET", "/", []string{"AMP-Email-Sender: news@example.com"}, "sender", "news@example.com", "Version 2"},
		{ampcors.ReasonEmailV1, "GET", "/?__amp_source_origin=news@example.com", []string{"Origin: " + mwtest.MailOrigin}, "sender",
			"news@example.com", "Version 1"},
		{ampcors.ReasonSameOrigin, "POST", "/", []string{"Origin: https://api.example", "Sec-Fetch-Site: same-origin"}, "request",
			"Sec-Fetch-Site: same-origin", "own host"},
		{ampcors.ReasonSameOrigin, "POST", "/", []string{"AMP-Same-Origin: true"}, "origin", "none", "AMP-Same-Origin is true"},
		{ampcors.ReasonNoOrigin, "GET", "/", nil, "origin", "none", "This request has no Origin"},
		{ampcors.ReasonMalformed, "GET", "/", []string{"Origin: https://www.example.com/"}, "cache", "www.example.com/", "As a host name"},
		{ampcors.ReasonMalformed, "GET", "/", []string{"Origin: a", "Origin: b"}, "origin", "a, b", "exactly one"},
		{ampcors.ReasonNull, "GET", "/", []string{"Origin: null"}, "scheme", "null", "Sandboxed"},
		{ampcors.ReasonNotHTTPS, "GET", "/", []string{"Origin: http://www.example.com"}, "scheme", "http", "Only https"},
		{ampcors.ReasonUnknownHost, "GET", "/", []string{"Origin: https://evil.example"}, "allowlist", "", "Neither listed"},
		{ampcors.ReasonNotCanonical, "GET", "/", []string{"Origin: https://cdn.ampproject.org"}, "prefix", "", "What is before the cache domain"},
		{ampcors.ReasonAmbiguousPrefix, "GET", "/", []string{"Origin: " + "https://xn--www-lstekas-lv-pub.cdn.ampproject.org"}, "publisher", "",
			"AMP's implementations give it to both"},
		{ampcors.ReasonPublisherNotAllowed, "GET", "/", []string{"Origin: " + mwtest.EvilOrigin}, "allowlist", "",
			"and the Source does not know it"},
		{ampcors.ReasonHashNotKnown, "GET", "/", []string{"Origin: " + mwtest.UnknownHashOrigin}, "allowlist", "",
			"No publisher that is listed exactly has this hash prefix"},
		{ampcors.ReasonNoOriginUnsafe, "POST", "/", nil, "origin", "none", "The method POST may change data"},
		{ampcors.ReasonNoOriginUnsafe, "POST", "/", []string{"AMP-Same-Origin: true", "AMP-Same-Origin: true"}, "origin", "none",
			"neither Origin nor"},
		{ampcors.ReasonNoOriginUnsafe, "POST", "/", []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: cross-site"}, "origin", "none",
			"AMP-Same-Origin does not count, because Sec-Fetch-Site"},
		{ampcors.ReasonNoEmailSender, "GET", "/", []string{"Origin: " + mwtest.MailOrigin}, "allowlist", mwtest.MailOrigin,
			"The origin of a mail client"},
		{ampcors.ReasonNoEmailSender, "GET", "/", []string{"AMP-Email-Sender: a", "AMP-Email-Sender: b"}, "sender", "", "names one sender"},
		{ampcors.ReasonEmailSenderNotAllowed, "GET", "/", []string{"AMP-Email-Sender: evil@example.com"}, "sender", "evil@example.com",
			"not in email.senders"},
		{ampcors.ReasonMethodNotAllowed, "OPTIONS", "/", preflight(mwtest.OwnOrigin, "DELETE", ""), "preflight", "DELETE", "not in methods"},
		{ampcors.ReasonHeaderNotAllowed, "OPTIONS", "/", preflight(mwtest.CacheOrigin, "PUT", "content-type, x-secret"), "preflight", "x-secret",
			"not in requestHeaders"},
		{ampcors.ReasonHeaderNotAllowed, "OPTIONS", "/", preflight(mwtest.CacheOrigin, "PUT", strings.Repeat("content-type,", 100)), "preflight",
			"", "longer than"},
		{ampcors.ReasonSourceUnavailable, "GET", "/", []string{"Origin: https://other-example.cdn.ampproject.org"}, "allowlist", "other.example",
			"the Source failed: down"},
	} {
		m := working
		if test.reason == ampcors.ReasonSourceUnavailable {
			m = broken
		}
		r := httptest.NewRequest(test.method, test.url, nil)
		r.Header = mwtest.Headers(test.lines...)
		e := m.ExplainRequest(r)
		explained[test.reason] = true
		if d := m.Check(r); e.Decision.Reason != test.reason || e.Decision.Allowed != d.Allowed || e.Decision.Reason != d.Reason ||
			e.Decision.Publisher != d.Publisher {
			t.Errorf("%v: %+v; Check decides %+v", test.reason, e.Decision, d)
			continue
		}
		verdict, step := e.Steps[len(e.Steps)-1], e.Steps[len(e.Steps)-2]
		if verdict.Name != "verdict" || verdict.OK != test.reason.Allowed() || verdict.Detail != "Reason: "+test.reason.String()+"." {
			t.Errorf("%v: the verdict is %+v", test.reason, verdict)
		}
		if step.Name != test.step || step.OK != test.reason.Allowed() || step.Value != test.value && test.value != "" ||
			!strings.Contains(step.Detail, test.detail) {
			t.Errorf("%v: the last step is %+v; want %s %q %q", test.reason, step, test.step, test.value, test.detail)
		}
	}
	for reason := ampcors.Reason(1); reason < ampcors.NumReasons; reason++ {
		if !explained[reason] {
			t.Errorf("%v is not explained here", reason)
		}
	}
}
