package indexnow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTwoPanicsAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var isBad atomic.Bool
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			time.Sleep(time.Second)
			if isBad.Load() {
				panic("in the transport")
			}
			return answer(200, "")
		}}
		q := idleQueue(t, e, QueueConfig{Parallel: 16})
		run := func() (recovered any) {
			defer func() { recovered = recover() }()
			return q.Run(t.Context())
		}
		done := make(chan any)
		go func() { done <- run() }()
		for i := range 10 {
			add(t, q, fmt.Sprintf("%d.ok.example/", i))
		}
		time.Sleep(time.Minute) // Parallel grows
		isBad.Store(true)
		for i := range 5 {
			add(t, q, fmt.Sprintf("%d.bad.example/", i))
		}
		if got := <-done; got != "in the transport" {
			t.Errorf("Run: %v", got)
		}
		isBad.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		unsent, err := q.Shutdown(ctx)
		if got := q.Stats(); got.Accepted+uint64(len(unsent)) != 15 || got.Waiting != len(unsent) {
			t.Errorf("lost: %+v, unsent %q, %v", got, unsent, err)
		}
		time.Sleep(time.Minute)
	})
}

func TestTwoPanicsOfFailedLoseNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			time.Sleep(time.Second)
			if strings.Contains(s.Host, "bad") {
				return answer(403, "")
			}
			return answer(200, "")
		}}
		q := idleQueue(t, e, QueueConfig{Parallel: 16, Failed: func(Batch) { panic("in Failed") }})
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_ = q.Run(t.Context())
		}()
		for i := range 10 {
			add(t, q, fmt.Sprintf("%d.ok.example/", i))
		}
		time.Sleep(time.Minute)
		for i := range 2 {
			add(t, q, fmt.Sprintf("%d.bad.example/", i))
		}
		for i := range 5 {
			add(t, q, fmt.Sprintf("%d.ok2.example/", i))
		}
		<-done
		unsent, err := q.Shutdown(context.Background())
		if got := q.Stats(); got.Added != got.Accepted+got.Failed+uint64(len(unsent)) {
			t.Errorf("lost: %+v, unsent %q, %v", got, unsent, err)
		}
	})
}

func TestA429IsKeptWhateverOtherRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"200", "429", "pending"} {
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
						}
					}
					return answer(200, "")
				}}
				q := newQueue(t, e, QueueConfig{Parallel: 2})
				add(t, q, "x.example/")
				time.Sleep(10 * time.Second) // two at once from now on
				armed.Store(true)
				add(t, q, "a.example/", "b.example/", "c.example/")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for _, s := range e.submissions()[3:] {
					t.Errorf("%s was sent at %v, after 429 with Retry-After: 600 at about 16 s", s.urls, s.at)
				}
			})
		})
	}
}

func TestHostsWithLateNamesAreServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := slowEngine(2 * time.Second)
		q := newQueue(t, e, QueueConfig{Parallel: 16})
		add(t, q, "z.example/")
		for i := range 600 { // ten minutes
			for h := range 80 {
				add(t, q, fmt.Sprintf("h%02d.example/%d", h, i))
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		n := map[string]int{}
		for _, s := range e.submissions() {
			host, _, _ := strings.Cut(s.urls, "/")
			n[host]++
		}
		if n["z.example"] == 0 {
			t.Errorf("z.example was not sent in ten minutes; h00 had %d requests, h20 %d, h40 %d, h60 %d, h79 %d", n["h00.example"], n["h20.example"], n["h40.example"], n["h60.example"], n["h79.example"])
		}
	})
}

func TestShutdownWithoutADeadlineTriesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response {
			time.Sleep(5 * time.Second)
			return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`)
		}}
		q := idleQueue(t, e, QueueConfig{Parallel: 16})
		for i := range 20 {
			add(t, q, fmt.Sprintf("%d.example/", i))
		}
		begun := time.Now()
		_, _ = q.Shutdown(context.Background())
		if n := len(e.submissions()); n != 20 {
			t.Errorf("%d requests for 20 hosts, in %v", n, time.Since(begun))
		}
	})
}

func TestShutdownSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "a.example" {
				return answer(503, "")
			}
			return answer(200, "")
		}}
		q := idleQueue(t, e, QueueConfig{})
		add(t, q, "a.example/", "b.example/")
		unsent, err := q.Shutdown(context.Background())
		if !errors.Is(err, ErrServer) {
			t.Errorf("%q, %v", unsent, err)
		}
	})
}

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
		n, at, gap := 0, begin, time.Hour
		for _, s := range e.submissions() {
			if strings.HasPrefix(s.urls, "good") {
				n++
				gap = min(gap, s.at-at)
				at = s.at
			}
		}
		if n > 121 {
			t.Errorf("%d requests for one host in ten minutes; want at most 120, one in each Delay; shortest gap %v", n, gap)
		}
	})
}

func TestTheLogOfFailedURLsHasNoKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c, _ := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422) }), func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	q, err := NewQueue(c, QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, q, "a.example/"+string(testKey)+".txt")
	_, _ = q.Shutdown(t.Context())
	if strings.Contains(out.String(), string(testKey)) {
		t.Errorf("the log has the key:\n%s", &out)
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

func TestTheRetryAfterOfEndpointIsKeptIfFailoverFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c, err := New(Config{Key: testKey, Endpoint: "https://a.example/indexnow", Failover: "https://b.example/indexnow", HTTPClient: &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "b.example" {
				return nil, io.ErrUnexpectedEOF
			}
			asked++
			return answerLater(503, "", "600"), nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		q, _ := NewQueue(c, QueueConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		add(t, q, "www.example.com/")
		_ = q.Run(ctx)
		if asked != 1 {
			t.Errorf("Endpoint was asked %d times in 5 minutes, after Retry-After: 600", asked)
		}
	})
}

func TestPartsOfABatchDoNotShareMemory(t *testing.T) {
	t.Parallel()
	c, _ := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if bytes.Contains(b, []byte("bad")) {
			w.WriteHeader(422)
		}
	}), nil)
	report, _ := c.Submit(t.Context(), "https://a.example/bad", "https://a.example/2")
	_ = append(report.Batches[0].URLs, "https://other.example/")
	if got := report.Batches[1].URLs[0]; got != "https://a.example/2" {
		t.Errorf("got %s", got)
	}
}

func TestAKeyThatContainsAnotherIsMasked(t *testing.T) {
	t.Parallel()
	short, long := Key("abcdefgh"), Key("abcdefgh-the-rest-is-secret")
	c, err := New(Config{Key: short, OldKeys: []Key{long}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), "x/"+string(long)+".txt"); strings.Contains(err.Error(), "the-rest-is-secret") {
		t.Error(err)
	}
}

func TestAKeyOfKeysOfIsMasked(t *testing.T) {
	t.Parallel()
	c, err := New(Config{KeysOf: func(context.Context, string) ([]Key, error) { return []Key{testKey}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	q, _ := NewQueue(c, QueueConfig{})
	if err := q.Add("https://a.example:99999/" + string(testKey) + ".txt"); strings.Contains(err.Error(), string(testKey)) {
		t.Error(err)
	}
}

func TestGoodURLsAmongManyBadOnesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, n := range []int{30, 32, 34, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var urls []string
			good := 0
			for i := range n {
				kind := "good"
				if n == 10_000 && i%600 == 0 || n != 10_000 && i%2 == 0 {
					kind = "bad"
				} else {
					good++
				}
				urls = append(urls, fmt.Sprintf("https://a.example/%05d-%s", i, kind))
			}
			requests := 0
			c, _ := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				b, _ := io.ReadAll(r.Body)
				if bytes.Contains(b, []byte("bad")) {
					w.WriteHeader(422)
				}
			}), nil)
			report, _ := c.Submit(t.Context(), urls...)
			accepted := 0
			for _, b := range report.Batches {
				if b.Err == nil {
					accepted += len(b.URLs)
				}
			}
			if accepted < good*8/10 || requests > maxSplits {
				t.Errorf("%d of %d good URLs are accepted, after %d requests", accepted, good, requests)
			}
		})
	}
}

func TestASplitStopsAfter429ForAnotherHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if !armed.Load() {
				return answer(200, "")
			}
			time.Sleep(time.Second)
			if s.Host == "a.example" {
				return answerLater(429, "", "600")
			}
			if slices.Contains(s.URLList, "https://b.example/0") {
				return answer(422, "")
			}
			return answer(200, "")
		}}
		q := newQueue(t, e, QueueConfig{Parallel: 2, Failed: func(Batch) {}})
		add(t, q, "x.example/")
		time.Sleep(10 * time.Second)
		armed.Store(true)
		add(t, q, "a.example/")
		for i := range 1000 {
			add(t, q, fmt.Sprintf("b.example/%d", i))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(e.submissions()) - 3; n > 1 {
			t.Errorf("%d requests after 429", n)
		}
	})
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

func TestAGoexitOfTheTransportLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{answer: func(*http.Request, submission) *http.Response { runtime.Goexit(); return nil }}
		q := idleQueue(t, e, QueueConfig{})
		add(t, q, "a.example/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan any, 1)
		go func() {
			defer func() { done <- recover() }()
			_ = q.Run(ctx)
		}()
		select {
		case got := <-done:
			if err, isError := got.(error); !isError || !strings.Contains(err.Error(), "Goexit") {
				t.Errorf("Run panicked with %v", got)
			}
		case <-time.After(time.Hour):
			t.Fatal("Run does not return an hour after its context ended")
		}
		e.acceptAll()
		if unsent, err := q.Shutdown(t.Context()); unsent != nil || err != nil || q.Stats().Accepted != 1 {
			t.Errorf("%q, %v, %+v", unsent, err, q.Stats())
		}
		time.Sleep(time.Minute) // net/http waits for its timeout
	})
}

// A host that failed once is not starved.
func TestAHostThatFailedOnceIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := false
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			if s.Host == "0.example" && !failed {
				failed = true
				return answer(503, "")
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
		n := 0
		for _, s := range e.submissions() {
			if strings.HasPrefix(s.urls, "0.example") {
				n++
			}
		}
		if n < 2 {
			t.Errorf("0.example was not retried in ten minutes")
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
