package ampcorstest_test

import (
	"fmt"
	"io"
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
	for name, cfg := range map[string]ampcors.Config{"plain": {},
		"with Denied": {Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
			w.WriteHeader(d.StatusCode())
			fmt.Fprint(w, `{"error": "no"}`)
		}}} {
		h := newMiddleware(t, cfg).Wrap(router(&ran))
		for _, path := range paths {
			for _, notCalled := range []bool{true, false} {
				ran = false
				route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: path, NotCalled: notCalled}
				if err := ampcorstest.Check(h, route); err != nil {
					t.Errorf("%s: %+v: %v", name, route, err)
				}
				if path == "/quiet" && ran == notCalled {
					t.Errorf("%s: %+v: the handler ran: %t", name, route, ran)
				}
			}
		}
	}
}

// The route's own request has the Route's Header and Body, and a forged one no more than what a page can send by itself.
func TestWhatIsSent(t *testing.T) {
	var got []*http.Request
	bodies := make(map[string]int)
	mw := newMiddleware(t, ampcors.Config{RequestHeaders: []string{"X-Token"}})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies[r.Method+" "+r.Header.Get("X-Token")+" "+string(body)]++
		})).ServeHTTP(w, r)
	})
	if err := ampcorstest.Check(h, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/a?b", Body: "{}",
		Header: http.Header{"x-token": {"1"}, "Cookie": {"c=d"}, "Content-Type": {"application/json"}}}); err != nil {
		t.Error(err)
	}
	if bodies["PUT 1 {}"] == 0 || bodies["GET  "] == 0 || len(bodies) != 2 {
		t.Errorf("%v", bodies)
	}
	forged := make(map[string]bool)
	for _, r := range got {
		if origin := r.Header.Get("Origin"); r.Method == "PUT" && strings.Contains(origin, "evil") {
			if r.Header.Get("X-Token") != "" || r.Header.Get("Cookie") == "" && forged[origin+"without a cookie"] {
				t.Errorf("%s: %v", origin, r.Header)
			}
			forged[origin] = true
			if r.Header.Get("Cookie") == "" {
				forged[origin+"without a cookie"] = true
			}
		}
	}
	for _, origin := range []string{"https://evil-example.cdn.ampproject.org", "https://evil-example.www.bing-amp.com", "https://evil.example",
		"http://evil.example",
		"https://evil.example:8443", "https://www.example.com.evil.example", "https://www-example-com.cdn.ampproject.org.evil.example"} {
		if !forged[origin] {
			t.Errorf("%s was not tried", origin)
		}
	}
}

// A mistake in the Route is said before anything is sent.
func TestARouteWithAMistake(t *testing.T) {
	if err := ampcorstest.Check(nil, ampcorstest.Route{}); err == nil || !strings.Contains(err.Error(), "the handler is nil") {
		t.Error(err)
	}
	unreachable := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("something is sent") })
	for want, change := range map[string]func(*ampcorstest.Route){
		`Route.Path is ""`:                      func(r *ampcorstest.Route) { r.Path = "" },
		`Route.Path is "api/x"`:                 func(r *ampcorstest.Route) { r.Path = "api/x" },
		`Route.Path is "/a b"`:                  func(r *ampcorstest.Route) { r.Path = "/a b" },
		`Route.Path is "/%zz"`:                  func(r *ampcorstest.Route) { r.Path = "/%zz" },
		`Route.Path is "https://api.example/x"`: func(r *ampcorstest.Route) { r.Path = "https://api.example/x" },
		`Route.Missing is "x"`:                  func(r *ampcorstest.Route) { r.Missing = "x" },
		`Route.Method is ""`:                    func(r *ampcorstest.Route) { r.Method = "" },
		`Route.Method is "P T"`:                 func(r *ampcorstest.Route) { r.Method = "P T" },
		`Route.Header has Accept-Encoding, which browsers set`: func(r *ampcorstest.Route) {
			r.Header = http.Header{"Accept-Encoding": {"gzip"}}
		},
		`Route.Header has sec-fetch-site, which browsers set`:  func(r *ampcorstest.Route) { r.Header = http.Header{"sec-fetch-site": {"none"}} },
		`Route.Header has "X Y", which is no name of a header`: func(r *ampcorstest.Route) { r.Header = http.Header{"X Y": {""}} },
		`"*.example.com"`: func(r *ampcorstest.Route) { r.Publisher = "*.example.com" },
		`"localhost"`:     func(r *ampcorstest.Route) { r.OtherPublisher = "localhost" },
	} {
		route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/a"}
		change(&route)
		if err := ampcorstest.Check(unreachable, route); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", route, err, want)
		}
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
			for _, route := range []ampcorstest.Route{{Publisher: "www.example.com", Origin: origin},
				{Publisher: "WWW.example.com", Caches: caches}} {
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
	hidden := newMiddleware(t, ampcors.Config{Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
		w.WriteHeader(d.StatusCode())
		fmt.Fprint(w, "no")
	}}).Wrap(router(&ran))
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
		"though Route.Caches is empty, for PUT /quiet is answered with status 204": {h,
			ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quiet",
				Caches: []cacheurl.Cache{}}},
		`is denied: Config.Denied wrote "no", and Config.Observe gets the reason`: {hidden,
			ampcorstest.Route{Publisher: "www.other.example", Method: "PUT", Path: "/quiet"}},
		"want as OtherPublisher one that the Config allows": {h,
			ampcorstest.Route{Publisher: "www.example.com", OtherPublisher: "www.other.example", Method: "PUT", Path: "/quiet"}},
		"status 404: are the path and the method right? (the handler does not run)": {h,
			ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/quite", Ran: takeRan}},
		"are the path and the method right?": {h, ampcorstest.Route{Publisher: "www.example.com", Method: "GET", Path: "/quite"}},
	} {
		if err := ampcorstest.Check(test.handler, test.route); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "before the router does") {
			t.Errorf("%+v: %v; want %q", test.route, err, want)
		}
	}
}

