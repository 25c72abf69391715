package source

import "time"

// retryLater asks again once the pause after a failure is over, if publishers that have expired
// depend on it. So nobody who has a stale answer waits for the database a second time, and no
// request is needed to find out that it works again. s.mu is held.
func (s *Source) retryLater(failed *call) {
	b, now := failed.breaker, s.now()
	if failed.class != remembered || b.retry != nil || s.toRetry(b, now) == "" {
		return
	}
	b.retry = failed
	if failed.isAsked { // otherwise there was no slot, and nothing new is known
		b.lapses = max(b.until, now) + 2*s.options.Timeout // for a slot, and for the lookup
	}
	time.AfterFunc(max(b.until-now, minPause), func() { s.retry(failed) })
}

// toRetry returns a key that has expired and whose stale answer is still good, or "". First, it is the one that was
// rejected last: if only the key that failed has a problem, another one shows that the database works.
func (s *Source) toRetry(b *breaker, now time.Duration) string {
	for _, text := range append([]string{b.next, b.key}, b.waited...) {
		_, isFresh := s.memory.answer(text, now)
		if _, isStale := s.memory.stale(text, now); isStale && !isFresh {
			return text
		}
	}
	return ""
}

// retry makes the call in the background. If it fails, finish comes back to retryLater. If it finds no slot, or
// does not end in time, callers ask for themselves too.
func (s *Source) retry(failed *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := failed.breaker
	if b.retry != failed {
		return // the database has answered since
	}
	b.retry = nil
	k := key{text: s.toRetry(b, s.now())}
	if k.text == "" || s.background.Err() != nil || s.calls[k] != nil {
		return // another call of the key finds out
	}
	own := s.newCall(k, remembered, b, failed.queue)
	b.begin(own.began)
	b.retry, own.isProbe = own, true
	s.calls[k] = own
	s.runInBackground(own)
}
