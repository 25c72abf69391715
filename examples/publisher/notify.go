package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/queue"
	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/cacheurl"
)

// notify shows what happens when articles change: AMP Caches are asked to fetch them again,
// and search engines are told. It starts the publisher's site, the cache and the search
// engine as servers on loopback, and prints the requests that they receive.
func notify(ctx context.Context, out io.Writer) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048) // a publisher keeps one
	if err != nil {
		return err
	}
	web, err := newLoopbackWeb(out)
	if err != nil {
		return err
	}
	defer web.Close()

	// What a publisher's backend needs.
	flusher, err := updatecache.New(updatecache.Config{Signer: key, Caches: cacheurl.DefaultCaches()[:1], HTTPClient: web.client}) // Google's alone, for short
	if err != nil {
		return err
	}
	engines, err := indexnow.New(indexnow.Config{Key: indexnow.NewKey(), HTTPClient: web.client})
	if err != nil {
		return err
	}
	site := http.NewServeMux()
	site.Handle("GET "+updatecache.KeyPath, flusher.KeyHandler())
	site.Handle("GET "+engines.KeyPath(), engines.KeyHandler())
	web.serve(site, engines)

	fmt.Fprintf(out, "1. The site serves its keys; the program fetches them to verify that.\n")
	if err := flusher.Verify(ctx, "www.example.com"); err != nil {
		return err
	}
	if err := engines.Verify(ctx, "www.example.com"); err != nil {
		return err
	}

	pages, err := engines.NewQueue(queue.Config{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // stops the queue too, if something fails before Shutdown
	running := make(chan error, 1)
	go func() { running <- pages.Run(ctx) }()

	for i, article := range []string{"1", "2?page=2", "1"} {
		page, amp := "https://www.example.com/articles/"+article, "https://www.example.com/amp/articles/"+article
		cacheURL, err := cacheurl.URL{Publisher: amp, Type: cacheurl.Document}.Build()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%d. %s changes. Google's AMP Cache has its AMP version at\n   %s\n", i+2, page, cacheURL)
		if _, err := flusher.Flush(ctx, amp); err != nil {
			return err
		}
		if err := pages.Add(page); err != nil {
			return err
		}
	}

	fmt.Fprintf(out, "\n5. The queue has collected the changes, article 1 once, and sends them when it is closed.\n")
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	unsent, err := pages.Shutdown(closing)
	for _, url := range unsent {
		fmt.Fprintf(out, "   to be kept for the next start: %s\n", url)
	}
	return errors.Join(err, <-running)
}
