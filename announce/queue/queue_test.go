package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A service takes items such as "a/1", of the host a.
type service struct {
	*testing.T
	began  time.Time
	takes  time.Duration                 // for each request
	answer func(host, url string) Result // nil: everything is accepted
	sent   []string                      // each request, with the time since began
	done   map[string]error              // by URL
	busy   map[string]bool               // hosts with a request on its way
	most   int                           // requests at one time
	mu     sync.Mutex
}

const atOnce = 16 // the default

var errDown, errBad = errors.New("down"), errors.New("bad")

func (s *service) send(ctx context.Context, host string, urls []string) []Result {
	s.mu.Lock()
	if s.busy[host] {
		s.Errorf("%s has two requests at one time", host)
	}
	s.busy[host] = true
	s.most = max(s.most, len(s.busy))
	s.sent = append(s.sent, fmt.Sprintf("%v %s", time.Since(s.began), strings.Join(urls, " ")))
	s.mu.Unlock()
	interrupted := false
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		interrupted = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, host)
	results := make([]Result, len(urls))
	for i, url := range urls {
		switch {
		case interrupted:
			results[i] = Result{Err: ctx.Err(), Again: true}
		case s.answer != nil:
			results[i] = s.answer(host, url)
		}
	}
	return results
}

// newQueue returns a Queue with batches of 3. Call it in a bubble of synctest.
func newQueue(s *service, cfg Config) *Queue {
	s.Helper()
	s.began, s.done, s.busy = time.Now(), make(map[string]error), make(map[string]bool)
	cfg.Done = func(url string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done[url] = err
	}
	items := func(url string) ([]Item, error) {
		host, _, ok := strings.Cut(url, "/")
		if !ok {
			return nil, errBad
		}
		if host == "both" {
			return []Item{{"a" + url, "a"}, {"b" + url, "b"}}, nil
		}
		return []Item{{url, host}}, nil
	}
	q, err := New(Service{Items: items, Send: s.send, Batch: 3}, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return q
}

func (s *service) add(q *Queue, urls ...string) {
	s.Helper()
	for _, url := range urls {
		if err := q.Add(url); err != nil {
			s.Errorf("Add(%s): %v", url, err)
		}
	}
}

// run runs the queue until the test ends.
func (s *service) run(q *Queue) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = q.Run(ctx) }()
	s.Cleanup(func() { cancel(); <-ended })
}

func (s *service) wants(sent ...string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.sent) // hosts that are due at one time are in any order
	slices.Sort(sent)
	if !slices.Equal(s.sent, sent) {
		s.Errorf("sent\n%s\nwant\n%s", strings.Join(s.sent, "\n"), strings.Join(sent, "\n"))
	}
}

func TestURLsOfAHostAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t}
		q := newQueue(s, Config{})
		s.run(q)
		s.add(q, "a/1", "b/1", "a/2", "a/1") // the last waits already
		time.Sleep(4 * time.Second)
		s.add(q, "a/3", "a/4")
		time.Sleep(30 * time.Second)
		s.add(q, "a/1") // again: it has changed since
		time.Sleep(10 * time.Second)
		s.wants("5s a/1 a/2 a/3", "5s b/1", "10s a/4", "39s a/1")
		if stats := q.Stats(); stats != (Stats{Accepted: 6}) {
			t.Errorf("%+v", stats)
		}
	})
}

func TestWhatIsAddedWhileItIsSentIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: 2 * time.Second}
		q := newQueue(s, Config{})
		s.run(q)
		s.add(q, "a/1")
		time.Sleep(6 * time.Second)
		s.add(q, "a/1")
		time.Sleep(20 * time.Second)
		s.wants("5s a/1", "12s a/1")
	})
}

func TestWhatFailsIsSentAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t}
		s.answer = func(host, url string) Result {
			switch {
			case url == "a/bad":
				return Result{Err: errBad}
			case host == "a" && time.Since(s.began) < 18*time.Second:
				return Result{Err: errDown, Again: true}
			case url == "c/1" && time.Since(s.began) < time.Minute:
				return Result{Err: errDown, Again: true, After: time.Minute}
			}
			return Result{}
		}
		q := newQueue(s, Config{})
		s.run(q)
		s.add(q, "a/1", "a/bad", "b/1", "c/1")
		time.Sleep(10 * time.Second)
		if stats := q.Stats(); stats.Err != errDown || stats.Waiting != 2 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(90 * time.Second)
		// After 1, 2, 4 and 8 seconds; c after a minute. Other hosts do not wait for them.
		s.wants("5s a/1 a/bad", "5s b/1", "5s c/1", "6s a/1", "8s a/1", "12s a/1", "20s a/1", "1m5s c/1")
		if stats := q.Stats(); stats != (Stats{Accepted: 3, Failed: 1, Retried: 5}) {
			t.Errorf("%+v", stats)
		}
		if err, ok := s.done["a/1"]; !ok || err != nil || s.done["a/bad"] != errBad || len(s.done) != 4 {
			t.Errorf("done: %v", s.done)
		}
	})
}

func TestTheBackoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, answer: func(string, string) Result { return Result{Err: errDown, Again: true} }}
		q := newQueue(s, Config{})
		s.run(q)
		s.add(q, "a/1")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := len(s.sent); n < 24*6 || n > 24*6+12 {
			t.Errorf("%d requests in a day", n)
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: time.Second}
		q := newQueue(s, Config{Capacity: 2})
		s.run(q)
		s.add(q, "both/1", "both/1")
		for _, url := range []string{"a/2", "both/2"} {
			if err := q.Add(url); err != ErrFull {
				t.Errorf("%s: %v", url, err)
			}
		}
		time.Sleep(5500 * time.Millisecond)
		if err := q.Add("a/2"); err != ErrFull { // what is on its way counts too
			t.Error(err)
		}
		time.Sleep(time.Second)
		s.add(q, "a/2")
		if err := q.Add("nonsense"); err != errBad {
			t.Error(err)
		}
	})
}

// Each host has one request at a time, and there are few at one time.
func TestRequestsAreFewAtOneTime(t *testing.T) {
	for given, want := range map[int]int{0: atOnce, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{T: t, takes: time.Second}
			q := newQueue(s, Config{AtOnce: given})
			s.run(q)
			for host := range 100 {
				for i := range 4 {
					s.add(q, fmt.Sprintf("h%d/%d", host, i))
				}
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if stats := q.Stats(); s.most != want || stats.Accepted != 400 || want == atOnce && len(s.sent) != 200 {
				t.Errorf("%d at one time, %d requests, %+v", s.most, len(s.sent), stats)
			}
		})
	}
}

func TestShutdownSendsWhatWaits(t *testing.T) {
	for _, isRunning := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{T: t, takes: time.Second}
			s.answer = func(host, _ string) Result {
				return map[string]Result{"down": {Err: errDown, Again: true}, "bad": {Err: errBad}}[host]
			}
			q := newQueue(s, Config{Delay: time.Hour})
			if isRunning {
				s.run(q)
				synctest.Wait()
			}
			s.add(q, "a/1", "a/2", "a/3", "a/4", "down/2", "down/1", "bad/1")
			unsent, err := q.Shutdown(t.Context())
			if !slices.Equal(unsent, []string{"down/1", "down/2"}) || err != errDown || len(s.done) != 5 {
				t.Errorf("%q, %v; done: %v", unsent, err, s.done)
			}
			if took := time.Since(s.began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			if err := q.Add("a/1"); err != ErrClosed {
				t.Error(err)
			}
			if _, err := q.Shutdown(t.Context()); err != ErrClosed {
				t.Error(err)
			}
			if err := q.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheEndOfAContextLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: time.Minute}
		q := newQueue(s, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.add(q, "a/1", "b/1")
		if err := q.Run(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		s.add(q, "a/2")
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		unsent, err := q.Shutdown(closing)
		if !slices.Equal(unsent, []string{"a/1", "a/2", "b/1"}) || err != context.DeadlineExceeded {
			t.Errorf("%q, %v", unsent, err)
		}
		s.wants("5s a/1", "5s b/1", "10s a/1 a/2", "10s b/1")
	})
}

// A second Run does not wait for the first one, whatever its context.
func TestOneRunSendsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: time.Minute}
		q := newQueue(s, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- q.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		if err := q.Run(t.Context()); err != ErrRuns || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		cancel()
		if err := <-first; err != context.Canceled {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Run(ended); err != context.Canceled { // the first has ended
			t.Error(err)
		}
	})
}

// Shutdown waits for the requests of Run, but not longer than its context.
func TestShutdownInterruptsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: time.Minute}
		q := newQueue(s, Config{})
		s.run(q)
		s.add(q, "a/1")
		time.Sleep(10 * time.Second)
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		unsent, err := q.Shutdown(closing)
		if took := time.Since(s.began); !slices.Equal(unsent, []string{"a/1"}) || err != context.DeadlineExceeded || took != 11*time.Second {
			t.Errorf("%q, %v after %v", unsent, err, took)
		}
	})
}

