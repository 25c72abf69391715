package ampcorstest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/guard"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func newMiddleware(t testing.TB, cfg ampcors.Config) *ampcors.Middleware {
	t.Helper()
	cfg.Publishers, cfg.Methods = []string{"www.example.com"}, []string{"PUT"}
	return mwtest.New(t, cfg)
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
			for _, route := range []ampcorstest.Route{{Publisher: "www.example.com", Origin: origin}, {Publisher: "WWW.example.com", Caches: caches}} {
				route.Method, route.Path, route.Missing, route.Ran = "PUT", "/api/quiet", missing, takeRan
				if err := ampcorstest.Check(mux, route); err != nil {
					t.Errorf("%+v: %v", route, err)
				}
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
		"is denied: publisher_not_allowed": {h, ampcorstest.Route{Publisher: "www.other.example", Method: "PUT", Path: "/quiet"}},
		"is denied: method_not_allowed":    {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PATCH", Path: "/quiet"}},
		"is denied: unknown_host":          {noCaches, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quiet"}},
		"is denied: header_not_allowed": {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quiet", Ran: takeRan,
			Header: http.Header{"X-Token": {"1"}, "Cookie": {"a=b"}}}},
		"though Route.Caches is empty, for PUT /quiet is answered with status 204": {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quiet",
			Caches: []cacheurl.Cache{}}},
		"status 404, and the handler does not run": {h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quite", Ran: takeRan}},
		"is the path right?":                       {h, ampcorstest.Route{Publisher: "www.example.com", Method: "GET", Path: "/quite"}},
	} {
		if err := ampcorstest.Check(test.handler, test.route); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "before the router does") {
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
		"no Middleware": {router(&ran), []string{"preflight", "is not behind", "is not behind", "cannot read"}},
		"another publisher's": {newMiddleware(t, ampcors.Config{Origins: []string{"https://evil-example.cdn.ampproject.org"}}).Wrap(router(&ran)),
			[]string{"is not behind", "is not behind"}},
		"behind the routes": {behind, []string{"preflight", "is not behind", "cannot read"}},
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

// Each wiring of a route that is wrong is found, with the cause in the text, and each one that is right passes.
func TestWirings(t *testing.T) {
	ran := false
	takeRan := func() bool { was := ran; ran = false; return was }
	plain := func(w http.ResponseWriter, _ *http.Request) { ran = true; fmt.Fprint(w, "{}") }
	serve := func(change func(http.Header)) http.Handler {
		mux := http.NewServeMux()
		for _, method := range []string{"PUT", "GET"} {
			mux.HandleFunc(method+" /api/a", func(w http.ResponseWriter, r *http.Request) {
				change(w.Header())
				plain(w, r)
			})
		}
		return mux
	}
	keep := func(http.Header) {}
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	right := newMiddleware(t, ampcors.Config{Credentialed: true})
	pattern, err := ampcors.New(ampcors.Config{Publishers: []string{"*.example.com"}, Methods: []string{"PUT"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	// simpleCORS is like other CORS middleware: it answers preflights by itself, and knows only some origins.
	simpleCORS := func(next http.Handler, origins ...string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if origin := r.Header.Get("Origin"); slices.Contains(origins, origin) || slices.Contains(origins, "*") {
				w.Header().Set("Access-Control-Allow-Origin", origin)
				w.Header().Set("Access-Control-Allow-Credentials", "true")
				w.Header().Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
			}
			w.Header().Add("Vary", "Origin")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	known := "https://www-example-com.cdn.ampproject.org"
	proxied := func(change func(http.Header)) http.Handler {
		backend := httptest.NewServer(serve(change))
		t.Cleanup(backend.Close)
		at, err := url.Parse(backend.URL)
		if err != nil {
			t.Fatal(err)
		}
		return httputil.NewSingleHostReverseProxy(at)
	}
	catchAll := http.HandlerFunc(plain)
	for name, test := range map[string]struct {
		handler http.Handler
		want    string // "" if it is right
	}{
		"in front of a mux":           {right.Wrap(serve(keep)), ""},
		"with guard":                  {right.Wrap(guard.Handler(serve(set("Access-Control-Allow-Origin", "*")))), ""},
		"guard keeps Vary":            {right.Wrap(guard.Handler(serve(set("Vary", "Accept")))), ""},
		"a catch-all route":           {right.Wrap(catchAll), ""},
		"a handler that adds to Vary": {right.Wrap(serve(func(h http.Header) { h.Add("Vary", "Accept-Encoding") })), ""},
		"a proxy behind it":           {right.Wrap(proxied(keep)), ""},
		"a proxy with guard":          {right.Wrap(guard.Handler(proxied(set("Access-Control-Allow-Origin", "*")))), ""},
		"CrossOriginProtection outside": {http.NewCrossOriginProtection().Handler(right.Wrap(serve(keep))),
			"by something in front of it, or that removes the headers"},

		"the handler sets *":             {right.Wrap(serve(set("Access-Control-Allow-Origin", "*"))), `has Access-Control-Allow-Origin "*"; want`},
		"the handler adds another":       {right.Wrap(serve(func(h http.Header) { h.Add("Access-Control-Allow-Origin", known) })), "browsers reject more than one"},
		"the handler replaces Vary":      {right.Wrap(serve(set("Vary", "Accept"))), `has Vary "Accept"; want Origin in it`},
		"the handler removes the header": {right.Wrap(serve(func(h http.Header) { h.Del("Access-Control-Allow-Origin") })), "or the handler removes the header"},
		"a backend adds another":         {right.Wrap(proxied(set("Access-Control-Allow-Origin", "*"))), "browsers reject more than one"},
		"Credentialed is forgotten":      {newMiddleware(t, ampcors.Config{}).Wrap(serve(keep)), "want Config.Credentialed"},
		"CrossOriginProtection inside":   {right.Wrap(http.NewCrossOriginProtection().Handler(serve(keep))), "If it is a protection against CSRF such as"},
		"the same, and a catch-all":      {right.Wrap(http.NewCrossOriginProtection().Handler(catchAll)), "If it is a protection against CSRF such as"},
		"a handler that answers 403": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })),
			"answered with status 403 by something behind"},
		"the handler itself answers 403": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran = true; w.WriteHeader(403) })),
			"by the handler itself, and the Middleware has allowed it"},
		"a login behind it": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Cookie") == "" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})), "set Route.Header to the Cookie or Authorization"},
		"only a pattern":              {pattern.Wrap(serve(keep)), "is denied: hash_not_known; want a Publisher that the Config lists by its name"},
		"ReportOnly":                  {newMiddleware(t, ampcors.Config{Credentialed: true, ReportOnly: true}).Wrap(serve(keep)), "or Config.ReportOnly is set"},
		"other CORS outside":          {simpleCORS(right.Wrap(serve(keep)), known), "something in front of the Middleware answers preflights"},
		"other CORS outside, for all": {simpleCORS(right.Wrap(serve(keep)), "*"), "something in front of the Middleware answers preflights"},
		"other CORS inside, for all": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			plain(w, r)
		})), `Access-Control-Allow-Origin "*"`},
		"in front of one route only": {func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/api/a", right.Wrap(serve(keep)))
			return mux
		}(), "ampcorstest-does-not-exist"},
		"programs may write": {newMiddleware(t, ampcors.Config{Credentialed: true, DangerouslyAllowUnsafeRequestsWithoutOrigin: true}).Wrap(serve(keep)),
			"without Origin, as a form of any site can send it"},
		"no hash prefixes": {newMiddleware(t, ampcors.Config{Credentialed: true, Caches: []cacheurl.Cache{}, Origins: []string{known}}).Wrap(serve(keep)),
			"is denied: unknown_host"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ampcorstest.Check(test.handler, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a", Credentialed: true, Ran: takeRan})
			if (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
	session := http.Header{"cookie": {"session=1"}}
	login := right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ran = r.Header.Get("Cookie") != ""; !ran {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	if err := ampcorstest.Check(login, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a", Credentialed: true,
		Header: session, Ran: takeRan}); err != nil {
		t.Errorf("with a session: %v", err)
	}
	err = ampcorstest.Check(right.Wrap(serve(keep)), ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a",
		Origin: "https://www-example-com.bing-amp.com"})
	if err == nil || !strings.Contains(err.Error(), "are at https://www-example-com.cdn.ampproject.org and https://www-example-com.www.bing-amp.com") {
		t.Error(err)
	}
}
