package main

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ampcors/ampcors"
)

// deniedPerSecond is the number of lines of --log-denied: anyone can cause denials.
const deniedPerSecond = 10

// A deniedLog logs denied requests, at most deniedPerSecond on average. It is safe for concurrent use by multiple
// goroutines.
type deniedLog struct {
	log    *slog.Logger
	limit  *rate.Limiter
	silent atomic.Int64 // denied requests without a line, since the last line
}

func newDeniedLog(log *slog.Logger) *deniedLog {
	return &deniedLog{log: log, limit: rate.NewLimiter(deniedPerSecond, deniedPerSecond)}
}

// observer returns a Config.Observe. With reportOnly, requests are not denied.
func (l *deniedLog) observer(reportOnly bool) func(*http.Request, ampcors.Decision) {
	message := "ampcors: denied"
	if reportOnly {
		message = "ampcors: would be denied, and is passed on because of reportOnly"
	}
	return func(r *http.Request, d ampcors.Decision) { l.note(message, r, d) }
}

func (l *deniedLog) note(message string, r *http.Request, d ampcors.Decision) {
	switch {
	case d.Allowed:
		return
	case !l.limit.Allow():
		l.silent.Add(1)
		return
	}
	attrs := []any{"decision", d, "method", cut(r.Method, 20), "host", cut(r.Host, 255), "path", cut(r.URL.Path, 300)}
	if n := l.silent.Swap(0); n > 0 {
		attrs = append(attrs, "not_logged_before", n)
	}
	l.log.Info(message, attrs...)
}

// cut returns s, or its first bytes and "...".
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// failuresEvery is the time between two lines about failures of one kind.
const failuresEvery = 10 * time.Second

// A failureLog logs what can fail for many requests alike: the first failure of a kind at once, and the number of
// further ones every failuresEvery. It is safe for concurrent use by multiple goroutines.
type failureLog struct {
	log *slog.Logger

	mu      sync.Mutex
	further map[string]*furtherFailures // a kind is in it until failuresEvery have passed without a failure
}

// furtherFailures are those since the last line.
type furtherFailures struct {
	number int
	cause  string // of the last one
}

// note notes a failure. kind is one of few texts. cause is written as it is: the caller cuts foreign text.
func (l *failureLog) note(kind, cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if further := l.further[kind]; further != nil {
		further.number++
		further.cause = cause
		return
	}
	if l.further == nil {
		l.further = make(map[string]*furtherFailures)
	}
	l.further[kind] = new(furtherFailures)
	l.log.Error("ampcors: "+kind, "cause", cause)
	time.AfterFunc(failuresEvery, func() { l.report(kind) })
}

// isRecent reports whether a failure of this kind was noted within failuresEvery.
func (l *failureLog) isRecent(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.further[kind] != nil
}

func (l *failureLog) report(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	further := l.further[kind]
	if further.number == 0 {
		delete(l.further, kind)
		return
	}
	l.further[kind] = new(furtherFailures)
	l.log.Error("ampcors: "+kind, "cause", further.cause, "further_failures", further.number, "in", failuresEvery)
	time.AfterFunc(failuresEvery, func() { l.report(kind) })
}