// What is added is done or returned, whatever the service answers.
func TestNothingIsLost(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random, answers := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			s := &service{T: t, takes: 700 * time.Millisecond}
			s.answer = func(string, string) Result {
				switch answers.IntN(4) {
				case 0:
					return Result{Err: errDown, Again: true, After: time.Duration(answers.IntN(3)) * time.Second}
				case 1:
					return Result{Err: errBad}
				}
				return Result{}
			}
			q := newQueue(s, Config{Capacity: 40})
			s.run(q)
			added := make(map[string]bool)
			for range 300 {
				url := fmt.Sprintf("h%d/%d", random.IntN(5), random.IntN(20))
				if q.Add(url) == nil {
					added[url] = true
				}
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Millisecond)
			defer cancel()
			unsent, _ := q.Shutdown(ctx)
			for _, url := range unsent {
				s.done[url] = nil
			}
			for url := range added {
				if _, ok := s.done[url]; !ok {
					t.Errorf("seed %d: %s is lost", seed, url)
				}
			}
			if stats := q.Stats(); stats.Waiting != len(unsent) {
				t.Errorf("seed %d: %d unsent, %+v", seed, len(unsent), stats)
			}
		})
	}
}

func TestAWrongConfigIsRejected(t *testing.T) {
	_, err := New(Service{}, Config{Delay: -1, Capacity: -1, GiveUpAfter: -1, AtOnce: -1})
	if err == nil || strings.Count(err.Error(), "is negative") != 3 || strings.Count(err.Error(), "AtOnce \"-1\" is out of range") != 1 {
		t.Error(err)
	}
	if _, err = New(Service{}, Config{AtOnce: math.MaxInt}); err == nil {
		t.Error("any number of requests")
	}
}

// A host that is rejected as a whole is asked with one item at each backoff, and with all again once one is accepted.
func TestARejectedHostIsAskedWithOneItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isRight atomic.Bool
		s := &service{T: t, answer: func(string, string) Result {
			if isRight.Load() {
				return Result{}
			}
			return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true}
		}}
		q := newQueue(s, Config{Delay: time.Nanosecond})
		s.run(q)
		s.add(q, "a/1", "a/2", "a/3", "a/4", "a/5")
		time.Sleep(20 * time.Second)
		if stats := q.Stats(); stats.Waiting != 5 || stats.Rejected != 5 || stats.Err != errBad {
			t.Errorf("%+v", stats)
		}
		isRight.Store(true)
		time.Sleep(20 * time.Second)
		s.wants("1ns a/1 a/2 a/3", "1.000000001s a/3", "3.000000001s a/2", "7.000000001s a/1", "15.000000001s a/5", "31.000000001s a/4",
			"31.000000001s a/3 a/2 a/1", "31.000000002s a/5")
		if stats := q.Stats(); stats.Waiting != 0 || stats.Accepted != 5 || stats.Err != nil {
			t.Errorf("%+v", stats)
		}
	})
}

// An item is at fault if it is rejected alone, while another one of its host is accepted. All others arrive.
func TestAnItemThatIsRejectedAloneIsAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, answer: func(_, url string) Result {
			if url == "a/bad" {
				return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true}
			}
			return Result{}
		}}
		q := newQueue(s, Config{Delay: time.Nanosecond})
		s.run(q)
		s.add(q, "a/bad")
		time.Sleep(5 * time.Second)
		s.add(q, "a/1", "a/2")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if stats := q.Stats(); s.done["a/bad"] != errBad || stats.Waiting != 0 || stats.Accepted != 2 || stats.Failed != 1 {
			t.Errorf("%v, %+v", s.done, stats)
		}
	})
}

// Pages of a rejected host are given up after a time, with the service's last answer.
func TestARejectedHostIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, answer: func(string, string) Result { return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true} }}
		q := newQueue(s, Config{Delay: time.Nanosecond, GiveUpAfter: time.Hour})
		s.run(q)
		s.add(q, "a/1", "a/2")
		time.Sleep(59 * time.Minute)
		if stats := q.Stats(); stats.Waiting != 2 || stats.Failed != 0 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(11 * time.Minute) // the longest backoff, and a little
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, url := range []string{"a/1", "a/2"} {
			if err := s.done[url]; !errors.Is(err, errBad) || !strings.Contains(fmt.Sprint(err),
				"given up, because nothing of the host was accepted for 1h0m0s: bad") {
				t.Errorf("%s: %v", url, err)
			}
		}
		if stats := q.Stats(); stats.Waiting != 0 || stats.Failed != 2 {
			t.Errorf("%+v", stats)
		}
	})
}

