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

// A path means something else to Caddy than to the backend: Caddy chooses a handle block by the decoded and cleaned path, and
// passes the path on as it came. So whatever chooses by a path, or by anything else than the host, could lead a request past the
// handler, and what cannot be read from the configuration counts as if it did. The one place for the handler is where each request
// of a site surely comes first.

var (
	// The guard of the first would replace the headers of the second.
	errTwice = errors.New("ampcors: two handlers are to decide on one request; want one ampcors with all publishers")

	errPlace = errors.New("want ampcors first in its site, outside of handle, with the blocks that choose by path behind it")
)

// lastChecked is the app whose routes were checked last: the first of its handlers checks all of them.
var lastChecked struct {
	sync.Mutex
	app weak.Pointer[caddyhttp.App]
}

// checkPlace returns an error if a request of a site might not come to its handler, or surely comes to two. While the first
// handler is provisioned, the routes with other handlers of this kind are not provisioned yet, and are still JSON.
func checkPlace(ctx caddy.Context) error {
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
			p := place{way: slices.Clone(server.Listen)}
			if err := p.walk(server.Routes); err != nil {
				return fmt.Errorf("%w (at %s)", err, strings.Join(p.way, " "))
			}
			if server.Errors != nil && hasHandler(server.Errors.Routes) {
				return fmt.Errorf("ampcors is in handle_errors, which sees only requests that failed; %w", errPlace)
			}
			for name, route := range server.NamedRoutes {
				if hasHandler(caddyhttp.RouteList{*route}) {
					return fmt.Errorf("ampcors is in the named route %q, and it is not known which requests come to that; %w", name, errPlace)
				}
			}
		}
	}
	return nil
}

// A place is a place in the routes, and what happened to a request before it.
type place struct {
	way       []string // the listeners, and the matchers on the way
	choice    string   // a matcher on the way that is not one of hosts
	hosts     []string // those on the way; nil for all
	isDecided bool
	keepers   []keeper
}

// A keeper may answer a request, or pass it on, so that it does not come further.
type keeper struct {
	name   string
	hosts  []string // whose requests; nil for all
	isSite bool     // only its hosts choose it
}

// passing are the handlers that always call the next one.
var passing = []string{"vars", "map", "headers", "rewrite", "encode", "log_append", "tracing", "request_body"}

// walk follows the routes. If it returns an error, p.way leads to its place.
func (p *place) walk(routes caddyhttp.RouteList) error {
	for i, route := range routes {
		inside := place{way: slices.Clip(p.way), choice: p.choice, hosts: p.hosts, isDecided: p.isDecided, keepers: slices.Clip(p.keepers)}
		byHost := inside.enter(route)
		for _, sibling := range routes[:i] {
			if route.Group != "" && sibling.Group == route.Group { // only one of a group runs
				other := place{hosts: p.hosts}
				isSite := other.enter(sibling)
				inside.keepers = append(inside.keepers, keeper{"another handle", other.hosts, isSite})
			}
		}
		for _, h := range handlersOf(route) {
			if err := inside.pass(h); err != nil {
				p.way = inside.way
				return err
			}
		}
		for _, k := range inside.keepers[len(p.keepers):] {
			k.isSite = k.isSite || byHost
			p.keepers = append(p.keepers, k)
		}
		if len(matchersOf(route)) == 0 && route.Group == "" {
			if p.isDecided = inside.isDecided; route.Terminal {
				break
			}
		}
	}
	return nil
}

// enter goes into a route, and reports whether only hosts choose it.
func (p *place) enter(route caddyhttp.Route) (byHost bool) {
	sets := matchersOf(route)
	byHost = len(sets) > 0
	var hosts []string
	for _, set := range sets { // any of them is enough
		var own []string
		for _, m := range set {
			p.way = append(p.way, m.name+" "+m.text)
			if m.name == "host" {
				_ = json.Unmarshal([]byte(m.text), &own) // Caddy reports what is wrong
			} else {
				byHost, p.choice = false, m.name
			}
		}
		if own == nil {
			return false
		}
		hosts = append(hosts, own...)
	}
	if byHost || hosts != nil {
		p.hosts = hosts
	}
	return byHost
}

