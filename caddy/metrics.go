package caddy

import (
	"maps"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/metrics"
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
		if err := registry.Register(metrics.NewFunc(g.counts)); err != nil {
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
	sum := metrics.Counts{Decisions: make(ampcors.Stats)}
	sources := make(map[*pooledSource]struct{})
	for h := range handlers {
		for reason, n := range h.mw.Stats() {
			sum.Decisions[reason] += n
		}
		sum.Publishers += h.mw.NumPublishers()
		if h.source != nil {
			sources[h.source] = struct{}{}
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
	for s := range sources {
		sum.Source = sum.Source.Add(s.stats())
	}
	return sum
}
