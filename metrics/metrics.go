// Package metrics exports the counts of a Middleware, and of its Source, to Prometheus: in its text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/), without a library of Prometheus. Programs that
// have one use [github.com/ampcors/ampcors/metrics/collector], which exports the same.
//
//	counts := func() metrics.Counts { return metrics.Of(mw, publishers, nil) } // publishers is Config.Source, or nil
//	admin.Handle("GET /metrics", metrics.Handler(counts)) // at an address that only Prometheus reaches
//
// No metric has a label with a publisher or an origin: whoever invents origins could
// otherwise fill the memory of Prometheus. To see those, log them in [ampcors.Config].Observe.
//
// dashboard.json is a dashboard for Grafana, and alerts.yml has alerting rules.
package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

// Counts are what is exported.
type Counts struct {
	Decisions ampcors.Stats
	Source    *source.Stats      // nil if there is none
	Config    *configfile.Status // nil if there is no file
	Filter    *Filter            // nil if there is none
	Build     string             // the version of the program; "" if it is not exported
}

// Of returns the counts of a Middleware, and of its Source and of its file, which may be nil.
func Of(mw *ampcors.Middleware, publishers *source.Source, watcher *configfile.Watcher) Counts {
	c := Counts{Decisions: mw.Stats()}
	if publishers != nil {
		stats := publishers.Stats()
		c.Source = &stats
	}
	if watcher != nil {
		status := watcher.Status()
		c.Config = &status
	}
	return c
}

// A Filter describes a filter of package source/filter: how many publishers it has, and when its list was made.
type Filter struct {
	Publishers int
	BuiltAt    time.Time
}

// A Metric has a name, a text for people, the type "counter", "gauge" or "histogram", and the names of its labels.
type Metric struct {
	Name, Help, Type string
	Labels           []string
}

// The metrics. Those of the Source are missing without one.
var (
	build = metric("build_info", "gauge", "1, with the version of the program.", "version")

	decisions = metric("decisions_total", "counter",
		"Requests by the reason of the decision, and by whether they were allowed.",
		"allowed", "reason")
	ofCache = metric("cache_requests_total", "counter", "Allowed requests of publishers' pages on an AMP Cache.", "cache")
	lastOf  = metric("cache_last_request_timestamp_seconds", "gauge",
		"When a scrape first saw the latest allowed request of a publisher's page on this AMP Cache; 0 if there was none.",
		"cache")
	publishers  = metric("listed_publishers", "gauge", "Publishers and patterns in the configuration in force.")
	fingerprint = metric("list_fingerprint", "gauge", "The same number for the same publishers and patterns in the "+
		"configuration in force, in any order: servers with other numbers have other lists.")
	applied = metric("config_applied_timestamp_seconds", "gauge",
		"When the configuration file was last applied or found to be in force; 0 if never.")
	inForce = metric("config_in_force", "gauge", "1 if the configuration file as it is now is in force, 0 if it is "+
		"wrong or missing, "+
		"or if nothing follows it (Watcher.Run is not running).")

	lookups = metric("source_lookups_total", "counter", "Lookups of the Source, by their result: ok or error.", "result")
	avoided = metric("source_avoided_lookups_total", "counter",
		"Decisions without a lookup of their own: coalesced with another one, or from a stale answer because the lookup "+
			"failed or was rejected.", "by")
	rejected = metric("source_rejected_lookups_total", "counter", "Lookups that were not made, so that requests got "+
		"503, a stale answer or, in place of a refresh, the answer in memory: "+
		"busy (too many lookups) or circuit_open (the Source failed just before).", "by")
	refreshes = metric("source_refreshes_total", "counter",
		"The part of the lookups that was made in the background: before an answer expired, or to find out whether the "+
			"database works again.")
	entries = metric("source_entries", "gauge", "Answers in memory: publishers, negatives and prefixes.", "kind")
	waiting = metric("source_waiting_lookups", "gauge", "Lookups that wait for a slot.")
	waits   = metric("source_wait_seconds", "histogram",
		"Time that decisions waited for a lookup of the Source. All others took about a microsecond.")
	filtered = metric("filter_publishers", "gauge", "Publishers in the filter, if there is one.")
	built    = metric("filter_built_timestamp_seconds", "gauge",
		"When the list of the filter was made; 0 if there is none yet.")
	listening = metric("source_listening", "gauge",
		"1 if changes of the Source are reported, as far as it knows; 0 if not now. Missing if the Source cannot report "+
			"changes.")

	all []*Metric // filled by metric
)

func metric(name, kind, help string, labels ...string) *Metric {
	m := &Metric{"ampcors_" + name, help, kind, labels}
	all = append(all, m)
	return m
}

