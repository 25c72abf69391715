package ampcors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryProblemOfAConfigIsReportedAtOnce(t *testing.T) {
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
		"caches[1].id", "caches[1].cacheDomain", "origins[0]", "origins[1]", "methods[1]", "responseHeaders[0]", "maxAge",
		"publishers[1]", "publishers[2]", "publishers[3]", "publishers[4]", "requestHeaders[1]", "cacheSize",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestEachProblemSaysWhatWouldBeRight(t *testing.T) {
	for _, test := range []struct {
		cfg          Config
		where        string
		reason, want string
	}{
		{Config{}, "publishers", "nothing else allows anybody", "example.com"},
		{Config{Publishers: []string{}, Origins: []string{}}, "publishers", "nothing else allows anybody", "example.com"},

		{Config{Publishers: []string{"https://example.com/"}}, "publishers[0]", "has a scheme", `"example.com"`},
		{Config{Publishers: []string{"a.example", " b.example"}}, "publishers[1]", "white space", `"b.example"`},
		{Config{Publishers: []string{"*"}}, "publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*."}}, "publishers[0]", "is empty", "www.example.com"},
		{Config{Publishers: []string{"*.example.com."}}, "publishers[0]", "trailing dot", `"*.example.com"`},
		{Config{Publishers: []string{"*.https://example.com:443/"}}, "publishers[0]", "has a scheme", `"*.example.com"`},
		{Config{Publishers: []string{"https://*.example.com"}}, "publishers[0]", "has a scheme", `"*.example.com"`},
		{Config{Publishers: []string{"*.com."}}, "publishers[0]", "trailing dot", `a domain such as`},
		{Config{Publishers: []string{"*.BU\u0308CHER.example"}}, "publishers[0]", "not how browsers spell", `"*.bücher.example"`},
		{Config{Publishers: []string{"*.cdn.ampproject.org"}, Caches: DefaultCaches()[1:]}, "publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"d-1.ampproject.net"}}, "publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"*.*.example.com"}}, "publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"www.*.com"}}, "publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*example.com"}}, "publishers[0]", "has a *", `"*.example.com"`},
		{Config{Publishers: []string{"*.exa mple"}}, "publishers[0]", "character", "www.example.com"},
		{Config{Publishers: []string{"*.-"}}, "publishers[0]", "hyphen", "www.example.com"},
		{Config{Publishers: []string{"*.-a"}}, "publishers[0]", "hyphen", "www.example.com"},
		{Config{Publishers: []string{"example-com.cdn.ampproject.org"}}, "publishers[0]", "is a host of an AMP Cache", `"example.com"`},
		{Config{Publishers: []string{"*.www.bing-amp.com"}}, "publishers[0]", "is a host of an AMP Cache", "the domain whose documents"},
		{Config{Publishers: []string{"*.com"}}, "publishers[0]", "public suffix", "dangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.github.io"}}, "publishers[0]", "public suffix", "dangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.kawasaki.jp"}}, "publishers[0]", "public suffix", "dangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.рф"}}, "publishers[0]", "public suffix", "dangerouslyAllowPublicSuffixWildcards"},
		{Config{Publishers: []string{"*.unlisted"}}, "publishers[0]", "public suffix", "dangerouslyAllowPublicSuffixWildcards"},

		{Config{Publishers: []string{"a.example"}, Caches: []Cache{}}, "caches", "names no cache", "at least one"},

		{Config{Origins: []string{"null"}}, "origins[0]", "sandboxed", "https://www.example.com"},
		{Config{Origins: []string{"*"}}, "origins[0]", "everybody", "https://www.example.com"},
		{Config{Origins: []string{""}}, "origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"example.com"}}, "origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"ftp://example.com"}}, "origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"https://a b"}}, "origins[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Origins: []string{"https://a..b"}}, "origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://é!"}}, "origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"http://[fe80::1%25eth0]"}}, "origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"http://[::ffff:192.0.2.1]"}}, "origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://cdn.ampproject.org"}}, "origins[0]", "bare domain", "remove it"},
		{Config{Origins: []string{"https://cdn.ampproject.org"}, Caches: []Cache{{ID: "x", CacheDomain: "amp.example.net", ThirdPartyFrameDomainSuffix: "ampproject.org"}}}, "origins[0]", "bare domain", "remove it"},
		{Config{Origins: []string{"http://cdn.ampproject.org:8080"}}, "origins[0]", "bare domain", "remove it"},
		{Config{Origins: []string{"https://example.com."}}, "origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://1.2.3"}}, "origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://0x7f.1"}}, "origins[0]", "browsers write in another way", "https://www.example.com"},
		{Config{Origins: []string{"https://xn--zzzzzz99999.com"}}, "origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://" + strings.Repeat("a", 300)}}, "origins[0]", "longer than 267", "https://www.example.com"},
		{Config{Origins: []string{"https://*.example.com"}}, "origins[0]", "has a host that", "https://www.example.com"},
		{Config{Origins: []string{"https://example.com/"}}, "origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://user@example.com"}}, "origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://example.com:443"}}, "origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"http://example.com:80"}}, "origins[0]", "not how browsers write", `"http://example.com"`},
		{Config{Origins: []string{"http://example.com:080"}}, "origins[0]", "not how browsers write", `"http://example.com"`},
		{Config{Origins: []string{"http://example.com:0443"}}, "origins[0]", "not how browsers write", `"http://example.com:443"`},
		{Config{Origins: []string{"http://example.com:99999"}}, "origins[0]", "above 65535", "https://www.example.com"},
		{Config{Origins: []string{"HTTPS://Example.com"}}, "origins[0]", "not how browsers write", `"https://example.com"`},
		{Config{Origins: []string{"https://bücher.example"}}, "origins[0]", "not how browsers write", `"https://xn--bcher-kva.example"`},
		{Config{Origins: []string{"https://[2001:DB8::1]:8080"}}, "origins[0]", "not how browsers write", `"https://[2001:db8::1]:8080"`},

		{Config{Origins: []string{"https://a.example"}, Methods: []string{"*"}}, "methods[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{""}}, "methods[0]", "is not a method", "PUT"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"PUT, DELETE"}}, "methods[0]", "is not a method", "PUT"},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"Patch"}}, "methods[0]", "upper case", `"PATCH"`},
		{Config{Origins: []string{"https://a.example"}, Methods: []string{"connect"}}, "methods[0]", "forbid", "remove it"},

		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"*"}}, "requestHeaders[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"X A"}}, "requestHeaders[0]", "is not a header name", "Authorization"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"amp-Same-origin"}}, "requestHeaders[0]", "own origins", "remove it"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Cookie"}}, "requestHeaders[0]", "no script can set", "remove it"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Sec-Fetch-Site"}}, "requestHeaders[0]", "no script can set", "remove it"},
		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Proxy-X"}}, "requestHeaders[0]", "no script can set", "remove it"},

		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"*"}}, "responseHeaders[0]", "wildcard", "one by one"},
		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"a:b"}}, "responseHeaders[0]", "is not a header name", "AMP-Redirect-To"},
		{Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"set-cookie2"}}, "responseHeaders[0]", "never exposed", "remove it"},

		{Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"AMP-Email-Sender"}}, "requestHeaders[0]", "mail clients", "remove it"},

		{Config{Origins: []string{"https://a.example"}, Email: Email{Clients: []string{"https://mail.example"}}}, "email.senders", "is missing", "news@example.com"},
		{Config{Email: Email{Senders: []string{}}}, "publishers", "nothing else allows anybody", "example.com"},
		{Config{Email: Email{Clients: []string{}}}, "publishers", "nothing else allows anybody", "example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com", "example.com"}}}, "email.senders[1]", "not an email address", "news@example.com"},
		{Config{Email: Email{Senders: []string{"*"}}}, "email.senders[0]", "not an email address", "*@example.com"},
		{Config{Email: Email{Senders: []string{"*@*"}}}, "email.senders[0]", "has a *", "example.com"},
		{Config{Email: Email{Senders: []string{"*@*.example.com"}}}, "email.senders[0]", "has a *", "example.com"},
		{Config{Email: Email{Senders: []string{"a*b@example.com"}}}, "email.senders[0]", "before the @", "*@example.com"},
		{Config{Email: Email{Senders: []string{"@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a..b@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{".a@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"é@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a b@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{`"a"@example.com`}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 65) + "@example.com"}}}, "email.senders[0]", "1 to 64", "news@example.com"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 95)}}}, "email.senders[0]", "trailing dot", "@a.a"},
		{Config{Email: Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "aa"}}}, "email.senders[0]", "longer than 254", "news@example.com"},
		{Config{Email: Email{Senders: []string{"Shop <a@example.com>"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{" a@example.com"}}}, "email.senders[0]", "white space", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"a@example.com\n"}}}, "email.senders[0]", "white space", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"mailto:a@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@"}}}, "email.senders[0]", "has a domain that is empty", "news@example.com"},
		{Config{Email: Email{Senders: []string{"*a@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a*@example.com"}}}, "email.senders[0]", "before the @", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@https://example.com/"}}}, "email.senders[0]", "has a scheme", `"a@example.com"`},
		{Config{Email: Email{Senders: []string{"a@localhost"}}}, "email.senders[0]", "has a domain that has no dot", "news@example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"mail.google.com"}}}, "email.clients[0]", "not an http or https origin", "https://www.example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"null"}}}, "email.clients[0]", "sandboxed", "https://www.example.com"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{cacheOrigin}}}, "email.clients[0]", "is an AMP Cache's", "remove it"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{bingOrigin + ":8443"}}}, "email.clients[0]", "is an AMP Cache's", "remove it"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"https://d-1.ampproject.net"}}}, "email.clients[0]", "is an AMP Cache's", "remove it"},
		{Config{Email: Email{Senders: []string{"a@example.com"}, Clients: []string{"https://cdn.ampproject.org"}}}, "email.clients[0]", "is an AMP Cache's", "remove it"},

		{Config{Origins: []string{"https://a.example"}, MaxAge: 25 * time.Hour}, "maxAge", "out of range", "24h"},
		{Config{Origins: []string{"https://a.example"}, MaxAge: 600}, "maxAge", "whole number of seconds", "such as 10m0s"},
	} {
		_, err := New(test.cfg)
		if err == nil {
			t.Errorf("%+v is accepted; want a problem in %s", test.cfg, test.where)
			continue
		}
		problems := valueErrors(t, err)
		if len(problems) != 1 || !strings.HasPrefix(err.Error(), "ampcors: "+test.where+" ") ||
			!strings.Contains(problems[0].Reason, test.reason) || !strings.Contains(problems[0].Want, test.want) {
			t.Errorf("%v\nwant a problem in %s: %q, %q", err, test.where, test.reason, test.want)
		}
	}
}

