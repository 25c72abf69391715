package caddy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

var (
	// The guard of the first would replace the headers of the second.
	errTwice = errors.New("ampcors: two handlers are to decide on one request; want one ampcors with all publishers")

	errBehind = errors.New("ampcors is behind a handler that answers each request, so that it decides on none; want it in front")
)

// lastChecked is the app whose routes were checked last: the first of its handlers checks all of them.
var lastChecked struct {
	sync.Mutex
	app weak.Pointer[caddyhttp.App]
}

// checkOrder returns an error if requests surely come to two handlers, or surely to another one that
// answers them before ampcors could. What depends on matchers is not known here. While the first
// handler is provisioned, the routes with other handlers of this kind are not provisioned yet, and are
// still JSON.
func checkOrder(ctx caddy.Context) error {
	for _, module := range ctx.Modules() {
		app, ok := module.(*caddyhttp.App)
		if !ok {
			continue
		}
		lastChecked.Lock()
		isKnown := lastChecked.app == weak.Make(app)
		lastChecked.app = weak.Make(app)
		lastChecked.Unlock()
		if isKnown {
			return nil
		}
		for _, server := range app.Servers {
			o := order{way: slices.Clone(server.Listen)}
			if err := o.walk(server.Routes); err != nil {
				return fmt.Errorf("%w (at %s)", err, strings.Join(o.way, " "))
			}
		}
	}
	return nil
}

// An order is what surely happened to a request before a route.
type order struct {
	isDecided, isAnswered bool
	way                   []string // the listeners, and the matchers on the way to the current route
}

// answering are the handlers that call no other one.
var answering = []string{"reverse_proxy", "static_response", "error"}

// walk follows the routes. If it returns an error, o.way leads to its place.
func (o *order) walk(routes caddyhttp.RouteList) error {
	for _, route := range routes {
		inside := *o
		inside.way = append(slices.Clip(o.way), matchersOf(route)...)
		for _, raw := range route.HandlersRaw {
			var handler struct {
				Name   string `json:"handler"`
				Config struct {
					ReportOnly bool `json:"reportOnly"`
				} `json:"config"`
				Routes caddyhttp.RouteList `json:"routes"`
			}
			if json.Unmarshal(raw, &handler) != nil {
				continue // its own module says what is wrong
			}
			var err error
			switch {
			case handler.Name == "ampcors" && inside.isAnswered:
				err = errBehind
			case handler.Name == "ampcors" && inside.isDecided:
				err = errTwice
			case handler.Name == "ampcors":
				inside.isDecided = !handler.Config.ReportOnly
			case handler.Name == "subroute":
				err = inside.walk(handler.Routes)
			case slices.Contains(answering, handler.Name):
				inside.isAnswered = true
			}
			if err != nil {
				o.way = inside.way
				return err
			}
		}
		if len(route.MatcherSetsRaw)+len(route.MatcherSets) > 0 || route.Group != "" { // other requests, or another route of the group
			continue
		}
		if o.isDecided, o.isAnswered = inside.isDecided, inside.isAnswered; route.Terminal {
			break
		}
	}
	return nil
}

// matchersOf returns the matchers of a route, which may be provisioned already, as text.
func matchersOf(route caddyhttp.Route) (texts []string) {
	for _, set := range route.MatcherSetsRaw {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			texts = append(texts, name+" "+string(set[name]))
		}
	}
	for _, set := range route.MatcherSets {
		for _, matcher := range set {
			if module, ok := matcher.(caddy.Module); ok {
				text, _ := json.Marshal(matcher) // it came from JSON
				texts = append(texts, module.CaddyModule().ID.Name()+" "+string(text))
			}
		}
	}
	return texts
}