// Rejected hosts have a share of the capacity, and never delay a host that works, however many they are, and whatever time
// their requests take.
func TestAHostThatWorksNeverWaitsForRejectedOnes(t *testing.T) {
	for _, hosts := range []int{1, 10, 1000, 4000} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{T: t, takes: time.Second, answer: func(host, _ string) Result {
					if strings.HasPrefix(host, "bad") {
						return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true}
					}
					return Result{}
				}}
				const capacity = 4000
				q := newQueue(s, Config{Delay: time.Nanosecond, Capacity: capacity})
				s.run(q)
				for i := range capacity { // they fill the queue before anybody knows that they are rejected
					s.add(q, fmt.Sprintf("bad%d/%d", i%hosts, i))
				}
				time.Sleep(10 * time.Minute)
				if stats := q.Stats(); stats.Waiting != capacity || stats.Rejected < capacity-atOnce {
					t.Fatalf("%+v", stats)
				}
				if err := q.Add("bad0/new"); !errors.Is(err, ErrFull) {
					t.Errorf("a page of a rejected host: %v", err)
				}
				for i := range 100 {
					begun := time.Now()
					url := fmt.Sprintf("good/%d", i)
					s.add(q, url)
					time.Sleep(1100 * time.Millisecond) // a request takes a second
					synctest.Wait()
					s.mu.Lock()
					err, isDone := s.done[url]
					s.mu.Unlock()
					if !isDone || err != nil {
						t.Fatalf("%s is not accepted after %v: %v", url, time.Since(begun), err)
					}
				}
				if stats := q.Stats(); stats.Rejected > capacity/2 || stats.Failed < capacity/2-atOnce || stats.Accepted != 100 {
					t.Errorf("%+v", stats)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				for url, err := range s.done {
					if strings.HasPrefix(url, "bad") && (!errors.Is(err, errBad) || !strings.Contains(err.Error(), "the queue is full")) {
						t.Errorf("%s: %v", url, err)
					}
				}
			})
		})
	}
}

// A host with many items that are always rejected still gets each of its good ones accepted: the latest item is tried first.
func TestAGoodItemBesideManyRejectedOnesIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, answer: func(_, url string) Result {
			if strings.Contains(url, "bad") {
				return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true}
			}
			return Result{}
		}}
		q := newQueue(s, Config{Delay: time.Nanosecond})
		s.run(q)
		for i := range 200 {
			s.add(q, fmt.Sprintf("a/bad%d", i))
		}
		for i := range 150 {
			time.Sleep(10 * time.Minute)
			s.add(q, fmt.Sprintf("a/%d", i))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range 150 {
			if err, isDone := s.done[fmt.Sprintf("a/%d", i)]; !isDone || err != nil {
				t.Errorf("a/%d: done %t, %v", i, isDone, err)
			}
		}
	})
}

// What is not about the item, such as a key that is pending, never makes an item final, nor does the end of a context. What is final
// for the whole host ends all its items at once.
func TestOnlyARejectionOfTheContentMakesAnItemFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := map[string][]Result{} // of an item, one after another; the last one stays
		s := &service{T: t}
		s.answer = func(_, url string) Result {
			if len(answers[url]) == 0 {
				return Result{}
			}
			r := answers[url][0]
			if len(answers[url]) > 1 {
				answers[url] = answers[url][1:]
			}
			return r
		}
		pending := Result{Err: errBad, Again: true, OfHost: true}
		q := newQueue(s, Config{Delay: time.Nanosecond})
		s.run(q)
		answers["a/1"] = []Result{pending, pending, pending, pending, {}}
		s.add(q, "a/1")
		time.Sleep(1500 * time.Millisecond)
		s.add(q, "a/2")
		time.Sleep(10 * time.Minute)
		for i := range 50 {
			s.mu.Lock()
			answers[fmt.Sprintf("b/%d", i)] = []Result{pending, {Err: errBad, OfHost: true}}
			s.mu.Unlock()
			s.add(q, fmt.Sprintf("b/%d", i))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err, isDone := s.done["a/1"]; !isDone || err != nil {
			t.Errorf("a/1: done %t, %v", isDone, err)
		}
		requests := 0
		for _, sent := range s.sent {
			if strings.Contains(sent, " b/") {
				requests++
			}
		}
		if stats := q.Stats(); stats.Waiting != 0 || stats.Failed != 50 || requests > 60 {
			t.Errorf("%+v after %d requests", stats, requests)
		}
	})
}

