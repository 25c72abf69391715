package indexnow

import (
	"context"
	"errors"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
)

// interval is between two submissions of one URL. The FAQ at https://www.indexnow.org/faq asks for 5 to 10 minutes.
const interval = 5 * time.Minute

// NewQueue returns a Queue that submits URLs of pages as they change. It sends each URL in the form that
// [Client.Canonical] returns.
func (c *Client) NewQueue(cfg queue.Config) (*queue.Queue, error) {
	return queue.New(queue.Service{Items: c.items, Send: c.sendQueued, Batch: maxURLs, Interval: interval}, cfg)
}

func (c *Client) items(url string) ([]queue.Item, error) {
	canonical, group, err := c.Group(url)
	return []queue.Item{{URL: canonical, Host: group}}, err
}

func (c *Client) sendQueued(ctx context.Context, _ string, urls []string) []queue.Result {
	byURL := make(map[string]queue.Result, len(urls))
	_, batches := c.group(urls) // they may have several key files
	for _, b := range c.deliver(ctx, batches, true) {
		var result queue.Result
		if problem, _ := b.Err.(*Error); problem != nil {
			result = queue.Result{Err: problem, Again: !problem.IsFinal(), OfHost: problem.OfHost(),
				MayBeItem: errors.Is(problem, ErrAllRejected),
				After:     problem.RetryAfter, OfService: problem.RetryAfter > 0 && !problem.OfHost(),
				Soon: errors.Is(problem, ErrSearchLimit)}
		}
		for _, url := range b.URLs {
			byURL[url] = result
		}
	}
	results := make([]queue.Result, len(urls))
	for i, url := range urls {
		results[i] = byURL[url]
	}
	return results
}