// simple answers preflights of pages that it knows, and lets others through to next.
func simple(next http.Handler, grants func(r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions || !grants(r) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Vary", "Origin")
		w.WriteHeader(http.StatusNoContent)
	})
}

// What must not be granted is asked for, and what a Route says of its Config is compared.
func TestWhatIsGrantedTooMuchIsFound(t *testing.T) {
	ran := false
	right := newMiddleware(t, ampcors.Config{}).Wrap(router(&ran))
	programs := newMiddleware(t, ampcors.Config{DangerouslyAllowUnsafeRequestsWithoutOrigin: true}).Wrap(router(&ran))
	plain := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/writes"}
	mayWrite := plain
	mayWrite.DangerouslyAllowUnsafeRequestsWithoutOrigin = true
	for _, test := range []struct {
		name  string
		h     http.Handler
		route ampcorstest.Route
		want  string
	}{
		{"any header", simple(right, func(r *http.Request) bool {
			return strings.HasPrefix(r.Header.Get("Origin"), "https://www-example-com.")
		}), plain, "a preflight for the header X-Ampcorstest-Does-Not-Exist"},
		{"another publisher", simple(right, func(r *http.Request) bool { return r.Header.Get("Access-Control-Request-Headers") == "" }), plain,
			"a preflight from a page of evil.example"},
		{"cookies", newMiddleware(t, ampcors.Config{Credentialed: true}).Wrap(router(&ran)), plain, "and Route.Credentialed is not set"},
		{"programs", programs, mayWrite, ""},
		{"no programs", right, mayWrite, ""},
		{"programs, by mistake", programs, plain, "or DangerouslyAllowUnsafeRequestsWithoutOrigin in the Route"},
	} {
		if err := ampcorstest.Check(test.h, test.route); (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
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
	plain := func(w http.ResponseWriter, r *http.Request) { ran = ran || r.Method == "PUT"; fmt.Fprint(w, "{}") }
	answers := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ran = status == http.StatusForbidden || status == http.StatusNoContent
			w.WriteHeader(status)
		})
	}
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

		"the handler sets *": {right.Wrap(serve(set("Access-Control-Allow-Origin", "*"))),
			`has Access-Control-Allow-Origin "*"; want`},
		"the handler adds another": {right.Wrap(serve(func(h http.Header) { h.Add("Access-Control-Allow-Origin", known) })),
			"browsers reject more than one"},
		"the handler replaces Vary": {right.Wrap(serve(set("Vary", "Accept"))), `has Vary "Accept"; want Origin in it`},
		"the handler removes the header": {right.Wrap(serve(func(h http.Header) { h.Del("Access-Control-Allow-Origin") })),
			"the handler removes the header"},
		"a backend adds another":    {right.Wrap(proxied(set("Access-Control-Allow-Origin", "*"))), "browsers reject more than one"},
		"Credentialed is forgotten": {newMiddleware(t, ampcors.Config{}).Wrap(serve(keep)), "want Config.Credentialed"},
		"CrossOriginProtection inside": {right.Wrap(http.NewCrossOriginProtection().Handler(serve(keep))),
			"If it is a protection against CSRF such as"},
		"the same, and a catch-all": {right.Wrap(http.NewCrossOriginProtection().Handler(catchAll)),
			"If it is a protection against CSRF such as"},
		"a handler that answers 403": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })),
			"answered with status 403 by something behind"},
		"the handler itself answers 403": {right.Wrap(answers(403)),
			"by the handler itself, and the Middleware has allowed it"},
		"a login behind it": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Cookie") == "" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})), "set Route.Header to the Cookie or Authorization"},
		"GET writes, too": {right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran = true })),
			"runs the handler of PUT: register the handler for PUT alone"},
		"another handler answers": {right.Wrap(answers(202)),
			"status 202: something in front of the handler answers (the handler does not run)"},
		"a protection with 400": {right.Wrap(answers(400)),
			"status 400: set Route.Body"},
		"only a pattern": {pattern.Wrap(serve(keep)),
			"is denied: hash_not_known; want a Publisher that the Config lists by its name"},
		"ReportOnly": {newMiddleware(t, ampcors.Config{Credentialed: true, ReportOnly: true}).Wrap(serve(keep)),
			"or Config.ReportOnly is set"},
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
		"programs may write": {newMiddleware(t, ampcors.Config{Credentialed: true, DangerouslyAllowUnsafeRequestsWithoutOrigin: true}).Wrap(
			serve(keep)),
			"without Origin, as a form of any site can send it"},
		"no hash prefixes": {newMiddleware(t, ampcors.Config{Credentialed: true, Caches: []cacheurl.Cache{}, Origins: []string{known}}).Wrap(
			serve(keep)),
			"is denied: unknown_host"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ampcorstest.Check(test.handler, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a", Credentialed: true,
				Ran: takeRan})
			if (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
	session := http.Header{"cookie": {"session=1"}}
	login := right.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		plain(w, r)
	}))
	if err := ampcorstest.Check(login, ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a", Credentialed: true,
		Header: session, Ran: takeRan}); err != nil {
		t.Errorf("with a session: %v", err)
	}
	err = ampcorstest.Check(right.Wrap(serve(keep)), ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/a",
		Origin: "https://www-example-com.bing-amp.com"})
	if err == nil || !strings.Contains(err.Error(), "are at https://www-example-com.cdn.ampproject.org and "+
		"https://www-example-com.www.bing-amp.com") {
		t.Error(err)
	}
}
