package ampcors

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEveryFaultOfAConfigIsReportedAtOnce(t *testing.T) {
	_, err := New(Config{
		Publishers:      []string{"good.example", "https://example.com", "localhost", "*.com", "www.cdn.ampproject.org"},
		Caches:          []Cache{{ID: "google", CacheDomain: "cdn.ampproject.org"}, {ID: "google", CacheDomain: "bad"}},
		Origins:         []string{"null", "https://example.com/"},
		Credentialed:    true,
		Methods:         []string{"PUT", "delete"},
		RequestHeaders:  []string{"X-Good", "*"},
		ResponseHeaders: []string{"Set-Cookie"},
		MaxAge:          -time.Second,
		CacheSize:       -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	var got []string
	for _, v := range valueErrors(t, err) {
		where, _, _ := strings.Cut(strings.TrimPrefix(v.Error(), "ampcors: "), " ")
		got = append(got, where)
		if v.Reason == "" || v.Want == "" {
			t.Errorf("%v does not say what is wrong and what would be right", v)
		}
	}
	want := []string{
		"Caches[1].id", "Caches[1].cacheDomain", "Origins[0]", "Origins[1]", "Methods[1]", "ResponseHeaders[0]", "MaxAge",
		"Publishers[1]", "Publishers[2]", "Publishers[3]", "Publishers[4]", "RequestHeaders[1]", "CacheSize",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestEachFaultSaysWhatWouldBeRight(t *testing.T) {
	for _, test := range []struct {
		cfg          Config
		where        string
		reason, want string
	}{
		{Config{}, "Publishers", "nothing else allows anybody", "example.com"},
		{Config{Publishers: []string{}, Origins: []string{}}, "Publishers", "nothing else allows anybody", "example.com"},

		{Config{Publishers: []string{"https://example.com/"}}, "Publishers[0]", "has a scheme", `"example.com"`},
		{Config{Publishers: []string{"a.example", " b.example"}}, "Publishers[1]", "white space", `"b.example"`},
		{Config{Publishers: []string{"*"}}, "Publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*."}}, "Publishers[0]", "is empty", "www.example.com"},
		{Config{Publishers: []string{"*.example.com."}}, "Publishers[0]", "trailing dot", `"*.example.com"`},
		{Config{Publishers: []string{"*.https://example.com:443/"}}, "Publishers[0]", "has a scheme", `"*.example.com"`},
		{Config{Publishers: []string{"https://*.example.com"}}, "Publishers[0]", "has a scheme", `"*.example.com"`},
		{Config{Publishers: []string{"*.com."}}, "Publishers[0]", "trailing dot", `a domain such as`},
		{Config{Publishers: []string{"*.BU\u0308CHER.example"}}, "Publishers[0]", "not how browsers spell", `"*.bücher.example"`},
		{Config{Publishers: []string{"*.cdn.ampproject.org"}, Caches: DefaultCaches()[1:]}, "Publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"d-1.ampproject.net"}}, "Publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"*.*.example.com"}}, "Publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"www.*.com"}}, "Publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*example.com"}}, "Publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*.exa mple"}}, "Publishers[0]", "character", "www.example.com"},
		{Config{Publishers: []string{"*.-"}}, "Publishers[0]", "hyphen", "www.example.com"},
		{Config{Publishers: []string{"*.-a"}}, "Publishers[0]", "hyphen", "www.example.com"},
		{Config{Publishers: []string{"example-com.cdn.ampproject.org"}}, "Publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"*.www.bing-amp.com"}}, "Publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"*.com"}, Credentialed: true}, "Publishers[0]", "public suffix", "DangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.github.io"}, Credentialed: true}, "Publishers[0]", "public suffix", "DangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.kawasaki.jp"}, Credentialed: true}, "Publishers[0]", "public suffix", "DangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.рф"}, Credentialed: true}, "Publishers[0]", "public suffix", "DangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.unlisted"}, Credentialed: true}, "Publishers[0]", "public suffix", "DangerouslyAllowPublicSuffixWildcards"},

		{Config{Publishers: []string{"a.example"}, Caches: []Cache{}}, "Caches", "names no cache", "at least one"},

		{Config{Origins: []string{"null"}}, "Origins[0]", "sandboxed", "https://www.example.com"},
		{Config{Origins: []string{"*"}}, "Origins[0]", "everybody", "https://www.example.com"},
		{Config{Origins: []string{""}}, "Origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"example.com"}}, "Origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"ftp://example.com"}}, "Origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"https://a b"}}, "Origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"https://a..b"}}, "Origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://é!"}}, "Origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"http://[fe80::1%25eth0]"}}, "Origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"http://[::ffff:192.0.2.1]"}}, "Origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://cdn.ampproject.org"}}, "Origins[0]", "bare domain", "leave it out"},
		{Config{Origins: []string{"http://cdn.ampproject.org:8080"}}, "Origins[0]", "bare domain", "leave it out"},
		{Config{Origins: []string{"https://example.com."}}, "Origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://1.2.3"}}, "Origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://0x7f.1"}}, "Origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://xn--zzzzzz99999.com"}}, "Origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://" + strings.Repeat("a", 300)}}, "Origins[0]", "longer than 267", "https://www.example.com"},
		{Config{Origins: []string{"https://*.example.com"}}, "Origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://example.com/"}}, "Origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://user@example.com"}}, "Origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://example.com:443"}}, "Origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"http://example.com:80"}}, "Origins[0]", "not how browsers write", `"http://example.com"`},
		{Config{Origins: []string{"http://example.com:080"}}, "Origins[0]", "not how browsers write", `"http://example.com"`},
		{Config{Origins: []string{"http://example.com:0443"}}, "Origins[0]", "not how browsers write", `"http://example.com:443"`},
		{Config{Origins: []string{"http://example.com:99999"}}, "Origins[0]", "above 65535", "https://www.example.com"},
		{Config{Origins: []string{"HTTPS://Example.com"}}, "Origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://bücher.example"}}, "Origins[0]", "not how browsers write", `"https://xn--bcher-kva.example"`},
		{Config{Origins: []string{"https://[2001:DB8::1]:8080"}}, "Origins[0]", "not how browsers write", `"https://[2001:db8::1]:8080"`},

		{Config{Origins: []string{"https://a.example"}, Methods: []string{"*"}}, "Methods[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{""}}, "Methods[0]", "is not a method", "PUT"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"PUT, DELETE"}}, "Methods[0]", "is not a method", "PUT"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"Patch"}}, "Methods[0]", "upper case", `"PATCH"`},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"connect"}}, "Methods[0]", "forbid", "leave it out"},

		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"*"}}, "RequestHeaders[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"X A"}}, "RequestHeaders[0]", "is not a header name", "Authorization"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"amp-Same-origin"}}, "RequestHeaders[0]", "own origins", "leave it out"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Cookie"}}, "RequestHeaders[0]", "no script can set", "leave it out"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Sec-Fetch-Site"}}, "RequestHeaders[0]", "no script can set", "leave it out"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Proxy-X"}}, "RequestHeaders[0]", "no script can set", "leave it out"},

		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"*"}}, "ResponseHeaders[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"a:b"}}, "ResponseHeaders[0]", "is not a header name", "AMP-Redirect-To"},
		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"set-cookie2"}}, "ResponseHeaders[0]", "never exposed", "leave it out"},

		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"AMP-Email-Sender"}}, "RequestHeaders[0]", "mail clients", "leave it out"},

		{Config{Origins: []string{"https://a.example"}, Email: Email{Clients: []string{"https://mail.example"}}}, "Email.Senders", "is missing", "news@example.com"},
		{Config{Email: Email{Senders: []string{}}}, "Publishers", "nothing else allows anybody", "example.com"},
		{Config{Email: Email{Clients: []string{}}}, "Publishers", "nothing else allows anybody", "example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com", "example.com"}}}, "Email.Senders[1]", "not an email address", "news@example.com"},
		{Config{Email: Email{Senders: []string{"*"}}}, "Email.Senders[0]", "not an email address", "*@example.com"},
		{Config{Email: Email{Senders: []string{"*@*"}}}, "Email.Senders[0]", "has a *", "example.com"},
		{Config{Email: Email{Senders: []string{"*@*.example.com"}}}, "Email.Senders[0]", "has a *", "example.com"},
		{Config{Email: Email{Senders: []string{"a*b@example.com"}}}, "Email.Senders[0]", "before the @", "*@example.com"},
		{Config{Email: Email{Senders: []string{"@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a..b@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{".a@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"é@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a b@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{`"a"@example.com`}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 65) + "@example.com"}}}, "Email.Senders[0]", "1 to 64", "news@example.com"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 95)}}}, "Email.Senders[0]", "trailing dot", "@a.a"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "aa"}}}, "Email.Senders[0]", "longer than 254", "news@example.com"},
		{Config{Email: Email{Senders: []string{"Shop <a@example.com>"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{" a@example.com"}}}, "Email.Senders[0]", "white space", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"a@example.com\n"}}}, "Email.Senders[0]", "white space", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"mailto:a@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@"}}}, "Email.Senders[0]", "has a domain that is empty", "news@example.com"},
		{Config{Email: Email{Senders: []string{"*a@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a*@example.com"}}}, "Email.Senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@https://example.com/"}}}, "Email.Senders[0]", "has a scheme", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"a@localhost"}}}, "Email.Senders[0]", "has a domain that has no dot", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"mail.google.com"}}}, "Email.Clients[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"null"}}}, "Email.Clients[0]", "sandboxed", "https://www.example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{cacheOrigin}}}, "Email.Clients[0]", "is an AMP Cache's", "leave it out"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{bingOrigin + ":8443"}}}, "Email.Clients[0]", "is an AMP Cache's", "leave it out"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"https://d-1.ampproject.net"}}}, "Email.Clients[0]", "is an AMP Cache's", "leave it out"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"https://cdn.ampproject.org"}}}, "Email.Clients[0]", "is an AMP Cache's", "leave it out"},

		{Config{Origins: []string{"https://a.example"}, MaxAge: 25 * time.Hour}, "MaxAge", "out of range", "24h"},
		{Config{Origins: []string{"https://a.example"}, MaxAge: 600}, "MaxAge", "whole number of seconds", "such as 10m0s"},
	} {
		_, err := New(test.cfg)
		if err == nil {
			t.Errorf("%+v is accepted; want a fault in %s", test.cfg, test.where)
			continue
		}
		faults := valueErrors(t, err)
		if len(faults) != 1 || !strings.HasPrefix(err.Error(), "ampcors: "+test.where+" ") ||
			!strings.Contains(faults[0].Reason, test.reason) || !strings.Contains(faults[0].Want, test.want) {
			t.Errorf("%v\nwant a fault in %s: %q, %q", err, test.where, test.reason, test.want)
		}
	}
}

