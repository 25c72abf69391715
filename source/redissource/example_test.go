package redissource_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/redis/rueidis"
)

// This example needs Redis, so it is not run.
func Example() {
	source, err := redissource.New(redissource.Config{
		Redis: rueidis.ClientOption{InitAddress: []string{"localhost:6379"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()

	// Where publishers are managed:
	if err := source.Add(context.Background(), "www.example.com", "bücher.example"); err != nil {
		log.Fatal(err)
	}

	// On each server:
	mw, err := ampcors.New(ampcors.Config{
		Source: source,
		Lookup: ampcors.Lookup{MaxStale: time.Hour},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", mw.Wrap(http.DefaultServeMux)))
}
