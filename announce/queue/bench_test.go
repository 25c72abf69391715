package queue

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkRequest is what a request of 10,000 URLs costs the queue, by how many wait.
func BenchmarkRequest(b *testing.B) {
	const batch = 10_000
	for _, waiting := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			items := func(url string) ([]Item, error) { return []Item{{url, "www.example.com"}}, nil }
			send := func(_ context.Context, _ string, urls []string) []Result { return make([]Result, len(urls)) }
			q, err := New(Service{Items: items, Send: send, Batch: batch}, Config{Capacity: waiting, Delay: 1})
			if err != nil {
				b.Fatal(err)
			}
			for i := range waiting {
				if err := q.Add(fmt.Sprintf("https://www.example.com/articles/%d", i)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				h, urls, _ := q.take(false)
				q.settle(b.Context(), h, urls, send(b.Context(), "", urls))
				b.StopTimer()
				for _, url := range urls { // as many wait as before
					_ = q.Add(url)
				}
				b.StartTimer()
			}
		})
	}
}
