package caddy

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/metrics/collector"
	"github.com/ampcors/ampcors/source"
)

// A group is the handlers of one configuration that have the same name. Their counts are
// exported as one sum.
type group struct {
	registry *prometheus.Registry // of the configuration
	name     string
}

var (
	groupsMu sync.Mutex
	groups   = make(map[group]map[*Handler]struct{})
)

// measure adds h to the metrics of its configuration, until stop is called.
func measure(ctx caddy.Context, h *Handler) (stop func(), err error) {
	g := group{ctx.GetMetricsRegistry(), h.Name}
	groupsMu.Lock()
	defer groupsMu.Unlock()
	if groups[g] == nil {
		registry := prometheus.WrapRegistererWith(prometheus.Labels{"handler": g.name}, g.registry)
		if err := registry.Register(collector.NewFunc(g.counts)); err != nil {
			return nil, err
		}
		groups[g] = make(map[*Handler]struct{})
	}
	groups[g][h] = struct{}{}
	return func() {
		groupsMu.Lock()
		defer groupsMu.Unlock()
		if delete(groups[g], h); len(groups[g]) == 0 {
			delete(groups, g) // the registry ends with the configuration
		}
	}, nil
}

// counts returns the sums of the handlers. A source that several of them share is counted once.
func (g group) counts() metrics.Counts {
	groupsMu.Lock()
	handlers := maps.Clone(groups[g])
	groupsMu.Unlock()
	sum := metrics.Counts{Decisions: ampcors.Stats{Requests: make(map[ampcors.Reason]uint64),
		Caches: make(map[string]ampcors.CacheStats)}}
	sources := make(map[*source.Source]struct{})
	for h := range handlers {
		stats := h.mw.Stats()
		for reason, n := range stats.Requests {
			sum.Decisions.Requests[reason] += n
		}
		for id, c := range stats.Caches {
			before := sum.Decisions.Caches[id]
			if before.Requests += c.Requests; c.Last.After(before.Last) {
				before.Last = c.Last
			}
			sum.Decisions.Caches[id] = before
		}
		sum.Decisions.Publishers += stats.Publishers
		if h.source != nil {
			sources[h.source.Source] = struct{}{}
		}
		status := h.watcher.Status()
		if status.Err == nil && status.AppliedAt.IsZero() {
			continue // it has no list, or none was read yet
		}
		// One status for all: one with an error if there is any, or else the oldest.
		if sum.Config == nil || status.Err != nil || sum.Config.Err == nil && status.AppliedAt.Before(sum.Config.AppliedAt) {
			sum.Config = &status
		}
	}
	if len(sources) > 0 {
		sum.Source = sumOf(slices.Collect(maps.Keys(sources)))
	}
	return sum
}

// sumOf returns the sums of the Sources' counts. Notifies and Listening are true if they are for each.
func sumOf(sources []*source.Source) *source.Stats {
	sum := source.Stats{Notifies: true, Listening: true}
	to := reflect.ValueOf(&sum).Elem()
	for _, s := range sources {
		of := s.Stats()
		for i, within := range of.WaitsWithin {
			if i == len(sum.WaitsWithin) {
				sum.WaitsWithin = append(sum.WaitsWithin, source.WaitsWithin{Time: within.Time})
			}
			sum.WaitsWithin[i].Waits += within.Waits
		}
		stats := reflect.ValueOf(of)
		for i := range stats.NumField() {
			switch field := to.Field(i); field.Kind() {
			case reflect.Slice: // WaitsWithin
			case reflect.Uint64:
				field.SetUint(field.Uint() + stats.Field(i).Uint())
			case reflect.Int, reflect.Int64:
				field.SetInt(field.Int() + stats.Field(i).Int())
			default:
				field.SetBool(field.Bool() && stats.Field(i).Bool())
			}
		}
	}
	return &sum
}
