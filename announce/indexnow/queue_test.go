package indexnow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/internal/servertest"
)

// A fakeEngine answers without a network, so that synctest's clock applies. answer returns
// the response to a request, or nil for none. If answer is nil, everything is accepted.
type fakeEngine struct {
	began  time.Time
	answer func(r *http.Request, s submission) *http.Response

	mu   sync.Mutex
	seen []sentSubmission
}

type sentSubmission struct {
	at   time.Duration // since the test began
	urls string        // without "https://", in the order in which they came
}

func (e *fakeEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	var s submission
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.seen = append(e.seen, sentSubmission{time.Since(e.began), strings.ReplaceAll(strings.Join(s.URLList, " "), "https://", "")})
	reply := e.answer
	e.mu.Unlock()
	if reply != nil {
		if resp := reply(r, s); resp != nil {
			return resp, nil
		}
		return nil, cmp.Or(r.Context().Err(), io.ErrUnexpectedEOF)
	}
	return answer(200, ""), nil
}

// answerLater is an answer with Retry-After.
func answerLater(status int, body, retryAfter string) *http.Response {
	resp := answer(status, body)
	resp.Header.Set("Retry-After", retryAfter)
	return resp
}

// acceptAll has the engine accept everything from now on.
func (e *fakeEngine) acceptAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = nil
}

func (e *fakeEngine) submissions() []sentSubmission {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// newQueue returns a Queue that runs until the test ends. Call it in a synctest bubble.
func newQueue(t *testing.T, e *fakeEngine, cfg QueueConfig) *Queue {
	t.Helper()
	q := idleQueue(t, e, cfg)
	servertest.Background(t, q.Run)
	synctest.Wait()
	return q
}

func idleQueue(t *testing.T, e *fakeEngine, cfg QueueConfig) *Queue {
	t.Helper()
	e.began = time.Now()
	c, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 1 // so that the order of requests is known
	}
	if cfg.Failed == nil {
		cfg.Failed = func(b Batch) { t.Errorf("failed: %+v", b) }
	}
	q, err := NewQueue(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func add(t *testing.T, q *Queue, urls ...string) {
	t.Helper()
	for _, u := range urls {
		if err := q.Add("https://" + u); err != nil {
			t.Errorf("Add(%s): %v", u, err)
		}
	}
}

func wantSeen(t *testing.T, e *fakeEngine, want ...sentSubmission) {
	t.Helper()
	synctest.Wait()
	if got := e.submissions(); !slices.Equal(got, want) {
		t.Errorf("the engine got\n%v; want\n%v", got, want)
	}
}

func TestURLsAreSentTogetherAfterDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		q := newQueue(t, e, QueueConfig{})
		time.Sleep(time.Minute)
		wantSeen(t, e) // nothing was added
		add(t, q, "a.example/2", "a.example/1")
		time.Sleep(4 * time.Second)
		add(t, q, "a.example/3#x", "a.example/1", "b.example", "a.example/3")
		wantSeen(t, e)
		time.Sleep(time.Hour)
		at := 65 * time.Second
		wantSeen(t, e, sentSubmission{at, "a.example/1 a.example/2 a.example/3"}, sentSubmission{at, "b.example/"})
		if got, want := q.Stats(), (QueueStats{Added: 4, Repeated: 2, Accepted: 4}); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
	})
}

func TestTheSameURLIsHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		q := newQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		time.Sleep(6 * time.Second)
		add(t, q, "a.example/1", "a.example/2")
		time.Sleep(time.Minute)
		add(t, q, "a.example/1")
		time.Sleep(time.Hour)
		first, again := 5*time.Second, 10*time.Second+10*time.Minute
		wantSeen(t, e, sentSubmission{first, "a.example/1"}, sentSubmission{11 * time.Second, "a.example/2"}, sentSubmission{again, "a.example/1"})
		add(t, q, "a.example/1") // Hold is over
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := e.submissions(); len(got) != 4 {
			t.Errorf("got %v", got)
		}
	})
}

func TestAURLAddedWhileItIsSentIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			time.Sleep(20 * time.Second)
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		time.Sleep(10 * time.Second)
		add(t, q, "a.example/1")
		if got := q.Stats(); got.Waiting != 2 || got.Added != 2 {
			t.Errorf("got %+v", got)
		}
		time.Sleep(time.Hour)
		wantSeen(t, e, sentSubmission{5 * time.Second, "a.example/1"}, sentSubmission{30*time.Second + 10*time.Minute, "a.example/1"})
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			time.Sleep(20 * time.Second)
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Capacity: 3})
		add(t, q, "a.example/1", "a.example/2", "a.example/3", "a.example/1")
		if err := q.Add("https://a.example/4"); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Second) // they are being sent
		if err := q.Add("https://a.example/4"); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
		time.Sleep(20 * time.Second)
		add(t, q, "a.example/4", "a.example/5") // the oldest are forgotten
		time.Sleep(time.Minute)
		add(t, q, "a.example/1", "a.example/3")
		time.Sleep(time.Minute)
		at := 30*time.Second + 5*time.Second
		wantSeen(t, e, sentSubmission{5 * time.Second, "a.example/1 a.example/2 a.example/3"}, sentSubmission{at, "a.example/4 a.example/5"}, sentSubmission{95 * time.Second, "a.example/1"})
	})
}

func TestTheQueueWaitsLongerAfterEachFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int64
		failures.Store(math.MaxInt64)
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			if failures.Add(-1) >= 0 {
				return answer(503, "")
			}
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Hold: time.Millisecond}) // the backoff does not depend on Hold
		add(t, q, "a.example/1")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		seen := e.submissions()
		backoff := time.Second
		for i := range seen[1:] {
			if gap := seen[i+1].at - seen[i].at; gap < backoff/2 || gap > backoff {
				t.Errorf("waited %v after failure %d; want half to all of %v", gap, i+1, backoff)
			}
			backoff = min(2*backoff, 10*time.Minute)
		}
		got := q.Stats()
		if !errors.Is(got.Err, ErrServer) || got.Waiting != 1 || got.Retried != uint64(len(seen)) || len(seen) < 24*6 {
			t.Errorf("got %+v after %d submissions", got, len(seen))
		}
		failures.Store(0)
		time.Sleep(10 * time.Minute)
		failures.Store(1)
		add(t, q, "a.example/2")
		time.Sleep(6500 * time.Millisecond) // the backoff begins anew
		if got := q.Stats(); got.Waiting != 0 || got.Accepted != 2 || got.Err != nil {
			t.Errorf("got %+v", got)
		}
	})
}

// TestManyHostsThatFailDoNotStarveOne that comes after them and has not been tried.
func TestManyHostsThatFailDoNotStarveOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "z.example" {
				return answer(200, "")
			}
			resp := answer(503, "")
			if s.Host == "0.bad.example" {
				resp.Header.Set("Retry-After", "86400") // for this host only
			}
			return resp
		}}
		q := newQueue(t, e, QueueConfig{})
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.bad.example/", i))
		}
		add(t, q, "z.example/1")
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 1 || !errors.Is(got.Err, ErrServer) {
			t.Errorf("after half an hour: %+v, %d requests", got, len(e.submissions()))
		}
		if n := len(e.submissions()); n > 220 { // it must back off: the engine may be down
			t.Errorf("%d requests in half an hour", n)
		}
		// From now on z.example is sent first, as hosts that failed come last.
		for i := range 10 {
			add(t, q, fmt.Sprintf("z.example/a%d", i))
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 11 {
			t.Errorf("got %+v", got)
		}
	})
}

// A host is served after Delay, and not more often, although all others have failed for hours.
func TestDelayIsKeptWhileOtherHostsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host != "good.example" {
				return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
			}
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Parallel: 16})
		for i := range 500 {
			add(t, q, fmt.Sprintf("%d.new.example/", i))
		}
		time.Sleep(2 * time.Hour)
		begin := time.Since(e.began)
		for i := range 6000 { // ten minutes
			add(t, q, fmt.Sprintf("good.example/%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		n, first := 0, time.Duration(0)
		for _, s := range e.submissions() {
			if strings.HasPrefix(s.urls, "good") {
				n++
				first = cmp.Or(first, s.at-begin)
			}
		}
		if n > 121 || n < 100 || first > 6*time.Second {
			t.Errorf("%d requests for one host in ten minutes, the first after %v; want one in each Delay", n, first)
		}
	})
}

// A host that waits, even one that has failed, is not starved by many that are always ready.
func TestAHostThatFailedOnceIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asked []time.Duration // for the host
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "0.example" {
				if asked = append(asked, time.Since(began)); len(asked) == 1 {
					return answer(503, "")
				}
			}
			time.Sleep(2 * time.Second)
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Parallel: 16})
		add(t, q, "0.example/")
		for i := range 600 {
			for h := range 80 {
				add(t, q, fmt.Sprintf("h%02d.example/%d", h, i))
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(asked) < 2 || asked[1] > time.Minute {
			t.Errorf("0.example was asked for after %v; want again within a minute", asked)
		}
	})
}

