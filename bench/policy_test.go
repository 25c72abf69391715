package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAllLibrariesHaveTheSamePolicy answers each request with each library. A comparison is
// fair only if they do the same.
func TestAllLibrariesHaveTheSamePolicy(t *testing.T) {
	policy := policyOf(t, 100, "")
	if len(policy.publishers) != 100 {
		t.Fatalf("%d publishers", len(policy.publishers))
	}
	for _, library := range Libraries {
		h := wrap(t, library, policy)
		for _, r := range requests {
			t.Run(r.name, func(t *testing.T) {
				if !r.suits(library) {
					return
				}
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, &http.Request{Method: r.method, Header: r.header})
				got := rec.Header()
				want := map[string]string{"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": ""}
				switch {
				case r.granted && r.method == "OPTIONS":
					want = map[string]string{
						"Access-Control-Allow-Origin": r.header.Get("Origin"), "Access-Control-Allow-Credentials": "true",
						"Access-Control-Allow-Headers": "content-type", "Access-Control-Max-Age": "600",
					}
					if rec.Code/100 != 2 {
						t.Errorf("%s, %s: status %d", library, r.name, rec.Code)
					}
				case r.granted:
					want = map[string]string{
						"Access-Control-Allow-Origin": r.header.Get("Origin"), "Access-Control-Allow-Credentials": "true",
						"Access-Control-Expose-Headers": "amp-redirect-to", "Vary": "origin",
					}
				}
				for name, value := range want {
					g := got.Get(name)
					if !strings.HasPrefix(name, "Access-Control-Allow-Origin") {
						g = strings.ToLower(g) // header names are written in one case or another
					}
					if g != value {
						t.Errorf("%s, %s: %s is %q; want %q", library, r.name, name, g, value)
					}
				}
			})
		}
	}
	if _, err := Wrap("unknown", policy, nothing); err == nil {
		t.Error("an unknown library is no error")
	}
}
