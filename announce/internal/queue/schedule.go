package queue

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"time"
)

// A schedule has the URLs that wait or are being sent, and says which batch is sent next. Its work
// for a batch grows only with the logarithm of the number of URLs: those of a host are in a heap by
// time, and so are the hosts. Queue.mu guards it.
type schedule struct {
	delay time.Duration

	urls       map[string]*entry // that wait or are being sent
	addedAgain int               // how many of these were added again while they are being sent
	hosts      map[string]*host  // of these URLs
	byReady    hostHeap          // the hosts with a URL that waits, except those in round or with a request in progress
	byDue      hostHeap          // the same hosts
	round      hostHeap          // up to maxRound of the hosts that get a request now
	roundAt    time.Time         // hosts that were ready at this time get a request now; zero: none

	lastRoundAt time.Time
	batches     int // how many batches; each fourth is for the host that waits longest

	service    backoff // for all requests
	generation int     // how many backoffs of the service have begun
	width      int     // how many requests may be in progress now
	maxWidth   int

	work int // steps in heaps, for a test
}

// A host has the URLs of one host that wait, and its backoff.
type host struct {
	name    string
	waiting []*entry // a heap by ready
	work    *int
	backoff
	isSending, isInRound bool
	pausedUntil          time.Time
	err                  error // why its last request is retried, or nil

	readyAt, dueAt time.Time // when a request may be made, and when it does not wait any longer
	index          [3]int    // in byReady, byDue and round
}

// An entry is a URL. It is not sent before it is ready, and does not wait for others for longer
// than Delay after that.
type entry struct {
	url          string
	host         *host
	ready        time.Time
	isQueued     bool // in host.waiting, and not being sent
	isAddedAgain bool // see schedule.again
}

// A backoff says until when a host, or the service, gets no requests.
type backoff struct {
	failures int // in a row
	until    time.Time
}

func newSchedule(delay time.Duration, maxWidth int) schedule {
	s := schedule{delay: delay, urls: make(map[string]*entry), hosts: make(map[string]*host), width: 1, maxWidth: maxWidth}
	s.byReady = hostHeap{which: 0, less: func(a, b *host) bool { return a.readyAt.Before(b.readyAt) }}
	s.byDue = hostHeap{which: 1, less: func(a, b *host) bool { return a.dueAt.Before(b.dueAt) }}
	// Hosts whose requests failed come last, so that they do not delay the others.
	s.round = hostHeap{which: 2, less: func(a, b *host) bool {
		return cmp.Or(cmp.Compare(a.failures, b.failures), a.readyAt.Compare(b.readyAt), cmp.Compare(a.name, b.name)) < 0
	}}
	return s
}

// add adds a URL that does not wait yet.
func (s *schedule) add(url, hostName string, ready time.Time) {
	h := s.hosts[hostName]
	if h == nil {
		h = newHost(s, hostName)
		s.hosts[hostName] = h
	}
	e := &entry{url: url, host: h, ready: ready}
	s.urls[url] = e
	s.enqueue(e)
	s.update(h)
}

func newHost(s *schedule, name string) *host { return &host{name: name, work: &s.work} }

func (s *schedule) enqueue(e *entry) {
	e.isQueued = true
	heap.Push(e.host, e)
}

// update updates the place of a host after a change of its URLs or its backoff.
func (s *schedule) update(h *host) {
	if h.isInRound || h.isSending {
		return
	}
	isScheduled := len(s.byReady.hosts) > h.index[0] && s.byReady.hosts[h.index[0]] == h
	if len(h.waiting) == 0 {
		if isScheduled {
			s.unschedule(h)
		}
		delete(s.hosts, h.name)
		return
	}
	first := h.waiting[0].ready
	after := later(h.until, h.pausedUntil)
	h.readyAt, h.dueAt = later(first, after), later(first.Add(s.delay), after)
	for _, all := range []*hostHeap{&s.byReady, &s.byDue} {
		s.work++
		if isScheduled {
			heap.Fix(all, h.index[all.which])
		} else {
			heap.Push(all, h)
		}
	}
}

func (s *schedule) unschedule(h *host) {
	heap.Remove(&s.byReady, h.index[0])
	heap.Remove(&s.byDue, h.index[1])
}

// next returns when the next request may be made. ok is false if there is none: no URL waits, or
// only those of hosts that have a request in progress. If isLast is set, URLs that are ready do not
// wait for others.
func (s *schedule) next(isLast bool) (at time.Time, ok bool) {
	switch {
	case len(s.round.hosts) > 0 || s.isReady(s.roundAt):
		return s.service.until, true
	case len(s.byDue.hosts) == 0:
		return time.Time{}, false
	case isLast:
		return later(s.byReady.hosts[0].readyAt, s.service.until), true
	}
	return later(s.byDue.hosts[0].dueAt, s.service.until), true
}

