package ampcors_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
)

func Example() {
	mw, err := ampcors.New(ampcors.Config{
		Publishers:   []string{"www.example.com", "*.news.example"},
		Credentialed: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ampcors.DecisionFromContext(r.Context())
		fmt.Fprint(w, "hello, reader of "+d.Publisher)
	})
	handler := mw.WrapDecision(api)

	for _, origin := range []string{
		"https://www-example-com.cdn.ampproject.org",
		"https://evil-example.cdn.ampproject.org",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 hello, reader of www.example.com
	// 403 Forbidden: publisher_not_allowed
}

// An API with a path for each tenant compares the publisher with the tenant: the pages of all tenants are
// allowed, and so the page of one could otherwise call the path of another.
func ExampleDecision_IsFor() {
	tenants := map[string]string{"a": "www.a.example", "b": "www.b.example"} // and their domains
	mw, err := ampcors.New(ampcors.Config{Publishers: slices.Collect(maps.Values(tenants)), Credentialed: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := http.NewServeMux()
	api.HandleFunc("/tenants/{tenant}/cart", func(w http.ResponseWriter, r *http.Request) {
		d, ok := ampcors.DecisionFromContext(r.Context())
		if !ok {
			http.Error(w, "there is no decision: wrap the router with WrapDecision", http.StatusInternalServerError)
			return
		}
		if !d.IsFor(tenants[r.PathValue("tenant")]) { // false as well if there is no such tenant
			http.Error(w, "another tenant's page", http.StatusForbidden)
			return
		}
		fmt.Fprintln(w, "the reader's cart")
	})
	handler := mw.WrapDecision(api)

	for _, request := range []struct{ path, origin, site string }{
		{"/tenants/a/cart", "https://www-a-example.cdn.ampproject.org", "cross-site"},
		{"/tenants/a/cart", "https://www-b-example.cdn.ampproject.org", "cross-site"},
		{"/tenants/a/cart", "https://api.example.com", "same-origin"},
		{"/tenants/zzz/cart", "https://api.example.com", "same-origin"},
	} {
		r := httptest.NewRequest("POST", request.path, nil)
		r.Header.Set("Origin", request.origin)
		r.Header.Set("Sec-Fetch-Site", request.site)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(request.path, request.origin, w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// /tenants/a/cart https://www-a-example.cdn.ampproject.org 200 the reader's cart
	// /tenants/a/cart https://www-b-example.cdn.ampproject.org 403 another tenant's page
	// /tenants/a/cart https://api.example.com 200 the reader's cart
	// /tenants/zzz/cart https://api.example.com 403 another tenant's page
}

// An API that answers in JSON can deny requests in JSON, too.
func ExampleConfig_denied() {
	mw, err := ampcors.New(ampcors.Config{
		Publishers: []string{"www.example.com"},
		Denied: func(w http.ResponseWriter, _ *http.Request, d ampcors.Decision) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(d.StatusCode())
			fmt.Fprintf(w, "{%q: %q}\n", "error", d.Reason.String())
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", "https://evil-example.cdn.ampproject.org")
	w := httptest.NewRecorder()
	mw.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)
	// Output: 403 {"error": "publisher_not_allowed"}
}

func ExampleEmail() {
	mw, err := ampcors.New(ampcors.Config{
		Email: ampcors.Email{Senders: []string{"news@example.com", "*@shop.example"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("AMP-Email-Sender", "orders@shop.example")
	fmt.Println(mw.Check(r).Reason)

	r = httptest.NewRequest("GET", "/?__amp_source_origin=news@example.com", nil)
	r.Header.Set("Origin", "https://mail.google.com")
	fmt.Println(mw.Check(r).Reason)

	r.Header.Set("Origin", "https://evil.example")
	fmt.Println(mw.Check(r).Reason)
	// Output:
	// email
	// email_v1
	// unknown_host
}

// A router that knows only GET and POST answers 405 to a preflight before the
// middleware sees it. This is wrong; wrap the whole mux instead.
func ExampleMiddleware_Wrap_incorrect() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	route := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	wrong := http.NewServeMux()
	wrong.Handle("POST /subscribe", mw.Wrap(route))
	inside := http.NewServeMux()
	inside.Handle("POST /subscribe", route)
	right := mw.Wrap(inside)

	for _, handler := range []http.Handler{wrong, right} {
		r := httptest.NewRequest("OPTIONS", "/subscribe", nil)
		r.Header.Set("Origin", "https://www-example-com.cdn.ampproject.org")
		r.Header.Set("Access-Control-Request-Method", "POST")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Access-Control-Allow-Origin"))
	}
	// Output:
	// 405 ""
	// 204 "https://www-example-com.cdn.ampproject.org"
}
