package driver

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReports: it is known, and logged, what becomes of a connection: each cause of an outage once, and how long it took.
func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := NewReports(slog.New(slog.NewTextHandler(&log, nil)), slog.String("table", "sites"))
		isKnown := func() bool {
			select {
			case <-r.Known():
				return true
			default:
				return false
			}
		}
		lines := func(want ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != len(want) {
				t.Fatalf("%q; want %q", got, want)
			}
			for i, line := range got {
				if !strings.HasSuffix(line, want[i]) {
					t.Errorf("%q; want %q", line, want[i])
				}
			}
			log.Reset()
		}
		down := errors.New("it is down")
		if r.IsListening() || isKnown() || r.Err() != nil {
			t.Error("it is known at once")
		}
		r.Ends() // a connection that never listened
		time.Sleep(time.Second)
		if isKnown() {
			t.Error("an end without a cause is known")
		}
		r.Fails(down, "down", "an effect")
		r.Fails(errors.New("it is down still"), "down", "an effect")
		if !isKnown() || r.IsListening() || r.Err().Error() != "it is down still" {
			t.Error(isKnown(), r.IsListening(), r.Err())
		}
		time.Sleep(2 * time.Second)
		r.Listens()
		r.Listens()
		if !r.IsListening() {
			t.Error("it does not listen")
		}
		lines(`level=ERROR msg="ampcors: not listening for changes of publishers; an effect" table=sites error="it is down"`,
			`level=INFO msg="ampcors: listening for changes of publishers" table=sites after=3s`)
		r.Ends()
		time.Sleep(time.Second)
		for i := range 100 {
			r.Fails(down, fmt.Sprint(i), "an effect")
		}
		if n := strings.Count(log.String(), "\n"); n != 16 {
			t.Errorf("%d lines", n)
		}
		log.Reset()
		r.Listens()
		lines("table=sites after=1s")
		r.Close()
		r.Listens()
		r.Fails(down, "down", "an effect")
		if r.IsListening() || log.Len() > 0 {
			t.Error(r.IsListening(), log.String())
		}
	})
	var log bytes.Buffer
	r := NewReports(slog.New(slog.NewTextHandler(&log, nil)), slog.String("table", "sites"))
	r.Ends() // nothing was logged, so that there is no outage
	r.Listens()
	<-r.Known()
	if !strings.HasSuffix(log.String(), "table=sites\n") {
		t.Error(log.String())
	}
	r = NewReports(slog.New(slog.DiscardHandler), slog.Attr{})
	r.Close()
	<-r.Known()
}
