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
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
)

// A path means something else to Caddy than to the backend: Caddy chooses a handle block by the decoded and
// cleaned path, and passes the path on as it came. So whatever chooses by a path, or by anything else than the
// host, could lead a request past the handler, and what cannot be read from the configuration counts as if it
// did. The one place for the handler is where each request of a site surely comes first.

var (
	// The guard of the first would replace the headers of the second.
	errTwice = errors.New("ampcors: two handlers are to decide on one request; want one ampcors with all publishers")

	errPlace = errors.New("want ampcors outside of handle and route, where it comes first, " +
		"or first in one route with all that follows")
)

// lastChecked is the app whose routes were checked last: the first of its handlers checks all of them.
var lastChecked struct {
	sync.Mutex
	app weak.Pointer[caddyhttp.App]
}

// checkPlace returns an error if a request of a site might not come to its handler, or surely comes to two.
// While the first handler is provisioned, the routes with other handlers of this kind are not provisioned yet,
// and are still JSON.
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
			p := place{way: slices.Clone(server.Listen), groups: new([]grouped)}
			if err := p.walk(server.Routes); err != nil {
				return fmt.Errorf("%w (at %s)", err, strings.Join(p.way, " "))
			}
			if server.Errors != nil && hasHandler(server.Errors.Routes) {
				return fmt.Errorf("ampcors is in handle_errors, which sees only requests that failed; %w", errPlace)
			}
			// Caddy itself fails a request for a host of another connection, before any route. Pages cause
			// that when browsers share connections. (It also fails one with a malformed Host or a method of
			// 33 letters, which no page can send.)
			isStrict := server.StrictSNIHost != nil && *server.StrictSNIHost
			if isStrict && server.Errors != nil && p.isFound && passesOn(server.Errors.Routes) {
				return errors.New("with strict_sni_host, handle_errors gets requests without a decision of ampcors; " +
					"want no reverse_proxy in it, or strict_sni_host insecure_off")
			}
			for name, route := range server.NamedRoutes {
				if hasHandler(caddyhttp.RouteList{*route}) {
					return fmt.Errorf("ampcors is in the named route %q, and it is not known which requests come to that; %w",
						name, errPlace)
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
	groups    *[]grouped // the routes with a group before it, in the whole server: only one of a group runs
	isFound   bool       // an ampcors was found
}

// A grouped route is one of a group.
type grouped struct {
	group string
	keeper
}

// A keeper may answer a request, or pass it on, so that it does not come further.
type keeper struct {
	name   string
	hosts  []string // whose requests; nil for all
	isSite bool     // only its hosts choose it
}

// passing are the handlers that always call the next one. A request that another handler fails goes to
// handle_errors, and further.
var passing = []string{"vars", "map", "headers", "rewrite", "encode", "log_append", "tracing", "request_body"}

// unfailing are the matchers that cannot fail a request. ("file" can, as with try_files {path} =404.)
var unfailing = []string{"path", "path_regexp", "host", "method", "header", "header_regexp", "protocol",
	"query", "vars", "vars_regexp"}

// walk follows the routes. If it returns an error, p.way leads to its place.
func (p *place) walk(routes caddyhttp.RouteList) error {
	for _, route := range routes {
		inside := *p
		inside.way, inside.keepers = slices.Clip(p.way), slices.Clip(p.keepers)
		byHost := inside.enter(route)
		if route.Group != "" {
			for _, other := range *p.groups {
				if other.group == route.Group {
					inside.keepers = append(inside.keepers, other.keeper)
				}
			}
			*p.groups = append(*p.groups, grouped{route.Group, keeper{"another handle", inside.hosts, byHost}})
		}
		for _, h := range handlersOf(route) {
			if err := inside.pass(h); err != nil {
				p.way = inside.way
				return err
			}
		}
		p.isFound = p.isFound || inside.isFound
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
			if !m.isUnfailing() {
				p.keepers = append(p.keepers, keeper{name: "the matcher " + m.name, hosts: p.hosts})
			}
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
		return fmt.Errorf("ampcors is behind a matcher (%s), and other requests would reach the backend without a "+
			"decision; %w",
			p.choice, errPlace)
	case h.name == "ampcors":
		p.isFound = true
		for _, k := range p.keepers {
			if k.keeps(p.hosts) {
				return fmt.Errorf("%s is in front of ampcors, and may answer a request, or pass it on, without a decision; %w",
					k.name, errPlace)
			}
		}
		p.isDecided = !h.isReporting
	case h.name == "subroute" && !h.hasErrors:
		return p.walk(h.routes)
	case h.hasInside && p.isDecided:
		return errTwice
	case h.hasInside:
		return fmt.Errorf("ampcors is in a part of %s, and it is not known which requests come to that; %w", h.name, errPlace)
	case !slices.Contains(passing, h.name) || h.changesRequest:
		p.keepers = append(p.keepers, keeper{name: h.name, hosts: p.hosts})
	}
	return nil
}

// keeps reports whether it may keep a request for one of the hosts. nil are all hosts. Another site, which only
// its hosts choose, may keep the requests for some of them, if it is the more specific one.
func (k keeper) keeps(hosts []string) bool {
	if k.hosts == nil || hosts == nil {
		return !k.isSite
	}
	return slices.ContainsFunc(k.hosts, func(own string) bool {
		return slices.ContainsFunc(hosts, func(host string) bool {
			overlaps, isMoreSpecific := compareHosts(own, host)
			return overlaps && !(k.isSite && isMoreSpecific)
		})
	})
}

// compareHosts reports whether a host may match both patterns, and whether a matches only a part of what b
// matches. In a pattern, * is one label.
func compareHosts(a, b string) (overlaps, isMoreSpecific bool) {
	if strings.ContainsAny(a+b, "{}") {
		return true, false
	}
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	if len(as) != len(bs) {
		return false, false
	}
	isWider := false
	for i := range as {
		switch {
		case strings.EqualFold(as[i], bs[i]):
		case as[i] == "*":
			isWider = true
		case bs[i] == "*":
			isMoreSpecific = true
		default:
			return false, false
		}
	}
	return true, isMoreSpecific && !isWider
}

// A handler of a route, which may be provisioned already.
type handler struct {
	name        string
	routes      caddyhttp.RouteList // of a subroute
	isReporting bool                // it is an ampcors with reportOnly
	hasInside   bool                // an ampcors is somewhere in its configuration

	hasErrors      bool // it is a subroute with error routes
	changesRequest bool // it is one of headers, and changes the request, such as its Host or Origin
}

// handlersOf returns the handlers of a route. A handler that is provisioned has no ampcors inside: the first
// ampcors is the one that is provisioned now.
func handlersOf(route caddyhttp.Route) (all []handler) {
	for _, provisioned := range route.Handlers {
		h := handler{name: "another handler"}
		if module, ok := provisioned.(caddy.Module); ok {
			h.name = module.CaddyModule().ID.Name()
		}
		switch inner := provisioned.(type) {
		case *caddyhttp.Subroute:
			h.routes, h.hasErrors = inner.Routes, inner.Errors != nil
		case *headers.Handler:
			h.changesRequest = inner.Request != nil
		}
		all = append(all, h)
	}
	for _, raw := range route.HandlersRaw {
		var fields struct {
			Name   string `json:"handler"`
			Config struct {
				ReportOnly bool `json:"reportOnly"`
			} `json:"config"`
			Routes  caddyhttp.RouteList `json:"routes"`
			Errors  json.RawMessage     `json:"errors"`
			Request json.RawMessage     `json:"request"`
		}
		var value any
		if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(raw, &value) != nil {
			continue // its own module says what is wrong
		}
		all = append(all, handler{name: fields.Name, routes: fields.Routes,
			isReporting: fields.Config.ReportOnly, hasInside: isInside(value),
			hasErrors: fields.Errors != nil, changesRequest: fields.Name == "headers" && fields.Request != nil})
	}
	return all
}

// hasHandler reports whether routes that are not provisioned have an ampcors somewhere.
func hasHandler(routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		return slices.ContainsFunc(handlersOf(route), func(h handler) bool { return h.hasInside })
	})
}

