// Package collector has the counts of package metrics as a prometheus.Collector.
//
//	prometheus.MustRegister(collector.New(mw, publishers)) // publishers is Config.Source, or nil
//	admin.Handle("GET /metrics", promhttp.Handler())       // at an address that only Prometheus reaches
//
// For OpenTelemetry, go.opentelemetry.io/contrib/bridges/prometheus reads the same Collector.
package collector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/source"
)

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

	counts func() metrics.Counts
}

// New returns a Collector for a Middleware and its Config.Source, which may be nil. If there are
// several Middlewares, register each with prometheus.WrapRegistererWith and a label that tells
// them apart. Give a Source that they share to one of them only.
func New(mw *ampcors.Middleware, publishers *source.Source) *Collector {
	return NewFunc(func() metrics.Counts { return metrics.Of(mw, publishers, nil) })
}

// NewFunc returns a Collector for what counts returns, such as the sums for several
// Middlewares. counts must be safe for concurrent use by multiple goroutines.
func NewFunc(counts func() metrics.Counts) *Collector { return &Collector{counts: counts} }

var descs = make(map[*metrics.Metric]*prometheus.Desc)

func init() {
	for _, m := range metrics.Metrics() {
		descs[m] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(found chan<- *prometheus.Desc) {
	for _, desc := range descs {
		found <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(found chan<- prometheus.Metric) {
	counts := c.counts()
	if c.Watcher != nil {
		status := c.Watcher.Status()
		counts.Config = &status
	}
	if c.Filter != nil {
		counts.Filter = new(metrics.Filter)
		counts.Filter.Publishers, counts.Filter.BuiltAt = c.Filter()
	}
	for _, s := range counts.Samples() {
		switch desc := descs[s.Metric]; s.Type {
		case "histogram":
			found <- prometheus.MustNewConstHistogram(desc, s.Count, s.Value, s.Buckets)
		case "counter":
			found <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value, s.LabelValues...)
		default:
			found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, s.LabelValues...)
		}
	}
}
