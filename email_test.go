package ampcors_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func TestAnEmailDecisionNamesTheSender(t *testing.T) {
	m := mwtest.New(t, mwtest.EmailConfig())
	for _, test := range []struct {
		query   string
		headers []string
		want    ampcors.Decision
	}{
		{query: "", headers: []string{"AMP-Email-Sender: news@example.com"},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmail, EmailSender: "news@example.com"}},
		{query: "", headers: []string{"AMP-Email-Sender: evil@evil.example", "Origin: null"},
			want: ampcors.Decision{Reason: ampcors.ReasonEmailSenderNotAllowed, Origin: "null", EmailSender: "evil@evil.example"}},
		{query: "", headers: []string{"AMP-Email-Sender: *"}, want: ampcors.Decision{Reason: ampcors.ReasonNoEmailSender, EmailSender: "*"}},
		{query: "?__amp_source_origin=news@example.com", headers: []string{"Origin: " + mwtest.MailOrigin},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmailV1, Origin: mwtest.MailOrigin, EmailSender: "news@example.com"}},
		{query: "?__amp_source_origin=evil@evil.example", headers: []string{"Origin: " + mwtest.MailOrigin},
			want: ampcors.Decision{Reason: ampcors.ReasonEmailSenderNotAllowed, Origin: mwtest.MailOrigin, EmailSender: "evil@evil.example"}},
		// A page names no sender, whatever it claims.
		{query: "?__amp_source_origin=https://a.example", headers: []string{"Origin: https://amp.gmail.dev"},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonExtraOrigin, Origin: "https://amp.gmail.dev"}},
		{query: "?__amp_source_origin=https://a.example", headers: []string{"Origin: https://blog.example.net"},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonOwnOrigin, Origin: "https://blog.example.net",
				Publisher: "blog.example.net"}},
		{query: "", headers: []string{"AMP-Email-Sender: news@example.com", "Origin: null", "Origin: null"},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonEmail, EmailSender: "news@example.com"}},
		{query: "?__amp_source_origin=news@example.com", headers: []string{"Origin: " + mwtest.CacheOrigin},
			want: ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: mwtest.CacheOrigin, Publisher: "www.example.com",
				CacheID: "google"}},
	} {
		t.Run(test.query, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/"+test.query, nil)
			r.Header = mwtest.Headers(test.headers...)
			if got := m.Check(r); got != test.want {
				t.Errorf("%s %q: %+v; want %+v", test.query, test.headers, got, test.want)
			}
		})
	}
	r := &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.MailOrigin)} // which has no URL
	if got, want := m.Check(r), (ampcors.Decision{Reason: ampcors.ReasonNoEmailSender, Origin: mwtest.MailOrigin}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

func TestWithoutClientsOnlyVersion2IsAllowed(t *testing.T) {
	m := mwtest.New(t, ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"}, Clients: []string{}}})
	r := httptest.NewRequest("GET", "/?__amp_source_origin=news@example.com", nil)
	r.Header = mwtest.Headers("Origin: " + mwtest.MailOrigin)
	if d := m.Check(r); d.Reason != ampcors.ReasonUnknownHost {
		t.Errorf("version 1: %+v", d)
	}
	r.Header = mwtest.Headers("AMP-Email-Sender: news@example.com")
	if d := m.Check(r); !d.Allowed {
		t.Errorf("version 2: %+v", d)
	}
	if m, err := ampcors.New(ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"}}}); err != nil {
		t.Error(err)
	} else if r.Header = mwtest.Headers("Origin: " + mwtest.MailOrigin); !m.Check(r).Allowed {
		t.Error("Gmail is no client by default")
	}
}

// TestWithoutEmailTheSenderHeaderIsIgnored: only Config.Email gives it
// a meaning.
func TestWithoutEmailTheSenderHeaderIsIgnored(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			for _, lines := range [][]string{nil, {"Origin: " + mwtest.CacheOrigin}, {"Origin: " + mwtest.EvilOrigin},
				{"Origin: " + mwtest.MailOrigin}} {
				r := httptest.NewRequest(method, "/?__amp_source_origin=news@example.com", nil)
				r.Header = mwtest.Headers(lines...)
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
	m := mwtest.New(t, mwtest.EmailConfig())
	for _, sender := range []string{
		"*", "*@example.com", "*@xn--bcher-kva.example", "a*@xn--bcher-kva.example", "news@*", "",
		"news@example.com\r\nX-Evil: 1", "\r\nnews@example.com", "a\r\n@xn--bcher-kva.example", "a@xn--bcher-kva.example\n",
		" news@example.com", "news@example.com ", "\tnews@example.com", "news@example.com,evil@evil.example",
		"evil@evil.example,news@example.com",
		"news@example.com@evil.example", "news@example.com.evil.example", "news@evilexample.com", "news@example.com.", "news@.example.com",
		"xnews@example.com", "News@example.com", "news.@example.com", ".news@example.com", "n..s@xn--bcher-kva.example", "@xn--bcher-kva.example",
		"news",
		"a@b@xn--bcher-kva.example", `"a"@xn--bcher-kva.example`, `"a@xn--bcher-kva.example"`, "<news@example.com>", "News <news@example.com>",
		"a(b)@xn--bcher-kva.example",
		"a@sub.xn--bcher-kva.example", "a@xn--bcher-kva.example.com", "a@bücher.example", "é@xn--bcher-kva.example",
		"a@xn--bcher-\u212ava.example", "news@example.c\u00f6m",
		"a@[192.0.2.1]", "a@192.0.2.1", "a@localhost", "https://www.example.com", "a\x00@xn--bcher-kva.example", "a:b@xn--bcher-kva.example",
		"a;b@xn--bcher-kva.example",
		strings.Repeat("a", 65) + "@xn--bcher-kva.example", strings.Repeat("a", 1<<20) + "@example.com",
		"news@" + strings.Repeat("example.com.", 1<<16),
	} {
		t.Run(fmt.Sprintf("%.40s", sender), func(t *testing.T) {
			for _, r := range []*http.Request{
				{Method: "GET", URL: &url.URL{}, Header: http.Header{"Amp-Email-Sender": {sender}}},
				{Method: "GET", URL: &url.URL{RawQuery: url.Values{"__amp_source_origin": {sender}}.Encode()},
					Header: http.Header{"Origin": {mwtest.MailOrigin}}},
				{Method: "GET", URL: &url.URL{RawQuery: "__amp_source_origin=" + sender}, Header: http.Header{"Origin": {mwtest.MailOrigin}}},
			} {
				handler, rec := new(mwtest.Spy), httptest.NewRecorder()
				m.Wrap(handler).ServeHTTP(rec, r)
				if d := m.Check(r); d.Allowed || handler.Ran || rec.Code != http.StatusForbidden || len(rec.Header()) != 4 {
					t.Errorf("%.80q: %s, the handler ran: %t, headers %v", sender, d.Reason, handler.Ran, rec.Header())
				}
			}
		})
	}
}

// TestTheLengthOfAnAddressIsLimited: at most 64 bytes before the "@", and 254 in
// total.
func TestTheLengthOfAnAddressIsLimited(t *testing.T) {
	local, domain := strings.Repeat("a", 64), strings.Repeat("a.", 94)+"a"
	m := mwtest.New(t, ampcors.Config{Email: ampcors.Email{Senders: []string{"*@" + domain, "*@a" + domain}}})
	for sender, allowed := range map[string]bool{
		local + "@" + domain:      true,
		local + "@a" + domain:     false,
		local[1:] + "@a" + domain: true,
		local + "a@" + domain[2:]: false,
	} {
		t.Run(sender, func(t *testing.T) {
			if d := m.Check(&http.Request{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: " + sender)}); d.Allowed != allowed {
				t.Errorf("%d bytes before the @, %d in total: %s", strings.IndexByte(sender, '@'), len(sender), d.Reason)
			}
		})
	}
}

// An email has no Origin that counts, so that the Source is not asked about it.
func TestAnEmailAsksNoSource(t *testing.T) {
	db := mwtest.NewDatabase("www.example.com")
	cfg := mwtest.EmailConfig()
	cfg.Source = db.Remembered(t)
	m := mwtest.New(t, cfg)
	for _, sender := range []string{"news@example.com", "evil@evil.example"} {
		r := &http.Request{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: "+sender, "Origin: "+mwtest.EvilOrigin)}
		m.Check(r)
	}
	if n := db.Lookups(); n != 0 {
		t.Errorf("the Source was asked %d times", n)
	}
}