// A URL that was accepted is not sent again before Config.Interval has passed, however often it is added.
func TestAnAcceptedURLRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, takes: time.Second}
		q := newQueue(s, Config{Delay: time.Second, Interval: 5 * time.Minute})
		s.run(q)
		s.add(q, "a/1", "a/2")
		time.Sleep(1500 * time.Millisecond) // the request is on its way
		s.add(q, "a/1")
		time.Sleep(time.Minute)
		s.add(q, "a/1", "a/1", "a/3")
		if stats := q.Stats(); stats.Waiting != 2 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(time.Hour)
		s.wants("1s a/1 a/2", "1m2.5s a/3", "5m3s a/1")
		s.add(q, "a/1", "a/3")
		time.Sleep(time.Minute)
		s.wants("1s a/1 a/2", "1m2.5s a/3", "5m3s a/1", "1h1m2.5s a/1 a/3")
		if len(q.recent) != 2 || len(q.ages) != 2 || len(q.later) != 0 || len(q.isLater) != 0 {
			t.Errorf("it remembers %d, %d, %d, %d", len(q.recent), len(q.ages), len(q.later), len(q.isLater))
		}
		s.add(q, "a/1")
		unsent, err := q.Shutdown(t.Context())
		if len(unsent) > 0 || err != nil {
			t.Errorf("%q, %v", unsent, err)
		}
		s.wants("1s a/1 a/2", "1m2.5s a/3", "5m3s a/1", "1h1m2.5s a/1 a/3", "1h2m1.5s a/1") // at once, because the program ends
	})
}

// What rests is not lost if the context of Shutdown ends before anything is sent.
func TestShutdownReturnsWhatRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t}
		q := newQueue(s, Config{Delay: time.Second, Interval: 5 * time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = q.Run(ctx) }()
		s.add(q, "a/1")
		time.Sleep(time.Minute)
		s.add(q, "a/1")
		cancel()
		unsent, err := q.Shutdown(ctx)
		if !slices.Equal(unsent, []string{"a/1"}) || !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", unsent, err)
		}
		s.wants("1s a/1")
	})
}

// URLs that were accepted, and are added again while their host is rejected, count among its rejected ones (see Config.Capacity) and are
// sent once Config.Interval has passed. What was accepted is forgotten although nothing is accepted after it.
func TestURLsOfARejectedHostRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isWrong atomic.Bool
		s := &service{T: t, answer: func(string, string) Result {
			if isWrong.Load() {
				return Result{Err: errBad, Again: true, OfHost: true, MayBeItem: true}
			}
			return Result{}
		}}
		q := newQueue(s, Config{Delay: time.Second, Interval: 10 * time.Minute})
		s.run(q)
		s.add(q, "a/1", "a/2")
		time.Sleep(time.Minute)
		isWrong.Store(true)
		s.add(q, "a/3")
		time.Sleep(10 * time.Second)
		s.add(q, "a/1", "a/2")
		if stats := q.Stats(); stats.Rejected != 3 || stats.Waiting != 3 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if len(q.recent) != 0 || len(q.ages) != 0 {
			t.Errorf("it remembers %d, %d", len(q.recent), len(q.ages))
		}
		isWrong.Store(false)
		time.Sleep(time.Hour)
		if stats := q.Stats(); stats.Accepted != 5 || stats.Waiting != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// After an answer that is about the whole service, nothing is sent before the time that it names.
func TestTheWholeServiceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		s := &service{T: t, takes: time.Second, answer: func(host, _ string) Result {
			if !works.Load() && host == "b" {
				return Result{Err: errDown, Again: true, After: 10 * time.Minute, OfService: true}
			}
			return Result{}
		}}
		q := newQueue(s, Config{Delay: time.Second})
		s.run(q)
		s.add(q, "b/1")
		time.Sleep(10 * time.Second)
		works.Store(true)
		s.add(q, "a/1", "c/1")
		time.Sleep(5 * time.Minute)
		s.wants("1s b/1")
		time.Sleep(time.Hour)
		s.wants("1s b/1", "10m2s a/1", "10m2s b/1", "10m2s c/1")
	})
}

// Done may call the queue, and what Add is called with may be locked by the caller: Add calls Done never.
func TestAddDoesNotCallDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, answer: func(host, _ string) Result {
			return Result{Err: errDown, Again: true, OfHost: host == "bad", MayBeItem: true}
		}}
		q := newQueue(s, Config{Delay: time.Second, Capacity: 8})
		s.run(q)
		for i := range 8 {
			s.add(q, fmt.Sprintf("bad/%d", i))
		}
		time.Sleep(10 * time.Minute)
		s.mu.Lock() // as a caller does
		if err := q.Add("good/1"); err != nil {
			t.Error(err)
		}
		isEarly := len(s.done) > 0
		s.mu.Unlock()
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if isEarly || len(s.done) == 0 {
			t.Errorf("Done was called early: %t; afterwards for %d", isEarly, len(s.done))
		}
	})
}
