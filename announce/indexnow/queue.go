package indexnow

import (
	"context"
	"errors"

	"github.com/ampcors/ampcors/announce/queue"
)

// NewQueue returns a Queue that submits URLs of pages as they change. It sends each URL in the form that
// [Client.Canonical] returns. Config.Attempts holds for each of its requests.
func (c *Client) NewQueue(cfg queue.Config) (*queue.Queue, error) {
	return queue.New(queue.Service{Items: c.items, Send: c.sendQueued, Batch: maxURLs}, cfg)
}

func (c *Client) items(url string) ([]queue.Item, error) {
	canonical, host, err := c.Canonical(url)
	return []queue.Item{{URL: canonical, Host: host}}, err
}

func (c *Client) sendQueued(ctx context.Context, host string, urls []string) []queue.Result {
	batches, _ := c.send(ctx, Batch{Host: host, URLs: urls})
	byURL := make(map[string]queue.Result, len(urls))
	for _, b := range batches {
		result := queue.Result{Err: b.Err}
		if problem := (*Error)(nil); errors.As(b.Err, &problem) {
			result.Again, result.After = problem.Retryable(), problem.RetryAfter
		}
		for _, u := range b.URLs {
			byURL[u] = result
		}
	}
	results := make([]queue.Result, len(urls))
	for i, u := range urls {
		results[i] = byURL[u]
	}
	return results
}
