package source

import (
	"cmp"
	"time"
)

// retryLater asks again once the pause after a failure is over, if publishers that have expired
// depend on it. So nobody who has a stale answer waits for the database a second time, and no
// request is needed to find out that it works again. s.mu is held.
func (s *Source) retryLater(failed *call) {
	b, now := failed.breaker, s.now()
	_, isFresh := s.memory.answer(failed.key.text, now)
	_, isStale := s.memory.stale(failed.key.text, now)
	if failed.class != remembered || b.retry != nil || isFresh || !isStale {
		return
	}
	b.retry = failed
	time.AfterFunc(b.until-now, func() { s.retry(failed) })
}

// retry makes the call in the background. If it fails, finish comes back to retryLater.
func (s *Source) retry(failed *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, queue := failed.breaker, failed.queue
	if b.retry != failed {
		return // the database has answered since
	}
	b.retry = nil
	// Ask for the key that was rejected last, not for the one that failed: if only the failed key has a
	// problem, another key shows that the database works.
	k := key{text: cmp.Or(b.next, b.key)}
	own := s.newCall(k, remembered, b, queue)
	if _, ok := s.memory.stale(k.text, own.began); !ok || s.background.Err() != nil {
		return
	}
	if s.calls[k] != nil || !queue.try() {
		b.until = own.began + openFor
		s.retryLater(own)
		return
	}
	b.begin(own.began)
	b.retry, own.isProbe = own, true
	s.calls[k] = own
	s.runInBackground(own)
}
