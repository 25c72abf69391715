package caddy

import (
	"database/sql"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// parse returns the handler that a directive describes.
func parse(t *testing.T, directive string) *Handler {
	t.Helper()
	h := new(Handler)
	tokens, err := caddyfile.Tokenize([]byte(directive), "Caddyfile")
	if err == nil {
		err = h.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens))
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// adaptOptions adapts a Caddyfile whose third line is the first of the options of ampcors.
func adaptOptions(options string) error {
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(":80 {\nampcors {\n"+options+"\n}\nrespond ok\n}\n"),
		map[string]any{"filename": "Caddyfile"})
	return err
}

// Every member of Config can be set, and arrives.
func TestTheCaddyfileHasAllOfConfig(t *testing.T) {
	h := parse(t, `	ampcors www.example.com *.news.example {
		publishers a.example b.example {
			c.example
			d.example e.example
		}
		publishers_file publishers.txt
		caches google
		caches {
			id other
			name "Another one"
			docs https://cache.example/docs
			cache_domain cache.example
			update_cache_api_domain_suffix update.cache.example
			third_party_frame_domain_suffix frames.example
		}
		origins https://playground.amp.dev
		email {
			senders *@gmail.com news@example.com
			clients
			dangerously_allow_mail_provider_wildcards
		}
		credentialed
		methods PUT DELETE
		request_headers X-Requested-With
		response_headers
		max_age 1h30m
		report_only
		source_config {
			ttl 1d
			negative_ttl 5s
			max_stale 2d
			timeout 500ms
			max_concurrent 7
			max_entries 9
			patterns
		}
		dangerously_allow_ambiguous_prefixes
		dangerously_allow_http_own_origins
		dangerously_allow_public_suffix_wildcards
		dangerously_allow_unsafe_requests_without_origin
		source redis redis://localhost {
			key_prefix site:
		}
		publisher_header Ampcors-Publisher
		name api
	}`)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "publishers.txt"), []byte("file.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := configfile.Inline{Dir: dir, JSON: h.Config, Set: func(cfg *ampcors.Config) { cfg.Source = new(source.Source) }}.Config()
	if err != nil {
		t.Fatal(err)
	}
	got.Source = nil
	want := ampcors.Config{
		Publishers: []string{"www.example.com", "*.news.example", "a.example", "b.example", "c.example", "d.example", "e.example",
			"file.example"},
		Caches: []cacheurl.Cache{cacheurl.DefaultCaches()[0], {
			ID: "other", Name: "Another one", Docs: "https://cache.example/docs", CacheDomain: "cache.example",
			UpdateCacheAPIDomainSuffix: "update.cache.example", ThirdPartyFrameDomainSuffix: "frames.example",
		}},
		Origins: []string{"https://playground.amp.dev"},
		Email: ampcors.Email{Senders: []string{"*@gmail.com", "news@example.com"}, Clients: []string{},
			DangerouslyAllowMailProviderWildcards: true},
		Credentialed:                          true,
		Methods:                               []string{"PUT", "DELETE"},
		RequestHeaders:                        []string{"X-Requested-With"},
		ResponseHeaders:                       []string{},
		MaxAge:                                90 * time.Minute,
		ReportOnly:                            true,
		DangerouslyAllowAmbiguousPrefixes:     true,
		DangerouslyAllowHTTPOwnOrigins:        true,
		DangerouslyAllowPublicSuffixWildcards: true,
		DangerouslyAllowUnsafeRequestsWithoutOrigin: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	lookup := source.Config{
		TTL: 24 * time.Hour, NegativeTTL: 5 * time.Second, MaxStale: 48 * time.Hour, Timeout: 500 * time.Millisecond,
		MaxConcurrent: 7, MaxEntries: 9, Patterns: true,
	}
	if got, err := h.inline().SourceConfig(); got != lookup || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, lookup)
	}
	for _, value := range []any{want, want.Email, lookup, want.Caches[1]} { // or a new field is missing above
		v := reflect.ValueOf(value)
		for i := range v.NumField() {
			if f := v.Type().Field(i); v.Field(i).IsZero() && !slices.Contains([]string{"", "-"}, f.Tag.Get("json")) {
				t.Errorf("%s.%s is not tested", v.Type(), f.Name)
			}
		}
	}
	if h.PublisherHeader != "Ampcors-Publisher" || h.Name != "api" ||
		string(h.SourceRaw) != `{"key_prefix":"site:","module":"redis","url":"redis://localhost"}` {
		t.Errorf("%q, %q, %s", h.PublisherHeader, h.Name, h.SourceRaw)
	}
}

