package authz_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func newHandler(t *testing.T, cfg ampcors.Config, proxy authz.Proxy) http.Handler {
	t.Helper()
	h, err := authz.New(mwtest.New(t, cfg), proxy)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// config allows one publisher and one sender. failing adds a Source that fails.
func config() ampcors.Config {
	return ampcors.Config{
		Publishers: []string{"www.example.com"}, Credentialed: true, RequestHeaders: []string{"X-Any"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}},
	}
}

func failing(t *testing.T) ampcors.Config {
	cfg := config()
	down := mwtest.NewDatabase()
	down.Fail(mwtest.ErrDown)
	cfg.Source = down.Remembered(t)
	return cfg
}

// Each proxy gets the decision of the Middleware on the client's request.
func TestEachProxyGetsTheMiddlewaresDecision(t *testing.T) {
	t.Parallel()
	passedOn := headersOfEnvoy(t)
	for _, proxy := range []authz.Proxy{authz.NGINX, authz.Envoy} {
		for _, test := range []struct {
			name, method, query string
			headers             []string
			cfg                 ampcors.Config
		}{
			{name: "allowed", method: "GET", headers: []string{"Origin: " + mwtest.CacheOrigin}, cfg: config()},
			{name: "allowed POST", method: "POST", headers: []string{"Origin: " + mwtest.CacheOrigin}, cfg: config()},
			{name: "denied", method: "GET", headers: []string{"Origin: " + mwtest.EvilOrigin}, cfg: config()},
			{name: "no Origin", method: "GET", headers: nil, cfg: config()},
			{name: "forged POST", method: "POST", headers: nil, cfg: config()},
			{name: "same-origin POST", method: "POST", headers: []string{"AMP-Same-Origin: true"}, cfg: config()},
			{name: "preflight", method: "OPTIONS", headers: []string{"Origin: " + mwtest.CacheOrigin, "Access-Control-Request-Method: POST",
				"Access-Control-Request-Headers: x-any"}, cfg: config()},
			{name: "preflight for another header", method: "OPTIONS",
				headers: []string{"Origin: " + mwtest.CacheOrigin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-other"},
				cfg:     config()},
			{name: "other OPTIONS", method: "OPTIONS", headers: nil, cfg: config()},
			{name: "email, version 2", method: "GET", headers: []string{"AMP-Email-Sender: news@example.com"}, cfg: config()},
			{name: "email, version 1", method: "GET", query: "?__amp_source_origin=news%40example.com",
				headers: []string{"Origin: https://mail.google.com"}, cfg: config()},
			{name: "email, version 1, from another sender", method: "GET", query: "?__amp_source_origin=evil%40evil.example",
				headers: []string{"Origin: https://mail.google.com"}, cfg: config()},
			{name: "Source fails", method: "GET", headers: []string{"Origin: " + mwtest.EvilOrigin}, cfg: failing(t)},
		} {
			t.Run(fmt.Sprint(proxy, "/", test.name), func(t *testing.T) {
				t.Parallel()
				request := func(method string) *http.Request {
					r := httptest.NewRequest(method, "/api"+test.query, nil)
					for _, line := range test.headers {
						name, value, _ := strings.Cut(line, ": ")
						r.Header.Set(name, value)
					}
					return r
				}
				want := httptest.NewRecorder()
				decision, proceed := mwtest.New(t, test.cfg).Handle(want, request(test.method))
				if proceed {
					want.WriteHeader(http.StatusOK)
				}
				asked := request(test.method)
				switch proxy {
				case authz.NGINX:
					asked = request("GET")
					asked.Header.Set("X-Original-Method", test.method)
				case authz.Envoy:
					for key := range asked.Header {
						if !passedOn[strings.ToLower(key)] {
							asked.Header.Del(key)
						}
					}
					asked.Header.Set("X-Ampcors-Proxy", "envoy")
				}
				got := httptest.NewRecorder()
				newHandler(t, test.cfg, proxy).ServeHTTP(got, asked)
				status := want.Code
				want.Header().Set(authz.StatusHeader, fmt.Sprint(status))
				want.Header().Set(authz.ReasonHeader, decision.Reason.String())
				if decision.Publisher != "" {
					want.Header().Set(authz.PublisherHeader, decision.Publisher)
				} else if proxy == authz.Envoy && proceed {
					want.Header().Set("X-Envoy-Auth-Headers-To-Remove", authz.PublisherHeader)
				}
				if proxy == authz.NGINX && status == http.StatusServiceUnavailable {
					status = http.StatusForbidden
				}
				if got.Code != status || fmt.Sprint(got.Header()) != fmt.Sprint(want.Header()) || got.Body.String() != want.Body.String() {
					t.Errorf("%d %v %q\nwant %d %v %q", got.Code, got.Header(), got.Body, status, want.Header(), want.Body)
				}
			})
		}
	}
}

// headersOfEnvoy returns the request headers that envoy.yaml lets Envoy send.
func headersOfEnvoy(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(data), "allowed_headers:")
	list, _, ok2 := strings.Cut(list, "http_service:")
	if !ok || !ok2 || !strings.Contains(string(data), "{key: x-ampcors-proxy, value: envoy}") {
		t.Fatal("envoy.yaml has another form")
	}
	passedOn := make(map[string]bool)
	for _, found := range regexp.MustCompile(`exact: (\S+)`).FindAllStringSubmatch(list, -1) {
		passedOn[found[1]] = true
	}
	return passedOn
}

