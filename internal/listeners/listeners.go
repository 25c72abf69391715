// Package listeners keeps the functions that subscribed to the changes of a Source.
package listeners

import (
	"slices"
	"sync"
)

// A List is a list of subscribed functions. Its zero value is empty. It is safe for
// concurrent use by multiple goroutines.
type List struct {
	mu  sync.Mutex
	all []*func(domains ...string) // not changed in place, so that Call needs no lock while it calls
}

// Notify subscribes changed, until stop is called.
func (l *List) Notify(changed func(domains ...string)) (stop func()) {
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
func (l *List) Call(domains ...string) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, changed := range all {
		(*changed)(domains...)
	}
}