func TestTheCaddyfileOfPostgres(t *testing.T) {
	h := parse(t, `	ampcors {
		source postgres {env.DATABASE_URL} {
			table cms.sites
			domain_column host
			prefix_column hash
			condition "active AND plan <> 'free'"
		}
	}`)
	if text := string(parse(t, "ampcors {\nsource postgres {env.DATABASE_URL} {\nno_prefixes\n}\n}").SourceRaw); !strings.Contains(text,
		`"no_prefixes":true`) {
		t.Error(text)
	}
	const want = `{"condition":"active AND plan \u003c\u003e 'free'","conn_string":"{env.DATABASE_URL}","domain_column":"host",` +
		`"module":"postgres","prefix_column":"hash","table":"cms.sites"}`
	if string(h.SourceRaw) != want {
		t.Errorf("%s; want %s", h.SourceRaw, want)
	}
}

// All errors of a block are reported at once, in the order of their lines.
func TestEachErrorHasItsLine(t *testing.T) {
	const text = `:80 {
	ampcors www.example.com {
		publishers *.news.example b
		publishers {
			bücher.example
			bad_.
		}
		publishers_file /is/not/there
		max_age 1d
		max_age 2d
		credentialed yes
		report_only
		caches google {
			id other
		}
		email all {
			senders news@example.com
		}
		email {
			sendrs x
		}
		source_config {
			ttl 1x
			max_entries many
		}
		nonsense a b {
			c {
				d
			}
		}
		source
		source fake x
		name
		publisher_header A B
		publisher_header X_Y
		name a
		name b
		publishers_file ""
	}
	respond ok
}
`
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err == nil {
		t.Fatal("is accepted")
	}
	const want = `ampcors: publishers[2] "b" has no dot; want a domain such as "www.example.com", at Caddyfile:3
ampcors: publishers[4] "bad_." has a trailing dot; want a domain such as "www.example.com", at Caddyfile:6
max_age occurs twice, at Caddyfile:10
credentialed takes no value; remove "yes", or the line, at Caddyfile:11
ampcors: caches[1].cache_domain "" is empty; want a domain such as "www.example.com", at Caddyfile:14
email takes no value; want a block, at Caddyfile:16
unknown option "sendrs"; want one of clients, dangerously_allow_mail_provider_wildcards, senders, at Caddyfile:20
ampcors: source_config.ttl is "1x"; want a duration such as "10m" or "90s", at Caddyfile:23
ampcors: source_config.max_entries is "many"; want a whole number, at Caddyfile:24
unknown option "nonsense"; want one of caches, caches_file, credentialed, dangerously_allow_ambiguous_prefixes, ` +
		`dangerously_allow_http_own_origins, dangerously_allow_public_suffix_wildcards, dangerously_allow_unsafe_requests_without_origin, ` +
		`denied, email, max_age, methods, name, origins, publisher_header, publishers, publishers_file, report_only, request_headers, ` +
		`response_headers, source, source_config, at Caddyfile:26
source has no name; want one of fake, postgres, redis, at Caddyfile:31
source occurs twice, at Caddyfile:32
name has no value, at Caddyfile:33
publisher_header has more than one value, at Caddyfile:34
publisher_header occurs twice, at Caddyfile:35
name occurs twice, at Caddyfile:37
publishers_file occurs twice, at Caddyfile:38`
	if got := strings.TrimPrefix(err.Error(), "parsing caddyfile tokens for 'ampcors': "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The lines of an imported file are in their order too.
func TestErrorsInImportedFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "options"), []byte("max_age 1x\norigins b.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(
		[]byte(":80 {\n\tampcors {\n\t\tpublishers a\n\t\timport options\n\t\tname\n\t}\n\trespond ok\n}\n"),
		map[string]any{"filename": filepath.Join(dir, "Caddyfile")})
	if err == nil {
		t.Fatal("is accepted")
	}
	var places []string
	for line := range strings.Lines(err.Error()) {
		places = append(places, filepath.Base(strings.Fields(line[strings.LastIndex(line, ", at ")+len(", at "):])[0]))
	}
	if want := []string{"Caddyfile:3", "Caddyfile:5", "options:1", "options:2"}; !slices.Equal(places, want) {
		t.Errorf("%q; want %q\n%v", places, want, err)
	}
}