// A proxy that does not say what the method is, or does not pass on Origin, would let forged requests
// through. So what its configuration sets must be there.
func TestARequestThatTheConfigurationDidNotMakeIsDenied(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		proxy        authz.Proxy
		name, reason string
		wrong        [][]string
	}{
		{authz.NGINX, "X-Original-Method", "no_method", [][]string{nil, {""}, {"GET", "POST"}}},
		{authz.Envoy, "X-Ampcors-Proxy", "not_configured", [][]string{nil, {""}, {"nginx"}, {"envoy", "envoy"}}},
	} {
		for _, values := range test.wrong {
			t.Run(fmt.Sprint(test.proxy, values), func(t *testing.T) {
				t.Parallel()
				r := httptest.NewRequest("POST", "/", nil)
				r.Header.Set("AMP-Same-Origin", "true") // a page of a cache can send it
				if values != nil {
					r.Header[test.name] = values
				}
				w := httptest.NewRecorder()
				newHandler(t, config(), test.proxy).ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Origin") != "" ||
					w.Header().Get(authz.ReasonHeader) != test.reason || w.Header().Get("Cache-Control") != "no-store" ||
					!strings.Contains(w.Body.String(), test.name) {
					t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			})
		}
	}
	// Envoy asks with the method itself: the header of nginx has no effect.
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("X-Ampcors-Proxy", "envoy")
	r.Header.Set("X-Original-Method", "GET")
	w := httptest.NewRecorder()
	if newHandler(t, config(), authz.Envoy).ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("a forged POST gets %d", w.Code)
	}
}

// A proxy takes 2xx for permission, so a Config.Denied that forgets the status must not answer 200.
func TestADeniedThatWritesNoStatus(t *testing.T) {
	t.Parallel()
	for _, proxy := range []authz.Proxy{authz.NGINX, authz.Envoy} {
		for name, denied := range map[string]func(http.ResponseWriter){
			"nothing": func(http.ResponseWriter) {},
			"a body":  func(w http.ResponseWriter) { fmt.Fprint(w, "no") },
			"204":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		} {
			cfg := config()
			cfg.Denied = func(w http.ResponseWriter, _ *http.Request, _ ampcors.Decision) { denied(w) }
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Origin", mwtest.EvilOrigin)
			r.Header.Set("X-Original-Method", "GET")
			r.Header.Set("X-Ampcors-Proxy", "envoy")
			w := httptest.NewRecorder()
			if newHandler(t, cfg, proxy).ServeHTTP(w, r); w.Code != http.StatusForbidden || w.Header().Get(authz.StatusHeader) != "403" {
				t.Errorf("%v, %s: a denied request gets %d %v", proxy, name, w.Code, w.Header())
			}
		}
	}
}

// A status that does not permit is passed on as Config.Denied wrote it.
func TestADeniedThatWritesItsOwnStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusMultipleChoices, http.StatusUnavailableForLegalReasons} {
		cfg := config()
		cfg.Denied = func(w http.ResponseWriter, _ *http.Request, _ ampcors.Decision) { w.WriteHeader(status) }
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", mwtest.EvilOrigin)
		r.Header.Set("X-Ampcors-Proxy", "envoy")
		w := httptest.NewRecorder()
		if newHandler(t, cfg, authz.Envoy).ServeHTTP(w, r); w.Code != status || w.Header().Get(authz.StatusHeader) != strconv.Itoa(status) {
			t.Errorf("%d: %d %v", status, w.Code, w.Header())
		}
	}
}

func TestNewChecksItsArguments(t *testing.T) {
	t.Parallel()
	if _, err := authz.New(nil, authz.NGINX); err == nil {
		t.Error("no Middleware")
	}
	for _, proxy := range []authz.Proxy{"", "Apache", "NGINX"} {
		if _, err := authz.New(mwtest.New(t, config()), proxy); err == nil || !strings.Contains(err.Error(), strconv.Quote(string(proxy))) {
			t.Errorf("%q: %v", proxy, err)
		}
	}
}

// nginx takes an answer for permission only if it has the number of the request, which no other server and no cache
// can know.
func TestTheAnswerHasTheNumberOfTheRequest(t *testing.T) {
	t.Parallel()
	h := newHandler(t, config(), authz.NGINX)
	for _, origin := range []string{mwtest.CacheOrigin, mwtest.EvilOrigin} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", origin)
		r.Header.Set("X-Original-Method", "GET")
		r.Header.Set("X-Ampcors-Request", "4bf92f3577b34da6")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("X-Ampcors-Request"); got != "4bf92f3577b34da6" {
			t.Errorf("%s: %q", origin, got)
		}
	}
}
