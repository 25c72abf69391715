package caddy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/ampcors/ampcors/internal/gatewaytest"
	"github.com/ampcors/ampcors/internal/servertest"
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
			if resp.StatusCode != http.StatusAccepted {
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

// BenchmarkRequests measures requests through Caddy to a backend: with no CORS headers, with
// headers written by hand for one origin, and with ampcors. wrk sends them to each in turn.
func BenchmarkRequests(b *testing.B) {
	wrk := servertest.Program(b, "install wrk (Debian: apt-get install wrk)", "wrk")
	proxied := "\treverse_proxy " + backend(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer\n") })
	kinds := []string{"none", "by-hand", "ampcors"}
	directives := map[string]string{
		"none": "",
		"by-hand": "\t@page header Origin " + cached + "\n\theader @page {\n\t\tAccess-Control-Allow-Origin " + cached +
			"\n\t\tAccess-Control-Allow-Credentials true\n\t\tAccess-Control-Expose-Headers AMP-Redirect-To\n\t}\n\theader Vary Origin\n",
		"ampcors": "\tampcors www.example.com {\n\t\tcredentialed\n\t}\n",
	}
	addrs := make(map[string]string)
	config := fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage file_system %s\n\tlog {\n\t\toutput discard\n\t}\n}\n", b.TempDir())
	for _, kind := range kinds {
		addrs[kind] = servertest.FreeAddress(b)
		config += fmt.Sprintf("http://%s {\n%s%s\n}\n", addrs[kind], directives[kind], proxied)
	}
	if err := caddy.Load(adapt(b, config), true); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = caddy.Stop() })
	perSecond := make(map[string][]float64)
	for round := 0; b.Loop(); round++ {
		for i := range kinds {
			kind := kinds[(round+i)%len(kinds)]
			out, err := exec.Command(wrk, "-t1", "-c16", "-d1s", "-H", "Origin: "+cached, "http://"+addrs[kind]+"/").Output()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			if bytes.Contains(out, []byte("Non-2xx")) {
				b.Fatalf("%s", out)
			}
			_, after, _ := strings.Cut(string(out), "Requests/sec:")
			n, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			perSecond[kind] = append(perSecond[kind], n)
		}
	}
	median := func(values []float64) float64 {
		values = slices.Clone(values)
		slices.Sort(values)
		return values[len(values)/2]
	}
	for _, kind := range kinds {
		b.ReportMetric(median(perSecond[kind]), "per-second-"+kind)
	}
	for _, kind := range kinds[:2] {
		ratios := make([]float64, len(perSecond[kind]))
		for i, n := range perSecond[kind] {
			ratios[i] = perSecond["ampcors"][i] / n
		}
		b.ReportMetric(median(ratios), "ratio-to-"+kind)
	}
}
