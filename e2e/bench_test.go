package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/servertest"
)

// BenchmarkNginxAndGateways measures requests of an allowed page to a small backend: through nginx alone, and through each
// gateway as its document configures it. They are measured in turn, because the machine's speed changes.
func BenchmarkNginxAndGateways(b *testing.B) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "an answer") }))
	defer backend.Close()
	program, behind := buildAmpcors(b), backend.Listener.Addr().String()
	cfg := ampcors.Config{Publishers: []string{"www.example.com"}}
	file := filepath.Join(b.TempDir(), "config.json")
	writeFiles(b, map[string]string{file: `{"publishers": ["www.example.com"]}`})
	authz := servertest.FreeAddress(b)
	start(b, authz, exec.Command(program, "serve-authz", "--proxy", "nginx", "--config", file, "--listen", authz))
	proxy, _ := startServeProxy(b, program, behind, cfg)
	caddy, site := servertest.FreeAddress(b), filepath.Join(b.TempDir(), "Caddyfile")
	writeFiles(b, map[string]string{site: "{\n\tadmin off\n}\nhttp://" + caddy + " {\n\tampcors www.example.com\n\treverse_proxy " + behind +
		"\n}\n"})
	start(b, caddy, gatewayCaddy(b)("run", "--config", site))
	document, err := os.ReadFile("../docs/proxy.md")
	if err != nil {
		b.Fatal(err)
	}
	twoLines := strings.Replace(block(b, string(document), "", "nginx"), "127.0.0.1:9000", proxy, 1)
	keepalive := servertest.FreeAddress(b)
	runNginx(b, keepalive, strings.NewReplacer("127.0.0.1:9000", proxy, "127.0.0.1:8080", keepalive).Replace(
		block(b, string(document), "<!-- keepalive -->\n", "nginx")))
	servers := map[string]string{
		"nginx":             startNginxWith(b, "", "proxy_pass http://"+behind+";"),
		"nginx-serve-authz": startAuthzNginx(b, authz, behind),
		"nginx-serve-proxy": keepalive,
		"two-lines":         startNginxWith(b, "", twoLines),
		"serve-proxy":       proxy,
		"Caddy":             caddy,
	}
	const clients, each = 16, 250
	took, elapsed := make(map[string][]time.Duration), make(map[string]time.Duration)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	for b.Loop() {
		for kind, addr := range servers {
			var group sync.WaitGroup
			times := make([][]time.Duration, clients)
			begun := time.Now()
			for i := range clients {
				group.Go(func() {
					for range each {
						r, err := http.NewRequest("GET", "http://"+addr, nil)
						if err != nil {
							b.Error(err)
							return
						}
						r.Header.Set("Origin", cached)
						begun := time.Now()
						resp, err := client.Do(r)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						times[i] = append(times[i], time.Since(begun))
						if isAllowed := resp.Header.Get("Access-Control-Allow-Origin") == cached; resp.StatusCode != http.StatusOK ||
							isAllowed != (kind != "nginx") {
							b.Errorf("%s: %s %v", kind, resp.Status, resp.Header)
						}
					}
				})
			}
			group.Wait()
			elapsed[kind] += time.Since(begun)
			took[kind] = append(took[kind], slices.Concat(times...)...)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(took)) {
		times := took[kind]
		slices.Sort(times)
		unit := strings.ToLower(kind)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-p50-"+unit)
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99-"+unit)
		b.ReportMetric(float64(len(times))/elapsed[kind].Seconds(), "requests/s-"+unit)
	}
}
