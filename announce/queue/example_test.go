package queue_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
)

// A service of one's own: here it prints what it gets. Package indexnow and package updatecache have NewQueue for theirs.
func ExampleNew() {
	service := queue.Service{
		Batch: 100,
		Items: func(page string) ([]queue.Item, error) {
			u, err := url.Parse(page)
			if err != nil {
				return nil, err
			}
			return []queue.Item{{URL: page, Host: u.Host}}, nil
		},
		Send: func(_ context.Context, host string, urls []string) []queue.Result {
			fmt.Println(host, urls)
			return make([]queue.Result, len(urls)) // all are accepted
		},
	}
	pages, err := queue.New(service, queue.Config{Delay: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	go pages.Run(context.Background()) // not a context that a signal cancels: Shutdown ends the queue
	if err := pages.Add("https://www.example.com/article"); err != nil {
		log.Print(err)
	}
	unsent, err := pages.Shutdown(context.Background()) // sends what waits
	fmt.Println(unsent, err)
	// Output:
	// www.example.com [https://www.example.com/article]
	// [] <nil>
}