// Metrics returns all metrics.
func Metrics() []*Metric { return slices.Clone(all) }

// A Sample is a value of a metric. For a histogram, Value is the sum of all values, Count is how many
// values there are, and Buckets has, for each upper bound, how many values were not above it.
type Sample struct {
	*Metric
	LabelValues []string
	Value       float64
	Count       uint64
	Buckets     map[float64]uint64
}

// Samples returns the counts. Samples of one metric follow each other.
func (c Counts) Samples() (samples []Sample) {
	add := func(m *Metric, value float64, labels ...string) {
		samples = append(samples, Sample{Metric: m, LabelValues: labels, Value: value})
	}
	if c.Build != "" {
		add(build, 1, c.Build)
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Decisions.Requests)) {
		add(decisions, float64(c.Decisions.Requests[reason]), strconv.FormatBool(reason.Allowed()), reason.String())
	}
	caches := slices.Sorted(maps.Keys(c.Decisions.Caches))
	for _, id := range caches {
		add(ofCache, float64(c.Decisions.Caches[id].Requests), id)
	}
	for _, id := range caches {
		add(lastOf, timestamp(c.Decisions.Caches[id].Last), id)
	}
	add(publishers, float64(c.Decisions.Publishers))
	add(fingerprint, float64(c.Decisions.Fingerprint)) // below 2^48, so that it is exact
	if c.Filter != nil {
		add(filtered, float64(c.Filter.Publishers))
		add(built, timestamp(c.Filter.BuiltAt))
	}
	if c.Config != nil {
		add(applied, timestamp(c.Config.AppliedAt))
		add(inForce, oneIf(c.Config.Err == nil))
	}
	s := c.Source
	if s == nil {
		return samples
	}
	add(lookups, float64(s.Lookups-s.Errors), "ok")
	add(lookups, float64(s.Errors), "error")
	add(avoided, float64(s.Coalesced), "coalesced")
	add(avoided, float64(s.Stale), "stale")
	add(rejected, float64(s.Busy), "busy")
	add(rejected, float64(s.CircuitOpen), "circuit_open")
	add(refreshes, float64(s.Refreshes))
	add(entries, float64(s.Publishers), "publishers")
	add(entries, float64(s.Negatives), "negatives")
	add(entries, float64(s.Prefixes), "prefixes")
	add(waiting, float64(s.Waiting))
	within := make(map[float64]uint64)
	for _, w := range s.WaitsWithin {
		within[w.Time.Seconds()] = w.Waits
	}
	samples = append(samples, Sample{Metric: waits, Value: s.WaitTime.Seconds(), Count: s.Waits, Buckets: within})
	if s.Notifies { // otherwise an alert would have to know that the Source never reports changes
		add(listening, oneIf(s.Listening))
	}
	return samples
}

// timestamp returns the Unix time in seconds, or 0 for the zero time.
func timestamp(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Unix())
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// started is nearly when the process started: package collector leaves it to Prometheus' own library.
var started = time.Now()

// Handler answers with what counts returns, in the text format, and with process_start_time_seconds. counts must be
// safe for concurrent use by multiple goroutines. Only Prometheus should reach it.
func Handler(counts func() Counts) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		var last *Metric
		for _, s := range counts().Samples() {
			if s.Metric != last {
				fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", s.Name, s.Help, s.Name, s.Type)
				last = s.Metric
			}
			if s.Type == "histogram" {
				for _, bound := range slices.Sorted(maps.Keys(s.Buckets)) {
					fmt.Fprintf(&b, "%s_bucket{le=\"%v\"} %d\n", s.Name, bound, s.Buckets[bound])
				}
				fmt.Fprintf(&b, "%[1]s_bucket{le=\"+Inf\"} %[2]d\n%[1]s_sum %[3]v\n%[1]s_count %[2]d\n", s.Name, s.Count, s.Value)
				continue
			}
			var labels []string
			for i, value := range s.LabelValues {
				labels = append(labels, s.Labels[i]+`="`+escape.Replace(value)+`"`)
			}
			b.WriteString(s.Name)
			if labels != nil {
				b.WriteString("{" + strings.Join(labels, ",") + "}")
			}
			fmt.Fprintf(&b, " %v\n", s.Value)
		}
		fmt.Fprintf(&b, "# HELP %[1]s When the program started, in seconds since 1970.\n# TYPE %[1]s gauge\n%[1]s %[2]d\n",
			"process_start_time_seconds", started.Unix())
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = b.WriteTo(w) // if it fails, the client is gone
	})
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
