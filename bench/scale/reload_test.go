package scale

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
)

// footprint returns the bytes that the Go runtime has from the system now.
func footprint() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// during measures the footprint, and the time of decisions, while do runs.
func during(b *testing.B, m *ampcors.Middleware, do func()) (peak int64, p99 time.Duration) {
	b.Helper()
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				peak = max(peak, footprint())
			}
		}
	})
	var took []time.Duration
	group.Go(func() {
		for next, i := time.Now(), 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			// Requests come at a fixed rate. The time of each counts from when it was due, so
			// that a pause counts for all requests that it delays.
			next = next.Add(100 * time.Microsecond)
			if wait := time.Until(next); wait > 0 {
				time.Sleep(wait)
			}
			if d := m.CheckOrigin("https://" + domain(i%1000)); !d.Allowed {
				b.Errorf("%+v", d)
			}
			took = append(took, time.Since(next))
		}
	})
	do()
	close(done)
	group.Wait()
	slices.Sort(took)
	return peak, took[len(took)*99/100]
}

// BenchmarkReload applies a file with many publishers again and again, while requests are
// decided.
func BenchmarkReload(b *testing.B) {
	for _, n := range []int{1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("publishers=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			write := func(name string, data []byte) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, data, 0o600); err != nil {
					b.Fatal(err)
				}
				return path
			}
			var list bytes.Buffer
			for rank := range n {
				fmt.Fprintln(&list, domain(rank))
			}
			write("list", list.Bytes())
			list = bytes.Buffer{}
			path := write("config.json", []byte(`{"publishersFile": "list"}`))
			debug.FreeOSMemory()
			before := footprint()
			file := configfile.File{Path: path}
			m, err := file.New()
			if err != nil {
				b.Fatal(err)
			}
			debug.FreeOSMemory()
			inUse := footprint() - before
			_, quiet := during(b, m, func() { time.Sleep(time.Second) })
			var peak int64
			var busy time.Duration
			b.ResetTimer()
			for b.Loop() {
				p, t := during(b, m, func() {
					cfg, err := file.Config()
					if err = errors.Join(err, m.Reconfigure(cfg)); err != nil {
						b.Error(err)
					}
				})
				peak, busy = max(peak, p), max(busy, t)
			}
			b.ReportMetric(float64(inUse)/1e6, "MB-in-use")
			b.ReportMetric(float64(peak-before)/1e6, "MB-peak")
			b.ReportMetric(float64(quiet.Microseconds()), "µs-p99-without")
			b.ReportMetric(float64(busy.Microseconds()), "µs-p99-during")
		})
	}
}
