package ampcors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
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
		mwtest.CacheOrigin:      "+scheme=https +cache=cdn.ampproject.org +prefix=www-example-com +unwrapped=www-example-com +publisher=www.example.com +allowlist=www.example.com +verdict=Allowed",
		mwtest.WildOrigin:       "+scheme=https +cache=cdn.ampproject.org +prefix=blog-example-net +unwrapped=blog-example-net +publisher=blog.example.net +allowlist=blog.example.net +verdict=Allowed",
		mwtest.IDNOrigin:        "+scheme=https +cache=cdn.ampproject.org +prefix=xn--bcher-ch-65a +unwrapped=bücher-ch +publisher=xn--bcher-kva.ch +allowlist=xn--bcher-kva.ch +verdict=Allowed",
		mwtest.HashOrigin:       "+scheme=https +cache=cdn.ampproject.org +prefix=" + mwtest.Hash("www.example.com") + " +allowlist=www.example.com +verdict=Allowed",
		mwtest.OwnOrigin:        "+scheme=https +cache=none +publisher=www.example.com +allowlist=www.example.com +verdict=Allowed",
		mwtest.PlaygroundOrigin: "+allowlist=https://playground.amp.dev +verdict=Allowed",
		"https://0-en--us-example-com-0.www.bing-amp.com": "+scheme=https +cache=www.bing-amp.com +prefix=0-en--us-example-com-0 +unwrapped=en--us-example-com +publisher=en-us.example.com +allowlist=en-us.example.com +verdict=Allowed",
		"https://xn--0---x-com-0-cbb.cdn.ampproject.org":  "+scheme=https +cache=cdn.ampproject.org +prefix=xn--0---x-com-0-cbb +unwrapped=é--x-com +publisher=xn---x-9ia.com +allowlist=xn---x-9ia.com +verdict=Allowed",
		mwtest.EvilOrigin:                               "+scheme=https +cache=cdn.ampproject.org +prefix=evil-example +unwrapped=evil-example +publisher=evil.example -allowlist= -verdict=Denied",
		mwtest.UnknownHashOrigin:                        "+scheme=https +cache=cdn.ampproject.org +prefix=v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq -allowlist= -verdict=Denied",
		"https://en--us-example-com.cdn.ampproject.org": "+scheme=https +cache=cdn.ampproject.org +prefix=en--us-example-com +unwrapped=en--us-example-com -publisher= -verdict=Denied",
		"https://cdn.ampproject.org":                    "+scheme=https +cache=cdn.ampproject.org -prefix= -verdict=Denied",
		"https://a.b-c.cdn.ampproject.org":              "+scheme=https +cache=cdn.ampproject.org -prefix=a.b-c -verdict=Denied",
		"https://abc.cdn.ampproject.org":                "+scheme=https +cache=cdn.ampproject.org -prefix=abc -verdict=Denied",
		"https://evil.example":                          "+scheme=https +cache=none +publisher=evil.example -allowlist= -verdict=Denied",
		"https://xn--zzzzz999.example":                  "+scheme=https +cache=none -publisher=xn--zzzzz999.example -verdict=Denied",
		"https://localhost":                             "+scheme=https +cache=none -publisher=localhost -verdict=Denied",
		"https://www.example.com:8443":                  "+scheme=https -cache=www.example.com:8443 -verdict=Denied",
		"http://www.example.com":                        "-scheme=http -verdict=Denied",
		mwtest.MailOrigin:                               "-allowlist=https://mail.google.com -verdict=Denied",
		"null":                                          "-scheme=null -verdict=Denied",
		"":                                              "-scheme= -verdict=Denied",
		"example.com":                                   "-scheme= -verdict=Denied",
		"https://" + strings.Repeat("a", 1000):          "-scheme= -verdict=Denied",
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
		"https://www.example.com:8443":                                 "no port",
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
