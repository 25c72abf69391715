package updatecache

import (
	"context"
	"slices"

	"github.com/ampcors/ampcors/announce/queue"
	"github.com/ampcors/ampcors/cacheurl"
)

// NewQueue returns a Queue that flushes documents as they change. Each cache is asked and retried independently. What
// its Shutdown returns, and cfg.Done gets, are the URLs of the documents on a cache. Add takes them too: then only
// that cache is asked. The rate limit of [Client.Flush] applies.
func (c *Client) NewQueue(cfg queue.Config) (*queue.Queue, error) {
	return queue.New(queue.Service{Items: c.items, Send: c.sendQueued, Batch: maxRequests}, cfg)
}

func (c *Client) items(page string) ([]queue.Item, error) {
	u := cacheurl.URL{Publisher: page}
	if cacheurl.IsOnCache(page, c.caches...) {
		var err error
		if u, err = cacheurl.Parse(page, c.caches...); err != nil {
			return nil, err
		}
	}
	targets, err := c.targets(u)
	items := make([]queue.Item, len(targets))
	for i, t := range targets {
		items[i] = queue.Item{URL: t.url, Host: t.host}
	}
	return items, err
}

func (c *Client) sendQueued(ctx context.Context, host string, urls []string) []queue.Result {
	i := slices.IndexFunc(c.caches, func(cache cacheurl.Cache) bool { return updateHost(host, cache) == host })
	results := make([]queue.Result, len(urls))
	for j, url := range urls {
		u, _ := cacheurl.Parse(url, c.caches[i]) // Build has made it
		if problem := c.flush(ctx, targetOf(u.Publisher, url, c.caches[i])); problem != nil {
			results[j] = queue.Result{Err: problem, Again: problem.Retryable(), After: problem.RetryAfter}
		}
	}
	return results
}
