package collector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/metrics/collector"
	"github.com/ampcors/ampcors/source"
)

func newMiddleware(t *testing.T) (*ampcors.Middleware, *source.Source) {
	t.Helper()
	cache := mwtest.NewSource(t, source.Database{
		PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
			if domain == "down.example" {
				return false, mwtest.ErrDown
			}
			return domain == "www.source.example", nil
		}),
		Notify: func(func(domains ...string)) (stop func()) { return func() {} },
	})
	t.Cleanup(cache.Close)
	m := mwtest.New(t, ampcors.Config{Publishers: []string{"www.example.com", "*.news.example"}, Caches: cacheurl.DefaultCaches()[:2],
		Source: cache})
	return m, cache
}

// handle lets m handle a request from an origin.
func handle(m *ampcors.Middleware, origin string) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", origin)
	m.Handle(httptest.NewRecorder(), r)
}

func TestTheCountsAreExported(t *testing.T) {
	t.Parallel()
	m, cache := newMiddleware(t)
	for _, origin := range []string{"https://www.example.com", "https://www.source.example", "https://evil.example", "https://evil.example",
		"https://down.example", "https://www-example-com.cdn.ampproject.org"} {
		handle(m, origin)
	}
	c := collector.New(m, cache)
	c.Filter = func() (int, time.Time) { return 7, time.Unix(1_700_000_000, 0) }
	registry, text := gather(t, c, func() metrics.Counts {
		counts := metrics.Of(m, cache, nil)
		counts.Filter = &metrics.Filter{Publishers: 7, BuiltAt: time.Unix(1_700_000_000, 0)}
		return counts
	}, `ampcors_filter_built_timestamp_seconds 1.7e+09`, `ampcors_filter_publishers 7`, `ampcors_listed_publishers 2`,
		`ampcors_cache_requests_total{cache="bing"} 0`, `ampcors_cache_requests_total{cache="google"} 1`,
		`ampcors_decisions_total{allowed="true",reason="own_origin"} 2`, `ampcors_decisions_total{allowed="false",reason="unknown_host"} 2`,
		`ampcors_decisions_total{allowed="false",reason="source_unavailable"} 1`,
		`ampcors_decisions_total{allowed="false",reason="null_origin"} 0`,
		`ampcors_source_lookups_total{result="error"} 1`, `ampcors_source_lookups_total{result="ok"} 2`,
		`ampcors_source_entries{kind="negatives"} 1`, `ampcors_source_entries{kind="prefixes"} 0`, `ampcors_source_entries{kind="publishers"} 1`,
		`ampcors_source_listening 1`, `ampcors_source_wait_seconds_count 3`)
	if strings.Contains(text, "_wait_seconds_sum 0\n") || strings.Count(text, "_wait_seconds_bucket{") != len(cache.Stats().WaitsWithin)+1 {
		t.Errorf("the waits are wrong:\n%s", text)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// gather returns what the Collector exports, and the same in the text of package metrics, which must have these lines.
func gather(t *testing.T, c *collector.Collector, counts func() metrics.Counts, lines ...string) (*prometheus.Registry, string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // it checks Describe and Collect against each other
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	metrics.Handler(counts).ServeHTTP(answer, nil)
	text, process, _ := strings.Cut(answer.Body.String(), "# HELP process_start_time_seconds ") // which Prometheus' own library has
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
		t.Error(err)
	}
	for _, line := range append(lines, "process_start_time_seconds 1") {
		if !strings.Contains(text+process, "\n"+line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
	return registry, text
}

// Each count has the name and the label that the dashboard uses.
func TestEachCountOfASourceIsExported(t *testing.T) {
	t.Parallel()
	counts := func() metrics.Counts {
		return metrics.Counts{Source: &source.Stats{Lookups: 9, Refreshes: 2, Errors: 3, Coalesced: 4, Busy: 6, CircuitOpen: 7, Stale: 10,
			Waiting: 11}}
	}
	gather(t, collector.NewFunc(counts), counts, `ampcors_source_lookups_total{result="ok"} 6`,
		`ampcors_source_lookups_total{result="error"} 3`,
		`ampcors_source_refreshes_total 2`, `ampcors_source_waiting_lookups 11`, `ampcors_source_avoided_lookups_total{by="coalesced"} 4`,
		`ampcors_source_avoided_lookups_total{by="stale"} 10`, `ampcors_source_rejected_lookups_total{by="busy"} 6`,
		`ampcors_source_rejected_lookups_total{by="circuit_open"} 7`)
}

// Whatever clients send, the number of time series stays the same.
func TestLabelsAreAClosedSet(t *testing.T) {
	t.Parallel()
	m, cache := newMiddleware(t)
	c := collector.New(m, cache)
	before := testutil.CollectAndCount(c)
	for i := range 1000 {
		handle(m, fmt.Sprintf("https://invented-%d.example", i))
	}
	if after := testutil.CollectAndCount(c); after != before || before < 20 {
		t.Errorf("%d time series before, %d after", before, after)
	}
}

func TestTheWatchersFileIsExported(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"publishers": ["www.example.com"]}`)
	m, watcher, err := configfile.File{Path: file}.Watch(configfile.WatcherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c := collector.New(m, nil)
	c.Watcher = watcher
	value := func(name string) string {
		text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(strings.TrimSpace(string(text)))
		return lines[len(lines)-1]
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Watcher.Run(ctx) }()
	within := func(what string, holds func() bool) {
		t.Helper()
		for begun := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Since(begun) > 2*time.Minute {
				t.Fatal("not yet: ", what)
			}
		}
	}
	within("in force", func() bool {
		return value("ampcors_config_applied_timestamp_seconds") != "0" && value("ampcors_config_in_force") == "1"
	})
	write(`{"publishers": [`)
	within("not in force", func() bool { return value("ampcors_config_in_force") == "0" })
	write(`{"publishers": ["www.example.com", "www.other.example"]}`)
	within("in force again", func() bool {
		return value("ampcors_config_in_force") == "1" && value("ampcors_listed_publishers") == "2"
	})
	cancel()
	<-done
}

// The dashboard and the rules name metrics and labels that exist.
func TestDashboardAndAlertsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	labels := make(map[string][]string)
	for _, m := range metrics.Metrics() {
		labels[m.Name] = append(slices.Clone(m.Labels), "instance")
	}
	for _, name := range []string{"../dashboard.json", "../alerts.yml"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "../dashboard.json" && !json.Valid(data) {
			t.Error("the dashboard is not JSON")
		}
		for metric := range labels {
			if name == "../dashboard.json" && !strings.Contains(string(data), metric) {
				t.Errorf("%s is on no dashboard", metric)
			}
		}
		used := regexp.MustCompile(`(ampcors_[a-z_]+)(\{[^}]*\})?`).FindAllStringSubmatch(string(data), -1)
		if len(used) < 5 {
			t.Errorf("%s uses %d metrics", name, len(used))
		}
		for _, u := range used {
			known, ok := labels[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(u[1], "_sum"), "_count"), "_bucket")]
			if !ok {
				t.Errorf("%s uses %s, which does not exist", name, u[1])
			}
			for _, label := range regexp.MustCompile(`(\w+)(?:=|=~|!=)\\?"`).FindAllStringSubmatch(u[2], -1) {
				if !slices.Contains(known, label[1]) {
					t.Errorf("%s uses the label %s of %s, which has %q", name, label[1], u[1], known)
				}
			}
		}
	}
}

func TestPromtoolAcceptsTheRulesAndTheirTests(t *testing.T) {
	t.Parallel()
	promtool := servertest.Program(t, "install promtool (Debian: apt-get install prometheus)", "promtool")
	for _, args := range [][]string{{"check", "rules", "../alerts.yml"}, {"test", "rules", "../alerts_test.yml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
