// Package caddy is a module of the Caddy server, for backends that are not in Go. The handler
// http.handlers.ampcors does what [ampcors.Middleware] does: a request that its configuration
// does not allow is denied before it reaches the backend.
//
// The README beside this package shows how to start.
package caddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	"github.com/ampcors/ampcors/source"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterDirective("ampcors", parseDirective)
	// Before redirects and authentication, because preflights carry no credentials, and
	// browsers do not follow a redirect of a preflight. Also before header: one that deletes a
	// header acts late, and could then remove Vary or replace Access-Control-Allow-Origin.
	httpcaddyfile.RegisterDirectiveOrder("ampcors", httpcaddyfile.Before, "header")
}

// Handler answers CORS requests of the publishers that it is configured with: from AMP Caches,
// from their own origins, and from AMP for Email. It denies other publishers' requests, and
// answers preflights by itself.
//
// Without reportOnly, CORS headers that the handlers behind it set are replaced. Those that a handler in front of it
// adds later are not.
//
// Each request of a site must come to the handler, and first: it is an error of the configuration if a matcher of
// anything but hosts leads to it, or if a handler before it may answer. Two of these handlers for one request
// are an error too, unless the first one has reportOnly.
//
// A denied request gets a response of this handler, with status 403, or 503 if the source cannot answer. Error routes
// do not see it. CORS headers that error routes set for allowed requests are kept.
//
// It sets these placeholders:
//
//	{http.ampcors.publisher}  the publisher whose page calls, such as www.example.com; empty if there is none
//	{http.ampcors.reason}     the reason of the decision, such as cache_origin
type Handler struct {
	// The configuration, in the JSON that package configfile reads from a file: publishers,
	// publishersFile, credentialed and so on. A relative name of a file is relative to
	// Caddy's working directory. The files are read again when they change.
	Config json.RawMessage `json:"config,omitempty"`

	// Where publishers that config does not list are looked up. Handlers with an equal source and an equal
	// config.source share connections and answers, which survive a reload.
	SourceRaw json.RawMessage `json:"source,omitempty" caddy:"namespace=http.handlers.ampcors.sources inline_key=module"`

	// The request header in which the backend gets the publisher whose page calls, such as
	// "Ampcors-Publisher". What the client sends in it is removed. If empty, no header is set.
	PublisherHeader string `json:"publisher_header,omitempty"`

	// What a denied request gets. The default is a line of text with the reason.
	Denied *Denial `json:"denied,omitempty"`

	// The value of the metrics' label "handler". Handlers with the same name are counted
	// together.
	Name string `json:"name,omitempty"`

	mw         *ampcors.Middleware
	reportOnly bool
	source     *pooledSource // nil without a source
	watcher    *configfile.Watcher
	stop       func() // ends what runs in the background
	unregister func()
}

