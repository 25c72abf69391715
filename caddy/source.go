package caddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap/exp/zapslog"

	"github.com/ampcors/ampcors/source"
)

// A Source is a Caddy module that looks up publishers, in the namespace
// http.handlers.ampcors.sources. Two modules whose JSON is the same after Provision share
// one source. So Provision must replace the placeholders in the fields.
type Source interface {
	caddy.Module

	// Open returns the source. An error means that it cannot be reached now: Open is then
	// called again every second. Errors of the configuration must be found by Validate.
	//
	// The source may be used longer than the configuration that it comes from, so it must not
	// use the caddy.Context of the module. When it is no longer used, end is called.
	Open(*slog.Logger) (opened source.Database, end func(), err error)
}

// pool has the sources of all configurations, by the JSON of their modules and options.
var pool = caddy.NewUsagePool()

// A pooledSource is a source.Source and what it asks. Several handlers can use it.
type pooledSource struct {
	key       string
	log       *slog.Logger
	options   source.Config
	connected chan struct{} // closed once the source is open

	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	cache *source.Source // of a source that always fails, until the module's own is open
	end   func()         // closes the source; nil until it is open
}

// readSource reads the directives of a source: its address, and its options, each at most once.
func readSource(d *caddyfile.Dispenser, address *string, kind, example string, options map[string]*string) error {
	d.Next()
	name := "source " + d.Val()
	if !d.Args(address) {
		return d.Errf("%s has no %s; want one such as %s", name, kind, example)
	}
	if d.CountRemainingArgs() > 0 { // not ArgErr, which has the value, and so the password
		return d.Errf("%s has more than one value; want its %s, in quotes if it has spaces", name, kind)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		value, ok := options[option]
		switch {
		case !ok:
			return d.Errf("unknown option %q of %s; want one of %s", printable(option), name, strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		case *value != "":
			return d.Errf("%s occurs twice", option)
		case !d.AllArgs(value):
			return d.Errf("%s has no value, or more than one; want one, in quotes if it has spaces", option)
		case option != "condition" && strings.Contains(*value, "://"):
			return d.Errf("%s is a URL; want the %s behind %q, before the block", option, kind, name)
		}
	}
	return nil
}

// printable returns a word of a Caddyfile, or "..." if it may be a URL with a password.
func printable(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "..."
	}
	return word
}

// checkSource checks a source, unless its address has placeholders, which Provision replaces.
func checkSource(d *caddyfile.Dispenser, address string, validate func() error) error {
	if strings.Contains(address, "{") {
		return nil
	}
	if err := validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// openSource returns the pooledSource for a module. If the source cannot be reached, it tries
// again in the background, because Caddy can serve other requests meanwhile.
func openSource(module Source, options source.Config) (*pooledSource, error) {
	id := string(module.CaddyModule().ID)
	fields, err := json.Marshal(module)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(id, " ", string(fields), " ", options)
	s, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
		failing, err := source.New(unreachable, options)
		if err != nil {
			return nil, err
		}
		s := &pooledSource{key: key, log: slog.New(currentLog{name: id}), options: options, connected: make(chan struct{}), cache: failing}
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		if err := s.connect(module); err != nil {
			s.log.Error("the source cannot be reached; trying again every second", "error", source.LogText(err))
			s.done.Go(func() { s.keepConnecting(ctx, module, err.Error()) })
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return s.(*pooledSource), nil
}

func (s *pooledSource) connect(module Source) error {
	opened, end, err := module.Open(s.log)
	if err != nil {
		return err
	}
	cache, err := source.New(opened, s.options)
	if err != nil {
		end()
		return err
	}
	s.mu.Lock()
	s.cache, s.end = cache, end
	s.mu.Unlock()
	close(s.connected)
	return nil
}

// keepConnecting tries until ctx is done. An error is logged if it differs from the last one.
func (s *pooledSource) keepConnecting(ctx context.Context, module Source, reported string) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			err := s.connect(module)
			if err == nil {
				s.log.Info("the source can be reached now")
				return
			}
			if text := err.Error(); text != reported {
				reported = text
				s.log.Error("the source cannot be reached; trying again every second", "error", source.LogText(err))
			}
		}
	}
}

var errNotConnected = errors.New("the source has not been reached yet")

// get returns the Source. isOpen is false until the source can be reached.
func (s *pooledSource) get() (cache *source.Source, isOpen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache, s.end != nil
}

// release ends the use by a handler.
func (s *pooledSource) release() {
	if _, err := pool.Delete(s.key); err != nil {
		s.log.Error("closing the source", "error", err)
	}
}

// Destruct implements caddy.Destructor.
func (s *pooledSource) Destruct() error {
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.Close()
	if s.end != nil {
		s.end()
	}
	return nil
}

// unreachable takes the place of a source that has not been reached yet.
var unreachable = source.Database{
	HasPublisher:    func(context.Context, string) (bool, error) { return false, errNotConnected },
	PublisherByHash: func(context.Context, string) (string, error) { return "", errNotConnected },
}

// currentLog writes to the log of Caddy's current configuration, because a source may be used
// longer than the configuration that opened it.
type currentLog struct {
	name  string
	attrs []slog.Attr
}

func (l currentLog) handler() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName(l.name), zapslog.AddStacktraceAt(slog.Level(127)))
}

func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

func (l currentLog) Handle(ctx context.Context, record slog.Record) error {
	return l.handler().WithAttrs(l.attrs).Handle(ctx, record)
}

func (l currentLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.attrs = append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)
	return l
}

// WithGroup is not used by sources. The attributes stay at the top.
func (l currentLog) WithGroup(string) slog.Handler { return l }