// pass goes through a handler.
func (p *place) pass(h handler) error {
	switch {
	case h.name == "ampcors" && p.isDecided:
		return errTwice
	case h.name == "ampcors" && p.choice != "":
		return fmt.Errorf("ampcors is behind a matcher (%s), and other requests would reach the backend without a decision; %w", p.choice, errPlace)
	case h.name == "ampcors":
		for _, k := range p.keepers {
			if k.keeps(p.hosts) {
				return fmt.Errorf("%s is in front of ampcors, and may answer a request, or pass it on, without a decision; %w", k.name, errPlace)
			}
		}
		p.isDecided = !h.isReporting
	case h.name == "subroute":
		return p.walk(h.routes)
	case h.hasInside && p.isDecided:
		return errTwice
	case h.hasInside:
		return fmt.Errorf("ampcors is in a part of %s, and it is not known which requests come to that; %w", h.name, errPlace)
	case !slices.Contains(passing, h.name):
		p.keepers = append(p.keepers, keeper{name: h.name, hosts: p.hosts})
	}
	return nil
}

// keeps reports whether it may keep a request for one of the hosts. nil are all hosts. A site that is chosen by its host keeps only
// requests for that: Caddy takes the most specific one.
func (k keeper) keeps(hosts []string) bool {
	isVague := func(hosts []string) bool {
		return hosts == nil || slices.ContainsFunc(hosts, func(host string) bool { return strings.ContainsAny(host, "*{") })
	}
	if !k.isSite && (isVague(k.hosts) || isVague(hosts)) {
		return true
	}
	return slices.ContainsFunc(k.hosts, func(host string) bool {
		return slices.ContainsFunc(hosts, func(other string) bool { return strings.EqualFold(host, other) })
	})
}

// A handler of a route, which may be provisioned already.
type handler struct {
	name        string
	routes      caddyhttp.RouteList // of a subroute
	isReporting bool                // it is an ampcors with reportOnly
	hasInside   bool                // an ampcors is somewhere in its configuration
}

// handlersOf returns the handlers of a route. A handler that is provisioned has no ampcors inside: the first ampcors is the one that
// is provisioned now.
func handlersOf(route caddyhttp.Route) (all []handler) {
	for _, provisioned := range route.Handlers {
		h := handler{name: "another handler"}
		if module, ok := provisioned.(caddy.Module); ok {
			h.name = module.CaddyModule().ID.Name()
		}
		if inner, ok := provisioned.(*caddyhttp.Subroute); ok {
			h.routes = inner.Routes
		}
		all = append(all, h)
	}
	for _, raw := range route.HandlersRaw {
		var fields struct {
			Name   string `json:"handler"`
			Config struct {
				ReportOnly bool `json:"reportOnly"`
			} `json:"config"`
			Routes caddyhttp.RouteList `json:"routes"`
		}
		var value any
		if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(raw, &value) != nil {
			continue // its own module says what is wrong
		}
		all = append(all, handler{fields.Name, fields.Routes, fields.Config.ReportOnly, isInside(value)})
	}
	return all
}

// hasHandler reports whether routes that are not provisioned have an ampcors somewhere.
func hasHandler(routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		return slices.ContainsFunc(handlersOf(route), func(h handler) bool { return h.hasInside })
	})
}

// isInside reports whether a value of JSON has an ampcors somewhere.
func isInside(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, isInside)
	case map[string]any:
		return v["handler"] == "ampcors" || slices.ContainsFunc(slices.Collect(maps.Values(v)), isInside)
	}
	return false
}

// A matcher of a route: its name, and its JSON.
type matcher struct{ name, text string }

// matchersOf returns the sets of matchers of a route, which may be provisioned already.
func matchersOf(route caddyhttp.Route) (sets [][]matcher) {
	for _, set := range route.MatcherSetsRaw {
		var own []matcher
		for _, name := range slices.Sorted(maps.Keys(set)) {
			own = append(own, matcher{name, string(set[name])})
		}
		sets = append(sets, own)
	}
	for _, set := range route.MatcherSets {
		var own []matcher
		for _, m := range set {
			name, text := "another matcher", []byte(nil)
			if module, ok := m.(caddy.Module); ok {
				name = module.CaddyModule().ID.Name()
				text, _ = json.Marshal(m) // it came from JSON
			}
			own = append(own, matcher{name, string(text)})
		}
		sets = append(sets, own)
	}
	return sets
}
