package caddy

import (
	"log/slog"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func init() { caddy.RegisterModule(new(Postgres)) }

// Postgres looks up publishers in PostgreSQL 12 or later, as package pgsource documents. The
// table must have its triggers (pgsource.InstallSQL).
type Postgres struct {
	// A URL, or keywords and values as in libpq, such as
	// postgres://user:password@host/database. Placeholders such as {env.DATABASE_URL} are
	// replaced.
	ConnString string `json:"conn_string"`

	// The table and its columns. Default: publishers, domain and hash_prefix.
	Table        string `json:"table,omitempty"`
	DomainColumn string `json:"domain_column,omitempty"`
	PrefixColumn string `json:"prefix_column,omitempty"`

	// SQL that a row must also satisfy.
	Condition string `json:"condition,omitempty"`

	// How many connections lookups can use. Default: 16.
	MaxConns int `json:"max_conns,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors.sources.postgres", New: func() caddy.Module { return new(Postgres) }}
}

// Provision implements caddy.Provisioner.
func (p *Postgres) Provision(caddy.Context) (err error) {
	p.ConnString, err = caddy.NewReplacer().ReplaceOrErr(p.ConnString, true, true)
	return err
}

// Validate implements caddy.Validator.
func (p *Postgres) Validate() error {
	table, err := pgsource.New(p.config(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	table.Close()
	return nil
}

func (p *Postgres) config(log *slog.Logger) pgsource.Config {
	return pgsource.Config{
		ConnString: p.ConnString,
		Table:      sqlsource.Config{Table: p.Table, DomainColumn: p.DomainColumn, PrefixColumn: p.PrefixColumn, Condition: p.Condition},
		MaxConns:   p.MaxConns,
		Logger:     log,
	}
}

// Open implements Source. It does not wait for the database.
func (p *Postgres) Open(log *slog.Logger) (opened source.Database, end func(), err error) {
	table, err := pgsource.New(p.config(log))
	if err != nil {
		return source.Database{}, nil, err
	}
	return table.Database(), table.Close, nil
}

// UnmarshalCaddyfile reads
//
//	source postgres <conn_string> {
//		table         <name>
//		domain_column <name>
//		prefix_column <name>
//		condition     <sql>
//		max_conns     <number>
//	}
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.Args(&p.ConnString) {
		return d.Err("source postgres has no connection string; want one such as postgres://user:password@localhost/database")
	}
	if d.CountRemainingArgs() > 0 { // not ArgErr, which has the value, and so the password
		return d.Err("source postgres has more than one value; want its connection string, in quotes if it has spaces")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var value *string
		var maxConns string
		switch d.Val() {
		case "table":
			value = &p.Table
		case "domain_column":
			value = &p.DomainColumn
		case "prefix_column":
			value = &p.PrefixColumn
		case "condition":
			value = &p.Condition
		case "max_conns":
			value = &maxConns
		default:
			return d.Errf("unknown option %q of source postgres; want table, domain_column, prefix_column, condition or max_conns", d.Val())
		}
		if *value != "" || d.Val() == "max_conns" && p.MaxConns != 0 {
			return d.Errf("%s occurs twice", d.Val())
		}
		if !d.AllArgs(value) {
			return d.ArgErr()
		}
		if maxConns != "" {
			var err error
			if p.MaxConns, err = strconv.Atoi(maxConns); err != nil {
				return d.Errf("max_conns %q is not a number", maxConns)
			}
		}
	}
	if !strings.Contains(p.ConnString, "{") { // placeholders are replaced by Provision
		if err := p.Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

var (
	_ Source                = (*Postgres)(nil)
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddy.Validator       = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)
)
