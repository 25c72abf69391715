package driver

import (
	"slices"
	"sync"
)

// Listeners are the functions that subscribed to changes. The zero value has none. It is safe for concurrent use by
// multiple goroutines.
type Listeners struct {
	mu  sync.Mutex
	all []*func(domains ...string) // not changed in place, so that Call needs no lock while it calls
}

// Notify subscribes changed, until stop is called: it is [source.Database].Notify.
func (l *Listeners) Notify(changed func(domains ...string)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := &changed
	l.all = append(slices.Clone(l.all), own)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(slices.Clone(l.all), func(other *func(...string)) bool { return other == own })
	}
}

// Call calls each subscribed function.
func (l *Listeners) Call(domains ...string) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, changed := range all {
		(*changed)(domains...)
	}
}
