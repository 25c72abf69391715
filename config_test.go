package ampcors_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func TestEveryProblemOfAConfigIsReportedAtOnce(t *testing.T) {
	_, err := ampcors.New(ampcors.Config{
		Publishers:      []string{"good.example", "https://example.com", "localhost", "*.com", "www.cdn.ampproject.org"},
		Caches:          []cacheurl.Cache{{ID: "google", CacheDomain: "cdn.ampproject.org"}, {ID: "google", CacheDomain: "bad"}},
		Origins:         []string{"null", "https://example.com/"},
		Credentialed:    true,
		Methods:         []string{"PUT", "delete"},
		RequestHeaders:  []string{"X-Good", "*"},
		ResponseHeaders: []string{"Set-Cookie"},
		MaxAge:          -time.Second,
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
		"publishers[1]", "publishers[2]", "publishers[3]", "publishers[4]", "caches[1].id", "caches[1].cacheDomain",
		"origins[0]", "origins[1]", "methods[1]", "requestHeaders[1]", "responseHeaders[0]", "maxAge",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAnAmbiguousPrefixIsAWarning(t *testing.T) {
	cfg := ampcors.Config{Publishers: []string{"www.example.com", "bücher.example", "www.lāstekas.lv", "*.lāstekas.lv",
		"xn-www.lstekas.lv.pub", "xn-aa.a.cpa", "xn--aa-cja.a"}}
	mwtest.New(t, cfg)
	warnings := cfg.Warnings()
	if len(warnings) != 3 || warnings[2].Path != "publishers[6]" || !strings.Contains(warnings[2].Reason, `also give to "xn-aa.a.cpa"`) ||
		warnings[1].Path != "publishers[4]" || !strings.Contains(warnings[1].Reason, `also give to "www.xn--lstekas-s3a.lv"`) ||
		warnings[0].Path != "publishers[2]" || warnings[0].Value != "www.lāstekas.lv" ||
		!strings.Contains(warnings[0].Error(), `the domain prefix "xn--www-lstekas-lv-pub", which AMP's implementations also give to `+
			`"xn-www.lstekas.lv.pub"`) {
		t.Errorf("%v", warnings)
	}
	cfg.DangerouslyAllowAmbiguousPrefixes = true
	if warnings := cfg.Warnings(); len(warnings) > 0 {
		t.Errorf("%v", warnings)
	}
}

func TestEachProblemSaysWhatWouldBeRight(t *testing.T) {
	for _, test := range []struct {
		cfg          ampcors.Config
		where        string
		reason, want string
	}{
		{cfg: ampcors.Config{}, where: "publishers", reason: "nothing else allows anybody", want: "example.com"},
		{cfg: ampcors.Config{Publishers: []string{}, Origins: []string{}}, where: "publishers", reason: "nothing else allows anybody",
			want: "example.com"},

		{cfg: ampcors.Config{Publishers: []string{"https://example.com/"}}, where: "publishers[0]", reason: "has a scheme",
			want: `"example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"a.example", " b.example"}}, where: "publishers[1]", reason: "white space",
			want: `"b.example"`},
		{cfg: ampcors.Config{Publishers: []string{"www.example.com:8443"}}, where: "publishers[0]", reason: "has a port",
			want: `"https://www.example.com:8443" in origins, for its pages at that port, or "www.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"www.example.com:443"}}, where: "publishers[0]", reason: "has a port",
			want: `"www.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"news@example.com"}}, where: "publishers[0]", reason: "is an email address",
			want: "in email.senders"},
		{cfg: ampcors.Config{Publishers: []string{"*"}}, where: "publishers[0]", reason: "has a *", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*."}}, where: "publishers[0]", reason: "is empty", want: "www.example.com"},
		{cfg: ampcors.Config{Publishers: []string{"*.example.com."}}, where: "publishers[0]", reason: "trailing dot", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*.https://example.com:443/"}}, where: "publishers[0]", reason: "has a scheme",
			want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"https://*.example.com"}}, where: "publishers[0]", reason: "has a scheme",
			want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*.com."}}, where: "publishers[0]", reason: "trailing dot", want: `a domain such as`},
		{cfg: ampcors.Config{Publishers: []string{"*.BU\u0308CHER.example"}}, where: "publishers[0]", reason: "not how browsers spell",
			want: `"*.bücher.example"`},
		{cfg: ampcors.Config{Publishers: []string{"*.cdn.ampproject.org"}, Caches: cacheurl.DefaultCaches()[1:]}, where: "publishers[0]",
			reason: "is a host of an AMP Cache", want: "the domain whose documents"},
		{cfg: ampcors.Config{Publishers: []string{"d-1.ampproject.net"}}, where: "publishers[0]", reason: "is a host of an AMP Cache",
			want: "the domain whose documents"},
		{cfg: ampcors.Config{Publishers: []string{"*.*.example.com"}}, where: "publishers[0]", reason: "has a *", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"www.*.com"}}, where: "publishers[0]", reason: "has a *", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*example.com"}}, where: "publishers[0]", reason: "has a *", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{".example.com"}}, where: "publishers[0]", reason: "empty label", want: `"*.example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*.exa mple"}}, where: "publishers[0]", reason: "character", want: "www.example.com"},
		{cfg: ampcors.Config{Publishers: []string{"*.-"}}, where: "publishers[0]", reason: "hyphen", want: "www.example.com"},
		{cfg: ampcors.Config{Publishers: []string{"*.-a"}}, where: "publishers[0]", reason: "hyphen", want: "www.example.com"},
		{cfg: ampcors.Config{Publishers: []string{"https://example-com.cdn.ampproject.org"}}, where: "publishers[0]",
			reason: "is a host of an AMP Cache", want: `"example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"example-com.cdn.ampproject.org"}}, where: "publishers[0]", reason: "is a host of an AMP Cache",
			want: `"example.com"`},
		{cfg: ampcors.Config{Publishers: []string{"*.www.bing-amp.com"}}, where: "publishers[0]", reason: "is a host of an AMP Cache",
			want: "the domain whose documents"},
		{cfg: ampcors.Config{Publishers: []string{"*.com"}}, where: "publishers[0]", reason: "public suffix",
			want: "dangerouslyAllowPublicSuffixWildcards"},
		{cfg: ampcors.Config{Publishers: []string{"*.рф"}}, where: "publishers[0]", reason: "public suffix",
			want: "dangerouslyAllowPublicSuffixWildcards"},
		{cfg: ampcors.Config{Publishers: []string{"*.unlisted"}}, where: "publishers[0]", reason: "public suffix",
			want: "dangerouslyAllowPublicSuffixWildcards"},

		{cfg: ampcors.Config{Publishers: []string{"a.example"}, Caches: []cacheurl.Cache{{ID: "x\xff", CacheDomain: "amp.example.com"}}},
			where: "caches[0].id", reason: "cannot be printed", want: "a short name"},
		{cfg: ampcors.Config{Origins: []string{"null"}}, where: "origins[0]", reason: "sandboxed", want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"*"}}, where: "origins[0]", reason: "everybody", want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{""}}, where: "origins[0]", reason: "not an http or https origin", want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"example.com"}}, where: "origins[0]", reason: "not an http or https origin",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"ftp://example.com"}}, where: "origins[0]", reason: "not an http or https origin",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://a b"}}, where: "origins[0]", reason: "not an http or https origin",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://a..b"}}, where: "origins[0]", reason: "has a host that", want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://é!"}}, where: "origins[0]", reason: "has a host that", want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"http://[fe80::1%25eth0]"}}, where: "origins[0]", reason: "browsers write in another way",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"http://[::ffff:192.0.2.1]"}}, where: "origins[0]", reason: "browsers write in another way",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://cdn.ampproject.org"}}, where: "origins[0]", reason: "bare domain", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"https://cdn.ampproject.org"},
			Caches: []cacheurl.Cache{{ID: "x", CacheDomain: "amp.example.net",
				ThirdPartyFrameDomainSuffix: "ampproject.org"}}}, where: "origins[0]", reason: "bare domain", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"http://cdn.ampproject.org:8080"}}, where: "origins[0]", reason: "bare domain", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"https://example.com."}}, where: "origins[0]", reason: "has a host that",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://1.2.3"}}, where: "origins[0]", reason: "browsers write in another way",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://0x7f.1"}}, where: "origins[0]", reason: "browsers write in another way",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://xn--zzzzzz99999.com"}}, where: "origins[0]", reason: "has a host that",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://" + strings.Repeat("a", 300)}}, where: "origins[0]", reason: "longer than 267",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"https://*.example.com"}}, where: "origins[0]", reason: "is a pattern",
			want: `"*.example.com" in publishers`},
		{cfg: ampcors.Config{Origins: []string{"https://a.example, https://b.example"}}, where: "origins[0]", reason: "is several origins",
			want: "an element of the list for each"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example,b.example"}}, where: "origins[0]", reason: "has a host that",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"a.example b.example"}}, where: "origins[0]", reason: "is several origins",
			want: "an element of the list for each"},
		{cfg: ampcors.Config{Origins: []string{"capacitor://localhost"}}, where: "origins[0]", reason: "is the origin of every app",
			want: "need no CORS"},
		{cfg: ampcors.Config{Origins: []string{"https://example.com/"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"https://user@example.com"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"https://example.com:443"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"http://example.com:80"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"http://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"http://example.com:080"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"http://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"http://example.com:0443"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"http://example.com:443"`},
		{cfg: ampcors.Config{Origins: []string{"http://example.com:99999"}}, where: "origins[0]", reason: "above 65535",
			want: "https://www.example.com"},
		{cfg: ampcors.Config{Origins: []string{"HTTPS://Example.com"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://example.com"`},
		{cfg: ampcors.Config{Origins: []string{"https://bücher.example"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://xn--bcher-kva.example"`},
		{cfg: ampcors.Config{Origins: []string{"https://[2001:DB8::1]:8080"}}, where: "origins[0]", reason: "not how browsers write",
			want: `"https://[2001:db8::1]:8080"`},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"*"}}, where: "methods[0]", reason: "wildcard",
			want: "one by one"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{""}}, where: "methods[0]", reason: "is not a method",
			want: "PUT"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"PUT, DELETE"}}, where: "methods[0]",
			reason: "is not a method", want: "PUT"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"Patch"}}, where: "methods[0]", reason: "upper case",
			want: `"PATCH"`},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"connect"}}, where: "methods[0]", reason: "forbid",
			want: "remove it"},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"*"}}, where: "requestHeaders[0]",
			reason: "wildcard", want: "one by one"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"X A"}}, where: "requestHeaders[0]",
			reason: "is not a header name", want: "Authorization"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"amp-Same-origin"}}, where: "requestHeaders[0]",
			reason: "own origins", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Cookie"}}, where: "requestHeaders[0]",
			reason: "no script can set", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Sec-Fetch-Site"}}, where: "requestHeaders[0]",
			reason: "no script can set", want: "remove it"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"Proxy-X"}}, where: "requestHeaders[0]",
			reason: "no script can set", want: "remove it"},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"*"}}, where: "responseHeaders[0]",
			reason: "wildcard", want: "one by one"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"a:b"}}, where: "responseHeaders[0]",
			reason: "is not a header name", want: "AMP-Redirect-To"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, ResponseHeaders: []string{"set-cookie2"}}, where: "responseHeaders[0]",
			reason: "never exposed", want: "remove it"},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, RequestHeaders: []string{"AMP-Email-Sender"}}, where: "requestHeaders[0]",
			reason: "mail clients", want: "remove it"},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, Email: ampcors.Email{Clients: []string{"https://mail.example"}}},
			where: "email.senders", reason: "is missing", want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{}}}, where: "email.senders", reason: "nothing else allows anybody",
			want: "example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Clients: []string{}}}, where: "publishers", reason: "nothing else allows anybody",
			want: "example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com", "example.com"}}}, where: "email.senders[1]",
			reason: "not an email address", want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"*"}}}, where: "email.senders[0]", reason: "not an email address",
			want: "*@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"*@*"}}}, where: "email.senders[0]", reason: "has a *", want: "example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"*@*.example.com"}}}, where: "email.senders[0]",
			reason: "is a pattern for subdomains", want: "for each subdomain"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a*b@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "*@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a..b@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{".a@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"é@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a b@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{`"a"@example.com`}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{strings.Repeat("a", 65) + "@example.com"}}}, where: "email.senders[0]",
			reason: "1 to 64", want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 95)}}},
			where: "email.senders[0]", reason: "trailing dot", want: "@a.a"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "aa"}}},
			where: "email.senders[0]", reason: "longer than 254", want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"Shop <a@example.com>"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{" a@example.com"}}}, where: "email.senders[0]", reason: "white space",
			want: `"a@example.com"`},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com\n"}}}, where: "email.senders[0]", reason: "white space",
			want: `"a@example.com"`},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"mailto:a@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@"}}}, where: "email.senders[0]", reason: "has a domain that is empty",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"*a@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a*@example.com"}}}, where: "email.senders[0]", reason: "before the @",
			want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@https://example.com/"}}}, where: "email.senders[0]",
			reason: "has a scheme", want: `"a@example.com"`},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@localhost"}}}, where: "email.senders[0]",
			reason: "has a domain that has no dot", want: "news@example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{"mail.google.com"}}},
			where: "email.clients[0]", reason: "not an http or https origin", want: "https://www.example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{"null"}}}, where: "email.clients[0]",
			reason: "sandboxed", want: "https://www.example.com"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{mwtest.CacheOrigin}}},
			where: "email.clients[0]", reason: "is an AMP Cache's", want: "remove it"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{mwtest.BingOrigin + ":8443"}}},
			where: "email.clients[0]", reason: "is an AMP Cache's", want: "remove it"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{"https://d-1.ampproject.net"}}},
			where: "email.clients[0]", reason: "is an AMP Cache's", want: "remove it"},
		{cfg: ampcors.Config{Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{"https://cdn.ampproject.org"}}},
			where: "email.clients[0]", reason: "is an AMP Cache's", want: "remove it"},

		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, MaxAge: 25 * time.Hour}, where: "maxAge", reason: "out of range",
			want: "24h"},
		{cfg: ampcors.Config{Origins: []string{"https://a.example"}, MaxAge: 600}, where: "maxAge", reason: "whole number of seconds",
			want: "such as 10m0s"},
	} {
		t.Run(test.where+" "+test.reason, func(t *testing.T) {
			_, err := ampcors.New(test.cfg)
			if err == nil {
				t.Errorf("%+v is accepted; want a problem in %s", test.cfg, test.where)
				return
			}
			problems := valueErrors(t, err)
			if len(problems) != 1 || !strings.HasPrefix(err.Error(), "ampcors: "+test.where+" ") ||
				!strings.Contains(problems[0].Reason, test.reason) || !strings.Contains(problems[0].Want, test.want) {
				t.Errorf("%v\nwant a problem in %s: %q, %q", err, test.where, test.reason, test.want)
			}
		})
	}
}

