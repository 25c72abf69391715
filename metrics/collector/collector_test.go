package collector_test

import (
	"context"
	"encoding/json"
	"errors"
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
	cache, err := source.New(source.Database{
		PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
			if domain == "down.example" {
				return false, errors.New("the database is down")
			}
			return domain == "www.source.example", nil
		}),
		Notify: func(func(domains ...string)) (stop func()) { return func() {} },
	}, source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	m, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "*.news.example"}, Caches: cacheurl.DefaultCaches()[:2], Source: cache})
	if err != nil {
		t.Fatal(err)
	}
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
	registry := prometheus.NewPedanticRegistry() // it checks Describe and Collect against each other
	c := collector.New(m, cache)
	c.Filter = func() (int, time.Time) { return 7, time.Unix(1_700_000_000, 0) }
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP ampcors_filter_built_timestamp_seconds When the list of the filter was made; 0 if there is none yet.
# TYPE ampcors_filter_built_timestamp_seconds gauge
ampcors_filter_built_timestamp_seconds 1.7e+09
# HELP ampcors_filter_publishers Publishers in the filter, if there is one.
# TYPE ampcors_filter_publishers gauge
ampcors_filter_publishers 7
# HELP ampcors_cache_requests_total Allowed requests of publishers' pages on an AMP Cache.
# TYPE ampcors_cache_requests_total counter
ampcors_cache_requests_total{cache="bing"} 0
ampcors_cache_requests_total{cache="google"} 1
# HELP ampcors_listed_publishers Publishers and patterns in the configuration in force.
# TYPE ampcors_listed_publishers gauge
ampcors_listed_publishers 2
# HELP ampcors_source_lookups_total Lookups of the Source, by their result: ok or error.
# TYPE ampcors_source_lookups_total counter
ampcors_source_lookups_total{result="error"} 1
ampcors_source_lookups_total{result="ok"} 2
# HELP ampcors_source_entries Answers in memory: publishers, negatives and prefixes.
# TYPE ampcors_source_entries gauge
ampcors_source_entries{kind="negatives"} 1
ampcors_source_entries{kind="prefixes"} 0
ampcors_source_entries{kind="publishers"} 1
# HELP ampcors_source_listening 1 if changes of the Source are reported, as far as it knows; 0 if not now. Missing if the Source cannot report changes.
# TYPE ampcors_source_listening gauge
ampcors_source_listening 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ampcors_listed_publishers", "ampcors_source_lookups_total",
		"ampcors_source_entries", "ampcors_source_listening", "ampcors_filter_publishers", "ampcors_filter_built_timestamp_seconds", "ampcors_cache_requests_total"); err != nil {
		t.Error(err)
	}
	// Package metrics writes the same, for programs without a library of Prometheus.
	answer := httptest.NewRecorder()
	metrics.Handler(func() metrics.Counts {
		counts := metrics.Of(m, cache, nil)
		counts.Filter = &metrics.Filter{Publishers: 7, BuiltAt: time.Unix(1_700_000_000, 0)}
		return counts
	}).ServeHTTP(answer, nil)
	text, process, _ := strings.Cut(answer.Body.String(), "# HELP process_start_time_seconds ") // which Prometheus' own library has
	if !strings.Contains(process, "\nprocess_start_time_seconds 1") {
		t.Errorf("%s", process)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]float64)
	hasWaits := false
	for _, family := range families {
		if family.GetName() == "ampcors_source_wait_seconds" {
			hasWaits = true
			if waits := family.GetMetric()[0].GetHistogram(); len(waits.GetBucket()) != len(source.WaitBounds()) || waits.GetSampleCount() != 3 ||
				waits.GetSampleSum() <= 0 {
				t.Errorf("waits: %v; want 3", waits)
			}
		}
		if family.GetName() != "ampcors_decisions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := make(map[string]string)
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts[labels["reason"]+" "+labels["allowed"]] = metric.GetCounter().GetValue()
		}
	}
	if !hasWaits {
		t.Error("there are no waits")
	}
	for labels, want := range map[string]float64{"own_origin true": 2, "unknown_host false": 2, "source_unavailable false": 1, "null_origin false": 0} {
		if got, ok := counts[labels]; !ok || got != want {
			t.Errorf("%s: %v, %t; want %v", labels, got, ok, want)
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Each count has the name and the label that the dashboard uses.
func TestEachCountOfASourceIsExported(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	stats := source.Stats{Lookups: 9, Refreshes: 2, Errors: 3, Coalesced: 4, Busy: 6, CircuitOpen: 7, Stale: 10, Waiting: 11}
	if err := registry.Register(collector.NewFunc(func() metrics.Counts { return metrics.Counts{Source: &stats} })); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "ampcors_source_")
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"lookups_total ok": 6, "lookups_total error": 3, "refreshes_total": 2, "waiting_lookups": 11,
		"avoided_lookups_total coalesced": 4, "avoided_lookups_total stale": 10,
		"rejected_lookups_total busy": 6, "rejected_lookups_total circuit_open": 7,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, %t; want %v", name, value, ok, want)
		}
	}
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
	c := collector.New(newMiddleware(t))
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	labels := make(map[string][]string)
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`).FindStringSubmatch(d.String())
		if m == nil {
			t.Fatal(d)
		}
		labels[m[1]] = append(strings.Split(m[2], ","), "instance")
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
