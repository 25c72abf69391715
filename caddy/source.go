package caddy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap/exp/zapslog"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/source"
)

// A Source is a Caddy module that looks up publishers, in the namespace http.handlers.ampcors.sources.
// Two modules whose JSON is the same after Provision, and whose handlers have the same source options,
// share one source. So Provision must replace the placeholders in the fields.
type Source interface {
	caddy.Module

	// Open returns the Database. It does not wait for a connection, and fails only if the configuration is wrong:
	// while the database cannot be reached, lookups fail, and the source connects in the background.
	//
	// The source may be used longer than the configuration that it comes from, so it must not
	// use the caddy.Context of the module. When it is no longer used, end is called.
	Open(*slog.Logger) (opened source.Database, end func(), err error)
}

// pool has the sources of all configurations, by the JSON of their modules and options.
var pool = caddy.NewUsagePool()

// A pooledSource is a source.Source and what it asks. Several handlers can use it.
type pooledSource struct {
	*source.Source
	key string
	log *slog.Logger
	end func() // closes what is asked
}

// readSource reads the directives of a source: its address, and its options, each at most once. flags are options
// without a value.
func readSource(d *caddyfile.Dispenser, address *string, kind, example string, options map[string]*string,
	flags map[string]*bool) error {
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
		flag, isFlag := flags[option]
		switch {
		case isFlag && *flag:
			return d.Errf("%s occurs twice", option)
		case isFlag && d.CountRemainingArgs() > 0:
			return d.Errf("%s takes no value", option)
		case isFlag:
			*flag = true
		case !ok:
			known := slices.Concat(slices.Collect(maps.Keys(options)), slices.Collect(maps.Keys(flags)))
			slices.Sort(known)
			return d.Errf("unknown option %q of %s; want one of %s", printable(option), name, strings.Join(known, ", "))
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
	err := validate()
	if err == nil {
		return nil
	}
	for problem := range badvalue.All(err) { // its Path is the name of a Go field
		field := problem.Path[strings.LastIndexByte(problem.Path, '.')+1:]
		if problem.Path = snakeCase(field); field == "ConnString" {
			problem.Path = "the connection string"
		}
		inOptions := strings.NewReplacer("Topology", "topology", "NoPrefixes", "no_prefixes")
		problem.Reason, problem.Want = inOptions.Replace(problem.Reason), inOptions.Replace(problem.Want)
	}
	return d.Err(strings.ReplaceAll(err.Error(), "ampcors: ", ""))
}

// openSource returns the pooledSource for a module.
func openSource(module Source, options source.Config) (*pooledSource, error) {
	id := string(module.CaddyModule().ID)
	fields, err := json.Marshal(module)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(id, " ", string(fields), " ", options)
	s, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
		log := slog.New(currentLog{name: id})
		opened, end, err := module.Open(log)
		if err != nil {
			return nil, err
		}
		options.Logger = log
		asked, err := source.New(opened, options)
		if err != nil {
			end()
			return nil, err
		}
		return &pooledSource{asked, key, log, end}, nil
	})
	if err != nil {
		return nil, err
	}
	return s.(*pooledSource), nil
}

// release ends the use by a handler.
func (s *pooledSource) release() {
	if _, err := pool.Delete(s.key); err != nil {
		s.log.Error("ampcors: closing the source", "error", err)
	}
}

// Destruct implements caddy.Destructor.
func (s *pooledSource) Destruct() error {
	s.Close()
	s.end()
	return nil
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