// After 429 no host gets a request until Retry-After is over, whatever is answered to one that was in
// progress then. Then all URLs are sent.
func TestA429IsKeptWhateverOtherRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"200", "429", "pending", "422"} {
		t.Run(second, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var armed atomic.Bool
				e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
					if !armed.Load() {
						return answer(200, "")
					}
					switch s.Host {
					case "a.example": // first answer
						time.Sleep(time.Second)
						if second == "429" {
							return answer(429, "")
						}
						return answerLater(429, "", "600")
					case "b.example":
						time.Sleep(1100 * time.Millisecond)
						switch second {
						case "429":
							return answerLater(429, "", "600")
						case "pending":
							return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
						case "422": // its parts have to wait too
							return answer(422, "")
						}
					}
					return answer(200, "")
				}}
				q := newQueue(t, e, QueueConfig{Parallel: 2})
				add(t, q, "x.example/")
				time.Sleep(10 * time.Second) // two at once from now on
				armed.Store(true)
				add(t, q, "a.example/", "b.example/1", "b.example/2", "c.example/")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := e.submissions(); len(got) != 3 {
					t.Errorf("the engine got %v; want nothing after 429 with Retry-After: 600 at about 16 s", got)
				}
				armed.Store(false)
				time.Sleep(6 * time.Minute)
				if got := q.Stats(); got.Waiting > 0 || got.Accepted != 5 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestARetryAfterIsKeptWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "b.example" {
				time.Sleep(time.Second)
				return answerLater(429, "", "600")
			}
			return answer(200, "")
		}}
		q := idleQueue(t, e, QueueConfig{Parallel: 2, Accepted: func(b Batch) {
			if b.Host == "a.example" {
				time.Sleep(5 * time.Second) // a slow hook
			}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
		defer cancel()
		done := make(chan bool)
		go func() { _ = q.Run(ctx); close(done) }()
		add(t, q, "x.example/")
		time.Sleep(10 * time.Second) // two at once
		add(t, q, "a.example/", "b.example/")
		<-done
		if _, err := q.Shutdown(context.Background()); len(e.submissions()) != 3 {
			t.Errorf("%v; b.example was sent again at once after Retry-After: 600; %v", e.submissions(), err)
		}
	})
}

// 422 is an answer, so these are not three failures in a row.
func TestAnAnswerToAPartShowsThatTheEngineIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if len(s.URLList) > 1 {
				return answer(422, "") // the engine is up
			}
			return answerLater(503, "", "3600")
		}}
		q := newQueue(t, e, QueueConfig{})
		for i := range 3 {
			add(t, q, fmt.Sprintf("%d.example/1", i), fmt.Sprintf("%d.example/2", i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := len(e.submissions())
		add(t, q, "other.example/1")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(e.submissions()) == before {
			t.Errorf("after %d requests, never with two failures in a row, the engine gets none", before)
		}
	})
}

func TestTheQueueSendsAtMostTenThousandURLsInARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		q := newQueue(t, e, QueueConfig{})
		for i := range 25_000 {
			add(t, q, fmt.Sprintf("a.example/%d", i))
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		var sizes []int
		for _, s := range e.submissions() {
			sizes = append(sizes, len(strings.Fields(s.urls)))
		}
		if !slices.Equal(sizes, []int{10_000, 10_000, 5000}) || q.Stats().Accepted != 25_000 {
			t.Errorf("batches of %v, %+v", sizes, q.Stats())
		}
	})
}

// TestShutdownSendsWhatIsNoLongerHeldBack once it has sent the rest.
func TestShutdownSendsWhatIsNoLongerHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			time.Sleep(20 * time.Second)
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Hold: time.Minute})
		add(t, q, "a.example/1")
		time.Sleep(80 * time.Second) // sent after 5 s, accepted after 25 s
		add(t, q, "a.example/1", "a.example/2")
		if unsent, err := q.Shutdown(context.Background()); unsent != nil || err != nil {
			t.Errorf("got %v, %v", unsent, err)
		}
		s := time.Second
		wantSeen(t, e, sentSubmission{5 * s, "a.example/1"}, sentSubmission{80 * s, "a.example/2"}, sentSubmission{100 * s, "a.example/1"})
	})
}

