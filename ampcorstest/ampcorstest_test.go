package ampcorstest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
	"github.com/ampcors/ampcors/cacheurl"
)

func newMiddleware(t testing.TB, cfg ampcors.Config) *ampcors.Middleware {
	t.Helper()
	cfg.Publishers, cfg.Methods = []string{"www.example.com"}, []string{"PUT"}
	mw, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// router has a route that writes, and one that does not.
func router(ran *bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /writes", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "done") })
	mux.HandleFunc("PUT /quiet", func(http.ResponseWriter, *http.Request) { *ran = true })
	return mux
}

var paths = []string{"/writes", "/quiet"}

func TestARightHandlerPasses(t *testing.T) {
	ran := false
	for name, cfg := range map[string]ampcors.Config{"plain": {}, "with Denied": {Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
		w.WriteHeader(d.StatusCode())
		fmt.Fprint(w, `{"error": "no"}`)
	}}} {
		h := newMiddleware(t, cfg).Wrap(router(&ran))
		for _, path := range paths {
			if err := ampcorstest.Check(h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: path}); err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
	}
	if ran {
		t.Error("a handler ran")
	}
}

// A part of a mux can be wrapped, and a Middleware need not trust a cache.
func TestARightPartOfAMuxPasses(t *testing.T) {
	ran := false
	takeRan := func() bool { was := ran; ran = false; return was }
	api := http.NewServeMux()
	api.HandleFunc("PUT /api/quiet", func(http.ResponseWriter, *http.Request) { ran = true })
	for origin, caches := range map[string][]cacheurl.Cache{"": nil, "https://www.example.com": {}} {
		mux := http.NewServeMux()
		mux.Handle("/api/", newMiddleware(t, ampcors.Config{Caches: caches}).Wrap(api))
		for _, missing := range []string{"", "/api/nothing"} {
			route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/quiet", Origin: origin, Missing: missing, Ran: takeRan}
			if err := ampcorstest.Check(mux, route); err != nil {
				t.Errorf("%+v: %v", route, err)
			}
		}
	}
}

// What the caller got wrong is not said to be the handler's fault.
func TestAWrongRouteIsSaidToBeOne(t *testing.T) {
	ran := false
	takeRan := func() bool { was := ran; ran = false; return was }
	h := newMiddleware(t, ampcors.Config{}).Wrap(router(&ran))
	noCaches := newMiddleware(t, ampcors.Config{Caches: []cacheurl.Cache{}}).Wrap(router(&ran))
	for want, test := range map[string]struct {
		handler http.Handler
		route   ampcorstest.Route
	}{
		"is denied: publisher_not_allowed":         {h, ampcorstest.Route{Publisher: "www.other.example", Method: "PUT", Path: "/quiet"}},
		"is denied: method_not_allowed":            {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PATCH", Path: "/quiet"}},
		"is denied: unknown_host":                  {noCaches, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quiet"}},
		"status 404, and the handler does not run": {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quite", Ran: takeRan}},
		"is the path right?":                       {h, ampcorstest.Route{Publisher: "www.example.com", Method: "GET", Path: "/quite"}},
	} {
		if err := ampcorstest.Check(test.handler, test.route); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "before the router does") {
			t.Errorf("%+v: %v; want %q", test.route, err, want)
		}
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	ran := false
	takeRan := func() bool { was := ran; ran = false; return was }
	mw := newMiddleware(t, ampcors.Config{})
	behind := http.NewServeMux()
	for _, path := range paths {
		behind.Handle("PUT "+path, mw.Wrap(router(&ran)))
	}
	for name, test := range map[string]struct {
		handler http.Handler
		want    []string
	}{
		"no Middleware":       {router(&ran), []string{"preflight", "is not behind", "is not behind", "cannot read"}},
		"another publisher's": {newMiddleware(t, ampcors.Config{Origins: []string{"https://evil-example.cdn.ampproject.org"}}).Wrap(router(&ran)), []string{"is not behind", "is not behind"}},
		"behind the routes":   {behind, []string{"preflight", "is not behind", "cannot read"}},
		"it goes on": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, proceed := mw.Handle(w, r); proceed || !d.Allowed {
				router(&ran).ServeHTTP(w, r)
			}
		}), []string{"the handler runs all the same"}},
	} {
		for _, path := range paths {
			err := ampcorstest.Check(test.handler, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: path, Ran: takeRan})
			text := fmt.Sprint(err)
			for _, want := range test.want {
				before, after, found := strings.Cut(text, want)
				if !found {
					t.Errorf("%s, %s: %v; want %q", name, path, err, test.want)
				}
				text = before + after
			}
		}
	}
	if err := ampcorstest.Check(mw.Wrap(router(&ran)), ampcorstest.Route{Publisher: "*.example.com"}); err == nil {
		t.Error("a pattern is no publisher")
	}
}
