package indexnow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/queue"
)

// A backend serves the key, and queues the pages that change.
func Example() {
	ctx := context.Background() // not one that a signal cancels: Shutdown ends the queue
	mux := http.NewServeMux()   // of https://www.example.com
	var key indexnow.Key = "73134416ae45434d98edc086e0bf6740"

	engines, err := indexnow.New(indexnow.Config{
		Key:        key,            // from the configuration; openssl rand -hex 16 makes one
		Logger:     slog.Default(), // gets the URLs that an engine rejects permanently
		HTTPClient: web(mux),       // for this example only
	})
	if err != nil {
		log.Fatal(err)
	}
	site := http.NotFoundHandler() // the site's own handler
	mux.Handle("/", engines.ServeKeys(site))

	// Once the server can be reached:
	if err := engines.Verify(ctx, "www.example.com"); err != nil {
		log.Print(err)
	}
	pages, err := engines.NewQueue(queue.Config{})
	if err != nil {
		log.Fatal(err)
	}
	go pages.Run(ctx)

	// When a page has changed:
	if err := pages.Add("https://www.example.com/article"); err != nil {
		log.Print(err)
	}

	// When the program ends:
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	unsent, err := pages.Shutdown(closing)
	if err != nil {
		log.Print(err)
	}
	for _, url := range unsent {
		log.Print(url) // to be added at the next start
	}
	fmt.Println(pages.Stats().Accepted, "accepted")
	// Output:
	// 1 accepted
}

func ExampleClient_Submit() {
	c, err := indexnow.New(indexnow.Config{
		Key:        "73134416ae45434d98edc086e0bf6740",
		HTTPClient: web(nil), // for this example only
	})
	if err != nil {
		panic(err)
	}
	report, err := c.Submit(context.Background(),
		"https://www.example.com/news/1", "https://bücher.example/straße", "https://www.example.com:8443/",
	)
	for _, b := range report.Batches {
		fmt.Println(b.Host, len(b.URLs), b.Err)
	}
	fmt.Println(err)
	// Output:
	// www.example.com 1 <nil>
	// xn--bcher-kva.example 1 indexnow: xn--bcher-kva.example: the engine does not find the key on the site (status 403 "KeyNotFound")
	// indexnow: xn--bcher-kva.example: the engine does not find the key on the site (status 403 "KeyNotFound")
	// ampcors: urls[2] "https://www.example.com:8443/" has the port "8443"; want none, or the default: caches and search engines support no other port
}

// web returns a client that reaches an engine and a site without a network.
func web(site http.Handler) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
		if r.URL.Host == "www.example.com" {
			return serve(site, r)
		}
		var submission struct{ Host string }
		if err := json.NewDecoder(r.Body).Decode(&submission); err != nil || submission.Host != "www.example.com" {
			return &http.Response{StatusCode: 403, Body: io.NopCloser(strings.NewReader(`{"errorCode":"KeyNotFound"}`))}
		}
		return &http.Response{StatusCode: 200, Body: http.NoBody}
	})}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// serve returns the handler's response.
func serve(handler http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}
