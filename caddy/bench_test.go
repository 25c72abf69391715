package caddy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors/internal/gatewaytest"
)

// BenchmarkReload reloads Caddy with a list of a million publishers, while a client sends
// requests. The memory in use must not grow from one reload to the next.
func BenchmarkReload(b *testing.B) {
	before := dropAfter
	dropAfter = 100 * time.Millisecond // so that what is kept does not depend on how fast this machine reloads
	b.Cleanup(func() { dropAfter = before })
	const million = 1_000_000
	list := filepath.Join(b.TempDir(), "publishers.txt")
	var text strings.Builder
	for i := range million {
		fmt.Fprintf(&text, "www.publisher-%d.example\n", i)
	}
	if err := os.WriteFile(list, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	text.Reset()
	proxied := "\treverse_proxy " + backend(b, gatewaytest.Backend)
	config := func(i int) string {
		return fmt.Sprintf("\tampcors also-%d.example {\n\t\tpublishers_file %s\n\t}\n%s", i, list, proxied)
	}
	s := newServer(b, config(0))
	stop := make(chan struct{})
	var client sync.WaitGroup
	var times []time.Duration
	client.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			begun := time.Now()
			r, err := http.NewRequest("GET", "http://"+s.addr, nil)
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Origin", "https://www-publisher--7-example.cdn.ampproject.org")
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				continue // Caddy resets some connections
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			// Where a request takes longer than dropAfter, its handler knows its publishers no more.
			if resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusServiceUnavailable {
				b.Errorf("%s", resp.Status)
			}
			times = append(times, time.Since(begun))
			time.Sleep(time.Millisecond)
		}
	})
	var inUse []uint64
	for i := 1; b.Loop(); i++ {
		s.load("http", config(i))
		runtime.GC()
		runtime.GC() // the first only found what can be dropped from pools
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		inUse = append(inUse, stats.HeapAlloc>>20)
	}
	b.StopTimer()
	close(stop)
	client.Wait()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms-p99")
	b.ReportMetric(float64(slices.Max(inUse)), "MB-max")
	b.ReportMetric(float64(inUse[len(inUse)-1]), "MB-last")
	if n := len(inUse); n >= 20 {
		// Its maximum is higher where connections of an old configuration were still open.
		if median := slices.Sorted(slices.Values(inUse[n/2:]))[n/4]; median > slices.Max(inUse[:n/2])*11/10 {
			b.Errorf("the memory in use grows: %d MB", inUse)
		}
	}
}
