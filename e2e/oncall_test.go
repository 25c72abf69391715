package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ampcors/ampcors/internal/servertest"
)

// An onCall is an API behind nginx, which asks ampcors, with what somebody on call can see.
type onCall struct {
	t              *testing.T
	ampcors        string // the program
	api            string // where pages send requests
	config, list   string // files of the configuration
	log, metricsAt string
	serve          []string // flags of serve-authz
	database       *servertest.Server
	dsn            string
	response       string // status and Access-Control-Allow-Origin of the last request
}

// buildAmpcors builds the command, and returns its path.
func buildAmpcors(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ampcors")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/ampcors/ampcors/cmd/ampcors").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// start starts ampcors with its flags, and nginx in front of it and of a backend.
func (o *onCall) start() {
	o.t.Helper()
	authz := servertest.FreeAddress(o.t)
	o.metricsAt = servertest.FreeAddress(o.t)
	args := append([]string{"-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh", o.log, o.ampcors, "serve-authz", "--proxy", "nginx", "--config",
		o.config, "--listen", authz, "--metrics", o.metricsAt}, o.serve...)
	start(o.t, authz, exec.Command("sh", args...))
	o.api = startAuthzNginx(o.t, authz, serve(o.t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })))
}

// behind puts nginx with directives of its location in front of the API.
func (o *onCall) behind(location string) {
	o.api = startNginxWith(o.t, "", strings.ReplaceAll(location, "%s", o.api))
}

func (o *onCall) publishers(domains ...string) { o.write(o.list, strings.Join(domains, "\n")+"\n") }

func (o *onCall) write(path, text string) {
	o.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		o.t.Fatal(err)
	}
}

// ask sends a page's request.
func (o *onCall) ask(method, origin string) {
	o.t.Helper()
	resp, _ := send(o.t, method, "http://"+o.api+"/", map[string]string{"Origin": origin})
	o.response = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin"))
}

func (o *onCall) exec(statement string) {
	o.t.Helper()
	db, err := sql.Open("pgx", o.dsn)
	if err != nil {
		o.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		o.t.Fatal(err)
	}
}

// withDatabase adds a database with one publisher.
func (o *onCall) withDatabase() {
	o.t.Helper()
	o.database = servertest.Postgres(o.t)
	o.dsn = servertest.DSN(o.database.Addr)
	o.run("source", "install", "--create", "--database", o.dsn)
	o.exec("INSERT INTO publishers (domain, hash_prefix) VALUES ('in.example.org', 'unused')")
	o.serve = append(o.serve, "--database", o.dsn)
}

// run runs the command, and returns what it writes.
func (o *onCall) run(args ...string) string {
	out, _ := exec.Command(o.ampcors, args...).CombinedOutput() // findings are no code 0
	return string(out)
}

// cachesFile returns a file of --caches with one cache.
func cachesFile(id, domain string) string {
	return fmt.Sprintf(`{"caches": [{"id": %q, "name": "One", "docs": "https://example.com", "cacheDomain": %q}]}`, id, domain)
}

// has reports whether there is a signal: metric, log or response, and a pattern of it.
func (o *onCall) has(signal string) bool {
	o.t.Helper()
	where, pattern, _ := strings.Cut(signal, ": ")
	text := o.response
	switch where {
	case "metric":
		text = get(o.t, "http://"+o.metricsAt+"/metrics")
	case "log":
		data, err := os.ReadFile(o.log)
		if err != nil {
			o.t.Fatal(err)
		}
		text = string(data)
	}
	return regexp.MustCompile("(?m)^" + pattern).MatchString(text)
}

