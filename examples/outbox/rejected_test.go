package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/internal/servertest"
)

// rejecting returns an answer of an engine that rejects each request with a URL for which isBad is true. l is set
// later.
func rejecting(l *local, isBad func(url string) bool) func(int) (int, http.Header) {
	return func(n int) (int, http.Header) {
		l.mu.Lock()
		urls := l.requests[n].urls
		l.mu.Unlock()
		for _, u := range urls {
			if isBad(u) {
				return http.StatusUnprocessableEntity, nil
			}
		}
		return http.StatusOK, nil
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	servertest.Until(t, what, 2*time.Minute, holds)
}

func (l local) count(holds func(*request) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.requests {
		if holds(q) {
			n++
		}
	}
	return n
}

// rejectedHosts returns of how many hosts nothing is accepted, and the job waits for its retry.
func (l local) rejectedHosts() (n int) {
	l.t.Helper()
	if err := l.pool.QueryRow(l.t.Context(), `
		SELECT count(DISTINCT host) FROM outbox.page WHERE rejected_at IS NOT NULL AND EXISTS (
			SELECT FROM outbox.river_job WHERE args->>'host' = host AND state = 'retryable' AND errors[1]->>'error' LIKE '%status `+
		`422%')`).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l local) stats() Stats {
	l.t.Helper()
	stats, err := l.Stats(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return stats
}

// TestARejectedHost shares one PostgreSQL.
func TestARejectedHost(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	t.Run("is asked with two pages, and with all once one is accepted", func(t *testing.T) {
		var l local
		var isRight atomic.Bool
		l = prepareLocal(t, server, time.Hour, 30*time.Second, rejecting(&l, func(string) bool { return !isRight.Load() }))
		var urls []string
		for i := range 20 {
			urls = append(urls, fmt.Sprintf("%s%d", pageURL, i))
		}
		l.add(urls...)
		l.start()
		until(t, "it is known", func() bool { return l.rejectedHosts() == 1 })
		before := l.count(func(*request) bool { return true })
		until(t, "it is asked three times", func() bool { return l.count(func(*request) bool { return true }) >= before+3 })
		l.mu.Lock()
		for _, q := range l.requests[before:] {
			if len(q.urls) > 2 {
				t.Errorf("a request has %d pages", len(q.urls))
			}
		}
		l.mu.Unlock()
		if stats := l.stats(); stats != (Stats{Waiting: 20}) {
			t.Errorf("%+v", stats)
		}
		isRight.Store(true)
		until(t, "all are sent", func() bool { return l.stats() == Stats{Sent: 20} })
		if l.rejectedHosts() != 0 {
			t.Error("it is still rejected")
		}
	})
	t.Run("may have a page at fault, which comes first", func(t *testing.T) {
		var l local
		l = newLocal(t, server, time.Hour, 30*time.Second,
			rejecting(&l, func(u string) bool { return strings.HasSuffix(u, "bad") }))
		l.add(pageURL + "bad")
		until(t, "it is rejected", func() bool { return l.count(func(*request) bool { return true }) > 0 })
		l.add(pageURL + "good")
		until(t, "one is sent, and the other is given up", func() bool { return l.stats() == Stats{Sent: 1, Failed: 1} })
	})
	t.Run("may have pages at fault at both ends", func(t *testing.T) {
		var l local
		reject := rejecting(&l, func(u string) bool { return strings.HasSuffix(u, "bad") })
		l = prepareLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
			if n == 0 {
				return http.StatusServiceUnavailable, nil
			}
			return reject(n)
		})
		urls := []string{pageURL + "old-bad"}
		for i := range 50 {
			urls = append(urls, fmt.Sprintf("%sgood%d", pageURL, i))
		}
		for _, u := range append(urls, pageURL+"new-bad") {
			l.add(u)
		}
		until(t, "all are ready", func() (isReady bool) {
			_ = l.pool.QueryRow(t.Context(), `SELECT bool_and(ready_at <= clock_timestamp()) FROM outbox.page`).Scan(&isReady)
			return isReady
		})
		l.start()
		until(t, "the good ones are sent", func() bool { return l.stats() == Stats{Sent: 50, Failed: 2} })
	})
	t.Run("may have more pages at fault than a search finds", func(t *testing.T) {
		var l local
		l = prepareLocal(t, server, time.Hour, time.Minute,
			rejecting(&l, func(u string) bool { return strings.HasSuffix(u, "bad") }))
		l.cfg.GiveUpAfter = 20 * time.Second
		var urls []string
		for i := range 2000 {
			urls = append(urls, fmt.Sprintf("%s%d-bad", pageURL, i))
		}
		l.add(urls...)
		for i := range 4 {
			l.add(fmt.Sprintf("%sgood%d", pageURL, i))
		}
		l.start()
		until(t, "the good ones are sent", func() bool { return l.stats().Sent == 4 })
	})
	t.Run("is given up after a time, with the engine's answer", func(t *testing.T) {
		var l local
		l = prepareLocal(t, server, time.Hour, 30*time.Second, rejecting(&l, func(string) bool { return true }))
		l.cfg.GiveUpAfter = 3 * time.Second
		l.start()
		l.add(pageURL+"1", pageURL+"2")
		until(t, "they are given up", func() bool { return l.stats() == Stats{Failed: 2} })
		var text string
		if err := l.pool.QueryRow(t.Context(), `SELECT min(error) FROM outbox.page`).Scan(&text); err != nil ||
			!strings.Contains(text, "given up, because nothing of the host was accepted for 3s: ") ||
			!strings.Contains(text, "status 422") {
			t.Errorf("%q, %v", text, err)
		}
	})
	t.Run("may have pages of another key file, which are accepted", func(t *testing.T) {
		var l local
		l = prepareLocal(t, server, time.Nanosecond, 30*time.Second,
			rejecting(&l, func(u string) bool { return strings.Contains(u, "/shop/") }))
		var err error
		if l.client, err = indexnow.New(indexnow.Config{Key: "0123456789abcdef", Endpoint: l.url,
			KeyLocations: []string{pageURL + "k.txt", pageURL + "shop/k.txt"}}); err != nil {
			t.Fatal(err)
		}
		var urls []string
		for i := range 20 {
			urls = append(urls, fmt.Sprintf("%sshop/%d", pageURL, i))
		}
		l.add(urls...)
		l.start()
		for i := range 5 {
			l.add(fmt.Sprintf("%s%d", pageURL, i))
			until(t, "the page is sent", func() bool { return l.count(func(q *request) bool { return q.status == http.StatusOK }) > i })
		}
		until(t, "the others wait", func() bool { stats := l.stats(); return stats.Waiting == 20 && stats.Failed == 0 })
	})
	t.Run("may have one page that is rejected, accepted, and rejected again", func(t *testing.T) {
		var l local
		var isWrong atomic.Bool
		isWrong.Store(true)
		l = newLocal(t, server, time.Second, 30*time.Second, rejecting(&l, func(string) bool { return isWrong.Load() }))
		l.add(pageURL)
		until(t, "it is rejected", func() bool { return l.count(func(*request) bool { return true }) > 0 })
		isWrong.Store(false)
		until(t, "it is accepted", func() bool { return l.count(func(q *request) bool { return q.status == http.StatusOK }) > 0 })
		isWrong.Store(true)
		before := l.count(func(*request) bool { return true })
		l.add(pageURL)
		until(t, "it is rejected again, twice", func() bool {
			return l.count(func(*request) bool { return true }) > before+1
		})
		if stats := l.stats(); stats.Failed != 0 {
			t.Errorf("%+v", stats)
		}
		isWrong.Store(false)
		until(t, "it is accepted again", func() bool { return l.stats().Waiting == 0 && l.stats().Failed == 0 })
	})
	for _, hosts := range []int{1, 10, 1000} {
		t.Run(fmt.Sprintf("delays no other host, and there are %d", hosts), func(t *testing.T) {
			var l local
			l = prepareLocal(t, server, time.Nanosecond, 30*time.Second,
				rejecting(&l, func(u string) bool { return strings.Contains(u, "bad") }))
			var urls []string
			for i := range hosts {
				urls = append(urls, fmt.Sprintf("https://bad%d.example/", i))
			}
			l.add(urls...)
			l.start()
			until(t, "all are rejected", func() bool { return l.rejectedHosts() == hosts })
			// All are due at once. Jobs that River changes at this moment are left out: to wait for them would be a deadlock.
			const due = `UPDATE outbox.river_job SET scheduled_at = clock_timestamp()
				WHERE id IN (SELECT id FROM outbox.river_job WHERE state = 'retryable' FOR UPDATE SKIP LOCKED)`
			for changed := int64(0); changed == 0; {
				tag, err := l.pool.Exec(t.Context(), due)
				if err != nil {
					t.Fatal(err)
				}
				changed = tag.RowsAffected()
			}
			isBad := func(q *request) bool { return strings.Contains(q.urls[0], "bad") }
			before, begun := l.count(isBad), time.Now()
			l.add(pageURL)
			until(t, "the other host's page is sent", func() bool { return l.count(func(q *request) bool { return !isBad(q) }) > 0 })
			t.Logf("after %.1fs, and %d requests for rejected hosts", time.Since(begun).Seconds(), l.count(isBad)-before)
		})
	}
}
