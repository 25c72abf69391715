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

// errTwice is the error about two handlers that decide on one request. The guard of the first would replace the headers of the second.
var errTwice = errors.New("ampcors: two handlers are to decide on one request; want one ampcors with all publishers")

// lastChecked is the app whose routes were checked last: the first of its handlers checks all of them.
var lastChecked struct {
	sync.Mutex
	app weak.Pointer[caddyhttp.App]
}

// checkTwice returns errTwice if requests surely come to two handlers. What depends on matchers is an error of the requests that come to both.
// While the first handler is provisioned, the routes that have others are still in JSON.
func checkTwice(ctx caddy.Context) error {
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
			if _, at, isTwice := decideTwice(server.Routes, false); isTwice {
				return fmt.Errorf("%w (at %s)", errTwice, strings.Join(append(server.Listen, at...), " "))
			}
		}
	}
	return nil
}

// decideTwice reports whether a handler surely decides on each request that leaves the routes, and whether one surely comes to a second handler,
// with what the matchers on the way to that say.
func decideTwice(routes caddyhttp.RouteList, isDecided bool) (decides bool, at []string, twice bool) {
	for _, route := range routes {
		for _, set := range route.MatcherSetsRaw {
			for _, name := range slices.Sorted(maps.Keys(set)) {
				at = append(at, name+" "+string(set[name]))
			}
		}
		inside := isDecided
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
			switch handler.Name {
			case "ampcors":
				if inside {
					return true, at, true
				}
				inside = !handler.Config.ReportOnly
			case "subroute":
				var inner []string
				if inside, inner, twice = decideTwice(handler.Routes, inside); twice {
					return true, append(at, inner...), true
				}
			}
		}
		at = nil
		if len(route.MatcherSetsRaw) > 0 || route.Group != "" { // other requests, or another route of the group
			continue
		}
		if isDecided = inside; route.Terminal {
			break
		}
	}
	return isDecided, nil, false
}