func TestValidConfigsAreAccepted(t *testing.T) {
	for _, cfg := range []Config{
		{Publishers: []string{"example.com", "*.example.com", "bücher.example", "*.bücher.example"}},
		{Publishers: []string{"*.com", "*.рф", "*.github.io"}, Credentialed: true, DangerouslyAllowPublicSuffixWildcards: true},
		{Publishers: []string{"*.example.co.uk", "*.user.github.io", "*.blog.ampproject.org"}, Credentialed: true},
		{Publishers: []string{"example.com", "EXAMPLE.com", "bücher.example", "xn--bcher-kva.example"}}, // duplicates are accepted
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
		Email:      Email{Senders: []string{"a@example.com"}, Clients: []string{"https://mail.example"}, DangerouslyAllowMailProviderWildcards: true},
		ReportOnly: true, CacheSize: 7, DangerouslyAllowHTTPOwnOrigins: true, DangerouslyAllowPublicSuffixWildcards: true,
		DangerouslyAllowUnsafeRequestsWithoutOrigin: true,
		Lookup: Lookup{TTL: 1, NegativeTTL: 2, MaxStale: 3, Timeout: 4, MaxConcurrent: 5, MaxRate: 6, MaxEntries: 7},
	}
	for i, v := 0, reflect.ValueOf(cfg); i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() && f.Tag.Get("json") != "-" {
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

func TestDurationsInJSONAreStrings(t *testing.T) {
	data, err := json.Marshal(Config{MaxAge: 10 * time.Minute, Lookup: Lookup{TTL: 90 * time.Second}})
	if want := `{"lookup":{"ttl":"1m30s"},"maxAge":"10m0s"}`; string(data) != want || err != nil {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	cfg := Config{MaxAge: time.Hour, Lookup: Lookup{Timeout: time.Second}}
	if err := json.Unmarshal([]byte(`{"credentialed": true, "lookup": {"ttl": "5s"}}`), &cfg); err != nil || cfg.MaxAge != time.Hour || cfg.Lookup != (Lookup{TTL: 5 * time.Second, Timeout: time.Second}) || !cfg.Credentialed {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, wrong := range []string{`{"maxAge": 600}`, `{"maxAge": "600"}`, `{"lookup": {"ttl": "soon"}}`} {
		if err := json.Unmarshal([]byte(wrong), &cfg); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestACacheInJSONCanBeAnID(t *testing.T) {
	var cfg Config
	if err := json.Unmarshal([]byte(`{"caches": ["bing", {"id": "x", "cacheDomain": "cache.example"}]}`), &cfg); err != nil || !slices.Equal(cfg.Caches, []Cache{DefaultCaches()[1], {ID: "x", CacheDomain: "cache.example"}}) {
		t.Errorf("%+v, %v", cfg.Caches, err)
	}
	for _, wrong := range []string{`["cloudflare"]`, `["Google"]`, `[""]`, `[7]`, `["\ud800"]`} {
		t.Run(wrong, func(t *testing.T) {
			var cfg Config
			if err := json.Unmarshal([]byte(`{"caches": `+wrong+`}`), &cfg); err == nil {
				t.Errorf("accepted as %+v", cfg.Caches)
			}
		})
	}
}

func TestAWholeMailProviderIsNoSender(t *testing.T) {
	for _, domain := range []string{"gmail.com", "GMail.com", "googlemail.com", "yahoo.com", "yahoo.co.uk", "outlook.de", "hotmail.com.br", "web.de", "qq.com", "docomo.ne.jp", "proton.me"} {
		t.Run(domain, func(t *testing.T) {
			cfg := Config{Email: Email{Senders: []string{"*@" + domain}}}
			err := cfg.Validate()
			want := fmt.Sprintf(`ampcors: email.senders[0] %q allows everybody who has an address at that mail provider; want the addresses that are yours, such as "news@%s", or email.dangerouslyAllowMailProviderWildcards`, "*@"+domain, strings.ToLower(domain))
			if err == nil || err.Error() != want {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
			cfg.Email.DangerouslyAllowMailProviderWildcards = true
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
			cfg.Email = Email{Senders: []string{"news@" + domain}}
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, domain := range []string{"example.com", "news.gmail.com", "gmail.example", "yahoo.example.com", "notgmail.com", "mail.example.com", "xn--bcher-kva.example"} {
		t.Run(domain, func(t *testing.T) {
			if err := (Config{Email: Email{Senders: []string{"*@" + domain}}}).Validate(); err != nil {
				t.Error(err)
			}
		})
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

func TestReconfigureWithAProblemChangesNothing(t *testing.T) {
	m, err := New(Config{Publishers: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reconfigure(Config{Publishers: []string{"example.net", "https://example.org"}}); err == nil {
		t.Fatal("accepted")
	}
	if !m.CheckOrigin("https://example.com").Allowed || m.CheckOrigin("https://example.net").Allowed {
		t.Error("a configuration with a problem was applied in part")
	}
	if err := m.Reconfigure(Config{Publishers: []string{"example.net"}}); err != nil {
		t.Fatal(err)
	}
	if m.CheckOrigin("https://example.com").Allowed || !m.CheckOrigin("https://example.net").Allowed {
		t.Error("the new configuration is not in force")
	}
}

func TestTheZeroMiddlewareDeniesEveryOrigin(t *testing.T) {
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

// TestHeadersThatNoScriptCanSetAreRejected goes through the Fetch standard's list of
// forbidden request-headers, https://fetch.spec.whatwg.org/#forbidden-request-header
func TestHeadersThatNoScriptCanSetAreRejected(t *testing.T) {
	list := "Accept-Charset Accept-Encoding Access-Control-Request-Headers Access-Control-Request-Method Connection " +
		"Content-Length Cookie Cookie2 Date DNT Expect Host Keep-Alive Origin Referer Set-Cookie TE Trailer " +
		"Transfer-Encoding Upgrade Via Proxy-Authorization Sec-Fetch-Site"
	for name := range strings.FieldsSeq(list) {
		if _, err := New(Config{Publishers: []string{"example.com"}, RequestHeaders: []string{name}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
