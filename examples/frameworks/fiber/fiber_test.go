package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// The adaptor calls Wrap for each request, so Wrap must be cheap: it only makes a closure.
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

// The adaptor alone would pass on only the last line.
func TestSeveralLinesOfOneHeaderAreSeen(t *testing.T) {
	app := fiber.New()
	app.Use(cors(stacktest.Middleware()))
	app.Post("/", func(c fiber.Ctx) error { return nil })
	for _, header := range []http.Header{
		{"Origin": {"https://evil.example", "https://news.example"}},
		{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site", "same-origin"}},
		{"Amp-Same-Origin": {"false", "true"}},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header = header
		resp, err := app.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: status %d", header, resp.StatusCode)
		}
	}
}
