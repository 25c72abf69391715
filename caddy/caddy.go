// Package caddy is ampcors as a module of the Caddy server, for backends that are not in Go.
// The handler http.handlers.ampcors answers CORS for the publishers of its configuration, and
// denies what the configuration does not allow, before the request reaches the backend.
//
// The README beside this package shows how to start.
package caddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/guard"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("ampcors", parseHandler)
	// Before redirects and authentication, because preflights carry no credentials, and
	// browsers follow no redirect of a preflight.
	httpcaddyfile.RegisterDirectiveOrder("ampcors", httpcaddyfile.Before, "redir")
}

// Handler answers CORS requests of the publishers that it is configured with: from AMP Caches,
// from their own origins, and from AMP for Email. It denies other publishers' requests, and
// answers preflights by itself.
//
// CORS headers that the handlers behind it set are replaced, so a response never has two
// Access-Control-Allow-Origin.
//
// A denied request is an error with status 403, or 503 if the source cannot answer, for the
// error routes. These run outside of this handler, so CORS headers that they set are not
// replaced.
//
// It sets these placeholders:
//
//	{http.ampcors.publisher}  the publisher whose page calls, such as www.example.com; empty if there is none
//	{http.ampcors.reason}     the reason of the decision, such as cache_origin
type Handler struct {
	// The configuration, in the JSON that package configfile reads from a file: publishers,
	// publishersFile, credentialed and so on. A relative publishersFile is in Caddy's working
	// directory. The list is read again when it changes.
	Config json.RawMessage `json:"config,omitempty"`

	// Where further publishers are looked up. Handlers with the same source share its
	// connections and, with the same lookup and caches, what it answered. Both survive a
	// reload.
	SourceRaw json.RawMessage `json:"source,omitempty" caddy:"namespace=http.handlers.ampcors.sources inline_key=module"`

	// The request header that tells the backend the publisher whose page calls, such as
	// "Ampcors-Publisher". What the client sends in it is removed. If empty, there is none.
	PublisherHeader string `json:"publisher_header,omitempty"`

	// The value of the metrics' label "handler". Handlers with the same name are counted
	// together.
	Name string `json:"name,omitempty"`

	mw         *ampcors.Middleware
	reportOnly bool
	source     *pooledSource // nil without a source
	watcher    *configfile.Watcher
	stop       func() // ends what runs in the background
	unmeasure  func()
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner. Errors of the configuration are those of package
// configfile.
func (h *Handler) Provision(ctx caddy.Context) error {
	if h.PublisherHeader != "" && !httpguts.ValidHeaderFieldName(h.PublisherHeader) {
		return fmt.Errorf("publisher_header %q is not the name of a header; want one such as Ampcors-Publisher", h.PublisherHeader)
	}
	h.PublisherHeader = http.CanonicalHeaderKey(h.PublisherHeader)
	if h.SourceRaw != nil {
		module, err := ctx.LoadModule(h, "SourceRaw")
		if err != nil {
			return err
		}
		source, ok := module.(Source)
		if !ok {
			return fmt.Errorf("%T is no source of publishers", module)
		}
		if h.source, err = openSource(source); err != nil {
			return err
		}
	}
	inline := h.inline()
	set := func(cfg *ampcors.Config) {
		h.reportOnly = cfg.ReportOnly
		// ServeHTTP returns the error.
		cfg.Denied = func(http.ResponseWriter, *http.Request, ampcors.Decision) {}
		if h.source != nil {
			cfg.Source = h.source.get()
		}
	}
	connected := h.source == nil || h.source.isConnected()
	mw, err := inline.New(set)
	if err != nil {
		return err
	}
	h.mw = mw

	reload := make(chan os.Signal)
	watcher := inline.NewWatcher(mw, configfile.WatcherConfig{Logger: ctx.Slogger(), Reload: reload, Set: func(cfg *ampcors.Config) {
		if h.source != nil {
			cfg.Source = h.source.get()
		}
	}})
	running, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = watcher.Run(running) }) // it ends with running
	if !connected {
		background.Go(func() {
			select {
			case <-running.Done():
				return
			case <-h.source.connected:
			}
			select {
			case <-running.Done():
			case reload <- os.Interrupt: // any signal makes the Watcher apply the configuration again
			}
		})
	}
	h.stop = func() {
		cancel()
		background.Wait()
	}
	h.watcher = watcher
	h.unmeasure, err = measure(ctx, h)
	return err
}

// inline returns the configuration for package configfile.
func (h *Handler) inline() configfile.Inline {
	in := configfile.Inline{Name: "ampcors", Dir: ".", JSON: h.Config}
	if len(in.JSON) == 0 {
		in.JSON = []byte("{}")
	}
	return in
}

// closeAfter is how long a handler still decides after its configuration was replaced. Caddy
// cleans up while requests that it has accepted are still on their way to the handler.
var closeAfter = 10 * time.Second

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.unmeasure != nil {
		h.unmeasure()
	}
	if h.stop != nil {
		h.stop()
	}
	mw, source := h.mw, h.source
	time.AfterFunc(closeAfter, func() {
		if mw != nil {
			_ = mw.Close()
		}
		if source != nil {
			source.release()
		}
	})
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	d, proceed := h.mw.HandleDecision(w, r)
	h.tell(r, d)
	switch {
	case !proceed && d.Allowed: // a preflight
		return nil
	case !proceed:
		return caddyhttp.Error(d.StatusCode(), errors.New("ampcors: "+d.Reason.String()))
	case h.reportOnly: // the handlers behind it protect the backend
		return next.ServeHTTP(w, r)
	}
	var err error
	guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
	return err
}

// tell tells the log, the other handlers and the backend of the decision.
func (h *Handler) tell(r *http.Request, d ampcors.Decision) {
	known := &decision{d}
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("ampcors", known))
	}
	if placeholders, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		placeholders.Map(known.placeholder)
	}
	if h.PublisherHeader == "" {
		return
	}
	// Caddy itself drops names with an underscore in place of a hyphen.
	r.Header.Del(h.PublisherHeader)
	if d.Publisher != "" {
		r.Header.Set(h.PublisherHeader, d.Publisher)
	}
	// reverse_proxy removes the headers that Connection names (RFC 9110, section 7.6.1).
	for i, line := range r.Header["Connection"] {
		r.Header["Connection"][i] = withoutMember(line, h.PublisherHeader)
	}
}

// withoutMember returns a list without one of its members.
func withoutMember(list, name string) string {
	var kept []string
	for member := range strings.SplitSeq(list, ",") {
		if member = strings.TrimSpace(member); !strings.EqualFold(member, name) {
			kept = append(kept, member)
		}
	}
	return strings.Join(kept, ", ")
}

// A decision is what the log and the other handlers can have of a Decision.
type decision struct{ ampcors.Decision }

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (d *decision) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, attr := range d.LogValue().Group() {
		zap.Any(attr.Key, attr.Value.Any()).AddTo(enc)
	}
	return nil
}

// placeholder returns the value of a placeholder.
func (d *decision) placeholder(key string) (value any, ok bool) {
	switch key {
	case "http.ampcors.publisher":
		return d.Publisher, true
	case "http.ampcors.reason":
		return d.Reason.Label(), true
	}
	return nil, false
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
