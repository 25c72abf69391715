package caddy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/ampcors/ampcors"
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
	// use the caddy.Context of the module.
	Open(*slog.Logger) (OpenSource, error)
}

// An OpenSource is a source with connections.
type OpenSource interface {
	ampcors.Source
	Close()
}

// pool has the sources of all configurations, by the JSON of their modules.
var pool = caddy.NewUsagePool()

// A pooledSource is a source and its answers. Several handlers can use it.
type pooledSource struct {
	key       string
	log       *slog.Logger
	connected chan struct{} // closed once the source is open

	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	open   OpenSource // nil until it can be reached
	shared *ampcors.SharedSource
}

// openSource returns the pooledSource for a module. If the source cannot be reached, it tries
// again in the background, because Caddy can serve other requests meanwhile.
func openSource(module Source) (*pooledSource, error) {
	id := string(module.CaddyModule().ID)
	fields, err := json.Marshal(module)
	if err != nil {
		return nil, err
	}
	key := id + " " + string(fields)
	s, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
		s := &pooledSource{key: key, log: slog.New(currentLog{name: id}), connected: make(chan struct{})}
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		if err := s.connect(module); err != nil {
			s.log.Error("the source cannot be reached; trying again every second", "error", err)
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
	source, err := module.Open(s.log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.open, s.shared = source, ampcors.ShareSource(source)
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
				s.log.Error("the source cannot be reached; trying again every second", "error", err)
			}
		}
	}
}

var errNotConnected = errors.New("the source has not been reached yet")

// get returns the source. Until that can be reached, it returns one that always fails, and isOpen
// is false.
func (s *pooledSource) get() (source ampcors.Source, isOpen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return unreachable{}, false
	}
	return s.shared, true
}

// stats returns how the source was used by all handlers.
func (s *pooledSource) stats() ampcors.SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return ampcors.SourceStats{}
	}
	return s.shared.Stats()
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
	if s.open != nil {
		s.open.Close()
	}
	return nil
}

// unreachable takes the place of a source that has not been reached yet.
type unreachable struct{}

func (unreachable) HasPublisher(context.Context, string) (bool, error) {
	return false, errNotConnected
}

func (unreachable) PublisherByHash(context.Context, string) (string, error) {
	return "", errNotConnected
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