// take returns the URLs of the next request, sorted, at most max; nil if there is none now. When
// one host is due, all hosts that are ready get a request, but not more often than once in each
// Delay.
func (s *schedule) take(now time.Time, isLast bool, max int) []*entry {
	isDue := func() bool { return len(s.byDue.hosts) > 0 && !s.byDue.hosts[0].dueAt.After(now) }
	if isLast || isDue() && now.Sub(s.lastRoundAt) >= s.delay {
		s.roundAt, s.lastRoundAt = now, now
	}
	for len(s.round.hosts) < maxRound { // not all at once: there may be many
		var h *host
		switch {
		case s.isReady(s.roundAt):
			h = s.byReady.hosts[0]
		case isDue():
			h = s.byDue.hosts[0]
		}
		if h == nil {
			break
		}
		s.unschedule(h)
		h.isInRound = true
		heap.Push(&s.round, h)
	}
	if !s.isReady(s.roundAt) {
		s.roundAt = time.Time{} // what is added now waits for Delay
	}
	if len(s.round.hosts) == 0 || s.service.until.After(now) {
		return nil
	}
	next := 0
	if s.batches++; s.batches%4 == 0 { // the one that waits longest, even if it failed
		for i, h := range s.round.hosts {
			if h.readyAt.Before(s.round.hosts[next].readyAt) {
				next = i
			}
		}
	}
	h := heap.Remove(&s.round, next).(*host)
	h.isInRound, h.isSending = false, true
	var batch []*entry
	for len(batch) < max && len(h.waiting) > 0 && !h.waiting[0].ready.After(now) {
		e := heap.Pop(h).(*entry)
		e.isQueued = false
		batch = append(batch, e)
	}
	slices.SortFunc(batch, func(a, b *entry) int { return cmp.Compare(a.url, b.url) })
	return batch
}

// len returns how many URLs wait or are being sent. One that is being sent and was added again
// counts twice.
func (s *schedule) len() int { return len(s.urls) + s.addedAgain }

// all returns the URLs that wait. It is faster than a loop over urls.
func (s *schedule) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, h := range s.hosts {
			for _, e := range h.waiting {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// addAgain notes that a URL was added while it is being sent.
func (s *schedule) addAgain(e *entry) {
	e.isAddedAgain = true
	s.addedAgain++
}

// clearAgain reports whether a URL was added while it was being sent, and forgets it.
func (s *schedule) clearAgain(e *entry) bool {
	if !e.isAddedAgain {
		return false
	}
	e.isAddedAgain = false
	s.addedAgain--
	return true
}

// maxRound bounds round, because each fourth batch searches all of it.
const maxRound = 100

// isReady reports whether a host was ready at a time.
func (s *schedule) isReady(at time.Time) bool {
	return len(s.byReady.hosts) > 0 && !s.byReady.hosts[0].readyAt.After(at)
}

// drop removes a URL that was sent.
func (s *schedule) drop(e *entry) { delete(s.urls, e.url) }

// answered resets the backoffs after the service answered a request for a host. generation is that
// in which the request began.
func (s *schedule) answered(h *host, generation int) {
	h.backoff, h.err = backoff{}, nil
	if generation != s.generation {
		return // a backoff of the service began after the request
	}
	s.service = backoff{}
	s.width = min(s.width+1, s.maxWidth)
}

// delayHost sets the backoff of a host after a failure, or while the service has yet to verify
// its key.
func (s *schedule) delayHost(h *host, now time.Time, retryAfter time.Duration, wait waitFunc) {
	h.failures++
	h.until = now.Add(max(wait(h.failures, maxHostWait), retryAfter))
}

// A waitFunc returns how long to wait after failures in a row.
type waitFunc func(failures int, longest time.Duration) time.Duration

// failed sets the backoffs of the host and of the service after a retryable error. generation is
// that in which the request began.
func (s *schedule) failed(h *host, problem *Problem, now time.Time, generation int, wait waitFunc) {
	s.delayHost(h, now, problem.RetryAfter, wait)
	if problem.IsHostOnly {
		if problem.IsAnswered && generation == s.generation { // the service is up
			s.service = backoff{}
		}
		return
	}
	s.width = 1
	if generation != s.generation { // a backoff of the service began after the request
		if problem.IsRateLimit {
			s.service.until = later(s.service.until, h.until)
		}
		return
	}
	s.service.failures++
	switch {
	case problem.IsRateLimit:
		s.service.until = h.until
		s.generation++
	case s.service.failures%serviceFailures == 0:
		s.service.until = now.Add(max(wait(s.service.failures/serviceFailures, maxServiceWait), problem.RetryAfter))
		s.generation++
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// A host is a heap of the URLs that wait, by the time when they are ready.
func (h *host) Len() int           { return len(h.waiting) }
func (h *host) Less(i, j int) bool { *h.work++; return h.waiting[i].ready.Before(h.waiting[j].ready) }
func (h *host) Swap(i, j int)      { h.waiting[i], h.waiting[j] = h.waiting[j], h.waiting[i] }
func (h *host) Push(e any)         { h.waiting = append(h.waiting, e.(*entry)) }
func (h *host) Pop() any {
	last := len(h.waiting) - 1
	e := h.waiting[last]
	h.waiting[last] = nil
	h.waiting = h.waiting[:last]
	return e
}

// A hostHeap is a heap of hosts, ordered by less.
type hostHeap struct {
	hosts []*host
	which int // of host.index
	less  func(a, b *host) bool
}

func (a *hostHeap) Len() int { return len(a.hosts) }
func (a *hostHeap) Less(i, j int) bool {
	*a.hosts[i].work++
	return a.less(a.hosts[i], a.hosts[j])
}
func (a *hostHeap) Swap(i, j int) {
	a.hosts[i], a.hosts[j] = a.hosts[j], a.hosts[i]
	a.hosts[i].index[a.which], a.hosts[j].index[a.which] = i, j
}
func (a *hostHeap) Push(h any) {
	h.(*host).index[a.which] = len(a.hosts)
	a.hosts = append(a.hosts, h.(*host))
}
func (a *hostHeap) Pop() any {
	last := len(a.hosts) - 1
	h := a.hosts[last]
	a.hosts[last] = nil
	a.hosts = a.hosts[:last]
	return h
}
