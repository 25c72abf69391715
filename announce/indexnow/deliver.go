package indexnow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// maxRejected is how many requests of a call may be rejected in the search for the pages that the engine rejects.
// The search for one page among 10,000 takes 14.
const maxRejected = 64

// A delivery is one call of Submit, or of a queue.
type delivery struct {
	client   *Client
	results  []Batch
	size     int    // of a request in URLs, at most: what was not too large
	largest  int    // size of a request that was accepted
	rejected int    // requests, because of their content
	free     int    // the part of rejected that does not count: the first requests of all batches but one
	batches  int    // that were begun
	isSearch bool   // halves are sent
	bound    int    // of rejected: half of maxRejected is for the search
	down     *Error // why nothing more is sent

	// By host and location of the key, see groupOf:
	accepted map[string]bool
	groups   map[string]*Error // why nothing more is sent
	cause    map[string]Error  // the last rejection of a page alone because of the content
	reserve  map[string]*Batch // of one page, which is sent last
}

// deliver sends batches, and halves of those that are rejected because of their content, and returns the
// results of all URLs. If isCautious, a host that had nothing accepted gets no halves, but one page first.
func (c *Client) deliver(ctx context.Context, batches []*Batch, isCautious bool) []Batch {
	d := &delivery{client: c, size: maxURLs, bound: maxRejected / 2, accepted: make(map[string]bool),
		groups: make(map[string]*Error),
		cause:  make(map[string]Error), reserve: make(map[string]*Batch)}
	var rejected []*Batch
	ahead := d.sendAhead(ctx, batches)
	for _, b := range batches {
		if problem, isSent := ahead[b]; isSent {
			rejected = append(rejected, d.take(ctx, b, problem, true)...)
		} else {
			rejected = append(rejected, d.send(ctx, b.Host, b.URLs)...)
		}
		d.batches++
	}
	// Half of the bound was for what is too large, the other half is for the search. Neither hosts nor
	// halves have a fixed order: what one call leaves because of the bound, the next may begin with.
	rand.Shuffle(len(rejected), func(i, j int) { rejected[i], rejected[j] = rejected[j], rejected[i] })
	d.isSearch, d.bound = true, maxRejected
	if isCautious {
		rejected = d.tryOne(ctx, rejected)
	}
	left := make(map[string]bool) // groups whose search goes on in the next call
	for len(rejected) > 0 {
		// Smaller and smaller parts of one host, until the page is found. But a host that had nothing
		// accepted may have a wrong key: so that such a host does not use up the bound, each rejected request
		// is equally likely to choose the next host.
		i := len(rejected) - 1
		for group := c.groupOf(rejected[rand.N(len(rejected))]); !d.accepted[c.groupOf(rejected[i])] &&
			c.groupOf(rejected[i]) != group; {
			i--
		}
		b := rejected[i]
		rejected = slices.Delete(rejected, i, i+1)
		if d.rejected-d.free+2 > maxRejected {
			d.leave(b.Host, b.URLs...)
			left[c.groupOf(b)] = true
			continue
		}
		halves := [][]string{b.URLs[:len(b.URLs)/2], b.URLs[len(b.URLs)/2:]}
		first := rand.N(2)
		rejected = append(rejected, d.sendHalf(ctx, b.Host, halves[first])...)
		rejected = append(rejected, d.sendHalf(ctx, b.Host, halves[1-first])...)
	}
	for group, b := range d.reserve {
		if left[group] {
			d.leave(b.Host, b.URLs...)
		} else {
			d.send(ctx, b.Host, b.URLs)
		}
	}
	for i := range d.results {
		d.settle(ctx, &d.results[i])
	}
	return d.results
}

const (
	defaultAtOnce = 16 // see Config.AtOnce
	maxAtOnce     = 1000
)

