package proof

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// plainEmail reports whether a request is an AMP for Email request, whether it is allowed,
// and which headers it must get. It is written from AMP's document, and need not be fast.
func plainEmail(cfg ampcors.Config, r *http.Request) (isEmail, allowed bool, grants http.Header) {
	allowedSender := func(s string) bool {
		at := strings.Split(s, "@")
		if len(at) != 2 || len(s) > 254 || len(at[0]) > 64 || strings.Contains(s, "*") {
			return false
		}
		for _, atom := range strings.Split(at[0], ".") {
			if atom == "" || strings.ContainsFunc(atom, func(c rune) bool {
				return c <= ' ' || c >= 0x7f ||
					strings.ContainsRune("()<>[]:;\\,\"", c)
			}) {
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
		return true, true, mwtest.Headers("AMP-Email-Allow-Sender: " + senders[0])
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
	return true, true, mwtest.Headers("Access-Control-Allow-Origin: "+origins[0], "AMP-Access-Control-Allow-Source-Origin: "+senders[0],
		"Access-Control-Expose-Headers: AMP-Access-Control-Allow-Source-Origin")
}

// FuzzEmail compares AMP for Email requests with the oracle. Any other request must get the
// same response as without Config.Email, except for Vary and the reason for which a mail
// client's origin is denied.
func FuzzEmail(f *testing.F) {
	cfg := mwtest.EmailConfig()
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
	f.Add("POST", none, mwtest.MailOrigin, "a=b&__amp_source_origin=a.b%2Bc%40xn--bcher-kva.example", none, "cross-site")
	f.Add("GET", "*", mwtest.CacheOrigin, "__amp_source_origin=https://www.example.com", none, none)
	f.Add("GET", "news@example.com\nnews@example.com", "null", "", none, "same-origin")
	f.Add("OPTIONS", none, "https://amp.gmail.dev", "__amp_source_origin=news@EXAMPLE.com&__amp_source_origin=", "POST", none)
	f.Add("OPTIONS", none, "https://blog.example.net", "__amp_source_origin=https://blog.example.net", "POST", none)
	f.Add("OPTIONS", none, mwtest.CacheOrigin, "", "POST", none) // an allowed preflight
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
			rec, handler := httptest.NewRecorder(), new(mwtest.Handler202)
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
				return // conformance/requests.json has the preflights
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
	if vary := got["Vary"]; len(vary) != 1 || !strings.HasSuffix(vary[0], ", AMP-Email-Sender") ||
		strings.Contains(vary[0], "Request-Method") != (method == http.MethodOptions) {
		t.Fatalf("Vary is %q", vary)
	}
	delete(got, "Vary")
	delete(plain, "Vary")
	if !maps.EqualFunc(got, plain, slices.Equal) {
		t.Fatalf("Email changed a website's headers: %v; without it %v", got, plain)
	}
}
