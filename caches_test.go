package ampcors_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// An empty list trusts no AMP Cache: own origins, Origins and emails are allowed, and nothing else.
func TestAnEmptyListOfCachesTrustsNone(t *testing.T) {
	cfg := ampcors.Config{
		Publishers: []string{"www.example.com", "*.tenant.example"}, Caches: []cacheurl.Cache{}, Origins: []string{"http://localhost:8080"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}},
	}
	m := newMiddleware(t, cfg)
	for origin, want := range map[string]ampcors.Reason{
		"https://www.example.com":                  ampcors.ReasonOwnOrigin,
		"https://a.tenant.example":                 ampcors.ReasonOwnOrigin,
		"http://localhost:8080":                    ampcors.ReasonExtraOrigin,
		cacheOrigin:                                ampcors.ReasonUnknownHost,
		"https://www-example-com.www.bing-amp.com": ampcors.ReasonUnknownHost,
		"https://cdn.ampproject.org":               ampcors.ReasonUnknownHost,
		"https://" + plainHash("www.example.com") + ".cdn.ampproject.org": ampcors.ReasonUnknownHost,
		"https://www.other.example":                                       ampcors.ReasonUnknownHost,
	} {
		if d := m.CheckOrigin(origin); d.Reason != want {
			t.Errorf("%s: %s; want %s", origin, d.Reason, want)
		}
	}
	if d := m.Check(&http.Request{Method: "GET", Header: headers("AMP-Email-Sender: news@example.com")}); d.Reason != ampcors.ReasonEmail {
		t.Errorf("an email: %s", d.Reason)
	}
	// A pattern never matches a host of a cache, trusted or not.
	cfg.Publishers = []string{"*.ampproject.org"}
	if m, err := ampcors.New(cfg); err == nil && m.CheckOrigin(cacheOrigin).Allowed {
		t.Error("a pattern allows a cache")
	}
}

// Metrics have the ID as a label, which must be UTF-8.
func TestTheIDOfACacheIsUTF8(t *testing.T) {
	_, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Caches: []cacheurl.Cache{{ID: "x\xff", CacheDomain: "amp.example.com"}}})
	if err == nil || !strings.Contains(err.Error(), "cannot be printed") {
		t.Error(err)
	}
}