func TestErrorsOfSources(t *testing.T) {
	for text, want := range map[string]string{
		"source redis": "source redis has no URL; want one such as redis://localhost:6379",
		"publishers a.example\nsource_config {\nttl 1m\n}": "source_config says how a database is asked, and no database is named; want a " +
			"database, or remove it, at Caddyfile:4",
		"publishers_file list\nsource_config {\nttl 1m\n}": "source_config says how a database is asked, and no database is named; want a " +
			"database, or remove it, at Caddyfile:4",
		"source mysql dsn":                                         `unknown source "mysql"; want one of fake, postgres, redis`,
		"source redis redis://a redis://:secret@b":                 "more than one value",
		"source redis://:secret@b":                                 `unknown source "..."`,
		"source redis redis://a {\nkey_prefix a\nkey_prefix b\n}":  "key_prefix occurs twice",
		"source postgres user=bob password=secret":                 "more than one value",
		"source postgres \"postgres://user:p@secret@a:port/b\"":    "the connection string \"…\" cannot be parsed",
		"source postgres \"host=a password = secret port=x\"":      "the connection string \"…\" cannot be parsed",
		"source postgres postgres://a {\ntable a\ntable b\n}":      "table occurs twice",
		"source redis redis://a {\nkey_prefix\n}":                  "key_prefix has no value, or more than one",
		"source postgres postgres://a {\npostgres://u:secret@a\n}": `unknown option "..." of source postgres`,
		"source postgres postgres://a {\ntable postgres://u:secret@a/b\n}": `table is a URL; want the connection string behind "source ` +
			`postgres"`,
		"source postgres postgres://a {\ntable a postgres://u:secret@a/b\n}": "table has no value, or more than one",
		"source redis redis://a {\ntopology ring\n}": `topology "ring" is unknown; want "standalone", "cluster" or ` +
			`"sentinel"`,
		"source redis redis://a {\ntable x\n}": `unknown option "table" of source redis; want one of key_prefix, ` +
			`topology`,
		"source redis mysql://user:secret@a":                              "the URL of Redis cannot be read",
		"source postgres":                                                 "source postgres has no connection string",
		"source postgres postgres://a {\ntable \"a; b\"\n}":               "a; b",
		"source postgres postgres://a {\nno_prefixes x\n}":                `no_prefixes takes no value`,
		"source postgres postgres://a {\nno_prefixes\nno_prefixes\n}":     `no_prefixes occurs twice`,
		"source postgres postgres://a {\nno_prefixes\nprefix_column a\n}": `prefix_column "a" is set, and so is no_prefixes; want one of them`,
		"source postgres postgres://a {\nkey_prefix x\n}":                 `unknown option "key_prefix" of source postgres`,
	} {
		err := adaptOptions(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "at Caddyfile:") {
			t.Errorf("%s: %v; want %q at a line", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", text, err)
		}
	}
}

// An error of a Caddyfile has no name of Go: its reader knows options.
func TestErrorsOfACaddyfileHaveNoNamesOfGo(t *testing.T) {
	var texts []string
	for _, value := range []string{"", " x", " -1", " 1 2", " https://www.example.com/", " *", " \"\"", " {\nx y\n}", " a.example", " null",
		" TRACE", " 0.5x", " Set-Cookie", " xn--zzzzzz99999.com", " *.com"} {
		for _, option := range append(slices.Sorted(maps.Keys(members(reflect.TypeFor[options]()))), "source", "publisher_header", "name",
			"nonsense") {
			texts = append(texts, option+value, "publishers www.example.com\n"+option+value)
		}
		for _, option := range slices.Sorted(maps.Keys(members(reflect.TypeFor[cacheurl.Cache]()))) {
			texts = append(texts, "publishers www.example.com\ncaches {\n"+option+value+"\n}")
		}
		for _, option := range slices.Sorted(maps.Keys(members(reflect.TypeFor[ampcors.Email]()))) {
			texts = append(texts, "email {\nsenders news@example.com\n"+option+value+"\n}")
		}
		for _, option := range slices.Sorted(maps.Keys(members(reflect.TypeFor[source.Config]()))) {
			texts = append(texts, "source redis redis://a\nsource_config {\n"+option+value+"\n}")
		}
		for _, option := range []string{"table", "domain_column", "prefix_column", "condition"} {
			texts = append(texts, "source postgres postgres://a {\n"+option+value+"\n}")
		}
		texts = append(texts, "source redis"+value, "source postgres"+value, "source redis redis://a {\nkey_prefix"+value+"\n}",
			"source redis redis://a {\ntopology"+value+"\n}")
	}
	for _, connString := range servertest.WrongConnStrings() {
		texts = append(texts, "source postgres "+strconv.Quote(connString))
	}
	nameOfGo := regexp.MustCompile(`\b[a-z]+\.[A-Z]\w+|\b[A-Z][a-z]+[A-Z]\w*|\b[a-z]+[A-Z]\w+|\bpackages? |cannot ` +
		`unmarshal|pgsource|sqlsource|redissource|strconv|%!|\bConfig\b|\bSource\b|\bPublishers\b|\bOrigins\b|\bTopology\b`)
	products := strings.NewReplacer("PostgreSQL", "")
	wrong := 0
	for _, text := range texts {
		err := adaptOptions(text)
		if err == nil {
			continue
		}
		wrong++
		if found := nameOfGo.FindString(products.Replace(err.Error())); found != "" {
			t.Errorf("%q: %q in %v", text, found, err)
		}
	}
	if wrong < 500 {
		t.Errorf("%d wrong Caddyfiles; want more", wrong)
	}
}

// Whatever is wrong with a connection string, no error has the password: not that of the Caddyfile, and not that
// of a lookup.
func TestNoErrorHasThePasswordOfADatabase(t *testing.T) {
	for _, connString := range servertest.WrongConnStrings() {
		if err := adaptOptions("source postgres " + strconv.Quote(connString)); err != nil {
			if strings.Contains(err.Error(), servertest.Secret) {
				t.Errorf("%q: %v", connString, err)
			}
			continue
		}
		var output servertest.Buffer
		opened, end, err := (&Postgres{ConnString: connString}).Open(slog.New(slog.NewTextHandler(&output, nil)))
		if err == nil {
			_, err = opened.PublisherByDomain(t.Context(), "www.example.com")
			end()
		}
		if err == nil || strings.Contains(err.Error()+output.String(), servertest.Secret) {
			t.Errorf("%q: %v\n%s", connString, err, &output)
		}
	}
}

// The README's Caddyfiles and JSON are valid.
func TestTheREADMEsConfigurationsAreValid(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```(caddyfile|json)\n(.*?)```\n").FindAllSubmatch(text, -1)
	for _, block := range blocks {
		if string(block[1]) == "json" {
			h := new(Handler)
			fields := json.NewDecoder(strings.NewReader(strings.Replace(string(block[2]), `"handler": "ampcors",`, "", 1)))
			fields.DisallowUnknownFields()
			if err := fields.Decode(h); err != nil {
				t.Error(err)
			}
			if _, err := h.inline().Config(); err != nil {
				t.Error(err)
			}
			continue
		}
		if string(caddyfile.Format(block[2])) != string(block[2]) {
			t.Errorf("caddy fmt would change\n%s", block[2])
		}
		adapt(t, string(block[2]))
	}
	if len(blocks) != 4 {
		t.Errorf("the README has %d configurations", len(blocks))
	}
}

func TestPostgres(t *testing.T) {
	postgres := servertest.Postgres(t)
	t.Setenv("TEST_DATABASE", servertest.DSN(postgres.Addr))
	db, err := sql.Open("pgx", servertest.DSN(postgres.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE publishers (domain text COLLATE \"C\" PRIMARY KEY, hash_prefix text COLLATE \"C\" UNIQUE)")
	s := newServer(t, "\tampcors {\n\t\tsource postgres {env.TEST_DATABASE}\n\t}\n\trespond ok")
	eventually(t, "PostgreSQL is asked", func() bool { status, _, _ := s.get(cached); return status == 403 })
	exec("INSERT INTO publishers VALUES ('www.other.example', NULL)")
	const other = "https://www-other-example.cdn.ampproject.org"
	if status, acao, _ := s.get(other); status != 200 || acao != other {
		t.Error(status, acao)
	}
}

// Every Caddyfile is either rejected with the line of the error, or accepted and then valid.
func FuzzCaddyfile(f *testing.F) {
	f.Add("publishers a.example\nmax_age 1h\nemail {\nsenders a@b.example\n}\nsource redis redis://a")
	f.Add("caches google {\nid x\ncache_domain c.example\n}\nsource_config {\nttl\n}\nname {\n}")
	f.Add("<<0") // an incomplete heredoc
	f.Add("publishers {\na.example {\n}\n}\ncredentialed {\nx\n}\nsource fake {\n}\n} }")
	f.Fuzz(func(t *testing.T, options string) {
		tokens, err := caddyfile.Tokenize([]byte("ampcors a.example {\n"+options+"\n}\n"), "Testfile")
		if err != nil {
			return // Caddy's own syntax, such as an incomplete heredoc
		}
		h := new(Handler)
		if err := h.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)); err != nil {
			if !strings.Contains(err.Error(), ", at Testfile:") {
				t.Errorf("%v has no line", err)
			}
			return
		}
		inline := h.inline()
		inline.Set = func(cfg *ampcors.Config) { cfg.Source = new(source.Source) }
		_, err = inline.Config()
		if err != nil && !strings.Contains(err.Error(), "publishersFile") {
			t.Errorf("%q is accepted as %s, which has an error: %v", options, h.Config, err)
		}
	})
}

// A block where none belongs is an error, and not ignored.
func TestABlockThatNothingReadsIsAnError(t *testing.T) {
	for _, options := range []string{
		"credentialed {\npublishers a.example\n}", "max_age 10m {\npublishers a.example\n}", "report_only {\nname x\n}",
		"publishers {\nb.example {\nc.example\n}\n}",
		"name x {\npublishers a.example\n}", "publisher_header X-A {\nname x\n}",
		"email {\nsenders news@example.com\ndangerously_allow_mail_provider_wildcards {\nclients\n}\n}",
	} {
		err := adaptOptions("publishers www.example.com\n" + options)
		if err == nil || !strings.Contains(err.Error(), "takes no block, at Caddyfile:") {
			t.Errorf("%q: %v", options, err)
		}
	}
}

// caches_file is passed on, and is an error beside caches.
func TestTheOptionCachesFile(t *testing.T) {
	h := parse(t, "\tampcors www.example.com {\n\t\tcaches_file caches.json\n\t}")
	if want := `{"cachesFile":"caches.json","publishers":["www.example.com"]}`; string(h.Config) != want {
		t.Errorf("%s; want %s", h.Config, want)
	}
	err := adaptOptions("publishers www.example.com\ncaches google\ncaches_file caches.json")
	if err == nil || !strings.Contains(err.Error(), "caches_file is set, and so is caches; want one of them, at Caddyfile:5") {
		t.Error(err)
	}
}