// TestShutdownWaitsForRetriesBeforeItsDeadline, and not for later ones.
func TestShutdownWaitsForRetriesBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			failures := 1
			e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
				if s.Host != "a.example" {
					return answerLater(403, `{"errorCode":"SiteVerificationNotCompleted"}`, "3600")
				}
				if failures--; failures >= 0 {
					return answer(503, "")
				}
				return answer(200, "")
			}}
			q := newQueue(t, e, QueueConfig{})
			add(t, q, "a.example/1", "b.example/1", "b.example/2", "b.example/3")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			unsent, err := q.Shutdown(ctx)
			if len(unsent) != 3 || err == nil || q.Stats().Accepted != 1 || time.Since(e.began) > time.Second {
				t.Errorf("got %v, %v after %v", unsent, err, time.Since(e.began))
			}
		})
	}
}

// Without a deadline, Shutdown asks for each host once, whatever Config.Attempts says. The error says
// why one failed, although another was accepted since.
func TestShutdownWithoutADeadlineTriesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			time.Sleep(5 * time.Second)
			if s.Host == "z.example" {
				return answer(200, "")
			}
			return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
		}}
		q := idleQueue(t, e, QueueConfig{Parallel: 16})
		q.client.retry.Attempts = 5
		for i := range 20 {
			add(t, q, fmt.Sprintf("%d.example/", i))
		}
		add(t, q, "z.example/")
		unsent, err := q.Shutdown(context.Background())
		if n := len(e.submissions()); n != 21 || len(unsent) != 20 || !errors.Is(err, ErrKeyPending) || q.Stats().Err != nil {
			t.Errorf("%d requests for 21 hosts; %d are unsent, %v", n, len(unsent), err)
		}
	})
}

// TestOneHostsKeyDoesNotStopTheOthers, whether it is being verified or wrong.
func TestOneHostsKeyDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pending := 3
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "new.example" {
				if pending--; pending >= 0 {
					return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
				}
			}
			if s.Host == "wrong.example" {
				return answer(403, `{"errorCode":"KeyNotFound"}`)
			}
			return answer(200, "")
		}}
		var failed []Batch
		q := newQueue(t, e, QueueConfig{Failed: func(b Batch) { failed = append(failed, b) }})
		add(t, q, "new.example/1", "wrong.example/1", "wrong.example/2", "good.example/1")
		time.Sleep(6500 * time.Millisecond)
		add(t, q, "good.example/2")
		time.Sleep(time.Minute)
		synctest.Wait()
		seen := map[string]int{}
		for _, s := range e.submissions() {
			seen[s.urls]++
			if s.urls == "good.example/2" && s.at > 12*time.Second {
				t.Errorf("a good host's URL was sent at %v", s.at)
			}
		}
		if want := map[string]int{"good.example/1": 1, "good.example/2": 1, "new.example/1": 4, "wrong.example/1 wrong.example/2": 1}; !maps.Equal(seen, want) {
			t.Errorf("the engine got %v; want %v", seen, want)
		}
		if len(failed) != 1 || !errors.Is(failed[0].Err, ErrKeyNotFound) || !slices.Equal(failed[0].URLs, []string{"https://wrong.example/1", "https://wrong.example/2"}) {
			t.Errorf("failed: %+v", failed)
		}
		if got, want := q.Stats(), (QueueStats{Added: 5, Accepted: 3, Failed: 2, Retried: 3}); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
		add(t, q, "wrong.example/1") // it was not accepted, so it is not held back
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(failed) != 2 {
			t.Errorf("failed: %+v", failed)
		}
	})
}

func TestShutdownSendsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]bool{"run": true, "never run": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{}
				q := idleQueue(t, e, QueueConfig{})
				done := make(chan error, 1)
				if run {
					go func() { done <- q.Run(context.Background()) }()
					synctest.Wait()
				} else {
					done <- nil
				}
				add(t, q, "a.example/1", "a.example/2")
				unsent, err := q.Shutdown(t.Context())
				if unsent != nil || err != nil || <-done != nil {
					t.Errorf("got %v, %v", unsent, err)
				}
				wantSeen(t, e, sentSubmission{0, "a.example/1 a.example/2"})
				if err := q.Add("https://a.example/3"); !errors.Is(err, ErrClosed) {
					t.Errorf("Add: %v", err)
				}
				if err := q.Run(t.Context()); err != nil {
					t.Errorf("Run: %v", err)
				}
				if _, err := q.Shutdown(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("a second Shutdown: %v", err)
				}
			})
		})
	}
}

func TestShutdownReportsWhatItCouldNotSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The first URL is held back. The second is sent, but the engine does not answer.
		hang := false
		e := &fakeEngine{answer: func(r *http.Request, s submission) *http.Response {
			if !hang {
				return answer(200, "")
			}
			<-r.Context().Done()
			return nil
		}}
		q := newQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		time.Sleep(6 * time.Second)
		add(t, q, "a.example/1", "a.example/2")
		synctest.Wait()
		hang = true
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		unsent, err := q.Shutdown(ctx)
		slices.Sort(unsent)
		if !slices.Equal(unsent, []string{"https://a.example/1", "https://a.example/2"}) || err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 URLs that were not sent in time") || time.Since(began) != 3*time.Second {
			t.Errorf("got %v, %v after %v", unsent, err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// The engine's Retry-After is not over.
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			return answerLater(429, "", "60")
		}}
		q := newQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		time.Sleep(6 * time.Second)
		add(t, q, "a.example/2")
		unsent, err := q.Shutdown(t.Context())
		if len(unsent) != 2 || !errors.Is(err, ErrRateLimited) || !strings.Contains(err.Error(), "2 URLs that were not sent in time: indexnow: a.example: the engine says") || len(e.submissions()) != 1 {
			t.Errorf("got %v, %v", unsent, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// That a URL is held back is not an error.
		e := &fakeEngine{}
		q := newQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		time.Sleep(6 * time.Second)
		add(t, q, "a.example/1", "a.example/2")
		unsent, err := q.Shutdown(t.Context())
		if !slices.Equal(unsent, []string{"https://a.example/1"}) || err != nil || len(e.submissions()) != 2 {
			t.Errorf("got %v, %v", unsent, err)
		}
	})
}

// Shutdown keeps its deadline while a batch is split.
func TestShutdownEndsASplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			time.Sleep(20 * time.Second)
			for _, u := range s.URLList {
				if strings.HasSuffix(u, "00") {
					return answer(422, "")
				}
			}
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Failed: func(Batch) {}})
		for i := range 1000 {
			add(t, q, fmt.Sprintf("a.example/%d", i))
		}
		time.Sleep(6 * time.Second)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		unsent, err := q.Shutdown(ctx)
		if took := time.Since(begun); err == nil || len(unsent) == 0 || took > 80*time.Second { // the transport ignores its context for 20 s
			t.Errorf("after %v: %d unsent, %v", took, len(unsent), err)
		}
	})
}

// What panics in several requests at once loses nothing, if the caller recovers from it.
func TestPanicsLoseNothing(t *testing.T) {
	t.Parallel()
	for want, answerBad := range map[string]func() *http.Response{
		"in the transport": func() *http.Response { panic("in the transport") },
		"runtime.Goexit":   func() *http.Response { runtime.Goexit(); return nil },
		"in Failed":        func() *http.Response { return answer(403, "") },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
					time.Sleep(time.Second)
					if strings.Contains(s.Host, "bad") {
						return answerBad()
					}
					return answer(200, "")
				}}
				q := idleQueue(t, e, QueueConfig{Parallel: 16, Failed: func(Batch) { panic("in Failed") }})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_ = q.Run(ctx)
				}()
				for i := range 10 {
					add(t, q, fmt.Sprintf("%d.ok.example/", i))
				}
				time.Sleep(time.Minute) // ten at once from now on
				for i := range 5 {
					add(t, q, fmt.Sprintf("%d.bad.example/", i), fmt.Sprintf("%d.ok2.example/", i))
				}
				if got := fmt.Sprint(<-done); !strings.Contains(got, want) {
					t.Errorf("Run panicked with %v", got)
				}
				e.acceptAll()
				unsent, err := q.Shutdown(t.Context())
				got := q.Stats()
				if unsent != nil || err != nil || got.Accepted+got.Failed != 20 || (got.Failed == 0) == (want == "in Failed") {
					t.Errorf("%q, %v, %+v", unsent, err, got)
				}
				time.Sleep(time.Minute) // until net/http's timeout has passed
			})
		})
	}
}

