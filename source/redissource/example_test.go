package redissource_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/redissource"
)

// This example needs Redis, so it is not run.
func Example() {
	store, err := redissource.New(redissource.Config{
		Redis: rueidis.ClientOption{InitAddress: []string{"localhost:6379"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// Where publishers are managed:
	if err := store.Add(context.Background(), "www.example.com", "bücher.example"); err != nil {
		log.Fatal(err)
	}

	// On each server:
	publishers, err := source.New(store.Database(), source.Config{MaxStale: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer publishers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: publishers})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", mw.Wrap(http.DefaultServeMux)))
}
