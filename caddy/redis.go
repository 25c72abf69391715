package caddy

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/redissource"
)

func init() { caddy.RegisterModule(new(Redis)) }

// Redis looks up publishers in Redis 6 or later, as package redissource documents.
type Redis struct {
	// Where Redis is: redis://user:password@host:6379/0, or rediss:// for TLS. Further nodes of
	// a cluster are in the query (?addr=host2:6379), and so is the name of a master of Sentinel
	// (?master_set=name). Placeholders such as {env.REDIS_URL} are replaced.
	URL string `json:"url"`

	// What all keys begin with. Default: ampcors:
	KeyPrefix string `json:"key_prefix,omitempty"`

	// What the URL names: standalone (one Redis), cluster or sentinel. Default: sentinel with master_set,
	// otherwise standalone.
	Topology string `json:"topology,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors.sources.redis", New: func() caddy.Module { return new(Redis) }}
}

// Provision implements caddy.Provisioner.
func (r *Redis) Provision(caddy.Context) (err error) {
	r.URL, err = caddy.NewReplacer().ReplaceOrErr(r.URL, true, true)
	return err
}

// Validate implements caddy.Validator.
func (r *Redis) Validate() error {
	_, end, err := r.Open(slog.New(slog.DiscardHandler))
	if err == nil {
		end()
	}
	return err
}

// Open implements Source. It does not wait for Redis.
func (r *Redis) Open(log *slog.Logger) (opened source.Database, end func(), err error) {
	option, err := rueidis.ParseURL(r.URL)
	if err != nil || driver.IsUnescaped(r.URL) || strings.Contains(r.URL, "#") { // which no URL of Redis has
		// The error of the parser has the URL, and so the password.
		return source.Database{}, nil, errors.New("the URL of Redis cannot be read; want one such as " +
			"redis://user:password@localhost:6379/0, with " + driver.WantEscaped)
	}
	store, err := redissource.New(redissource.Config{Redis: option, KeyPrefix: r.KeyPrefix,
		Topology: redissource.Topology(r.Topology), Logger: log})
	if err != nil {
		return source.Database{}, nil, err
	}
	return store.Database(), store.Close, nil
}

// UnmarshalCaddyfile reads
//
//	source redis <url> {
//		key_prefix <prefix>
//		topology   standalone|cluster|sentinel
//	}
func (r *Redis) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := readSource(d, &r.URL, "URL", "redis://localhost:6379",
		map[string]*string{"key_prefix": &r.KeyPrefix, "topology": &r.Topology}, nil); err != nil {
		return err
	}
	return checkSource(d, r.URL, r.Validate)
}

var (
	_ Source                = (*Redis)(nil)
	_ caddy.Provisioner     = (*Redis)(nil)
	_ caddy.Validator       = (*Redis)(nil)
	_ caddyfile.Unmarshaler = (*Redis)(nil)
)
