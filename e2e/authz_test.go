package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/guard"
	"github.com/ampcors/ampcors/internal/servertest"
)

// startAuthzNginx starts nginx with the configuration of package authz.
func startAuthzNginx(t testing.TB, authz, backend string) (addr string) {
	t.Helper()
	path := servertest.Program(t, "install nginx (Debian: apt-get install nginx-light)", "nginx", "/usr/sbin/nginx")
	data, err := os.ReadFile("../authz/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	site := string(data)
	for old, now := range map[string]string{"127.0.0.1:9000": authz, "127.0.0.1:3000": backend, "127.0.0.1:8080": addr} {
		if strings.Count(site, old) != 1 {
			t.Fatalf("%s is not once in the configuration", old)
		}
		site = strings.ReplaceAll(site, old, now)
	}
	conf := fmt.Sprintf("daemon off;\nmaster_process off;\npid %[1]s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path %[1]s/body;\nproxy_temp_path %[1]s/proxy;\n"+
		"fastcgi_temp_path %[1]s/fastcgi;\nuwsgi_temp_path %[1]s/uwsgi;\nscgi_temp_path %[1]s/scgi;\n%[2]s}\n", dir, site)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, addr, exec.Command(path, "-p", dir, "-c", file))
	return addr
}

// wrongBackend sets CORS headers of its own, and a Vary. It answers with what it got.
func wrongBackend(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Credentials", "true")
	w.Header().Set("Access-Control-Max-Age", "86400")
	w.Header().Set("Vary", "Accept-Language")
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, "%s %s %q", r.Method, r.Header.Get("Ampcors-Publisher"), body)
}

// TestNginxAsksAuthz: a backend behind nginx gets the same requests, and its clients the same
// CORS headers, as behind the Middleware with its guard.
func TestNginxAsksAuthz(t *testing.T) {
	newMiddleware := func() *ampcors.Middleware {
		m, err := ampcors.New(ampcors.Config{
			Publishers: []string{"www.example.com", "*.news.example"}, Credentialed: true, RequestHeaders: []string{"X-Any"},
			Source: ampcors.SourceFunc(func(_ context.Context, domain string) (bool, error) {
				if strings.HasPrefix(domain, "down") {
					return false, errors.New("the database is down")
				}
				return domain == "www.source.example", nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	handler, err := authz.New(newMiddleware(), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	asked := httptest.NewServer(handler)
	defer asked.Close()
	backend := httptest.NewServer(http.HandlerFunc(wrongBackend))
	defer backend.Close()
	behindNginx := "http://" + startAuthzNginx(t, asked.Listener.Addr().String(), backend.Listener.Addr().String())
	direct := httptest.NewServer(newMiddleware().WrapDecision(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ampcors.DecisionFromContext(r.Context())
		r.Header.Set("Ampcors-Publisher", d.Publisher)
		wrongBackend(w, r)
	}))))
	defer direct.Close()

	for _, origin := range []string{
		"", "https://www-example-com.cdn.ampproject.org", "https://www.example.com", "https://sport-news-example.cdn.ampproject.org",
		"https://www-source-example.www.bing-amp.com", "https://www-evil-example.cdn.ampproject.org", "https://down-example.cdn.ampproject.org", "null", "https://cdn.ampproject.org",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS"} {
			for _, header := range []string{"", "AMP-Same-Origin: true", "Access-Control-Request-Method: POST", "X-Original-Method: GET", "Ampcors-Publisher: forged.example", "Sec-Fetch-Site: same-origin"} {
				t.Run(fmt.Sprint(origin, " ", method, " ", header), func(t *testing.T) {
					call := func(server string) (status int, headers http.Header, body string) {
						r, err := http.NewRequest(method, server+"/api?a=b", nil)
						if method == "POST" {
							r, err = http.NewRequest(method, server+"/api?a=b", strings.NewReader("a body"))
						}
						if err != nil {
							t.Fatal(err)
						}
						if origin != "" {
							r.Header.Set("Origin", origin)
						}
						if name, value, ok := strings.Cut(header, ": "); ok {
							r.Header.Set(name, value)
						}
						resp, err := http.DefaultTransport.RoundTrip(r)
						if err != nil {
							t.Fatal(err)
						}
						defer resp.Body.Close()
						data, err := io.ReadAll(resp.Body)
						if err != nil {
							t.Fatal(err)
						}
						return resp.StatusCode, resp.Header, string(data)
					}
					status, got, body := call(behindNginx)
					wantStatus, want, wantBody := call(direct.URL)
					if wantStatus == http.StatusForbidden || wantStatus == http.StatusServiceUnavailable {
						body, wantBody = "", "" // nginx's text has the reason only as a label
					}
					if wantStatus == http.StatusServiceUnavailable && method == "OPTIONS" && strings.HasPrefix(header, "Access-Control-Request-Method") {
						wantStatus = http.StatusForbidden // a browser sees no difference in a preflight
					}
					if status != wantStatus || body != wantBody {
						t.Errorf("%d %q; want %d %q", status, body, wantStatus, wantBody)
					}
					names := []string{"Vary", "Cache-Control", "Retry-After", "Amp-Access-Control-Allow-Source-Origin", "X-Ampcors-Status", "X-Ampcors-Reason", "X-Ampcors-Publisher"}
					for name := range want {
						if strings.HasPrefix(name, "Access-Control-") {
							names = append(names, name)
						}
					}
					for name := range got {
						if strings.HasPrefix(name, "Access-Control-") {
							names = append(names, name)
						}
					}
					for _, name := range names {
						if !slices.Equal(got[name], want[name]) {
							t.Errorf("%s: %q; want %q", name, got[name], want[name])
						}
					}
				})
			}
		}
	}
}

// BenchmarkNginx measures requests through nginx to a backend, with and without asking. Both
// are measured in turn, because the machine's speed changes.
func BenchmarkNginx(b *testing.B) {
	m, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		b.Fatal(err)
	}
	handler, err := authz.New(m, authz.NGINX)
	if err != nil {
		b.Fatal(err)
	}
	asked := httptest.NewServer(handler)
	defer asked.Close()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "an answer") }))
	defer backend.Close()
	servers := map[string]string{
		"no":  "http://" + startNginxWith(b, "", "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://"+backend.Listener.Addr().String()+";"),
		"yes": "http://" + startAuthzNginx(b, asked.Listener.Addr().String(), backend.Listener.Addr().String()),
	}
	const clients, each = 4, 500
	took := make(map[string][]time.Duration)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	for b.Loop() {
		for kind, url := range servers {
			var group sync.WaitGroup
			times := make([][]time.Duration, clients)
			for i := range clients {
				group.Go(func() {
					for range each {
						r, err := http.NewRequest("GET", url, nil)
						if err != nil {
							b.Error(err)
							return
						}
						r.Header.Set("Origin", "https://www-example-com.cdn.ampproject.org")
						begun := time.Now()
						resp, err := client.Do(r)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						times[i] = append(times[i], time.Since(begun))
						if resp.StatusCode != http.StatusOK {
							b.Errorf("%s: %s", kind, resp.Status)
						}
					}
				})
			}
			group.Wait()
			took[kind] = append(took[kind], slices.Concat(times...)...)
		}
	}
	for kind, times := range took {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-p50-asking-"+kind)
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99-asking-"+kind)
	}
}
