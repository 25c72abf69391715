package caddy

import (
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func init() { caddy.RegisterModule(new(Postgres)) }

// Postgres looks up publishers in PostgreSQL, as package pgsource documents. The
// table must have its triggers (pgsource.InstallSQL).
type Postgres struct {
	// A URL such as postgres://user:password@host/database, or keywords and values as in libpq. Placeholders such as
	// {env.DATABASE_URL} are replaced.
	ConnString string `json:"conn_string"`

	// The table and its columns. Default: publishers, domain and hash_prefix.
	Table        string `json:"table,omitempty"`
	DomainColumn string `json:"domain_column,omitempty"`
	PrefixColumn string `json:"prefix_column,omitempty"`

	// Look up no hash prefixes in the table: for servers that trust no AMP Cache.
	NoPrefixes bool `json:"no_prefixes,omitempty"`

	// SQL that a row must also satisfy.
	Condition string `json:"condition,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors.sources.postgres",
		New: func() caddy.Module { return new(Postgres) }}
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
		Table: sqlsource.Config{Table: p.Table, DomainColumn: p.DomainColumn, PrefixColumn: p.PrefixColumn,
			NoPrefixes: p.NoPrefixes, Condition: p.Condition},
		Logger: log,
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
//		no_prefixes
//		condition     <sql>
//	}
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	err := readSource(d, &p.ConnString, "connection string", "postgres://user:password@localhost/database",
		map[string]*string{
			"table": &p.Table, "domain_column": &p.DomainColumn, "prefix_column": &p.PrefixColumn, "condition": &p.Condition,
		}, map[string]*bool{"no_prefixes": &p.NoPrefixes})
	if err != nil {
		return err
	}
	return checkSource(d, p.ConnString, p.Validate)
}

var (
	_ Source                = (*Postgres)(nil)
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddy.Validator       = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)
)
