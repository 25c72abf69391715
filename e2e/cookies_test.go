package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ampcors/ampcors"
)

// Partitioned cookies (CHIPS) do not separate publishers on a cache, because its hosts are one site: the API
// sets one for a cached page of a publisher, and Chromium sends it for a cached page of another. ampcors
// denies that page the answer.
func TestPartitionedCookiesDoNotSeparatePublishers(t *testing.T) {
	s := newSite(t)
	page := tab(t, browser(t, s))
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	api := mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "__Host-cart", Value: "of-a-reader", Path: "/", Secure: true, HttpOnly: true,
			SameSite: http.SameSiteNoneMode, Partitioned: true})
	}))
	var mu sync.Mutex
	sent := make(map[string]bool) // whether the cookie was, by the page's origin
	s.use(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := r.Cookie("__Host-cart")
		mu.Lock()
		sent[r.Header.Get("Origin")] = err == nil
		mu.Unlock()
		api.ServeHTTP(w, r)
	}))
	const read = "{" + library + "call('/api/cart', withCookies)}"
	for _, step := range []struct {
		page   string
		reads  bool
		cookie bool
	}{
		{page: cached, reads: true, cookie: false}, // it gets the cookie
		{page: cached, reads: true, cookie: true},
		{page: evil, reads: false, cookie: true},
		// also allowed: the API must compare Decision.Publisher
		{page: "https://blog-news-example.cdn.ampproject.org", reads: true, cookie: true},
		{page: bing, reads: true, cookie: false}, // another site
		{page: "https://evil.example", reads: false, cookie: false},
	} {
		got := visit(t, page, step.page, read)
		mu.Lock()
		isSent := sent[step.page]
		mu.Unlock()
		if reads := strings.HasPrefix(got, "200"); reads != step.reads || isSent != step.cookie {
			t.Errorf("%s: %s, the cookie is sent: %t; want %t, %t", step.page, got, isSent, step.reads, step.cookie)
		}
	}
}
