// Package metrics exports the counts of a Middleware, and of its Source, to Prometheus.
//
//	prometheus.MustRegister(metrics.New(mw, publishers)) // publishers is Config.Source, or nil
//	admin.Handle("GET /metrics", promhttp.Handler())     // at an address that only Prometheus reaches
//
// No metric has a label with a publisher or an origin: whoever invents origins could
// otherwise fill the memory of Prometheus. To see those, log them in [ampcors.Config].Observe.
//
// dashboard.json is a dashboard for Grafana, and alerts.yml has alerting rules. For
// OpenTelemetry, go.opentelemetry.io/contrib/bridges/prometheus reads the same Collector.
package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

// The metrics. Those of the Source are missing without one.
var (
	decisions  = desc("decisions_total", "Requests by the reason of the decision, and by whether they were allowed.", "reason", "allowed")
	ofCache    = desc("cache_requests_total", "Allowed requests of publishers' pages on an AMP Cache.", "cache")
	lastOf     = desc("cache_last_request_timestamp_seconds", "When a scrape first saw the latest such request; 0 if there was none.", "cache")
	publishers = desc("listed_publishers", "Publishers and patterns in the configuration in force.")
	applied    = desc("config_applied_timestamp_seconds", "When the configuration file was last applied or found to be in force; 0 if never.")
	inForce    = desc("config_in_force", "1 if the configuration file as it is now is in force, 0 if it is wrong or missing.")

	lookups  = desc("source_lookups_total", "Lookups of the Source, by their result: ok or error.", "result")
	avoided  = desc("source_avoided_lookups_total", "Decisions without a lookup of their own: coalesced with another one, or from a stale answer because the Source failed.", "by")
	rejected = desc("source_rejected_lookups_total", "Lookups that were not made, so that requests got 503 or a stale answer: busy (too many lookups), rateLimited, or circuitOpen (the Source failed just before).", "by")

	refreshes = desc("source_refreshes_total", "The part of the lookups that was made in the background before an answer expired.")
	entries   = desc("source_entries", "Answers in memory: publishers, negatives and prefixes.", "kind")
	waiting   = desc("source_waiting_lookups", "Lookups that wait for a slot.")
	waits     = desc("source_wait_seconds", "Time that decisions waited for a lookup of the Source. All others took about a microsecond.")
	filtered  = desc("filter_publishers", "Publishers in the filter, if there is one.")
	built     = desc("filter_built_timestamp_seconds", "When the list of the filter was made; 0 if there is none yet.")
	listening = desc("source_listening", "1 if changes of the Source are reported, as far as it knows; 0 if not now. Missing if the Source cannot report changes.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ampcors_"+name, help, labels, nil)
}

// A Collector is a prometheus.Collector. It is safe for concurrent use by multiple
// goroutines.
type Collector struct {
	// If Watcher is set before the Collector is registered, the Collector also exports whether
	// the Watcher's file is in force.
	Watcher *configfile.Watcher

	// If Filter is set before the Collector is registered, the Collector also exports what it
	// returns: how many publishers a filter has, and when its list was made.
	//
	//	c.Filter = func() (int, time.Time) { s := filter.Stats(); return s.Publishers, s.BuiltAt }
	Filter func() (publishers int, builtAt time.Time)

	counts func() Counts
}

// Counts are what a [Collector] exports.
type Counts struct {
	Decisions ampcors.Stats
	Source    *source.Stats      // nil if there is none
	Config    *configfile.Status // nil if there is no file
}

// New returns a Collector for a Middleware and its Config.Source, which may be nil. If there are
// several Middlewares, register each with prometheus.WrapRegistererWith and a label that tells
// them apart. Give a Source that they share to one of them only.
func New(mw *ampcors.Middleware, publishers *source.Source) *Collector {
	return NewFunc(func() Counts {
		counts := Counts{Decisions: mw.Stats()}
		if publishers != nil {
			stats := publishers.Stats()
			counts.Source = &stats
		}
		return counts
	})
}

// NewFunc returns a Collector for what counts returns, such as the sums for several
// Middlewares. counts must be safe for concurrent use by multiple goroutines.
func NewFunc(counts func() Counts) *Collector { return &Collector{counts: counts} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisions, ofCache, lastOf, publishers, applied, inForce, lookups, avoided, rejected,
		refreshes, entries, waiting, waits, filtered, built, listening} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counts := c.counts()
	if c.Watcher != nil {
		status := c.Watcher.Status()
		counts.Config = &status
	}
	for _, reason := range slices.Sorted(maps.Keys(counts.Decisions.Requests)) {
		allowed := "false"
		if reason.Allowed() {
			allowed = "true"
		}
		count(decisions, counts.Decisions.Requests[reason], reason.String(), allowed)
	}
	for id, cache := range counts.Decisions.Caches {
		count(ofCache, cache.Requests, id)
		gauge(lastOf, timestamp(cache.Last), id)
	}
	gauge(publishers, counts.Decisions.Publishers)
	if c.Filter != nil {
		names, at := c.Filter()
		gauge(filtered, names)
		gauge(built, timestamp(at))
	}
	if status := counts.Config; status != nil {
		ok := 1
		if status.Err != nil {
			ok = 0
		}
		gauge(applied, timestamp(status.AppliedAt))
		gauge(inForce, ok)
	}

	s := counts.Source
	if s == nil {
		return
	}
	count(lookups, s.Lookups-s.Errors, "ok")
	count(lookups, s.Errors, "error")
	count(avoided, s.Coalesced, "coalesced")
	count(avoided, s.Stale, "stale")
	count(rejected, s.Busy, "busy")
	count(rejected, s.RateLimited, "rateLimited")
	count(rejected, s.CircuitOpen, "circuitOpen")
	count(refreshes, s.Refreshes)
	gauge(entries, s.Publishers, "publishers")
	gauge(entries, s.Negatives, "negatives")
	gauge(entries, s.Prefixes, "prefixes")
	gauge(waiting, s.Waiting)
	metrics <- prometheus.MustNewConstSummary(waits, s.Waits, s.WaitTime.Seconds(), nil)
	switch {
	case !s.Notifies: // so an alert need not know that the Source never reports changes
	case s.Listening:
		gauge(listening, 1)
	default:
		gauge(listening, 0)
	}
}

// timestamp returns the Unix time in seconds, or 0 for the zero time.
func timestamp(at time.Time) int {
	if at.IsZero() {
		return 0
	}
	return int(at.Unix())
}
