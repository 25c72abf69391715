package main

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/ampcors/ampcors"
)

// deniedPerSecond is the number of lines of --log-denied: anyone can cause denials.
const deniedPerSecond = 10

// A deniedLog logs denied requests, at most deniedPerSecond. It is safe for concurrent use by multiple goroutines.
type deniedLog struct {
	log *slog.Logger

	mu     sync.Mutex
	second time.Time // when the current second began
	logged int       // lines in it
	silent int       // denied requests since the last line that had none
}

// observe is a Config.Observe.
func (l *deniedLog) observe(r *http.Request, d ampcors.Decision) {
	if d.Allowed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.logged = now, 0
	}
	if l.logged == deniedPerSecond {
		l.silent++
		return
	}
	l.logged++
	attrs := []any{"decision", d, "method", cut(r.Method, 20), "host", cut(r.Host, 255), "path", cut(r.URL.Path, 300)}
	if l.silent > 0 {
		attrs = append(attrs, "others_not_logged", l.silent)
		l.silent = 0
	}
	l.log.Info("ampcors: denied", attrs...)
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
// further ones every failuresEvery. When there is no further line, it works again. It is safe for concurrent use by
// multiple goroutines.
type failureLog struct {
	log *slog.Logger

	mu      sync.Mutex
	further map[string]int // failures since the last line; a kind is in it until failuresEvery have passed without one
}

// note notes a failure. kind is one of few texts.
func (l *failureLog) note(kind, cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, isKnown := l.further[kind]; isKnown {
		l.further[kind]++
		return
	}
	if l.further == nil {
		l.further = make(map[string]int)
	}
	l.further[kind] = 0
	l.log.Error("ampcors: "+kind, "cause", cut(cause, 500))
	time.AfterFunc(failuresEvery, func() { l.report(kind) })
}

func (l *failureLog) report(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.further[kind]
	if n == 0 {
		delete(l.further, kind)
		return
	}
	l.further[kind] = 0
	l.log.Error("ampcors: "+kind, "further_failures", n, "in", failuresEvery)
	time.AfterFunc(failuresEvery, func() { l.report(kind) })
}