// The hooks get each part, even if one of them panics.
func TestAPanicOfFailedHidesNoPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if slices.Contains(s.URLList, "https://a.example/1") {
				return answer(422, "")
			}
			return answer(200, "")
		}}
		var accepted []string
		q := idleQueue(t, e, QueueConfig{Failed: func(Batch) { panic("in Failed") }, Accepted: func(b Batch) { accepted = append(accepted, b.URLs...) }})
		add(t, q, "a.example/1", "a.example/2")
		func() {
			defer func() { _ = recover() }()
			_ = q.Run(t.Context())
		}()
		unsent, err := q.Shutdown(t.Context())
		if len(accepted)+len(unsent) != 1 {
			t.Errorf("a.example/2 was reported to no hook and is not unsent: %q, %q, %v, %+v", accepted, unsent, err, q.Stats())
		}
	})
}

// What was accepted before a panic in a split is not sent again.
func TestAPanicInASplitSendsNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		ok := map[string]int{}
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			n++
			switch n {
			case 1:
				return answer(422, "")
			case 3:
				panic("in the transport")
			}
			for _, u := range s.URLList {
				ok[u]++
			}
			return answer(200, "")
		}}
		q := idleQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1", "a.example/2")
		func() {
			defer func() { _ = recover() }()
			_ = q.Run(t.Context())
		}()
		_, err := q.Shutdown(t.Context())
		if ok["https://a.example/1"] != 1 {
			t.Errorf("accepted %v, %v", ok, err)
		}
		time.Sleep(time.Minute)
	})
}

func TestPendingURLsAreCountedAndSubmittedAgain(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			answers := 0
			e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
				if answers++; answers <= 3 {
					return answer(202, "")
				}
				return answer(200, "")
			}}
			var hooked []Outcome
			q := newQueue(t, e, QueueConfig{ResubmitPending: again, Accepted: func(b Batch) { hooked = append(hooked, b.Outcome()) }})
			add(t, q, "a.example/1", "a.example/2")
			time.Sleep(time.Hour)
			synctest.Wait()
			want, wantHooked := QueueStats{Added: 2, Accepted: 2, Pending: 2}, []Outcome{Pending}
			if again {
				want.Pending, wantHooked = 6, []Outcome{Accepted}
			}
			if got := q.Stats(); got != want || !slices.Equal(hooked, wantHooked) {
				t.Errorf("%+v, %v; want %+v, %v", got, hooked, want, wantHooked)
			}
			if seen := e.submissions(); again && (len(seen) != 4 || seen[3].at-seen[2].at < seen[1].at-seen[0].at) {
				t.Errorf("%v; want a backoff that grows", seen)
			}
		})
	}
}

// A host whose key cannot be found now waits, and does not stop the others.
func TestAHostWhoseKeyCannotBeFoundWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var isDown atomic.Bool
		isDown.Store(true)
		var failed []string
		q := idleQueue(t, &fakeEngine{}, QueueConfig{Parallel: 16, Failed: func(b Batch) { failed = append(failed, b.Host) }})
		q.client.keysOf = func(_ context.Context, host string) ([]KeyFile, error) {
			switch {
			case host == "none.example":
				return nil, ErrNoKey
			case host != "good.example" && isDown.Load():
				return nil, errors.New("the database is down")
			}
			return []KeyFile{{Key: testKey}}, nil
		}
		servertest.Background(t, q.Run)
		for i := range 20 {
			add(t, q, fmt.Sprintf("%d.example/1", i))
		}
		add(t, q, "good.example/1", "none.example/1")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 1 || got.Failed != 1 || got.Waiting != 20 || !slices.Equal(failed, []string{"none.example"}) {
			t.Errorf("%+v; failed: %q", got, failed)
		}
		isDown.Store(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 21 || got.Waiting != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A host has several key files: each URL is sent with its own, and each result belongs to its URLs.
func TestAQueueSendsURLsByTheirKeyFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if strings.Contains(s.KeyLocation, "/b/") {
				return answer(503, "")
			}
			return answer(200, "")
		}}
		var failed []string
		q := idleQueue(t, e, QueueConfig{Failed: func(b Batch) { failed = append(failed, b.URLs...) }})
		q.client.keysOf = func(context.Context, string) ([]KeyFile, error) {
			return []KeyFile{{testKey, "https://a.example/a/indexnow.txt"}, {testKey, "https://a.example/b/indexnow.txt"}}, nil
		}
		servertest.Background(t, q.Run)
		add(t, q, "a.example/b/1", "a.example/a/1", "a.example/c", "a.example/b/2", "a.example/a/2")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 2 || got.Failed != 1 || got.Waiting != 2 || !slices.Equal(failed, []string{"https://a.example/c"}) {
			t.Errorf("%+v; failed: %q", got, failed)
		}
		e.mu.Lock()
		e.answer = nil
		e.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := q.Stats(); got.Accepted != 4 || got.Waiting != 0 || e.seen[len(e.seen)-1].urls != "a.example/b/1 a.example/b/2" {
			t.Errorf("%+v, %+v", got, e.seen)
		}
	})
}