// TestOperationsLeadsToTheCause injects faults in real servers. For each, the first signal comes, and the command that
// docs/OPERATIONS.md or an alert names says what the cause is. With -v it prints how long both took.
func TestOperationsLeadsToTheCause(t *testing.T) {
	program := buildAmpcors(t)
	operations, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../metrics/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	const (
		page  = "https://www-example-com.cdn.ampproject.org"
		other = "https://www-example-org.cdn.ampproject.org"
	)
	deniedAs := func(reason string) string {
		return `metric: ampcors_decisions_total\{allowed="false",reason="` + reason + `"\} [1-9]`
	}
	for _, fault := range []struct {
		name    string
		row     string // the row for the signal in OPERATIONS, or the alert; its section has the command
		before  func(*onCall)
		inject  func(*onCall)
		request string // method and Origin of the page that is broken
		signal  string // metric, log or response, and a pattern: see has
		command string // its capitals and … are replaced
		cause   string // a pattern of its output
	}{
		{"the list has an error", "- alert: AMPConfigNotInForce", nil,
			func(o *onCall) { o.publishers("www.example.com", "www.example.org", "www.new example.com") },
			"GET " + page, `metric: ampcors_config_in_force 0`, "ampcors check FILE", `list\.txt:3:1: "www\.new example\.com"`},
		{"a publisher was removed", "\n| `publisher_not_allowed`, `hash_not_known`, `unknown_host` | a publisher was removed", nil,
			func(o *onCall) { o.publishers("www.example.com") },
			"GET " + other, deniedAs("publisher_not_allowed"), "ampcors explain --config FILE ORIGIN",
			`publisher +www\.example\.org\n(.*\n)*.*allowlist *\n.*Neither listed`},
		{"a publisher that only a pattern matches, on a cache that gives it a hash prefix",
			"\n| `hash_not_known` | a publisher that only a pattern",
			func(o *onCall) { o.publishers("*.example.com") },
			func(o *onCall) {
				o.write(o.list+".all", "www.example.com\nthis-is-a-long-name-of-a-publisher-that-has-a-hash-as-prefix.example.com\n")
			},
			"GET https://clmgmuym4fnudewgntl6qtgbeiuanoyd5ivhkallyfgnn377fj6a.cdn.ampproject.org", deniedAs("hash_not_known"),
			"ampcors reverse --among DOMAINS ORIGIN", `this-is-a-long-name\S*\.example\.com`},
		{"an international name with a shared prefix", "\n| `ambiguous_prefix` | an international name", nil,
			func(o *onCall) { o.publishers("www.example.com", "xn-foo.ru.com") },
			"GET https://xn--foo-ru-com.cdn.ampproject.org", deniedAs("ambiguous_prefix"), "ampcors check FILE", `xn-foo\.ru\.com`},
		{"a list of caches that lacks one", "\n| | a cache that is not trusted",
			func(o *onCall) {
				o.write(o.config+".caches", cachesFile("google", "cdn.ampproject.org"))
				o.serve = append(o.serve, "--caches", o.config+".caches")
			},
			func(o *onCall) { o.write(o.config+".caches", cachesFile("bing", "www.bing-amp.com")) },
			"GET " + page, deniedAs("unknown_host"), "ampcors explain --config FILE --caches CACHES ORIGIN", `below cdn\.ampproject\.org`},
		{"the database is down", "- alert: AMPSourceFails", (*onCall).withDatabase,
			func(o *onCall) { o.database.Stop() },
			"GET https://in-example-org.cdn.ampproject.org", `metric: ampcors_source_rejected_lookups_total\{by="circuit_open"\} [1-9]`,
			"ampcors check --database … FILE", `connect|refused|shut`},
		{"the triggers of the database are missing", "- alert: AMPRevocationsAreSlow", (*onCall).withDatabase,
			func(o *onCall) {
				for _, trigger := range []string{"insert", "update", "delete", "truncate"} {
					o.exec("DROP TRIGGER ampcors_" + trigger + " ON publishers")
				}
			},
			"GET https://in-example-org.cdn.ampproject.org", `metric: ampcors_source_listening 0`, "ampcors check --database … FILE", `trigger`},
		{"a proxy drops Origin", "\n| `no_origin_unsafe` | a proxy or a plugin drops Origin", nil,
			func(o *onCall) { o.behind(`proxy_set_header Origin ""; proxy_pass http://%s;`) },
			"POST " + page, deniedAs("no_origin_unsafe"), "ampcors probe --endpoint URL --publisher DOMAIN",
			`Look first for a proxy in front of the backend that drops the request header Origin`},
		{"a cache in front that ignores Vary", "\n- `cached-wrong-origin`", nil,
			func(o *onCall) {
				o.behind(`proxy_cache api; proxy_cache_key $uri; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control Vary; proxy_pass ` +
					`http://%s;`)
				o.ask("GET", other)
			},
			"GET " + page, "response: 200 " + other, "ampcors probe --endpoint URL --publisher DOMAIN", `cached-wrong-origin`},
		{"a new file has an older modification time, because of a wrong clock or a backup",
			"\n| `publisher_not_allowed`, `hash_not_known`, `unknown_host` | a publisher was removed", nil,
			func(o *onCall) {
				o.write(o.list+".restored", "www.example.com\nwww.example.net\n")
				old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // by a wrong clock, or restored from a backup
				if err := os.Chtimes(o.list+".restored", old, old); err != nil {
					o.t.Fatal(err)
				}
				if err := os.Rename(o.list+".restored", o.list); err != nil {
					o.t.Fatal(err)
				}
			},
			"GET " + other, `log: .*is applied.*firstRemoved=www\.example\.org`, "ampcors explain --config FILE ORIGIN",
			`publisher +www\.example\.org\n(.*\n)*.*allowlist *\n.*Neither listed`},
	} {
		t.Run(fault.name, func(t *testing.T) {
			// The section of OPERATIONS with the row, or the alert: that is what the person on call reads.
			document, next := string(operations), "\n## "
			if strings.HasPrefix(fault.row, "- alert: ") {
				document, next = string(alerts), "- alert: "
			}
			before, section, _ := strings.Cut(document, fault.row)
			section, _, _ = strings.Cut(section, next)
			section = before[max(0, strings.LastIndex(before, next)):] + fault.row + section
			command := strings.NewReplacer("explain --config FILE", "explain --config config.json", " --caches CACHES", "").Replace(fault.command)
			if !strings.Contains(document, fault.row) || !strings.Contains(section, command) {
				t.Errorf("there is no %q, or its section has no %q", fault.row, command)
			}
			dir := t.TempDir()
			o := &onCall{t: t, ampcors: program, config: filepath.Join(dir, "config.json"), list: filepath.Join(dir, "list.txt"),
				log: filepath.Join(dir, "log")}
			text, err := json.Marshal(map[string]any{"publishersFile": "list.txt", "methods": []string{"GET", "POST"}})
			if err != nil {
				t.Fatal(err)
			}
			o.write(o.config, string(text))
			o.publishers("www.example.com", "www.example.org")
			if fault.before != nil {
				fault.before(o)
			}
			o.start()
			method, origin, _ := strings.Cut(fault.request, " ")
			servertest.Until(t, "no "+fault.signal, servertest.Soon, func() bool { return !o.has(fault.signal) })
			begun := time.Now()
			fault.inject(o)
			servertest.Until(t, fault.signal, servertest.Soon, func() bool {
				o.ask(method, origin)
				return o.has(fault.signal)
			})
			seen := time.Since(begun)
			// The names in capitals, and the URL of the database.
			command = strings.NewReplacer("FILE", o.config, "CACHES", o.config+".caches", "ORIGIN", origin, "URL", "http://"+o.api+"/", "DOMAINS",
				o.list+".all", "DOMAIN", "www.example.com", "…", o.dsn).Replace(strings.TrimPrefix(fault.command, "ampcors "))
			out := o.run(strings.Fields(command)...)
			t.Logf("%s: the signal after %.1f s, the cause after %.1f s", fault.name, seen.Seconds(), time.Since(begun).Seconds())
			if !regexp.MustCompile(fault.cause).MatchString(out) {
				t.Errorf("ampcors %s: %s", command, out)
			}
		})
	}
}