// passesOn reports whether error routes may lead a request to a backend.
func passesOn(routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		return slices.ContainsFunc(handlersOf(route), func(h handler) bool {
			if h.name == "subroute" && !h.hasErrors {
				return passesOn(h.routes)
			}
			isAnswer := h.name == "static_response" || h.name == "file_server" || h.name == "templates"
			return !isAnswer && !slices.Contains(passing, h.name)
		})
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

// A matcher of a route.
type matcher struct {
	name, text string // its JSON
	inner      [][]matcher
}

// isUnfailing reports whether it cannot fail a request.
func (m matcher) isUnfailing() bool {
	if m.name != "not" {
		return slices.Contains(unfailing, m.name)
	}
	for _, set := range m.inner {
		if slices.ContainsFunc(set, func(m matcher) bool { return !m.isUnfailing() }) {
			return false
		}
	}
	return len(m.inner) > 0
}

// matchersOf returns the sets of matchers of a route, which may be provisioned already.
func matchersOf(route caddyhttp.Route) [][]matcher {
	return append(rawSets(route.MatcherSetsRaw), provisionedSets(route.MatcherSets)...)
}

func rawSets[Set ~map[string]json.RawMessage](raw []Set) (sets [][]matcher) {
	for _, set := range raw {
		var own []matcher
		for _, name := range slices.Sorted(maps.Keys(set)) {
			m := matcher{name: name, text: string(set[name])}
			if name == "not" {
				var inner []map[string]json.RawMessage
				_ = json.Unmarshal(set[name], &inner) // Caddy reports what is wrong
				m.inner = rawSets(inner)
			}
			own = append(own, m)
		}
		sets = append(sets, own)
	}
	return sets
}

func provisionedSets(provisioned []caddyhttp.MatcherSet) (sets [][]matcher) {
	for _, set := range provisioned {
		var own []matcher
		for _, one := range set {
			m := matcher{name: "of another module"}
			if module, ok := one.(caddy.Module); ok {
				m.name = module.CaddyModule().ID.Name()
				text, _ := json.Marshal(one) // it came from JSON
				m.text = string(text)
			}
			if not, ok := one.(*caddyhttp.MatchNot); ok {
				m.inner = provisionedSets(not.MatcherSets)
			}
			own = append(own, m)
		}
		sets = append(sets, own)
	}
	return sets
}