func TestValidConfigsAreAccepted(t *testing.T) {
	for name, cfg := range map[string]ampcors.Config{
		"publishers": {Publishers: []string{"example.com", "*.example.com", "bücher.example", "*.bücher.example"}},
		"public suffixes": {Publishers: []string{"*.com", "*.рф", "*.github.io"}, Credentialed: true,
			DangerouslyAllowPublicSuffixWildcards: true},
		"patterns below public suffixes": {Publishers: []string{"*.example.co.uk", "*.user.github.io", "*.blog.ampproject.org"},
			Credentialed: true},
		"duplicates": {Publishers: []string{"example.com", "EXAMPLE.com", "bücher.example", "xn--bcher-kva.example"}},
		"origins": {Origins: []string{"https://playground.amp.dev", "http://localhost:8080", "http://localhost",
			"http://127.0.0.1:3000", "http://[::1]:3000", "https://my_host.example", "https://foo-.example.com", "https://xn--bcher-kva.example",
			mwtest.CacheOrigin, "https://x.example:80"}},
		"methods and headers": {Origins: []string{"https://a.example"}, Methods: []string{"GET", "PUT", "PATCH", "OPTIONS", "Custom"},
			RequestHeaders: []string{"Content-Type", "X-Requested-With"}, ResponseHeaders: []string{}},
		"caches": {Publishers: []string{"a.example"}, Caches: cacheurl.DefaultCaches()[:1]},
		"senders": {Email: ampcors.Email{Senders: []string{"a@example.com", "a.b+c@Bücher.example", "*@example.com",
			strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "a"}}},
		"no clients": {Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{}}},
		"clients": {Email: ampcors.Email{Senders: []string{"a@example.com"},
			Clients: []string{"https://mail.google.com", "https://amp.gmail.dev", "http://localhost:8080", "https://mycdn.ampproject.org",
				"https://mail.example:8443"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ampcors.New(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPatternForAMailProviderIsRejected(t *testing.T) {
	for _, domain := range []string{"gmail.com", "GMail.com", "googlemail.com", "yahoo.com", "yahoo.co.uk", "outlook.de", "hotmail.com.br",
		"web.de", "qq.com", "docomo.ne.jp", "proton.me"} {
		t.Run(domain, func(t *testing.T) {
			cfg := ampcors.Config{Email: ampcors.Email{Senders: []string{"*@" + domain}}}
			err := cfg.Validate()
			want := fmt.Sprintf(`ampcors: email.senders[0] %q allows everybody who has an address at that mail provider; want the addresses that `+
				`are yours, such as "news@%s", or email.dangerouslyAllowMailProviderWildcards`, "*@"+domain, strings.ToLower(domain))
			if err == nil || err.Error() != want {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
			cfg.Email.DangerouslyAllowMailProviderWildcards = true
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
			cfg.Email = ampcors.Email{Senders: []string{"news@" + domain}}
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, domain := range []string{"example.com", "news.gmail.com", "gmail.example", "yahoo.example.com", "notgmail.com", "mail.example.com",
		"xn--bcher-kva.example"} {
		t.Run(domain, func(t *testing.T) {
			if err := (ampcors.Config{Email: ampcors.Email{Senders: []string{"*@" + domain}}}).Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAConfigCannotBeChangedFromOutside(t *testing.T) {
	cfg := ampcors.Config{
		Publishers: []string{"example.com"}, Caches: cacheurl.DefaultCaches(), Origins: []string{"https://a.example"},
		Methods: []string{"PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}, Clients: []string{"https://mail.example"}},
	}
	m, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Publishers[0], cfg.Caches[0].CacheDomain, cfg.Origins[0] = "evil.example", "evil.example", "https://evil.example"
	cfg.Methods[0], cfg.RequestHeaders[0], cfg.ResponseHeaders[0] = "EVIL", "X-Evil", "X-Evil"
	cfg.Email.Senders[0], cfg.Email.Clients[0] = "evil@evil.example", "https://evil.example"
	for headers, want := range map[string]string{
		"X-A":    "204 PUT X-A",
		"X-Evil": "403  ",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("OPTIONS", "/", nil)
		r.Header.Set("Origin", "https://example.com")
		r.Header.Set("Access-Control-Request-Method", "PUT")
		r.Header.Set("Access-Control-Request-Headers", strings.ToLower(headers))
		m.Handle(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("Access-Control-Allow-Methods"), " ",
			w.Header().Get("Access-Control-Allow-Headers")); !strings.EqualFold(got, want) {
			t.Errorf("a preflight for %s: %s; want %s", headers, got, want)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", "https://a.example")
	if m.Handle(w, r); w.Header().Get("Access-Control-Expose-Headers") != "X-B" {
		t.Errorf("exposed: %v", w.Header())
	}
	for sender, want := range map[string]ampcors.Reason{"news@example.com": ampcors.ReasonEmail,
		"evil@evil.example": ampcors.ReasonEmailSenderNotAllowed} {
		if d := m.Check(&http.Request{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: " + sender)}); d.Reason != want {
			t.Errorf("%s: %s", sender, d.Reason)
		}
	}
	for origin, allowed := range map[string]bool{
		"https://example-com.cdn.ampproject.org": true, "https://a.example": true,
		"https://evil-example.cdn.ampproject.org": false, "https://evil.example": false,
	} {
		t.Run(origin, func(t *testing.T) {
			if d := m.CheckOrigin(origin); d.Allowed != allowed {
				t.Errorf("%s: %s", origin, d.Reason)
			}
		})
	}
}

func TestReconfigureWithAProblemChangesNothing(t *testing.T) {
	m, err := ampcors.New(ampcors.Config{Publishers: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reconfigure(ampcors.Config{Publishers: []string{"example.net", "https://example.org"}}); err == nil {
		t.Fatal("accepted")
	}
	if !m.CheckOrigin("https://example.com").Allowed || m.CheckOrigin("https://example.net").Allowed {
		t.Error("a configuration with a problem was applied in part")
	}
	if err := m.Reconfigure(ampcors.Config{Publishers: []string{"example.net"}}); err != nil {
		t.Fatal(err)
	}
	if m.CheckOrigin("https://example.com").Allowed || !m.CheckOrigin("https://example.net").Allowed {
		t.Error("the new configuration is not in force")
	}
}

func TestTheZeroMiddlewareDeniesEveryOrigin(t *testing.T) {
	var m ampcors.Middleware
	for _, origin := range []string{"https://example.com", "https://example-com.cdn.ampproject.org", "https://" + mwtest.Hash("example.com") +
		".cdn.ampproject.org", "null", ""} {
		t.Run(origin, func(t *testing.T) {
			if d := m.CheckOrigin(origin); d.Allowed {
				t.Errorf("%q: %s", origin, d.Reason)
			}
		})
	}
	rec := httptest.NewRecorder()
	if _, proceed := m.Handle(rec, &http.Request{Method: "POST"}); proceed || rec.Header().Get("Vary") != "Origin" {
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
		if _, err := ampcors.New(ampcors.Config{Publishers: []string{"example.com"}, RequestHeaders: []string{name}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Each limit is tried with the last value that is within it and the first that is not. Other tests
// try values that are far beyond.
func TestEachLimitIsExact(t *testing.T) {
	publishers := func(domain string) ampcors.Config { return ampcors.Config{Publishers: []string{domain}} }
	caches := func(c cacheurl.Cache) ampcors.Config {
		return ampcors.Config{Publishers: []string{"example.com"}, Caches: []cacheurl.Cache{c}}
	}
	several := func(n int) (cfg ampcors.Config) {
		cfg.Publishers = []string{"example.com"}
		for i := range n {
			cfg.Caches = append(cfg.Caches, cacheurl.Cache{ID: fmt.Sprint(i), CacheDomain: fmt.Sprintf("c%d.example", i)})
		}
		return cfg
	}
	labels := func(n int) string { // a domain of n bytes
		domain := strings.Repeat(strings.Repeat("a", 49)+".", 5)
		return domain[:n-len("example")] + "example"
	}
	for name, test := range map[string]struct{ within, beyond ampcors.Config }{
		"a label":        {publishers(strings.Repeat("a", 63) + ".example"), publishers(strings.Repeat("a", 64) + ".example")},
		"the last label": {publishers("a." + strings.Repeat("a", 63)), publishers("a." + strings.Repeat("a", 64))},
		"a domain":       {publishers(labels(253)), publishers(labels(254))},
		"a cache's id": {caches(cacheurl.Cache{ID: strings.Repeat("b", 100), CacheDomain: "c.example"}),
			caches(cacheurl.Cache{ID: strings.Repeat("b", 101), CacheDomain: "c.example"})},
		"a cache's domain": {caches(cacheurl.Cache{ID: "b", CacheDomain: labels(189)}),
			caches(cacheurl.Cache{ID: "b", CacheDomain: labels(190)})},
		"caches": {several(100), several(101)},
		"MaxAge": {ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 24 * time.Hour},
			ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 24*time.Hour + time.Second}},
		"no MaxAge": {ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 0},
			ampcors.Config{Publishers: []string{"a.example"}, MaxAge: -time.Second}},
		"an extra origin": {ampcors.Config{Origins: []string{"https://" + labels(253) + ":65535"}},
			ampcors.Config{Origins: []string{"https://" + labels(254) + ":65535"}}},
		"a port": {ampcors.Config{Origins: []string{"https://a.example:65535"}},
			ampcors.Config{Origins: []string{"https://a.example:65536"}}},
		"a number at an end": {publishers("example.a0"), publishers("example.0")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.within.Validate(); err != nil {
				t.Errorf("within the limit: %v", err)
			}
			err := test.beyond.Validate()
			if problems := slices.Collect(badvalue.All(err)); len(problems) != 1 {
				t.Errorf("beyond the limit: %v; want one error", err)
			}
		})
	}
}

// Each byte is tried where a set of bytes is allowed.
func TestEachSetOfBytesIsExact(t *testing.T) {
	const (
		digits  = "0123456789"
		letters = "abcdefghijklmnopqrstuvwxyz"
	)
	for name, test := range map[string]struct {
		allowed string
		cfg     func(b string) ampcors.Config
	}{
		"methods": {digits + letters + strings.ToUpper(letters) + "!#$%&'*+-.^_`|~", func(b string) ampcors.Config { // RFC 9110, section 5.6.2
			return ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"X" + b}}
		}},
		"domains": {digits + letters + strings.ToUpper(letters) + "-_.",
			func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a" + b + "b.example"}} }},
		"last labels": {letters + strings.ToUpper(letters) + "_",
			func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a." + b}} }},
		"hexadecimal last": {strings.ToUpper(letters[6:]) + letters[6:] + "_",
			func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a.0x" + b}} }},
	} {
		t.Run(name, func(t *testing.T) {
			for b := range 128 {
				text := string(rune(b))
				err := test.cfg(text).Validate()
				if isAllowed := strings.Contains(test.allowed, text); isAllowed != (err == nil) {
					t.Errorf("%q: %v", text, err)
				}
			}
		})
	}
}

// valueErrors returns each badvalue.Error that err joins. It fails if err has any other error.
func valueErrors(t *testing.T, err error) []*badvalue.Error {
	t.Helper()
	problems := slices.Collect(badvalue.All(err))
	var lines []string
	for _, problem := range problems {
		lines = append(lines, problem.Error())
	}
	if err == nil || strings.Join(lines, "\n") != err.Error() {
		t.Fatalf("%v has another error than badvalue.Error", err)
	}
	return problems
}

// An empty list trusts no AMP Cache: own origins, Origins and emails are allowed, and nothing else.
func TestAnEmptyListOfCachesTrustsNone(t *testing.T) {
	cfg := ampcors.Config{
		Publishers: []string{"www.example.com", "*.tenant.example"}, Caches: []cacheurl.Cache{}, Origins: []string{"http://localhost:8080"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}},
	}
	m := mwtest.New(t, cfg)
	for origin, want := range map[string]ampcors.Reason{
		"https://www.example.com":                  ampcors.ReasonOwnOrigin,
		"https://a.tenant.example":                 ampcors.ReasonOwnOrigin,
		"http://localhost:8080":                    ampcors.ReasonExtraOrigin,
		mwtest.CacheOrigin:                         ampcors.ReasonUnknownHost,
		"https://www-example-com.www.bing-amp.com": ampcors.ReasonUnknownHost,
		"https://cdn.ampproject.org":               ampcors.ReasonUnknownHost,
		"https://" + mwtest.Hash("www.example.com") + ".cdn.ampproject.org": ampcors.ReasonUnknownHost,
		"https://www.other.example":                                         ampcors.ReasonUnknownHost,
	} {
		if d := m.CheckOrigin(origin); d.Reason != want {
			t.Errorf("%s: %s; want %s", origin, d.Reason, want)
		}
	}
	email := &http.Request{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: news@example.com")}
	if d := m.Check(email); d.Reason != ampcors.ReasonEmail {
		t.Errorf("an email: %s", d.Reason)
	}
}

// TestConfigIsWhatIsInForce: it builds the same Middleware, and changing it changes nothing.
func TestConfigIsWhatIsInForce(t *testing.T) {
	if cfg := new(ampcors.Middleware).Config(); !reflect.DeepEqual(cfg, ampcors.Config{}) {
		t.Errorf("the zero Middleware has %+v", cfg)
	}
	given := ampcors.Config{
		Publishers: []string{"WWW.Example.com", "*.news.example", "bücher.example", "www.example.com", "*.a.example"},
		Origins:    []string{"https://shop.example"}, Caches: cacheurl.DefaultCaches()[:1], Credentialed: true, Methods: []string{"PUT"},
		RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxAge: time.Minute,
		Email: ampcors.Email{Senders: []string{"news@example.com"},
			Clients: []string{"https://mail.example"}},
	}
	mw, err := ampcors.New(given)
	if err != nil {
		t.Fatal(err)
	}
	want := given
	want.Publishers = []string{"www.example.com", "xn--bcher-kva.example", "*.a.example", "*.news.example"}
	got := mw.Config()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	for _, list := range [][]string{got.Publishers, got.Origins, got.Methods, got.RequestHeaders, got.ResponseHeaders, got.Email.Senders,
		got.Email.Clients} {
		clear(list)
	}
	clear(got.Caches)
	if got := mw.Config(); !reflect.DeepEqual(got, want) {
		t.Errorf("a copy was changed, and now it is %+v", got)
	}
	again, err := ampcors.New(mw.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"https://www-example-com.cdn.ampproject.org", "https://xn--bcher-kva.example", "https://b.news.example",
		"https://shop.example", "https://evil.example"} {
		if a, b := mw.CheckOrigin(origin), again.CheckOrigin(origin); a != b {
			t.Errorf("%s: %+v and %+v", origin, a, b)
		}
	}
	if err := mw.Reconfigure(ampcors.Config{Origins: []string{"https://other.example"}}); err != nil || len(mw.Config().Publishers) != 0 ||
		mw.Config().Origins[0] != "https://other.example" {
		t.Errorf("%v: %+v", err, mw.Config())
	}
}
