package ampcorstest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
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