// An engine that does not answer gets as few requests as from hosts with one key each.
func TestSeveralKeyFilesDoNotDefeatTheBackoff(t *testing.T) {
	t.Parallel()
	count := func(files ...KeyFile) (requests int) {
		synctest.Test(t, func(t *testing.T) {
			e := &fakeEngine{answer: func(*http.Request, submission) *http.Response { return nil }}
			q := idleQueue(t, e, QueueConfig{Parallel: 16})
			q.client.keysOf = func(_ context.Context, host string) ([]KeyFile, error) {
				own := slices.Clone(files)
				for i := range own {
					own[i].Location = strings.Replace(own[i].Location, "HOST", host, 1)
				}
				return own, nil
			}
			servertest.Background(t, q.Run)
			for i := range 50 {
				add(t, q, fmt.Sprintf("%d.example/a/1", i), fmt.Sprintf("%d.example/b/1", i))
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			requests = len(e.seen)
		})
		return requests
	}
	one := count(KeyFile{Key: testKey})
	two := count(KeyFile{testKey, "https://HOST/a/indexnow.txt"}, KeyFile{testKey, "https://HOST/b/indexnow.txt"})
	if one < 5 || two > 2*one {
		t.Errorf("%d requests with one key file, %d with two", one, two)
	}
}

// Without QueueConfig.Failed, only the log has them. It does not have the key.
func TestFailedURLsAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c, _ := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422) }), func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	q, err := NewQueue(c, QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, q, "a.example/1", "a.example/"+string(testKey)+".txt")
	if unsent, err := q.Shutdown(t.Context()); unsent != nil || err != nil {
		t.Errorf("got %v, %v", unsent, err)
	}
	if want := `level=ERROR msg="indexnow: rejected permanently" host=a.example urls="[https://a.example/1 https://a.example/7313….txt]" error="indexnow: a.example: the engine finds`; !strings.Contains(out.String(), want) || strings.Contains(out.String(), string(testKey)) {
		t.Errorf("the log\n%s\ndoes not have %s", &out, want)
	}
}

// A canceled context is not a failure of the engine, so there is no backoff: what it has interrupted
// is sent at once.
func TestRunEndsWithItsContextAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"Run", "Shutdown"} {
		t.Run(next, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{answer: func(r *http.Request, s submission) *http.Response { <-r.Context().Done(); return nil }}
				q := idleQueue(t, e, QueueConfig{})
				add(t, q, "a.example/1", "b.example/1") // before it runs
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					time.Sleep(7 * time.Second)
					if err := q.Run(t.Context()); !errors.Is(err, ErrRunning) {
						t.Errorf("a second Run: %v", err)
					}
					cancel()
				}()
				for range 2 { // the second one sends nothing
					if err := q.Run(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("got %v", err)
					}
				}
				if got := q.Stats(); got.Waiting != 2 || got.Retried != 0 {
					t.Errorf("got %+v", got)
				}
				e.acceptAll()
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if next == "Shutdown" {
					if unsent, err := q.Shutdown(t.Context()); err != nil || unsent != nil {
						t.Errorf("got %v, %v", unsent, err)
					}
				} else if err := q.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				wantSeen(t, e, sentSubmission{5 * time.Second, "a.example/1"}, sentSubmission{7 * time.Second, "a.example/1"}, sentSubmission{7 * time.Second, "b.example/1"})
			})
		})
	}
}

