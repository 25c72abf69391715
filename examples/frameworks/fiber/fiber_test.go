package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

// TestTheAdaptorCallsWrapForEachRequest: which is why Wrap does nothing but make a
// closure.
func TestTheAdaptorCallsWrapForEachRequest(t *testing.T) {
	mw, calls := stacktest.Middleware(), 0
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		calls++
		return mw.Wrap(next)
	}))
	for range 2 {
		if _, err := app.Test(httptest.NewRequest("GET", "/", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 {
		t.Errorf("Wrap was called %d times for 2 requests", calls)
	}
}

// TestAmpcorsSeesTheLastOfSeveralOrigins: no browser sends several.
func TestAmpcorsSeesTheLastOfSeveralOrigins(t *testing.T) {
	app := fiber.New()
	app.Use(cors(stacktest.Middleware()))
	app.Get("/", func(c fiber.Ctx) error { return nil })
	for _, test := range []struct {
		origins []string
		status  int
	}{
		{[]string{"https://evil.example", "https://news.example"}, 200},
		{[]string{"https://news.example", "https://evil.example"}, 403},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Origin"] = test.origins
		resp, err := app.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != test.status {
			t.Errorf("%q: status %d; want %d", test.origins, resp.StatusCode, test.status)
		}
	}
}
