package ampcors_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

const mailOrigin = "https://mail.google.com"

func emailConfig() ampcors.Config {
	cfg := testConfig()
	cfg.Origins = append(cfg.Origins, "https://amp.gmail.dev")
	cfg.Email = ampcors.Email{
		Senders: []string{"news@example.com", "*@bücher.example", "Shop@Café.Example"},
		Clients: []string{mailOrigin, "https://amp.gmail.dev", "https://blog.example.net", "http://localhost:8080", "https://mail.example:8443"},
	}
	return cfg
}

func TestAnEmailDecisionNamesTheSender(t *testing.T) {
	m := newMiddleware(t, emailConfig())
	for _, test := range []struct {
		query   string
		headers []string
		want    ampcors.Decision
	}{
		{query: "", headers: []string{"AMP-Email-Sender: news@example.com"}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmail, EmailSender: "news@example.com"}},
		{query: "", headers: []string{"AMP-Email-Sender: evil@evil.example", "Origin: null"}, want: ampcors.Decision{Reason: ampcors.ReasonEmailSenderNotAllowed, Origin: "null", EmailSender: "evil@evil.example"}},
		{query: "", headers: []string{"AMP-Email-Sender: *"}, want: ampcors.Decision{Reason: ampcors.ReasonNoEmailSender, EmailSender: "*"}},
		{query: "?__amp_source_origin=news@example.com", headers: []string{"Origin: " + mailOrigin}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmailV1, Origin: mailOrigin, EmailSender: "news@example.com"}},
		{query: "?__amp_source_origin=evil@evil.example", headers: []string{"Origin: " + mailOrigin}, want: ampcors.Decision{Reason: ampcors.ReasonEmailSenderNotAllowed, Origin: mailOrigin, EmailSender: "evil@evil.example"}},
		// A page names no sender, whatever it claims.
		{query: "?__amp_source_origin=https://a.example", headers: []string{"Origin: https://amp.gmail.dev"}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonExtraOrigin, Origin: "https://amp.gmail.dev"}},
		{query: "?__amp_source_origin=https://a.example", headers: []string{"Origin: https://blog.example.net"}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonOwnOrigin, Origin: "https://blog.example.net", Publisher: "blog.example.net"}},
		{query: "", headers: []string{"AMP-Email-Sender: news@example.com", "Origin: null", "Origin: null"}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmail, EmailSender: "news@example.com"}},
		{query: "?__amp_source_origin=news@example.com", headers: []string{"Origin: " + cacheOrigin}, want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google"}},
	} {
		t.Run(test.query, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/"+test.query, nil)
			r.Header = headers(test.headers...)
			if got := m.Check(r); got != test.want {
				t.Errorf("%s %q: %+v; want %+v", test.query, test.headers, got, test.want)
			}
		})
	}
	r := &http.Request{Method: "GET", Header: headers("Origin: " + mailOrigin)} // which has no URL
	if got, want := m.Check(r), (ampcors.Decision{Reason: ampcors.ReasonNoEmailSender, Origin: mailOrigin}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

func TestWithoutClientsOnlyVersion2IsAllowed(t *testing.T) {
	m := newMiddleware(t, ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"}, Clients: []string{}}})
	r := httptest.NewRequest("GET", "/?__amp_source_origin=news@example.com", nil)
	r.Header = headers("Origin: " + mailOrigin)
	if d := m.Check(r); d.Reason != ampcors.ReasonUnknownHost {
		t.Errorf("version 1: %+v", d)
	}
	r.Header = headers("AMP-Email-Sender: news@example.com")
	if d := m.Check(r); !d.Allowed {
		t.Errorf("version 2: %+v", d)
	}
	if m, err := ampcors.New(ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"}}}); err != nil {
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
		t.Run(method, func(t *testing.T) {
			for _, lines := range [][]string{nil, {"Origin: " + cacheOrigin}, {"Origin: " + evilOrigin}, {"Origin: " + mailOrigin}} {
				r := httptest.NewRequest(method, "/?__amp_source_origin=news@example.com", nil)
				r.Header = headers(lines...)
				want := m.Check(r)
				r.Header.Set("AMP-Email-Sender", "news@example.com")
				if got := m.Check(r); got != want {
					t.Errorf("%s %q: %+v; want %+v", method, lines, got, want)
				}
			}
		})
	}
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
		t.Run(fmt.Sprintf("%.40s", sender), func(t *testing.T) {
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
		})
	}
}

// TestTheLengthOfAnAddressIsLimited: at most 64 bytes before the "@", and 254 in
// total.
func TestTheLengthOfAnAddressIsLimited(t *testing.T) {
	local, domain := strings.Repeat("a", 64), strings.Repeat("a.", 94)+"a"
	m := newMiddleware(t, ampcors.Config{Email: ampcors.Email{Senders: []string{"*@" + domain, "*@a" + domain}}})
	for sender, allowed := range map[string]bool{
		local + "@" + domain:      true,
		local + "@a" + domain:     false,
		local[1:] + "@a" + domain: true,
		local + "a@" + domain[2:]: false,
	} {
		t.Run(sender, func(t *testing.T) {
			if d := m.Check(&http.Request{Method: "GET", Header: headers("AMP-Email-Sender: " + sender)}); d.Allowed != allowed {
				t.Errorf("%d bytes before the @, %d in total: %s", strings.IndexByte(sender, '@'), len(sender), d.Reason)
			}
		})
	}
}

// plainEmail reports whether a request is an AMP for Email request, whether it is allowed,
// and which headers it must get. It is written from AMP's document, and need not be fast.
func plainEmail(cfg ampcors.Config, r *http.Request) (isEmail, allowed bool, grants http.Header) {
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
	with, err := ampcors.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	cfg2 := cfg
	cfg2.Email = ampcors.Email{}
	without, err := ampcors.New(cfg2)
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
	f.Add("OPTIONS", none, cacheOrigin, "", "POST", none) // an allowed preflight
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
		do := func(m *ampcors.Middleware) (*httptest.ResponseRecorder, bool) {
			rec, handler := httptest.NewRecorder(), new(handler202)
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
			checkEmailHeaders(t, got.Header(), want)
			return
		}
		plain, plainDenied := do(without)
		if denied != plainDenied {
			t.Fatalf("Email changed a website's request: denied %t; without it %t", denied, plainDenied)
		}
		if got.Code != plain.Code {
			t.Fatalf("Email changed a website's status: %d; without it %d", got.Code, plain.Code)
		}
		checkWebsiteHeaders(t, method, got.Header(), plain.Header())
	})
}

// checkEmailHeaders fails unless the response has what the oracle wants, and no other CORS header.
func checkEmailHeaders(t *testing.T, got, want http.Header) {
	t.Helper()
	for key := range got {
		if _, granted := want[key]; !granted && (strings.HasPrefix(key, "Access-Control-") || strings.HasPrefix(key, "Amp-")) {
			t.Fatalf("%s is granted: %v", key, got)
		}
	}
	for key, values := range want {
		if !slices.Equal(got[key], values) {
			t.Fatalf("%s is %q; want %q", key, got[key], values)
		}
	}
}

// checkWebsiteHeaders fails if Config.Email changed the response to a website by more than Vary.
func checkWebsiteHeaders(t *testing.T, method string, got, plain http.Header) {
	t.Helper()
	if vary := got["Vary"]; len(vary) != 1 || !strings.HasSuffix(vary[0], ", AMP-Email-Sender") || strings.Contains(vary[0], "Request-Method") != (method == http.MethodOptions) {
		t.Fatalf("Vary is %q", vary)
	}
	delete(got, "Vary")
	delete(plain, "Vary")
	if !maps.EqualFunc(got, plain, slices.Equal) {
		t.Fatalf("Email changed a website's headers: %v; without it %v", got, plain)
	}
}