func TestAllQueueConfigErrorsAreReported(t *testing.T) {
	t.Parallel()
	if _, err := NewQueue(nil, QueueConfig{}); err == nil || !strings.Contains(err.Error(), "client") {
		t.Errorf("got %v", err)
	}
	c, err := New(Config{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewQueue(c, QueueConfig{Delay: -1, Hold: -1, Capacity: -1})
	for _, want := range []string{"Delay", "Hold", "Capacity"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not have %s", err, want)
		}
	}
}

// TestNothingIsLost: each URL that was added is accepted by the engine and passed to Accepted, or
// passed to Failed, or returned by Shutdown. None that was accepted is sent again within Hold.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random, engines := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			accepted := map[string][]time.Time{}
			failed, hooked := map[string]int{}, map[string]int{}
			e := &fakeEngine{answer: func(r *http.Request, s submission) *http.Response {
				began := time.Now()
				wait := time.NewTimer(time.Duration(engines.IntN(7)) * time.Second)
				select {
				case <-wait.C:
				case <-r.Context().Done():
					return nil
				}
				switch engines.IntN(10) {
				case 0:
					return answer(429, "")
				case 1:
					return answer(503, "")
				case 2:
					return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
				case 3:
					return answer(400, "")
				case 4:
					return answer(403, "")
				}
				for _, u := range s.URLList {
					accepted[u] = append(accepted[u], began)
				}
				return answer(200, "")
			}}
			count := func(times map[string]int) func(Batch) {
				return func(b Batch) {
					for _, u := range b.URLs {
						times[u]++
					}
				}
			}
			q := newQueue(t, e, QueueConfig{Capacity: 40, Hold: time.Minute, Failed: count(failed), Accepted: count(hooked)})
			taken := map[string]int{}
			for range 300 {
				u := fmt.Sprintf("https://%c.example/%d", 'a'+random.IntN(3), random.IntN(12))
				if err := q.Add(u); err == nil {
					taken[u]++
				} else if !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(10))*time.Second)
			defer cancel()
			began := time.Now()
			unsent, err := q.Shutdown(ctx)
			if deadline, _ := ctx.Deadline(); time.Now().After(deadline) && time.Since(began) > 0 || err != nil && len(unsent) == 0 {
				t.Errorf("seed %d: Shutdown took %v: %v", seed, time.Since(began), err)
			}
			total, adds := QueueStats{}, 0
			for u, n := range taken {
				left := 0
				if slices.Contains(unsent, u) {
					left = 1
				}
				if got := len(accepted[u]) + failed[u] + left; got > n || got == 0 || hooked[u] != len(accepted[u]) {
					t.Errorf("seed %d: %s was added %d times; accepted %d, Accepted got %d, failed %d, unsent %d", seed, u, n, len(accepted[u]), hooked[u], failed[u], left)
				}
				for i, at := range accepted[u] {
					if i > 0 && at.Sub(accepted[u][i-1]) < time.Minute {
						t.Errorf("seed %d: %s was accepted at %v and at %v", seed, u, accepted[u][i-1], at)
					}
				}
				adds += n
				total.Accepted += uint64(len(accepted[u]))
				total.Failed += uint64(failed[u])
			}
			got := q.Stats()
			if got.Accepted != total.Accepted || got.Failed != total.Failed || got.Waiting != len(unsent) ||
				got.Added != got.Accepted+got.Failed+uint64(got.Waiting) || got.Added+got.Repeated != uint64(adds) {
				t.Errorf("seed %d: got %+v; want %+v, %d waiting and %d added", seed, got, total, len(unsent), adds)
			}
		})
	}
}

// TestTheQueueWithARealServer has the real clock, and many goroutines.
func TestTheQueueWithARealServer(t *testing.T) {
	t.Parallel()
	api := &engine{}
	failures := 2
	c, _ := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.mu.Lock()
		failures--
		fail := failures >= 0
		api.mu.Unlock()
		if fail {
			panic(http.ErrAbortHandler)
		}
		api.ServeHTTP(w, r)
	}), func(cfg *Config) { cfg.clock, cfg.Backoff = nil, 10*time.Millisecond })
	q, err := NewQueue(c, QueueConfig{Delay: time.Millisecond, Failed: func(b Batch) { t.Errorf("failed: %+v", b) }})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- q.Run(context.Background()) }()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				if err := q.Add(fmt.Sprintf("https://www.example.com/%d", (g*100+i)%1000)); err != nil {
					t.Error(err)
				}
				_ = q.Stats()
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	unsent, err := q.Shutdown(closing)
	if err != nil || len(unsent) > 0 || failures >= 0 || q.Stats().Retried == 0 {
		t.Errorf("%v, %d unsent, %d more failures, %+v", err, len(unsent), failures, q.Stats())
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
	got := map[string]int{}
	for _, s := range api.seen {
		for _, u := range s.URLList {
			got[u]++
		}
	}
	for _, u := range unsent {
		got[u]++
	}
	for u, n := range got {
		if n > 2 { // sent once, and held back once
			t.Errorf("%s: %d times", u, n)
		}
	}
	if len(got) != 900 {
		t.Errorf("%d URLs; want 900; %d unsent, %v", len(got), len(unsent), err)
	}
}
