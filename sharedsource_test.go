package ampcors_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
)

func TestASharedSourceIsRememberedOnceForAllMiddlewares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		shared := ampcors.ShareSource(s)
		a := newMiddleware(t, ampcors.Config{Source: shared})
		b := newMiddleware(t, ampcors.Config{Source: shared, Publishers: []string{"listed.example"}})
		for _, m := range []*ampcors.Middleware{a, b} {
			wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		}
		if n := s.lookups(); n != 1 || shared.Stats() != a.SourceStats() || a.SourceStats() != b.SourceStats() || a.SourceStats().Publishers != 1 {
			t.Errorf("%d lookups; %+v, %+v, %+v", n, shared.Stats(), a.SourceStats(), b.SourceStats())
		}
		s.remove("www.example.com")
		s.notify("www.example.com")
		for _, m := range []*ampcors.Middleware{a, b} {
			wantReason(t, m, hashOrigin, ampcors.ReasonHashNotKnown)
		}
		s.add("www.example.com")
		if err := a.Forget("www.example.com"); err != nil {
			t.Fatal(err)
		}
		wantReason(t, b, hashOrigin, ampcors.ReasonCacheOriginHash)
	})
}

// A Middleware that replaces another one has its answers, and the Notifier is stopped when
// nobody is left.
func TestASharedSourceIsRememberedUntilTheLastMiddlewareIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		shared := ampcors.ShareSource(s)
		m := newMiddleware(t, ampcors.Config{Source: shared})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		for range 3 {
			next := newMiddleware(t, ampcors.Config{Source: shared})
			for range 2 {
				_ = m.Close()
			}
			wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
			m = next
			wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		}
		if n := s.lookups(); n != 1 || s.stopped != 0 {
			t.Errorf("%d lookups; stopped %d times", n, s.stopped)
		}
		if err := m.Reconfigure(ampcors.Config{Publishers: []string{"a.example"}}); err != nil || s.stopped != 1 || shared.Stats() != (ampcors.SourceStats{Lookups: 1}) {
			t.Errorf("%v; stopped %d times; %+v", err, s.stopped, shared.Stats())
		}
		m = newMiddleware(t, ampcors.Config{Source: shared})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		if n := s.lookups(); n != 2 {
			t.Errorf("%d lookups", n)
		}
	})
}

func TestMiddlewaresWithOtherLookupsDoNotShareAnswers(t *testing.T) {
	s := newSetSource("www.example.com")
	shared := ampcors.ShareSource(s)
	a := newMiddleware(t, ampcors.Config{Source: shared})
	b := newMiddleware(t, ampcors.Config{Source: shared, Lookup: ampcors.Lookup{TTL: time.Second}})
	for _, m := range []*ampcors.Middleware{a, b} {
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	}
	if n := s.lookups(); n != 2 || shared.Stats() != a.SourceStats().Add(b.SourceStats()) || shared.Stats().Publishers != 2 {
		t.Errorf("%d lookups; %+v, %+v, %+v", n, shared.Stats(), a.SourceStats(), b.SourceStats())
	}
}

func TestASharedSourceWithoutASourceIsAnError(t *testing.T) {
	for _, source := range []*ampcors.SharedSource{nil, new(ampcors.SharedSource), ampcors.ShareSource(nil)} {
		if m, err := ampcors.New(ampcors.Config{Source: source}); m != nil || err == nil {
			t.Errorf("%v: %v", source, err)
		}
	}
	// Sharing twice is sharing once: the Notifier is still subscribed.
	s := notifyingSource{newSetSource("www.example.com")}
	m := newMiddleware(t, ampcors.Config{Source: ampcors.ShareSource(ampcors.ShareSource(s))})
	wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	s.remove("www.example.com")
	s.notify("www.example.com")
	wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
}

// A SharedSource is a Source, so that it can be wrapped by another one.
func TestASharedSourceAsksItsSource(t *testing.T) {
	shared := ampcors.ShareSource(newSetSource("www.example.com"))
	has, err := shared.HasPublisher(t.Context(), "www.example.com")
	domain, err2 := shared.PublisherByHash(t.Context(), plainHash("www.example.com"))
	if !has || domain != "www.example.com" || err != nil || err2 != nil {
		t.Errorf("%t, %q, %v, %v", has, domain, err, err2)
	}
}
