package source

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A logBuffer is a log that lookups in the background write.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was written since the last call.
func (b *logBuffer) take() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// An outage is one line with its cause, and one when it is over, whether one publisher is asked for or many.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a"}, {"a", "b", "c", "d"}, {"x", "@y"}} {
		for _, wasRemembered := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				f := newFake(names...)
				c := newTestSource(t, f.source(), func(o *Config) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					o.TTL, o.NegativeTTL = time.Second, time.Second
				})
				defer c.Close()
				ask := func(d time.Duration) {
					for begun := time.Now(); time.Since(begun) < d; time.Sleep(100 * time.Millisecond) {
						for _, name := range names {
							c.Find(t.Context(), name)
						}
					}
				}
				if wasRemembered {
					ask(time.Second)
				}
				f.set(func() { f.err = fmt.Errorf("a: %w", errDown) })
				ask(5 * time.Minute)
				text := log.take()
				if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, errDown.Error()) {
					t.Errorf("%q: in the outage, the log is:\n%s", names, text)
				}
				f.set(func() { f.err = nil })
				ask(5 * time.Minute)
				if text := log.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO") ||
					!strings.Contains(text, "failed_for=4m5") && !strings.Contains(text, "failed_for=5m") {
					t.Errorf("%q: after the outage, the log is:\n%s", names, text)
				}
			})
		}
	}
}

// A database that fails now and then, or of which one key fails, does not fill the log.
func TestFewOutagesAreLogged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fake, i int){
		"each second lookup of each name": func(f *fake, i int) { f.err = []error{nil, errDown}[i%2] },
		"ten seconds on, ten seconds off": func(f *fake, i int) { f.err = []error{nil, errDown}[i/100%2] },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log logBuffer
			f := newFake("a", "b", "c", "d")
			c := newTestSource(t, f.source(), func(o *Config) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				o.TTL, o.NegativeTTL = time.Second, time.Second
			})
			defer c.Close()
			for i := range 6000 { // ten minutes
				f.set(func() { change(f, i) })
				for _, name := range []string{"a", "b", "c", "d"} {
					c.Find(t.Context(), name)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if lines := strings.Count(log.take(), "\n"); lines > 22 {
				t.Errorf("%s: %d lines in ten minutes", name, lines)
			}
		})
	}
}
