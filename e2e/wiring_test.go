package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gingzip "github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	fibercompress "github.com/gofiber/fiber/v3/middleware/compress"
	fibercsrf "github.com/gofiber/fiber/v3/middleware/csrf"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gorilla/mux"
	jubcors "github.com/jub0bs/cors"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
	"github.com/ampcors/ampcors/guard"
)

const (
	wiredPath = "/api/profile"
	tenant    = "news.example" // another one
)

// middleware is one of net/http.
type middleware = func(http.Handler) http.Handler

// chain returns a handler in middleware, the first of them outermost.
func chain(h http.Handler, all ...middleware) http.Handler {
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

// unless returns ampcors for the requests for which skip is false, as people write exceptions.
func unless(mw *ampcors.Middleware, skip func(*http.Request) bool) middleware {
	return func(next http.Handler) http.Handler {
		wrapped := mw.Wrap(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			wrapped.ServeHTTP(w, r)
		})
	}
}

func hasPrefix(name, prefix string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasPrefix(r.Header.Get(name), prefix) }
}

func profile(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"saved": true}`) }

// ofMux returns net/http's router with the route, and one for GET.
func ofMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+wiredPath, profile)
	return mux
}

func onGin(uses ...gin.HandlerFunc) http.Handler {
	r := gin.New()
	r.Use(uses...)
	r.PUT(wiredPath, gin.WrapF(profile))
	return r
}

func ginCORS(mw *ampcors.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		if _, proceed := mw.Handle(c.Writer, c.Request); !proceed {
			c.Abort()
		}
	}
}

func onChi(uses ...middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(uses...)
	r.Put(wiredPath, profile)
	return r
}

func onEcho(uses ...echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.Use(uses...)
	e.PUT(wiredPath, echo.WrapHandler(http.HandlerFunc(profile)))
	return e
}

func echoCORS(mw *ampcors.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if _, proceed := mw.Handle(c.Response(), c.Request()); !proceed {
				return nil
			}
			return next(c)
		}
	}
}

func gorilla(uses ...mux.MiddlewareFunc) http.Handler {
	r := mux.NewRouter()
	r.Use(uses...)
	r.HandleFunc(wiredPath, profile).Methods("PUT")
	return r
}

func onFiber(config fiber.Config, uses ...any) http.Handler {
	app := fiber.New(config)
	for _, use := range uses {
		app.Use(use)
	}
	app.Put(wiredPath, adaptor.HTTPHandlerFunc(profile))
	return adaptor.FiberApp(app)
}

// TestWirings: package ampcorstest lets each right wiring pass, and finds each wrong one with a sentence that names the cause.
func TestWirings(t *testing.T) {
	t.Parallel()
	gin.SetMode(gin.ReleaseMode)
	newMiddleware := func(cfg ampcors.Config) *ampcors.Middleware {
		cfg.Publishers, cfg.Credentialed, cfg.Methods = []string{publisher, tenant}, true, []string{"PUT"}
		mw, err := ampcors.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return mw
	}
	mw := newMiddleware(ampcors.Config{})
	listed := cors.New(cors.Options{AllowedOrigins: []string{"https://" + publisher, own}, AllowCredentials: true,
		AllowedMethods: []string{"PUT"}}).Handler
	forAll := cors.AllowAll().Handler
	jub := func(origins ...string) middleware {
		m, err := jubcors.NewMiddleware(jubcors.Config{Origins: origins, Methods: []string{"PUT"}})
		if err != nil {
			t.Fatal(err)
		}
		return m.Wrap
	}
	reflecting := func(next http.Handler) http.Handler { // an old CORS library that allows each origin but those of caches
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if origin := r.Header.Get("Origin"); origin != "" {
				w.Header().Set("Access-Control-Allow-Origin", origin)
				w.Header().Set("Access-Control-Allow-Credentials", "true")
				w.Header().Set("Vary", "Origin")
			}
			next.ServeHTTP(w, r)
		})
	}
	setting := func(change func(http.Header)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(w.Header()); profile(w, r) })
	}
	set := func(name, value string) http.Handler { return setting(func(h http.Header) { h.Set(name, value) }) }
	proxied := func(h http.Handler) http.Handler {
		return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: serve(t, h)})
	}
	http2 := func(h http.Handler) http.Handler {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		at, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		p := httputil.NewSingleHostReverseProxy(at)
		p.Transport = s.Client().Transport
		return p
	}
	login := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Cookie") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	timeout := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "late") }
	protection := http.NewCrossOriginProtection().Handler
	gzipped := func(next http.Handler) http.Handler { return gzhttp.GzipHandler(next) }
	limited := func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 1<<20) }
	override := func(fromGET bool) middleware { // as gorilla's and others' do, some of them from any method
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if method := r.URL.Query().Get("_method"); method != "" && (fromGET || r.Method == http.MethodPost) {
					r.Method = method
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	caseless := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = strings.ToLower(r.URL.Path)
			next.ServeHTTP(w, r)
		})
	}
	tenants := func(isFor bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, _ := ampcors.DecisionFromContext(r.Context()); isFor && !d.IsFor(publisher) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			profile(w, r)
		})
	}
	part := func(catchAll http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/api/", mw.Wrap(ofMux()))
		mux.HandleFunc("/", catchAll)
		return mux
	}
	isElsewhere := func(r *http.Request) bool { return !strings.HasPrefix(r.URL.Path, "/api/") }
	isOther := func(r *http.Request) bool { // an origin that is no AMP Cache's
		origin := r.Header.Get("Origin")
		return origin != "" && !strings.HasSuffix(origin, ".cdn.ampproject.org") && !strings.HasSuffix(origin, ".bing-amp.com") &&
			r.Method != http.MethodOptions
	}
	ginGroup, ginLate, ginNoAbort := gin.New(), gin.New(), gin.New()
	ginGroup.Group("/", ginCORS(mw)).PUT(wiredPath, gin.WrapF(profile))
	ginLate.PUT(wiredPath, gin.WrapF(profile))
	ginLate.Use(ginCORS(mw))
	ginNoAbort.Use(gin.WrapH(mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	ginNoAbort.PUT(wiredPath, gin.WrapF(profile))
	chiWith, echoRoute := chi.NewRouter(), echo.New()
	chiWith.With(mw.Wrap).Put(wiredPath, profile)
	echoRoute.PUT(wiredPath, echo.WrapHandler(http.HandlerFunc(profile)), echoCORS(mw))
	fiberLate := fiber.New()
	fiberLate.Put(wiredPath, adaptor.HTTPHandlerFunc(profile))
	fiberLate.Use(adaptor.HTTPMiddleware(mw.Wrap))

	const (
		router  = "the Middleware must see requests before the router"
		vary    = "or a middleware that compresses, replaces or removes it; package guard prevents it"
		csrf    = "If it is a protection against CSRF"
		answers = "something in front of the Middleware answers preflights"
		chooses = "chooses which requests it sees"
	)
	rows := []wiring{
		// Right.
		{"net/http", mw.Wrap(ofMux()), nil},
		{"net/http with a recover, a limit, a timeout and a login behind it", chain(ofMux(), limited, timeout, mw.Wrap, login), nil},
		{"a part of a mux beside 404", part(http.NotFound), nil},
		{"a part of a mux beside an application of one page", part(func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = io.WriteString(w, "<!doctype html>")
		}), nil},
		{"a catch-all", mw.Wrap(http.HandlerFunc(profile)), nil},
		{"chi", onChi(chimiddleware.Recoverer, mw.Wrap), nil},
		{"chi, compression outside", onChi(chimiddleware.Compress(5), mw.Wrap), nil},
		{"chi, compression inside", onChi(mw.Wrap, chimiddleware.Compress(5)), nil},
		{"chi, paths cleaned outside", onChi(chimiddleware.CleanPath, chimiddleware.StripSlashes, mw.Wrap), nil},
		{"chi, redirects of slashes inside", onChi(mw.Wrap, chimiddleware.RedirectSlashes, chimiddleware.Timeout(time.Minute)), nil},
		{"gin", onGin(gin.Recovery(), ginCORS(mw)), nil},
		{"gin as a whole", mw.WrapDecision(onGin()), nil},
		{"gin's compression, and guard around the router", mw.WrapDecision(guard.Handler(onGin(gingzip.Gzip(gingzip.BestSpeed)))), nil},
		{"echo", onEcho(echomiddleware.Recover(), echoCORS(mw)), nil},
		{"echo, compression outside", onEcho(echomiddleware.Gzip(), echoCORS(mw)), nil},
		{"echo, compression inside", onEcho(echoCORS(mw), echomiddleware.Gzip()), nil},
		{"gorilla/mux as a whole", mw.Wrap(gorilla()), nil},
		{"fiber", onFiber(fiber.Config{}, fiberrecover.New(), adaptor.HTTPMiddleware(mw.Wrap)), nil},
		{"fiber as a whole, with compression", mw.Wrap(onFiber(fiber.Config{}, fibercompress.New())), nil},
		{"klauspost's compression outside", chain(ofMux(), gzipped, mw.Wrap), nil},
		{"klauspost's compression inside", chain(ofMux(), mw.Wrap, gzipped), nil},
		{"a reverse proxy in front", proxied(mw.Wrap(ofMux())), nil},
		{"a reverse proxy behind", mw.Wrap(proxied(ofMux())), nil},
		{"HTTP/2", http2(mw.Wrap(ofMux())), nil},
		{"rs/cors behind, which says the same of the own page and nothing of caches", chain(ofMux(), mw.Wrap, listed), nil},
		{"a handler with *, and guard", mw.Wrap(guard.Handler(set("Access-Control-Allow-Origin", "*"))), nil},
		{"Vary: *", mw.Wrap(set("Vary", "*")), nil},
		{"programs with a token go around", chain(ofMux(), unless(mw, hasPrefix("Authorization", "Bearer "))), nil},
		{"methods overridden in POST", chain(ofMux(), override(false), mw.Wrap), nil},
		{"tenants", mw.WrapDecision(tenants(true)), nil},
		{"Config.Denied", newMiddleware(ampcors.Config{Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
			w.WriteHeader(d.StatusCode())
			_, _ = io.WriteString(w, `{"error": "no"}`)
		}}).Wrap(ofMux()), nil},

		// The Middleware is missing, late, or answered for.
		{"no Middleware", ofMux(), []string{router, "is not behind the Middleware"}},
		{"chi's With", chiWith, []string{"is answered with status 405", router}},
		{"gorilla/mux's Use", gorilla(mw.Wrap), []string{"is answered with status 405", router}},
		{"gin's group", ginGroup, []string{"is answered with status 404", router}},
		{"gin's Use after the route", ginLate, []string{"the route is not behind the Middleware"}},
		{"gin's WrapH, which does not abort", ginNoAbort, []string{"the handler runs all the same"}},
		{"echo's route", echoRoute, []string{"is answered with status 204", router}},
		{"fiber's Use after the route", adaptor.FiberApp(fiberLate), []string{"the route is not behind the Middleware"}},
		{"rs/cors in front", chain(ofMux(), listed, mw.Wrap), []string{answers}},
		{"rs/cors in front, for everybody", chain(ofMux(), forAll, mw.Wrap), []string{answers}},
		{"jub0bs/cors in front", chain(ofMux(), jub("https://"+publisher), mw.Wrap), []string{router}},
		{"a login in front", chain(ofMux(), login, mw.Wrap), []string{"browsers send neither cookies nor Authorization with a preflight"}},
		{"chi's BasicAuth in front", chain(ofMux(), chimiddleware.BasicAuth("a", map[string]string{"a": "b"}), mw.Wrap),
			[]string{"must be behind the Middleware"}},
		{"guard around it", guard.Handler(mw.Wrap(ofMux())), []string{"or package guard is around the Middleware"}},
		{"a webhook beside it", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodOptions {
				mw.Wrap(ofMux()).ServeHTTP(w, r)
				return
			}
			http.Error(w, "the signature is wrong", http.StatusForbidden)
		}), []string{"answered with status 403 and without CORS headers"}},
		{"CrossOriginProtection in front", chain(ofMux(), protection, mw.Wrap), []string{"by something in front of it", csrf}},
		{"ReportOnly", newMiddleware(ampcors.Config{ReportOnly: true}).Wrap(ofMux()), []string{"or Config.ReportOnly is set"}},
		{"programs may write", newMiddleware(ampcors.Config{DangerouslyAllowUnsafeRequestsWithoutOrigin: true}).Wrap(ofMux()),
			[]string{"as a form of any site can send it in an old browser"}},

		// Behind it.
		{"CrossOriginProtection behind", chain(ofMux(), mw.Wrap, protection), []string{csrf}},
		{"echo's CSRF behind", onEcho(echoCORS(mw), echomiddleware.CSRF()), []string{csrf}},
		{"fiber's CSRF behind", onFiber(fiber.Config{}, adaptor.HTTPMiddleware(mw.Wrap), fibercsrf.New()), []string{csrf}},
		{"rs/cors behind, for everybody", chain(ofMux(), mw.Wrap, forAll),
			[]string{`Access-Control-Allow-Origin "*"`, "another CORS library, which must go"}},
		{"jub0bs/cors behind, for everybody", chain(ofMux(), mw.Wrap, jub("*")), []string{`Access-Control-Allow-Origin "*"`}},
		{"a backend with *", mw.Wrap(proxied(set("Access-Control-Allow-Origin", "*"))), []string{"browsers reject more than one"}},
		{"gin's compression in front", onGin(gingzip.Gzip(gingzip.BestSpeed), ginCORS(mw)), []string{`has Vary ""`, vary}},
		{"gin's compression behind", onGin(ginCORS(mw), gingzip.Gzip(gingzip.BestSpeed)), []string{`has Vary ""`, vary}},
		{"a timeout of a handler with Vary", chain(set("Vary", "Accept"), mw.Wrap, timeout), []string{`has Vary "Accept"`, vary}},
		{"the handler removes the header", mw.Wrap(setting(func(h http.Header) { h.Del("Access-Control-Allow-Origin") })),
			[]string{"the handler removes the header"}},
		{"the handler says no credentials", mw.Wrap(set("Access-Control-Allow-Credentials", "false")),
			[]string{`has Access-Control-Allow-Credentials ["false"]`}},
		{"the handler panics", mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no database") })),
			[]string{"is a panic of the handler: no database"}},
		{"another tenant's page", mw.WrapDecision(tenants(false)), []string{"a page of " + tenant, "by IsFor"}},

		// It sees only some requests.
		{"a prefix of the path, and no case behind it", chain(ofMux(), unless(mw, isElsewhere), caseless), []string{"as /API/PROFILE", chooses}},
		{"a prefix of the path, cleaned behind it", chain(onChi(chimiddleware.CleanPath), unless(mw, isElsewhere)),
			[]string{"as //api/profile", chooses}},
		{"fiber's paths of any case", chain(onFiber(fiber.Config{}), unless(mw, isElsewhere)), []string{"as /API/PROFILE", chooses}},
		{"not for uploads", chain(ofMux(), unless(mw, hasPrefix("Content-Type", "multipart/"))),
			[]string{"with Content-Type: multipart/form-data", chooses}},
		{"not for forms", chain(ofMux(), unless(mw, hasPrefix("Content-Type", "application/x-www-form-urlencoded"))),
			[]string{"with Content-Type: application/x-www", chooses}},
		{"not for text", chain(ofMux(), unless(mw, hasPrefix("Content-Type", "text/plain"))), []string{"with Content-Type: text/plain", chooses}},
		{"not for Authorization", chain(ofMux(), unless(mw, hasPrefix("Authorization", "B"))), []string{"with Authorization: Basic", chooses}},
		{"not for WebSockets", chain(http.HandlerFunc(profile), unless(mw, hasPrefix("Upgrade", "websocket"))),
			[]string{"with a WebSocket's handshake", chooses}},
		{"not for the same site", chain(ofMux(), unless(mw, hasPrefix("Sec-Fetch-Site", "same-site"))),
			[]string{"with Sec-Fetch-Site: same-site", chooses}},
		{"not without Sec-Fetch-Site", chain(ofMux(), unless(mw, func(r *http.Request) bool {
			return r.Header.Get("Origin") != "" && r.Header.Get("Sec-Fetch-Site") == "" && r.Method != "OPTIONS"
		})),
			[]string{"with no Sec-Fetch-Site", chooses}},
		{"not for navigation", chain(ofMux(), unless(mw, hasPrefix("Sec-Fetch-Mode", "navigate"))),
			[]string{"with Sec-Fetch-Mode: navigate", chooses}},
		{"not for HTTP/2", chain(ofMux(), unless(mw, func(r *http.Request) bool { return r.ProtoMajor == 2 })), []string{"with HTTP/2", chooses}},
		{"not with a session", chain(ofMux(), unless(mw, func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("Cookie"),
				"; session=")
		})), []string{"with a Cookie", chooses}},
		{"not with a Referer of the publisher", chain(ofMux(),
			unless(mw, func(r *http.Request) bool { return strings.Contains(r.Referer(), publisher) })), []string{"with a Referer", chooses}},
		{"not for streams", chain(ofMux(), unless(mw, hasPrefix("Accept", "text/event-stream"))),
			[]string{"with Accept: text/event-stream", chooses}},
		{"not for the source origin of AMP", chain(ofMux(), unless(mw,
			func(r *http.Request) bool { return r.FormValue("__amp_source_origin") == "https://"+publisher })),
			[]string{"with the query __amp_source_origin=", chooses}},
		{"only for AMP Caches, and another library for all others", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isOther(r) {
				reflecting(ofMux()).ServeHTTP(w, r)
				return
			}
			mw.Wrap(ofMux()).ServeHTTP(w, r)
		}), []string{"with Origin: https://evil.example (status 200", chooses}},
		{"methods overridden in GET, behind it", chain(ofMux(), mw.Wrap, override(true)),
			[]string{"is taken for PUT", "remove what reads the method from _method"}},
	}
	checkWirings(t, rows, func(r *ampcorstest.Route, name string) {
		if strings.Contains(name, "tenant") {
			r.OtherPublisher = tenant
		}
	})
}

// A wiring is a handler, and parts of what Check says of it; none if it is right.
type wiring struct {
	name string
	h    http.Handler
	want []string
}

// checkWirings checks each wiring. change changes its Route.
func checkWirings(t *testing.T, rows []wiring, change func(r *ampcorstest.Route, name string)) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			route := ampcorstest.Route{Publisher: publisher, Method: "PUT", Path: wiredPath, Credentialed: true,
				Header: http.Header{"Cookie": {"a=b"}}}
			change(&route, row.name)
			err := ampcorstest.Check(row.h, route)
			if (err == nil) != (len(row.want) == 0) {
				t.Fatalf("%v; want %q", err, row.want)
			}
			if strings.Contains(fmt.Sprint(err), "the handler runs all the same") && !strings.Contains(row.name, "Abort") &&
				!strings.Contains(row.name, "abort") {
				t.Errorf("it does not run: %v", err)
			}
			for _, want := range row.want {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
}

// TestWiringsOfOtherRoutes has wirings whose Route or whose behavior in time differs.
func TestWiringsOfOtherRoutes(t *testing.T) {
	t.Parallel()
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true, Methods: []string{"PUT", "DELETE"}})
	if err != nil {
		t.Fatal(err)
	}
	hides, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true, Methods: []string{"PUT"},
		Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
			w.WriteHeader(d.StatusCode())
			_, _ = io.WriteString(w, `{"error": "no"}`)
		}})
	if err != nil {
		t.Fatal(err)
	}
	type change = func(*ampcorstest.Route)
	anyPath := func(h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("PUT /api/", h)
		return mux
	}
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	forms := func(next http.Handler) http.Handler { // a POST that is redirected
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/thanks", http.StatusSeeOther) })
	}
	part := func(other http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/api/", mw.Wrap(ofMux()))
		mux.HandleFunc("/", other)
		return mux
	}
	stream := http.NewServeMux()
	stream.HandleFunc("GET "+wiredPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var exists atomic.Bool
	once := http.NewServeMux()
	once.HandleFunc("DELETE /api/items/1", func(w http.ResponseWriter, _ *http.Request) {
		if !exists.Swap(false) {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	var requests atomic.Int64
	limited := func(most int64) middleware {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) > most {
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	lookalikes := func(next http.Handler) http.Handler { // the publisher's own pages stay with another library, which compares the end
		suffix := cors.New(cors.Options{AllowOriginFunc: func(origin string) bool { return strings.HasSuffix(origin, "example.com") },
			AllowCredentials: true, AllowedMethods: []string{"PUT"}})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.Header.Get("Origin"), "example.com") && r.Method != http.MethodOptions {
				w.Header().Set("Access-Control-Expose-Headers", "AMP-Redirect-To")
				suffix.Handler(next).ServeHTTP(w, r)
				return
			}
			mw.Wrap(next).ServeHTTP(w, r)
		})
	}
	kept := make(map[string]*httptest.ResponseRecorder)
	caches := func(next http.Handler) http.Handler { // by URL alone
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			if kept[r.URL.Path] == nil {
				kept[r.URL.Path] = httptest.NewRecorder()
				next.ServeHTTP(kept[r.URL.Path], r)
			}
			maps.Copy(w.Header(), kept[r.URL.Path].Header())
			w.WriteHeader(kept[r.URL.Path].Code)
		})
	}
	ginNoAbort, ginProxy := gin.New(), gin.New()
	ginNoAbort.Use(func(c *gin.Context) { hides.Handle(c.Writer, c.Request) })
	ginNoAbort.PUT(wiredPath, gin.WrapF(profile))
	ginProxy.Use(ginCORS(mw))
	ginProxy.PUT(wiredPath, gin.WrapH(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: serve(t, ofMux())})))
	echoTLS := echo.New()
	echoTLS.Pre(echomiddleware.HTTPSRedirect())
	echoTLS.Use(echoCORS(mw))
	echoTLS.PUT(wiredPath, echo.WrapHandler(http.HandlerFunc(profile)))
	isNoMethod := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // "method" is a parameter of its own
		if r.Method == http.MethodGet && r.FormValue("method") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		profile(w, r)
	})
	n := 0
	varying := func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<!doctype html><script nonce=%d></script>%s", n, r.URL.Path)
	}
	changes := map[string]change{
		"a stream":               func(r *ampcorstest.Route) { r.Method = "GET" },
		"a DELETE of one item":   func(r *ampcorstest.Route) { r.Method, r.Path = "DELETE", "/api/items/1"; exists.Store(true) },
		"a path with a query":    func(r *ampcorstest.Route) { r.Path += "?next=/x/y" },
		"an exact path":          func(r *ampcorstest.Route) { r.Path += "?next=/x/y" },
		"/ is missing":           func(r *ampcorstest.Route) { r.Missing = "/" },
		"the path /":             func(r *ampcorstest.Route) { r.Path, r.Missing = "/", "/x" },
		"a safelisted Range":     func(r *ampcorstest.Route) { r.Method = "GET"; r.Header.Set("Range", "bytes=0-9") },
		"only some types":        func(r *ampcorstest.Route) { r.Body = "{}"; r.Header.Set("Content-Type", "application/json") },
		"a body that is checked": func(r *ampcorstest.Route) { r.Body = "{}"; r.Header.Set("Content-Type", "application/json") },
	}
	checkWirings(t, []wiring{
		{"a stream", mw.Wrap(stream), nil},
		{"a DELETE of one item", mw.Wrap(once), nil},
		{"a path with a query", mw.Wrap(ofMux()), nil},
		{"/ is missing", mw.Wrap(ofMux()), nil},
		{"the path /", mw.Wrap(http.HandlerFunc(profile)), nil},
		{"a safelisted Range", mw.Wrap(http.HandlerFunc(profile)), nil},
		{"beside an application of one page that changes", part(varying), nil},
		{"gin, in front of a backend", ginProxy, nil},
		{"only some types", onChi(chimiddleware.AllowContentType("application/json"), mw.Wrap), nil},
		{"escaped slashes are refused", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.RawPath, "%2F") {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			mw.Wrap(ofMux()).ServeHTTP(w, r)
		}), nil},
		{"a parameter with the name method", mw.Wrap(isNoMethod), nil},
		{"a body that is checked", mw.Wrap(anyPath(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) != "{}" {
				w.WriteHeader(http.StatusBadRequest)
			}
		})), nil},

		{"an exact path", func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle(wiredPath, mw.Wrap(ofMux()))
			return mux
		}(), []string{"GET /api/ampcorstest-does-not-exist"}},
		{"credentials twice", mw.Wrap(anyPath(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Access-Control-Allow-Credentials", "true")
		})),
			[]string{`has Access-Control-Allow-Credentials ["true" "true"]`}},
		{"other headers are exposed", mw.Wrap(anyPath(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Expose-Headers", "X-Total")
		})),
			[]string{"replaces the header; use Config.ResponseHeaders"}},
		{"a look-alike of the own origin", chain(ofMux(), lookalikes),
			[]string{"with Origin: https://evilexample.com (status 200", "with Origin: https://wwwxexample.com (status 200"}},
		{"a token in the query", chain(ofMux(), unless(mw, func(r *http.Request) bool { return r.URL.Query().Get("api_key") != "" })),
			[]string{"with the query token=1"}},
		{"a Referer that begins right", chain(ofMux(), unless(mw, hasPrefix("Referer", "https://"+publisher))), []string{"with a Referer"}},
		{"no type", chain(ofMux(), unless(mw, func(r *http.Request) bool { return r.Header.Get("Content-Type") == "" && r.ContentLength > 0 })),
			[]string{"with a body without Content-Type"}},
		{"only requests with Origin", chain(ofMux(), unless(mw,
			func(r *http.Request) bool { return r.Method == http.MethodGet && r.Header.Get("Origin") == "" })),
			[]string{`GET /api/profile without Origin has Vary ""`}},
		{"gin without Abort, and Config.Denied", ginNoAbort, []string{"the handler runs all the same"}},
		{"a redirect of a form", mw.Wrap(forms(nil)), []string{`is answered with status 303: it is redirected to "/thanks"`}},
		{"a handler that fails", mw.Wrap(answer(http.StatusInternalServerError)), []string{"the handler, or what it needs, fails"}},
		{"a handler that wants a body", mw.Wrap(answer(http.StatusUnprocessableEntity)), []string{"set Route.Body, and its Content-Type"}},
		{"a limit of requests", chain(ofMux(), limited(20), mw.Wrap), []string{"request 21 is answered with status 429"}},
		{"a redirect to https", echoTLS, []string{"wrap the handler in one that sets the Request's TLS"}},
		{"a cache in front", chain(ofMux(), caches, mw.Wrap), []string{"a cache is in front of the Middleware"}},
	}, func(r *ampcorstest.Route, name string) {
		if change := changes[name]; change != nil {
			change(r)
		}
	})
}
