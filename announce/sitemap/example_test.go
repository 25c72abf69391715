package sitemap_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/sitemap"
)

// Pages of a sitemap are submitted when they are new or have changed.
func Example() {
	ctx := context.Background()
	reader := sitemap.New(sitemap.Config{HTTPClient: web})
	client, err := indexnow.New(indexnow.Config{
		Key:        "73134416ae45434d98edc086e0bf6740",
		HTTPClient: web, // for this example only
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	var state sitemap.State // a program reads it from JSON, and writes it after each run
	for range 2 {           // such as every ten minutes
		if err := reader.Update(ctx, &state, "https://www.example.com/sitemap.xml"); err != nil {
			log.Print(err) // names the files that could not be read; the others were read
		}
		fmt.Printf("%d pages are new or have changed\n", len(state.Pending))
		report, err := client.Submit(ctx, state.PendingURLs()...)
		if err != nil {
			log.Print(err)
		}
		for _, batch := range report.Batches {
			if batch.Err == nil {
				state.Done(batch.URLs...)
			}
		}
	}
	// Output:
	// 2 pages are new or have changed
	// 0 pages are new or have changed
}

// web answers for the site and for the search engine.
var web = &http.Client{Transport: answers{}}

type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text := ""
	if r.URL.Path == "/sitemap.xml" {
		text = "<urlset><url><loc>https://www.example.com/a</loc></url><url><loc>https://www.example.com/b?c</loc></url></urlset>"
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}