// A Denial is the response to a denied request. Its status and its other headers are always from ampcors.
type Denial struct {
	// The body. Placeholders are replaced, such as {http.ampcors.reason}.
	Body string `json:"body"`

	// The default is text/plain; charset=utf-8.
	ContentType string `json:"content_type,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner. Errors of Handler.Config are errors of package configfile.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := checkPlace(ctx); err != nil {
		return err
	}
	if err := checkPublisherHeader(h.PublisherHeader); err != nil {
		return err
	}
	h.PublisherHeader = http.CanonicalHeaderKey(h.PublisherHeader)
	if h.SourceRaw != nil {
		if err := h.openSource(ctx); err != nil {
			return err
		}
	}
	inline := h.inline()
	var once sync.Once
	inline.Set = func(cfg *ampcors.Config) {
		once.Do(func() { h.reportOnly = cfg.ReportOnly }) // it never changes; later calls are concurrent with requests
		if h.source != nil {
			cfg.Source = h.source.Source
		}
		cfg.Denied = h.deny
	}
	var err error
	if h.mw, h.watcher, err = inline.Watch(configfile.WatcherConfig{Logger: ctx.Slogger().With("handler",
		h.Name)}); err != nil {
		return plain(err)
	}
	h.follow(ctx)
	h.unregister, err = measure(ctx, h)
	return err
}

func (h *Handler) openSource(ctx caddy.Context) error {
	module, err := ctx.LoadModule(h, "SourceRaw")
	if err != nil {
		return err
	}
	opener, ok := module.(Source)
	if !ok {
		return fmt.Errorf("%T is not a source of publishers", module)
	}
	options, err := h.inline().SourceConfig()
	if err != nil {
		return plain(err)
	}
	h.source, err = openSource(opener, options)
	return err
}

// follow applies the list of publishers after each change, until h.stop is called.
func (h *Handler) follow(ctx caddy.Context) {
	running, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = h.watcher.Run(running) }) // it ends with running
	h.stop = func() {
		cancel()
		background.Wait()
	}
}

// checkPublisherHeader returns an error if the name cannot be that of the PublisherHeader. A header that HTTP
// defines, such as Host, would change what the request means to the backend.
func checkPublisherHeader(name string) error {
	switch {
	case name == "":
		return nil
	case !httpguts.ValidHeaderFieldName(name) || strings.ContainsAny(name, "._"):
		return fmt.Errorf("publisher_header %.80q is not a name of letters, digits and hyphens; want one such as "+
			"Ampcors-Publisher", name)
	case slices.Contains([]string{"Accept", "Authorization", "Connection", "Content-Length", "Content-Type", "Cookie",
		"Host",
		"Origin", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent"}, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("publisher_header %q has another meaning in HTTP; want one such as Ampcors-Publisher", name)
	}
	return nil
}

// plain returns the errors of a configuration without positions in its JSON.
func plain(err error) error {
	errs := split(err)
	for i, err := range errs {
		if e := (*configfile.Error)(nil); errors.As(err, &e) && e.File == inlineName {
			errs[i] = withoutPosition(e)
		}
	}
	return errors.Join(errs...)
}

// inlineName is the file name in errors about a handler's configuration.
const inlineName = "ampcors"

// split returns the errors that are joined in one.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// withoutPosition returns an error without its position in the JSON, which nobody sees.
func withoutPosition(err *configfile.Error) error {
	e := *err
	e.File, e.Line = inlineName, 0
	return &e
}

// inline returns the configuration for package configfile.
func (h *Handler) inline() configfile.Inline {
	in := configfile.Inline{Name: inlineName, Dir: ".", JSON: h.Config}
	if len(in.JSON) == 0 {
		in.JSON = []byte("{}")
	}
	return in
}

// dropAfter is how long a handler still knows its publishers after Cleanup. Requests that Caddy has
// accepted may come after Cleanup. But an idle connection of reverse_proxy keeps the whole
// configuration in memory for minutes, and the list may be long.
var dropAfter = 10 * time.Second

// Cleanup implements caddy.CleanerUpper. For ten seconds, listed publishers are still allowed, and
// publishers of the source too, if another handler keeps the source open.
func (h *Handler) Cleanup() error {
	if h.unregister != nil {
		h.unregister()
	}
	if h.stop != nil {
		h.stop()
	}
	if h.source != nil {
		h.source.release()
	}
	if h.mw != nil {
		denyAll := ampcors.Config{Source: new(source.Source), Denied: h.deny} // it answers each Origin with 503
		time.AfterFunc(dropAfter, func() { _ = h.mw.Reconfigure(denyAll) })   // it is valid
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	d, proceed := h.mw.Handle(w, r)
	h.tell(r, d)
	switch {
	case !proceed: // it is answered; an error would lead a denied request to handle_errors, and further
		return nil
	case h.reportOnly: // the CORS headers of the handlers behind it must stay
		return next.ServeHTTP(w, r)
	}
	var err error
	guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
	return err
}

// deny answers a denied request.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, d ampcors.Decision) {
	contentType, body := "text/plain; charset=utf-8", fmt.Sprintf("%s: %s\n", http.StatusText(d.StatusCode()), d.Reason)
	if h.Denied != nil {
		if h.Denied.ContentType != "" {
			contentType = h.Denied.ContentType
		}
		body = h.Denied.Body
		if placeholders, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			setPlaceholders(placeholders, d)
			body = placeholders.ReplaceKnown(body, "")
		}
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(d.StatusCode())
	_, _ = io.WriteString(w, body) // an error means that the connection is broken
}

// setPlaceholders gives the decision to the placeholders.
func setPlaceholders(placeholders *caddy.Replacer, d ampcors.Decision) {
	placeholders.Set("http.ampcors.publisher", d.Publisher)
	placeholders.Set("http.ampcors.reason", d.Reason.String())
}

// tell gives the decision to the log, the other handlers and the backend.
func (h *Handler) tell(r *http.Request, d ampcors.Decision) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("ampcors", decision{d}))
	}
	if placeholders, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		setPlaceholders(placeholders, d)
	}
	if h.PublisherHeader == "" {
		return
	}
	h.dropForged(r)
	if d.Publisher != "" {
		r.Header.Set(h.PublisherHeader, d.Publisher)
	}
	// reverse_proxy removes the headers that Connection names (RFC 9110, section 7.6.1), so a
	// client could remove this one.
	if httpguts.HeaderValuesContainsToken(r.Header["Connection"], h.PublisherHeader) {
		others := strings.FieldsFunc(strings.Join(r.Header["Connection"], ","),
			func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })
		others = slices.DeleteFunc(others, func(name string) bool { return strings.EqualFold(name, h.PublisherHeader) })
		r.Header["Connection"] = []string{strings.Join(others, ", ")}
	}
}

// dropForged removes from a request what a backend may take for the PublisherHeader.
func (h *Handler) dropForged(r *http.Request) {
	h.removeForged(r.Header)
	h.removeForged(r.Trailer)
	if r.Trailer != nil {
		// With HTTP/1.1, net/http adds all trailers at the end of the body, announced or not.
		// (If none is announced, reverse_proxy passes none on.)
		r.Body = &bodyWithTrailers{r.Body, func() { h.removeForged(r.Trailer) }}
	}
}

// removeForged removes the headers or trailers that a backend may take for the PublisherHeader.
func (h *Handler) removeForged(from http.Header) {
	for key := range from {
		if strings.EqualFold(hyphens.Replace(key), h.PublisherHeader) {
			delete(from, key)
		}
	}
}

// A bodyWithTrailers calls onEnd at the end of the body, before anybody reads the trailers.
type bodyWithTrailers struct {
	io.ReadCloser
	onEnd func()
}

func (b *bodyWithTrailers) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.onEnd()
	}
	return n, err
}

// hyphens undoes what CGI and its kin do to the names of headers: they cannot tell these
// characters apart. Caddy drops such names too, unless its configuration expects them.
var hyphens = strings.NewReplacer("_", "-", ".", "-")

// A decision writes a Decision to Caddy's log.
type decision struct{ ampcors.Decision }

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (d decision) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, attr := range d.LogValue().Group() {
		zap.Any(attr.Key, attr.Value.Any()).AddTo(enc)
	}
	return nil
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
