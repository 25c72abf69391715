package ampcors

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

const mailOrigin = "https://mail.google.com"

func emailConfig() Config {
	cfg := testConfig()
	cfg.Origins = append(cfg.Origins, "https://amp.gmail.dev")
	cfg.Email = Email{
		Senders: []string{"news@example.com", "*@bücher.example", "Shop@Café.Example"},
		Clients: []string{mailOrigin, "https://amp.gmail.dev", "https://blog.example.net", "http://localhost:8080", "https://mail.example:8443"},
	}
	return cfg
}

// TestTheEmailTable has the examples of AMP's document first.
func TestTheEmailTable(t *testing.T) {
	t.Parallel()
	const (
		news     = "?__amp_source_origin=news@example.com"
		sender   = "AMP-Email-Sender: news@example.com"
		asksPOST = "Access-Control-Request-Method: POST"
		vary     = "Vary: Outer, Origin, AMP-Email-Sender"
		noStore  = "Cache-Control: no-store"
	)
	passed := []string{vary, "Vary: Accept", "X-Handler: ran"}
	v1 := func(origin, sender string) []string {
		return append(passed[:3:3], "Access-Control-Allow-Origin: "+origin, "AMP-Access-Control-Allow-Source-Origin: "+sender,
			"Access-Control-Expose-Headers: AMP-Access-Control-Allow-Source-Origin")
	}
	v2 := func(sender string) []string { return append(passed[:3:3], "AMP-Email-Allow-Sender: "+sender) }
	site := func(origin string) []string {
		return append(passed[:3:3], "Access-Control-Allow-Origin: "+origin, "Access-Control-Allow-Credentials: true", "Access-Control-Expose-Headers: AMP-Redirect-To")
	}
	denied := []string{vary, noStore, "Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff"}
	deniedPreflight := []string{"Vary: Outer", noStore, "Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff"}
	origin := func(o string) string { return "Origin: " + o }

	for _, test := range []struct {
		request
		query string
	}{
		{request{"example 1: version 1", "GET", []string{origin(mailOrigin)}, 202, v1(mailOrigin, "news@example.com"), ReasonEmailV1}, news},
		{request{"example 2: version 2", "GET", []string{sender}, 202, v2("news@example.com"), ReasonEmail}, ""},
		{request{"example 3: both", "GET", []string{sender, origin(mailOrigin)}, 202, v2("news@example.com"), ReasonEmail}, news},

		{request{"version 2, POST", "POST", []string{sender}, 202, v2("news@example.com"), ReasonEmail}, ""},
		{request{"version 2, any sender of a domain", "GET", []string{"AMP-Email-Sender: Any.One+x@xn--bcher-kva.EXAMPLE"}, 202, v2("Any.One+x@xn--bcher-kva.EXAMPLE"), ReasonEmail}, ""},
		{request{"version 2 outranks an origin that is not allowed", "POST", []string{sender, origin(evilOrigin)}, 202, v2("news@example.com"), ReasonEmail}, ""},
		{request{"version 2 outranks an origin that is allowed", "GET", []string{"AMP-Email-Sender: evil@evil.example", origin(cacheOrigin)}, 403, denied, ReasonEmailSenderNotAllowed}, ""},
		{request{"version 2 outranks Sec-Fetch-Site", "GET", []string{"AMP-Email-Sender: evil@evil.example", origin(evilOrigin), "Sec-Fetch-Site: same-origin"}, 403, denied, ReasonEmailSenderNotAllowed}, ""},
		{request{"version 2 outranks version 1", "GET", []string{"AMP-Email-Sender: evil@evil.example", origin(mailOrigin)}, 403, denied, ReasonEmailSenderNotAllowed}, news},
		{request{"version 2, two senders", "GET", []string{sender, sender}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 2, empty", "GET", []string{"AMP-Email-Sender: "}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 2, a star", "GET", []string{"AMP-Email-Sender: *"}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 2, OPTIONS", "OPTIONS", []string{sender}, 202, []string{"Vary: Outer", "Vary: Accept", "X-Handler: ran", "AMP-Email-Allow-Sender: news@example.com"}, ReasonEmail}, ""},
		{request{"version 2, with the headers of a preflight", "OPTIONS", []string{sender, origin(cacheOrigin), asksPOST}, 202, []string{"Vary: Outer", "Vary: Accept", "X-Handler: ran", "AMP-Email-Allow-Sender: news@example.com"}, ReasonEmail}, ""},
		{request{"version 2, an exact sender with a domain in Unicode", "GET", []string{"AMP-Email-Sender: Shop@XN--caf-dma.example"}, 202, v2("Shop@XN--caf-dma.example"), ReasonEmail}, ""},
		{request{"version 2, a name in another case", "GET", []string{"AMP-Email-Sender: shop@xn--caf-dma.example"}, 403, denied, ReasonEmailSenderNotAllowed}, ""},
		{request{"version 2, denied OPTIONS", "OPTIONS", []string{"AMP-Email-Sender: a@evil.example", origin(cacheOrigin), asksPOST}, 403, deniedPreflight, ReasonEmailSenderNotAllowed}, ""},

		{request{"version 1, POST", "POST", []string{origin(mailOrigin)}, 202, v1(mailOrigin, "news@example.com"), ReasonEmailV1}, news},
		{request{"version 1, another client", "GET", []string{origin("http://localhost:8080")}, 202, v1("http://localhost:8080", "news@example.com"), ReasonEmailV1}, news},
		{request{"version 1, among other parameters, escaped", "GET", []string{origin(mailOrigin)}, 202, v1(mailOrigin, "a+b@xn--bcher-kva.example"), ReasonEmailV1}, "?a=1&%5F_amp_source_origin=a%2Bb%40xn--bcher-kva.example&b=%zz&c"},
		{request{"version 1, a plus that is not escaped", "GET", []string{origin(mailOrigin)}, 202, v1(mailOrigin, "a+b@xn--bcher-kva.example"), ReasonEmailV1}, "?__amp_source_origin=a+b@xn--bcher-kva.example"},
		{request{"version 1, another sender", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonEmailSenderNotAllowed}, "?__amp_source_origin=evil@evil.example"},
		{request{"version 1, no sender", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 1, an empty sender", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin"},
		{request{"version 1, two senders", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, news + "&__amp_source_origin=news@example.com"},
		{request{"version 1, two senders, one of them empty", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=&__amp_source_origin=news@example.com"},
		{request{"version 1, a parameter with a prefix to its name", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?x__amp_source_origin=news@example.com"},
		{request{"version 1, a parameter with a suffix to its name", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_originx=news@example.com"},
		{request{"version 1, a parameter in upper case", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__AMP_SOURCE_ORIGIN=news@example.com"},
		{request{"version 1, after a semicolon", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?a=1;__amp_source_origin=news@example.com"},
		{request{"version 1, OPTIONS", "OPTIONS", []string{origin(mailOrigin)}, 202, append([]string{"Vary: Outer"}, v1(mailOrigin, "news@example.com")[1:]...), ReasonEmailV1}, news},
		{request{"version 1, GET with a preflight's header", "GET", []string{origin(mailOrigin), asksPOST}, 202, v1(mailOrigin, "news@example.com"), ReasonEmailV1}, news},
		{request{"version 1, preflight for amp-same-origin", "OPTIONS", []string{origin(mailOrigin), asksPOST, "Access-Control-Request-Headers: amp-same-origin"}, 403, deniedPreflight, ReasonHeaderNotAllowed}, news},
		{request{"version 1, two senders, one with an escaped name", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, news + "&__amp_source%5forigin=evil@evil.example"},
		{request{"version 1, a star", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=*"},
		{request{"version 1, a line break", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=news@example.com%0d%0aX:1"},
		{request{"version 1, a bad escape", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=a%4@xn--bcher-kva.example"},
		{request{"version 1, no sender, client over http", "GET", []string{origin("http://localhost:8080")}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 1, no sender, client at a port", "GET", []string{origin("https://mail.example:8443")}, 403, denied, ReasonNoEmailSender}, ""},
		{request{"version 1, a space", "GET", []string{origin(mailOrigin)}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=a%20b@xn--bcher-kva.example"},
		{request{"version 1 from another site", "GET", []string{origin("https://evil.example")}, 403, denied, ReasonUnknownHost}, news},
		{request{"version 1 from another publisher's page", "POST", []string{origin(evilOrigin)}, 403, denied, ReasonPublisherNotAllowed}, news},
		{request{"version 1 from a client over http", "GET", []string{origin("http://mail.google.com")}, 403, denied, ReasonNotHTTPS}, news},
		{request{"version 1 from a look-alike", "GET", []string{origin("https://mail.google.com.evil.example")}, 403, denied, ReasonUnknownHost}, news},
		{request{"version 1, two Origins", "GET", []string{origin(mailOrigin), origin(mailOrigin)}, 403, denied, ReasonMalformed}, news},
		{request{"version 1, null", "GET", []string{origin("null")}, 403, denied, ReasonNull}, news},
		{request{"version 1 without Origin, GET", "GET", nil, 202, passed, ReasonNoOrigin}, news},
		{request{"version 1 without Origin, POST", "POST", nil, 403, denied, ReasonNoOriginUnsafe}, news},

		{request{"version 1, preflight", "OPTIONS", []string{origin(mailOrigin), asksPOST, "Access-Control-Request-Headers: content-type"}, 204,
			[]string{"Vary: Outer", "Access-Control-Allow-Origin: " + mailOrigin, "Access-Control-Allow-Methods: POST", "Access-Control-Allow-Headers: content-type"}, ReasonEmailV1}, news},
		{request{"version 1, preflight for another method", "OPTIONS", []string{origin(mailOrigin), "Access-Control-Request-Method: DELETE"}, 403, deniedPreflight, ReasonMethodNotAllowed}, news},
		{request{"version 1, preflight for version 2", "OPTIONS", []string{origin(mailOrigin), asksPOST, "Access-Control-Request-Headers: amp-email-sender"}, 403, deniedPreflight, ReasonHeaderNotAllowed}, news},
		{request{"version 1, preflight of another sender", "OPTIONS", []string{origin(mailOrigin), asksPOST}, 403, deniedPreflight, ReasonEmailSenderNotAllowed}, "?__amp_source_origin=evil@evil.example"},

		{request{"preflight of a page for version 2", "OPTIONS", []string{origin(cacheOrigin), asksPOST, "Access-Control-Request-Headers: amp-email-sender"}, 403, deniedPreflight, ReasonHeaderNotAllowed}, ""},
		{request{"preflight of an own origin for version 2", "OPTIONS", []string{origin(ownOrigin), asksPOST, "Access-Control-Request-Headers: amp-email-sender"}, 403, deniedPreflight, ReasonHeaderNotAllowed}, ""},

		{request{"a client whose origin is listed, email", "GET", []string{origin("https://amp.gmail.dev")}, 202, v1("https://amp.gmail.dev", "news@example.com"), ReasonEmailV1}, news},
		{request{"a client whose origin is listed, page", "GET", []string{origin("https://amp.gmail.dev")}, 202, site("https://amp.gmail.dev"), ReasonExtraOrigin}, ""},
		{request{"a client whose origin is listed, page that names its origin", "GET", []string{origin("https://amp.gmail.dev")}, 202, site("https://amp.gmail.dev"), ReasonExtraOrigin}, "?__amp_source_origin=https%3A%2F%2Famp.gmail.dev"},
		{request{"a client whose origin is listed, another sender", "GET", []string{origin("https://amp.gmail.dev")}, 403, denied, ReasonEmailSenderNotAllowed}, "?__amp_source_origin=evil@evil.example"},
		{request{"a client whose origin is listed, no address", "GET", []string{origin("https://amp.gmail.dev")}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=%22a%20b%22@evil.example"},
		{request{"a client whose origin is listed, a bad escape", "GET", []string{origin("https://amp.gmail.dev")}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=evil@evil.example%zz"},
		{request{"a client whose origin is listed, two senders", "GET", []string{origin("https://amp.gmail.dev")}, 403, denied, ReasonNoEmailSender}, "?__amp_source_origin=https://amp.gmail.dev&__amp_source_origin=evil@evil.example"},
		{request{"a client that is a publisher, page", "GET", []string{origin("https://blog.example.net")}, 202, site("https://blog.example.net"), ReasonOwnOrigin}, "?__amp_source_origin=https://blog.example.net"},
		{request{"a client that is a publisher, preflight for another method", "OPTIONS", []string{origin("https://blog.example.net"), "Access-Control-Request-Method: DELETE"}, 403, deniedPreflight, ReasonMethodNotAllowed}, ""},
		{request{"a client at the API's own host, page", "POST", []string{origin(mailOrigin), "Sec-Fetch-Site: same-origin"}, 202, passed, ReasonSameOrigin}, ""},
	} {
		checkRequest(t, emailConfig(), test.request, test.query, headers(test.want...))
	}
}

func TestAnEmailDecisionNamesTheSender(t *testing.T) {
	m := newMiddleware(t, emailConfig())
	for _, test := range []struct {
		query   string
		headers []string
		want    Decision
	}{
		{"", []string{"AMP-Email-Sender: news@example.com"}, Decision{Allowed: true, Reason: ReasonEmail, EmailSender: "news@example.com"}},
		{"", []string{"AMP-Email-Sender: evil@evil.example", "Origin: null"}, Decision{Reason: ReasonEmailSenderNotAllowed, Origin: "null", EmailSender: "evil@evil.example"}},
		{"", []string{"AMP-Email-Sender: *"}, Decision{Reason: ReasonNoEmailSender, EmailSender: "*"}},
		{"?__amp_source_origin=news@example.com", []string{"Origin: " + mailOrigin}, Decision{Allowed: true, Reason: ReasonEmailV1, Origin: mailOrigin, EmailSender: "news@example.com"}},
		{"?__amp_source_origin=evil@evil.example", []string{"Origin: " + mailOrigin}, Decision{Reason: ReasonEmailSenderNotAllowed, Origin: mailOrigin, EmailSender: "evil@evil.example"}},
		// A page names no sender, whatever it claims.
		{"?__amp_source_origin=https://a.example", []string{"Origin: https://amp.gmail.dev"}, Decision{Allowed: true, Reason: ReasonExtraOrigin, Origin: "https://amp.gmail.dev"}},
		{"?__amp_source_origin=https://a.example", []string{"Origin: https://blog.example.net"}, Decision{Allowed: true, Reason: ReasonOwnOrigin, Origin: "https://blog.example.net", Publisher: "blog.example.net"}},
		{"", []string{"AMP-Email-Sender: news@example.com", "Origin: null", "Origin: null"}, Decision{Allowed: true, Reason: ReasonEmail, EmailSender: "news@example.com"}},
		{"?__amp_source_origin=news@example.com", []string{"Origin: " + cacheOrigin}, Decision{Allowed: true, Reason: ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google"}},
	} {
		r := httptest.NewRequest("GET", "/"+test.query, nil)
		r.Header = headers(test.headers...)
		if got := m.Check(r); got != test.want {
			t.Errorf("%s %q: %+v; want %+v", test.query, test.headers, got, test.want)
		}
	}
	r := &http.Request{Method: "GET", Header: headers("Origin: " + mailOrigin)} // which has no URL
	if got, want := m.Check(r), (Decision{Reason: ReasonNoEmailSender, Origin: mailOrigin}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

func TestWithoutClientsOnlyVersion2IsAllowed(t *testing.T) {
	m := newMiddleware(t, Config{Email: Email{Senders: []string{"news@example.com"}, Clients: []string{}}})
	r := httptest.NewRequest("GET", "/?__amp_source_origin=news@example.com", nil)
	r.Header = headers("Origin: " + mailOrigin)
	if d := m.Check(r); d.Reason != ReasonUnknownHost {
		t.Errorf("version 1: %+v", d)
	}
	r.Header = headers("AMP-Email-Sender: news@example.com")
	if d := m.Check(r); !d.Allowed {
		t.Errorf("version 2: %+v", d)
	}
	if m, err := New(Config{Email: Email{Senders: []string{"news@example.com"}}}); err != nil {
		t.Error(err)
	} else if r.Header = headers("Origin: " + mailOrigin); !m.Check(r).Allowed {
		t.Error("Gmail is no client by default")
	}
}

// TestWithoutEmailTheSenderHeaderIsIgnored: only Config.Email gives it
// a meaning.
func TestWithoutEmailTheSenderHeaderIsIgnored(t *testing.T) {
	m := newMiddleware(t, testConfig())
	for _, method := range []string{"GET", "POST"} {
		for _, lines := range [][]string{nil, {"Origin: " + cacheOrigin}, {"Origin: " + evilOrigin}, {"Origin: " + mailOrigin}} {
			r := httptest.NewRequest(method, "/?__amp_source_origin=news@example.com", nil)
			r.Header = headers(lines...)
			want := m.Check(r)
			r.Header.Set("AMP-Email-Sender", "news@example.com")
			if got := m.Check(r); got != want {
				t.Errorf("%s %q: %+v; want %+v", method, lines, got, want)
			}
		}
	}
}

func TestReportOnlyDeniesNoEmailRequest(t *testing.T) {
	cfg := emailConfig()
	cfg.ReportOnly = true
	vary := []string{"Vary: Outer, Origin, AMP-Email-Sender", "Vary: Accept", "X-Handler: ran"}
	checkRequest(t, cfg, request{"version 2", "POST", []string{"AMP-Email-Sender: evil@evil.example"}, 202, vary, ReasonEmailSenderNotAllowed}, "", headers(vary...))
	checkRequest(t, cfg, request{"version 1", "POST", []string{"Origin: " + mailOrigin}, 202, vary, ReasonNoEmailSender}, "", headers(vary...))
}

// TestThreatSendersThatAreNotAllowed: values that look like an allowed sender,
// and values that must never be echoed.
func TestThreatSendersThatAreNotAllowed(t *testing.T) {
	m := newMiddleware(t, emailConfig())
	for _, sender := range []string{
		"*", "*@example.com", "*@xn--bcher-kva.example", "a*@xn--bcher-kva.example", "news@*", "",
		"news@example.com\r\nX-Evil: 1", "\r\nnews@example.com", "a\r\n@xn--bcher-kva.example", "a@xn--bcher-kva.example\n",
		" news@example.com", "news@example.com ", "\tnews@example.com", "news@example.com,evil@evil.example", "evil@evil.example,news@example.com",
		"news@example.com@evil.example", "news@example.com.evil.example", "news@evilexample.com", "news@example.com.", "news@.example.com",
		"xnews@example.com", "News@example.com", "news.@example.com", ".news@example.com", "n..s@xn--bcher-kva.example", "@xn--bcher-kva.example", "news",
		"a@b@xn--bcher-kva.example", `"a"@xn--bcher-kva.example`, `"a@xn--bcher-kva.example"`, "<news@example.com>", "News <news@example.com>", "a(b)@xn--bcher-kva.example",
		"a@sub.xn--bcher-kva.example", "a@xn--bcher-kva.example.com", "a@bücher.example", "é@xn--bcher-kva.example", "a@xn--bcher-\u212ava.example", "news@example.c\u00f6m",
		"a@[192.0.2.1]", "a@192.0.2.1", "a@localhost", "https://www.example.com", "a\x00@xn--bcher-kva.example", "a:b@xn--bcher-kva.example", "a;b@xn--bcher-kva.example",
		strings.Repeat("a", 65) + "@xn--bcher-kva.example", strings.Repeat("a", 1<<20) + "@example.com", "news@" + strings.Repeat("example.com.", 1<<16),
	} {
		for _, r := range []*http.Request{
			{Method: "GET", URL: &url.URL{}, Header: http.Header{"Amp-Email-Sender": {sender}}},
			{Method: "GET", URL: &url.URL{RawQuery: url.Values{"__amp_source_origin": {sender}}.Encode()}, Header: http.Header{"Origin": {mailOrigin}}},
			{Method: "GET", URL: &url.URL{RawQuery: "__amp_source_origin=" + sender}, Header: http.Header{"Origin": {mailOrigin}}},
		} {
			handler, rec := new(spy), httptest.NewRecorder()
			m.Wrap(handler).ServeHTTP(rec, r)
			if d := m.Check(r); d.Allowed || handler.ran || rec.Code != http.StatusForbidden || len(rec.Header()) != 4 {
				t.Errorf("%.80q: %s, the handler ran: %t, headers %v", sender, d.Reason, handler.ran, rec.Header())
			}
		}
	}
}

// TestTheLengthOfAnAddressIsLimited: at most 64 bytes before the "@", and 254 in
// total.
func TestTheLengthOfAnAddressIsLimited(t *testing.T) {
	local, domain := strings.Repeat("a", 64), strings.Repeat("a.", 94)+"a"
	m := newMiddleware(t, Config{Email: Email{Senders: []string{"*@" + domain, "*@a" + domain}}})
	for sender, allowed := range map[string]bool{
		local + "@" + domain:      true,
		local + "@a" + domain:     false,
		local[1:] + "@a" + domain: true,
		local + "a@" + domain[2:]: false,
	} {
		if d := m.Check(&http.Request{Method: "GET", Header: headers("AMP-Email-Sender: " + sender)}); d.Allowed != allowed {
			t.Errorf("%d bytes before the @, %d in total: %s", strings.IndexByte(sender, '@'), len(sender), d.Reason)
		}
	}
}

func TestAnEmailRequestCostsOneAllocation(t *testing.T) {
	m := newMiddleware(t, emailConfig())
	h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := discard{make(http.Header)}
	for _, r := range []*http.Request{
		{Method: "GET", Header: headers("AMP-Email-Sender: a@xn--bcher-kva.example")},
		{Method: "GET", Header: headers("Origin: " + mailOrigin), URL: &url.URL{RawQuery: "__amp_source_origin=a@xn--bcher-kva.example"}},
		{Method: "GET", Header: headers("Origin: " + cacheOrigin)},
	} {
		if n := testing.AllocsPerRun(100, func() { clear(w.h); h.ServeHTTP(w, r) }); n != 1 {
			t.Errorf("%v: %v allocations; want 1", r.Header, n)
		}
	}
}

// plainEmail reports whether a request is an AMP for Email request, whether it is allowed,
// and which headers it must get. It is written from AMP's document, and need not be fast.
func plainEmail(cfg Config, r *http.Request) (isEmail, allowed bool, grants http.Header) {
	allowedSender := func(s string) bool {
		at := strings.Split(s, "@")
		if len(at) != 2 || len(s) > 254 || len(at[0]) > 64 || strings.Contains(s, "*") {
			return false
		}
		for _, atom := range strings.Split(at[0], ".") {
			if atom == "" || strings.ContainsFunc(atom, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("()<>[]:;\\,\"", c) }) {
				return false
			}
		}
		domain := strings.Map(func(c rune) rune {
			if 'A' <= c && c <= 'Z' {
				return c + 'a' - 'A'
			}
			return c
		}, at[1])
		return slices.ContainsFunc(cfg.Email.Senders, func(want string) bool {
			local, of, _ := strings.Cut(want, "@")
			return plainParse(of) == domain && (local == "*" || local == at[0])
		})
	}
	if senders := r.Header.Values("AMP-Email-Sender"); len(senders) > 0 {
		if len(senders) > 1 || !allowedSender(senders[0]) {
			return true, false, nil
		}
		return true, true, headers("AMP-Email-Allow-Sender: " + senders[0])
	}
	origins := r.Header.Values("Origin")
	if len(origins) != 1 || !slices.Contains(cfg.Email.Clients, origins[0]) {
		return false, false, nil
	}
	var senders []string
	for _, pair := range strings.Split(r.URL.RawQuery, "&") {
		key, value, _ := strings.Cut(strings.ReplaceAll(pair, "+", "%2B"), "=")
		if key, err := url.QueryUnescape(key); err == nil && key == "__amp_source_origin" {
			value, err := url.QueryUnescape(value)
			if err != nil {
				value = "@" // neither an address nor the origin of a website
			}
			senders = append(senders, value)
		}
	}
	switch {
	case len(senders) == 0, len(senders) == 1 && !strings.Contains(senders[0], "@"):
		return false, false, nil
	case len(senders) > 1, !allowedSender(senders[0]):
		return true, false, nil
	}
	return true, true, headers("Access-Control-Allow-Origin: "+origins[0], "AMP-Access-Control-Allow-Source-Origin: "+senders[0],
		"Access-Control-Expose-Headers: AMP-Access-Control-Allow-Source-Origin")
}

// FuzzEmail compares AMP for Email requests with the oracle. Any other request must get the
// same response as without Config.Email, except for Vary and the reason for which a mail
// client's origin is denied.
func FuzzEmail(f *testing.F) {
	cfg := emailConfig()
	with, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	cfg2 := cfg
	cfg2.Email = Email{}
	without, err := New(cfg2)
	if err != nil {
		f.Fatal(err)
	}
	const none = "\x00" // the header is not there
	f.Add("GET", "news@example.com", none, "", none, none)
	f.Add("POST", none, mailOrigin, "a=b&__amp_source_origin=a.b%2Bc%40xn--bcher-kva.example", none, "cross-site")
	f.Add("GET", "*", cacheOrigin, "__amp_source_origin=https://www.example.com", none, none)
	f.Add("GET", "news@example.com\nnews@example.com", "null", "", none, "same-origin")
	f.Add("OPTIONS", none, "https://amp.gmail.dev", "__amp_source_origin=news@EXAMPLE.com&__amp_source_origin=", "POST", none)
	f.Add("OPTIONS", none, "https://blog.example.net", "__amp_source_origin=https://blog.example.net", "POST", none)
	f.Add("POST", none, "https://blog.example.net", "__amp_source_origin=https://blog.example.net", none, none)
	f.Add("GET", "!#$%&'+-/=?^_`{|}~@xn--bcher-kva.example", none, "", none, none)
	f.Fuzz(func(t *testing.T, method, sender, origin, query, asked, site string) {
		r := &http.Request{Method: method, URL: &url.URL{RawQuery: query}, Header: http.Header{}}
		if sender != none {
			r.Header["Amp-Email-Sender"] = strings.Split(sender, "\n")
		}
		if origin != none {
			r.Header["Origin"] = strings.Split(origin, "\n")
		}
		if asked != none {
			r.Header["Access-Control-Request-Method"] = []string{asked}
		}
		if site != none {
			r.Header["Sec-Fetch-Site"] = []string{site}
		}
		do := func(m *Middleware) (*httptest.ResponseRecorder, bool) {
			rec, handler := httptest.NewRecorder(), new(spyAlways)
			m.Wrap(handler).ServeHTTP(rec, r)
			return rec, rec.Code == http.StatusForbidden
		}
		got, denied := do(with)
		isEmail, allowed, want := plainEmail(cfg, r)
		d := with.Check(r)
		if wantSender := isEmail && allowed; d.Allowed && (d.EmailSender != "") != wantSender {
			t.Fatalf("the decision is %+v, though the oracle says that it is an allowed email request: %t", d, wantSender)
		}
		if isEmail {
			if method == http.MethodOptions && sender == none {
				return // TestTheEmailTable has the preflights
			}
			if denied == allowed {
				t.Fatalf("denied: %t, though the oracle says %t", denied, !allowed)
			}
			for key := range got.Header() {
				if _, granted := want[key]; !granted && (strings.HasPrefix(key, "Access-Control-") || strings.HasPrefix(key, "Amp-")) {
					t.Fatalf("%s is granted: %v", key, got.Header())
				}
			}
			for key, values := range want {
				if !slices.Equal(got.Header()[key], values) {
					t.Fatalf("%s is %q; want %q", key, got.Header()[key], values)
				}
			}
			return
		}
		plain, plainDenied := do(without)
		if denied != plainDenied {
			t.Fatalf("Email changed a website's request: denied %t; without it %t", denied, plainDenied)
		}
		if vary := got.Header()["Vary"]; slices.Contains(vary, "Origin, AMP-Email-Sender") == (method == http.MethodOptions) {
			t.Fatalf("Vary is %q", vary)
		}
		delete(got.Header(), "Vary")
		delete(plain.Header(), "Vary")
		for key := range got.Header() {
			if !slices.Equal(got.Header()[key], plain.Header()[key]) || len(got.Header()) != len(plain.Header()) {
				t.Fatalf("Email changed a website's headers: %v; without it %v", got.Header(), plain.Header())
			}
		}
	})
}