// sendAhead sends the first batch of each group, several at one time, and returns what came of those that it sent.
// It begins no more once the engine has failed. What follows from an answer is decided later, in the order of the
// batches.
func (d *delivery) sendAhead(ctx context.Context, batches []*Batch) map[*Batch]*Error {
	var firsts []*Batch
	seen := make(map[string]bool)
	for _, b := range batches {
		if group := d.client.groupOf(b); !seen[group] {
			seen[group] = true
			firsts = append(firsts, b)
		}
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	ahead, isDown := make(map[*Batch]*Error), false
	next := func() (b *Batch) {
		mu.Lock()
		defer mu.Unlock()
		if !isDown && len(firsts) > 0 {
			b, firsts = firsts[0], firsts[1:]
		}
		return b
	}
	post := func(b *Batch) {
		problem := d.client.postBatch(ctx, b)
		mu.Lock()
		defer mu.Unlock()
		ahead[b] = problem
		isDown = isDown || problem != nil && problem.kind() == ofEngine
	}
	if b := next(); b != nil { // alone: an engine that wants no requests now says so before others are on their way
		post(b)
	}
	for range min(d.client.atOnce, len(firsts)) {
		wait.Go(func() {
			for b := next(); b != nil; b = next() {
				post(b)
			}
		})
	}
	wait.Wait()
	return ahead
}

// groupOf returns the host of a batch and the location of its key, which all its URLs have: what an
// engine says of the key holds for all of them.
func (c *Client) groupOf(b *Batch) string {
	location, _ := c.locationOf(b.URLs[0])
	return strings.TrimSpace(b.Host + " " + location)
}

// tryOne sends one page of each group that had nothing accepted, and returns the batches whose halves are to be
// sent. It may be the page at fault; then a later call tries another one.
func (d *delivery) tryOne(ctx context.Context, rejected []*Batch) (left []*Batch) {
	isTried := make(map[string]bool)
	for _, b := range rejected {
		group := d.client.groupOf(b)
		if !d.accepted[group] && !isTried[group] {
			isTried[group] = true
			i := rand.N(len(b.URLs))
			page := b.URLs[i]
			b.URLs = slices.Concat(b.URLs[:i], b.URLs[i+1:])
			d.send(ctx, b.Host, []string{page})
		}
		switch {
		case !d.accepted[group]:
			d.leave(b.Host, b.URLs...)
		case len(b.URLs) == 1:
			d.send(ctx, b.Host, b.URLs)
		default:
			left = append(left, b)
		}
	}
	return left
}

// leave notes that URLs are not sent because of the bound.
func (d *delivery) leave(host string, urls ...string) {
	d.results = append(d.results, Batch{Host: host, URLs: urls, Err: &Error{Host: host, Err: ErrSearchLimit}})
}

// sendHalf sends a half of a rejected request. It reserves one of its pages if the others are accepted.
// If the search ends at the bound, this page is left for the next call: it is likely accepted then,
// which is needed before another page can be given up.
func (d *delivery) sendHalf(ctx context.Context, host string, urls []string) (rejected []*Batch) {
	last, group := len(urls)-1, d.client.groupOf(&Batch{Host: host, URLs: urls})
	if d.reserve[group] != nil || last == 0 {
		return d.send(ctx, host, urls)
	}
	rejected = d.send(ctx, host, urls[:last:last])
	switch {
	case len(rejected) > 0:
		rejected[0].URLs = append(rejected[0].URLs, urls[last])
	case d.results[len(d.results)-1].Err == nil:
		d.reserve[group] = &Batch{Host: host, URLs: urls[last:]}
	default: // a single page, which is rejected
		rejected = d.send(ctx, host, urls[last:])
	}
	return rejected
}

// send sends URLs of a host, in requests that are not too large, and returns those whose halves are to be sent.
func (d *delivery) send(ctx context.Context, host string, urls []string) (rejected []*Batch) {
	for isFirst := !d.isSearch; len(urls) > 0; isFirst = false {
		if !isFirst && d.rejected-d.free >= d.bound {
			d.leave(host, urls...)
			return rejected
		}
		n := min(len(urls), d.size)
		cause := cmp.Or(d.down, d.groups[d.client.groupOf(&Batch{Host: host, URLs: urls})])
		if cause != nil {
			n = len(urls)
		}
		b := &Batch{Host: host, URLs: urls[:n:n]}
		urls = urls[n:]
		if cause != nil {
			b.Err = &Error{Host: cause.Host, Err: fmt.Errorf("%w: %w", ErrNotSent, cause.Err), RetryAfter: cause.RetryAfter}
			d.results = append(d.results, *b)
		} else {
			rejected = append(rejected, d.take(ctx, b, d.client.postBatch(ctx, b), isFirst)...)
		}
	}
	return rejected
}

// postBatch sends a batch. If it is accepted, Config.Accepted is called.
func (c *Client) postBatch(ctx context.Context, b *Batch) *Error {
	location, _ := c.locationOf(b.URLs[0])
	own, err := c.of(ctx, b.Host, location)
	if err != nil {
		return &Error{Host: b.Host, Err: err}
	}
	problem := own.post(ctx, b)
	if problem == nil && c.accepted != nil {
		c.accepted(*b)
	}
	return problem
}

// take notes what came of a batch, and returns it if its halves are to be sent.
func (d *delivery) take(ctx context.Context, b *Batch, problem *Error, isFirst bool) (rejected []*Batch) {
	d.note(ctx, b, problem)
	if problem != nil && problem.kind() == ofContent {
		if isFirst && d.batches > 0 { // so that one host does not use up what all have
			d.free++
		}
		if len(b.URLs) > 1 {
			return []*Batch{b}
		}
	}
	d.results = append(d.results, *b)
	return nil
}

// note notes what came of a batch.
func (d *delivery) note(ctx context.Context, b *Batch, problem *Error) {
	switch {
	case problem == nil:
		d.accepted[d.client.groupOf(b)], d.largest = true, max(d.largest, len(b.URLs))
		return
	case problem.kind() == ofContent:
		if d.rejected++; len(b.URLs) == 1 {
			d.cause[d.client.groupOf(b)] = *problem
		}
		if errors.Is(problem.Err, ErrTooLarge) && len(b.URLs) > d.largest {
			d.size = max(len(b.URLs)/2, d.largest, 1)
		}
		d.client.log.DebugContext(ctx, "ampcors: indexnow: rejected", "host", b.Host, "urls", len(b.URLs), "error", problem)
	case problem.kind() == ofKey:
		d.groups[d.client.groupOf(b)] = problem
	case problem.kind() == ofEngine:
		d.down = problem
	}
	b.Err = problem
}

// settle decides what the engine's answer means for the URLs of a batch, and logs it.
func (d *delivery) settle(ctx context.Context, b *Batch) {
	problem, _ := b.Err.(*Error)
	switch {
	case problem == nil:
		d.client.log.InfoContext(ctx, "ampcors: indexnow: accepted", "host", b.Host, "urls", len(b.URLs), "pending",
			b.Pending)
		return
	case errors.Is(problem, ErrSearchLimit) && !d.accepted[d.client.groupOf(b)]:
		// The engine's answer says more than our bound.
		if cause, ok := d.cause[d.client.groupOf(b)]; ok {
			cause.Err = fmt.Errorf("%w: %w", ErrAllRejected, cause.Err)
			problem = &cause
			b.Err = problem
		}
	case problem.kind() != ofContent:
	case d.accepted[d.client.groupOf(b)]:
		problem.URL = d.client.mask(b.URLs[0])
	default:
		problem.Err = fmt.Errorf("%w: %w", ErrAllRejected, problem.Err)
	}
	if !errors.Is(problem, ErrNotSent) { // Submit counts them
		d.client.log.WarnContext(ctx, "ampcors: indexnow: not accepted", "host", b.Host, "urls", len(b.URLs), "error",
			problem)
	}
}