func TestWhatIsRightIsAccepted(t *testing.T) {
	for _, cfg := range []Config{
		{Publishers: []string{"example.com", "*.example.com", "bücher.example", "*.bücher.example", "*.рф", "*.com", "*.github.io"}},
		{Publishers: []string{"*.com", "*.github.io"}, Credentialed: true, DangerouslyAllowPublicSuffixWildcards: true},
		{Publishers: []string{"*.example.co.uk", "*.user.github.io", "*.ampproject.org"}, Credentialed: true},
		{Publishers: []string{"example.com", "EXAMPLE.com", "bücher.example", "xn--bcher-kva.example"}}, // a set
		{Origins: []string{"https://playground.amp.dev", "http://localhost:8080", "http://localhost", "http://127.0.0.1:3000", "http://[::1]:3000", "https://my_host.example", "https://foo-.example.com", "https://xn--bcher-kva.example", cacheOrigin, "https://x.example:80"}},
		{Origins: []string{"https://a.example"}, Methods: []string{"GET", "PUT", "PATCH", "OPTIONS", "Custom"}, RequestHeaders: []string{"Content-Type", "X-Requested-With"}, ResponseHeaders: []string{}},
		{Origins: []string{"https://a.example"}, MaxAge: 24 * time.Hour, CacheSize: 1},
		{Publishers: []string{"a.example"}, Caches: DefaultCaches()[:1]},
		{Email: Email{Senders: []string{"a@example.com", "a.b+c@Bücher.example", "*@example.com", strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "a"}}},
		{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{}}},
		{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"https://mail.google.com", "https://amp.gmail.dev", "http://localhost:8080", "https://mycdn.ampproject.org", "https://mail.example:8443"}}},
	} {
		if _, err := New(cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestAConfigSurvivesJSON(t *testing.T) {
	cfg := Config{
		Publishers: []string{"*.example.com"}, Caches: DefaultCaches(), Origins: []string{"https://a.example"}, Credentialed: true,
		Methods: []string{"PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxAge: time.Minute,
		Email:      Email{Senders: []string{"a@example.com"}, Clients: []string{"https://mail.example"}},
		ReportOnly: true, CacheSize: 7, DangerouslyAllowHTTPOwnOrigins: true, DangerouslyAllowPublicSuffixWildcards: true,
		DangerouslyAllowUnsafeRequestsWithoutOrigin: true,
		Lookup: Lookup{TTL: 1, RefusalTTL: 2, StaleFor: 3, Timeout: 4, MaxConcurrent: 5, MaxRate: 6},
	}
	for i, v := 0, reflect.ValueOf(cfg); i < v.NumField(); i++ {
		if f := v.Type().Field(i); v.Field(i).IsZero() && f.Tag.Get("json") != "-" {
			t.Fatalf("the test does not set %s", f.Name)
		}
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, empty := range []Config{{}, {Caches: []Cache{}, ResponseHeaders: []string{}, Email: Email{Clients: []string{}}}} {
		data, err := json.Marshal(empty)
		if err != nil {
			t.Fatal(err)
		}
		var back Config
		if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, empty) {
			t.Errorf("%s\nbecomes %+v, %v; nil and empty lists differ", data, back, err)
		}
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, cfg) {
		t.Errorf("%s\nbecomes %+v, %v", data, back, err)
	}
}

func TestAConfigCannotBeChangedFromOutside(t *testing.T) {
	cfg := Config{
		Publishers: []string{"example.com"}, Caches: DefaultCaches(), Origins: []string{"https://a.example"},
		Methods: []string{"PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"},
		Email: Email{Senders: []string{"news@example.com"}, Clients: []string{"https://mail.example"}},
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Publishers: []string{"example.com"}, Caches: DefaultCaches(), Origins: []string{"https://a.example"},
		Methods: []string{"PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"},
		Email: Email{Senders: []string{"news@example.com"}, Clients: []string{"https://mail.example"}},
	}
	for _, c := range []Config{cfg, m.Config()} {
		c.Publishers[0], c.Caches[0].CacheDomain, c.Origins[0] = "evil.example", "evil.example", "https://evil.example"
		c.Methods[0], c.RequestHeaders[0], c.ResponseHeaders[0] = "EVIL", "X-Evil", "X-Evil"
		c.Email.Senders[0], c.Email.Clients[0] = "evil@evil.example", "https://evil.example"
	}
	if got := m.Config(); !reflect.DeepEqual(got, want) {
		t.Errorf("the configuration became %+v; want %+v", got, want)
	}
	for origin, allowed := range map[string]bool{
		"https://example-com.cdn.ampproject.org": true, "https://a.example": true,
		"https://evil-example.cdn.ampproject.org": false, "https://evil.example": false,
	} {
		if d := m.CheckOrigin(origin); d.Allowed != allowed {
			t.Errorf("%s: %s", origin, d.Reason)
		}
	}
}

func TestReconfigureWithAFaultChangesNothing(t *testing.T) {
	m, err := New(Config{Publishers: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reconfigure(Config{Publishers: []string{"example.net", "https://example.org"}}); err == nil {
		t.Fatal("accepted")
	}
	if !m.CheckOrigin("https://example.com").Allowed || m.CheckOrigin("https://example.net").Allowed {
		t.Error("a configuration with a fault was taken in part")
	}
	if err := m.Reconfigure(Config{Publishers: []string{"example.net"}}); err != nil {
		t.Fatal(err)
	}
	if m.CheckOrigin("https://example.com").Allowed || !m.CheckOrigin("https://example.net").Allowed {
		t.Error("the new configuration is not in force")
	}
}

func TestTheZeroMiddlewareRefusesEveryOrigin(t *testing.T) {
	var m Middleware
	for _, origin := range []string{"https://example.com", "https://example-com.cdn.ampproject.org", "https://" + plainHash("example.com") + ".cdn.ampproject.org", "null", ""} {
		if d := m.CheckOrigin(origin); d.Allowed {
			t.Errorf("%q: %s", origin, d.Reason)
		}
	}
	if !reflect.DeepEqual(m.Config(), Config{}) {
		t.Error("the zero Middleware has a configuration")
	}
	rec := httptest.NewRecorder()
	if m.Handle(rec, &http.Request{Method: "POST"}) || rec.Header().Get("Vary") != "Origin" {
		t.Errorf("POST without Origin: status %d, %v", rec.Code, rec.Header())
	}
}

// TestHeadersThatNoScriptCanSetAreRefused goes through the Fetch standard's list of
// forbidden request-headers, https://fetch.spec.whatwg.org/#forbidden-request-header
func TestHeadersThatNoScriptCanSetAreRefused(t *testing.T) {
	list := "Accept-Charset Accept-Encoding Access-Control-Request-Headers Access-Control-Request-Method Connection " +
		"Content-Length Cookie Cookie2 Date DNT Expect Host Keep-Alive Origin Referer Set-Cookie TE Trailer " +
		"Transfer-Encoding Upgrade Via Proxy-Authorization Sec-Fetch-Site"
	for name := range strings.FieldsSeq(list) {
		if _, err := New(Config{Publishers: []string{"example.com"}, RequestHeaders: []string{name}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
