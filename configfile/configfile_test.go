package configfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/strictjson"
	"github.com/ampcors/ampcors/source"
)

// write writes files into a new directory and returns its name.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withSource is for files with the member source.
func withSource(cfg *ampcors.Config) { cfg.Source = new(source.Source) }

func TestEveryFieldCanBeSetInAFile(t *testing.T) {
	dir := write(t, map[string]string{
		"config.json": `
{
	"publishers": ["www.example.com", "*.news.example", "bücher.example"],
	"publishersFile": "lists/publishers.txt",
	"caches": [{"id": "google", "name": "G", "docs": "D", "cacheDomain": "cdn.ampproject.org", "updateCacheApiDomainSuffix": ` +
			`"cdn.ampproject.org", "thirdPartyFrameDomainSuffix": "ampproject.net"}, "bing"],
	"origins": ["https://playground.amp.dev"],
	"email": {"senders": ["news@example.com"], "clients": []},
	"credentialed": true,
	"methods": ["PUT"], "requestHeaders": ["Authorization"], "responseHeaders": [],
	"maxAge": "10m",
	"reportOnly": true,
	"source": {"ttl": "90s", "negativeTTL": "5s", "maxStale": "1h30m", "timeout": "250ms", "maxConcurrent": 8, "maxEntries": 5000},
	"dangerouslyAllowAmbiguousPrefixes": true,
	"dangerouslyAllowHTTPOwnOrigins": true,
	"dangerouslyAllowPublicSuffixWildcards": true,
	"dangerouslyAllowUnsafeRequestsWithoutOrigin": true
}`,
	})
	if err := os.Mkdir(filepath.Join(dir, "lists"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "lists", "publishers.txt"),
		"# all of them\n\na.example\r\n \tb.example\t # a comment\n#c.example\n*.d.example\n")
	got, err := File{Path: filepath.Join(dir, "config.json"), Set: withSource}.Config()
	if err != nil {
		t.Fatal(err)
	}
	got.Source = nil
	want := ampcors.Config{
		Publishers: []string{"www.example.com", "*.news.example", "bücher.example", "a.example", "b.example", "*.d.example"},
		Caches: []cacheurl.Cache{{ID: "google", Name: "G", Docs: "D", CacheDomain: "cdn.ampproject.org",
			UpdateCacheAPIDomainSuffix: "cdn.ampproject.org", ThirdPartyFrameDomainSuffix: "ampproject.net"}, cacheurl.DefaultCaches()[1]},
		Origins:      []string{"https://playground.amp.dev"},
		Email:        ampcors.Email{Senders: []string{"news@example.com"}, Clients: []string{}},
		Credentialed: true,
		Methods:      []string{"PUT"}, RequestHeaders: []string{"Authorization"}, ResponseHeaders: []string{},
		MaxAge:                            10 * time.Minute,
		ReportOnly:                        true,
		DangerouslyAllowAmbiguousPrefixes: true, DangerouslyAllowHTTPOwnOrigins: true, DangerouslyAllowPublicSuffixWildcards: true,
		DangerouslyAllowUnsafeRequestsWithoutOrigin: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	lookup := source.Config{TTL: 90 * time.Second, NegativeTTL: 5 * time.Second, MaxStale: 90 * time.Minute, Timeout: 250 * time.Millisecond,
		MaxConcurrent: 8, MaxEntries: 5000}
	if got, err := (File{Path: filepath.Join(dir, "config.json")}).SourceConfig(); got != lookup || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, lookup)
	}
	if _, err := (File{Path: filepath.Join(dir, "missing")}).SourceConfig(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for v, i := reflect.ValueOf(got), 0; i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() && f.Tag.Get("json") != "-" {
			t.Errorf("the test does not set %s", f.Name)
		}
	}
}

func TestErrorsAreReportedWithTheirPosition(t *testing.T) {
	others := ""
	for _, c := range cacheurl.DefaultCaches()[2:] {
		others += ` or "` + c.ID + `"`
	}
	for _, test := range []struct {
		name string
		file string
		text string // publishers.txt
		want string
	}{
		{name: "unknown members", file: "{\n\t\"sites\": [\"a.example\", {\"b\": [1]}],\n\t\"email\": {\"to\": null}\n}", text: "",
			want: `config.json:2:2: "sites" is unknown; want one of publishers, caches, origins, email, credentialed, methods, ` +
				`requestHeaders, responseHeaders, maxAge, reportOnly, dangerouslyAllowAmbiguousPrefixes, dangerouslyAllowHTTPOwnOrigins, ` +
				`dangerouslyAllowPublicSuffixWildcards, dangerouslyAllowUnsafeRequestsWithoutOrigin, publishersFile, cachesFile, source, $schema
config.json:3:12: "email.to" is unknown; want one of senders, clients, dangerouslyAllowMailProviderWildcards`},
		{name: "misspelled members", file: "{\n\t\"publisher\": [\"a.example\"],\n\t\"email\": {\"sendrs\": null}, \"Publishers\": [], " +
			"\"source\": {\"tll\": \"1s\"}, \"max_age\": 1\n}", text: "",
			want: `config.json:2:2: "publisher" is unknown; did you mean "publishers"?
config.json:3:12: "email.sendrs" is unknown; did you mean "senders"?
config.json:3:29: "Publishers" is unknown; did you mean "publishers"?
config.json:3:58: "source.tll" is unknown; did you mean "ttl"?
config.json:3:72: "max_age" is unknown; did you mean "maxAge"?`},
		{name: "a cache that is not known", file: `{"publishers": ["a.example"], "caches": ["bing", "cloudflare"]}`, text: "",
			want: `config.json:1:50: caches[1] "cloudflare" is not the id of a known cache; want "google" or "bing"` + others +
				`, or an object as in caches.json`},
		{name: "wrong types", file: `{"publishers": "a.example", "origins": [1, "https://a.example", null, {"x": []}], "credentialed": "yes",
  "maxAge": "10 minutes", "caches": null, "email": [], "reportOnly": 0, "publishersFile": ["a"],
  "source": {"ttl": true, "maxEntries": "7", "timeout": 1e3, "maxConcurrent": 99999999999999999999}}`, text: "",
			want: `config.json:1:16: publishers is "a.example"; want a list, or remove it
config.json:1:41: origins[0] is 1; want a string
config.json:1:65: origins[2] is null; want a string
config.json:1:71: origins[3] is an object; want a string
config.json:1:99: credentialed is "yes"; want true or false
config.json:2:13: maxAge is "10 minutes"; want a duration such as "10m" or "90s"
config.json:2:37: caches is null; want a list, or remove it
config.json:2:52: email is a list; want an object
config.json:2:70: reportOnly is 0; want true or false
config.json:2:91: publishersFile is a list; want a string
config.json:3:21: source.ttl is true; want a duration such as "10m" or "90s"
config.json:3:41: source.maxEntries is "7"; want a whole number
config.json:3:57: source.timeout is 1e3; want a duration such as "10m" or "90s"
config.json:3:79: source.maxConcurrent is 99999999999999999999; want a whole number`},
		{name: "a number for a duration", file: `{"publishers": ["a.example"], "maxAge": 600, "source": {"ttl": 60000000000}}`, text: "",
			want: `config.json:1:41: maxAge is 600; want a duration such as "10m" or "90s"
config.json:1:64: source.ttl is 60000000000; want a duration such as "10m" or "90s"`},
		{name: "an empty list", file: `{"publishersFile": "publishers.txt", "origins": ["https://a.example"]}`, text: "# none\n\n",
			want: `publishers.txt:1:1: names no publisher; want at least one, or no publishersFile`},
		{name: "twice", file: "{\"publishers\": [\"a.example\"],\n \"publishers\": [\"b.example\"]}", text: "",
			want: `config.json:2:2: publishers occurs twice; want it once`},
		{name: "values beside a wrong type", file: `{
	"publishers": ["a.example", "ü.example", "https://b.example"],
	"caches": [{"id": "g", "cacheDomain": "CDN.example"}, {"cacheDomain": "b.example"}, 7],
	"email": {"senders": ["nobody"]}, "maxAge": "1.5s",
	"source": {"maxStale": "1s"}
}`, text: "", want: `config.json:2:43: publishers[2] "https://b.example" has a scheme; want "b.example"
config.json:3:40: caches[0].cacheDomain "CDN.example" is not in lower-case ASCII; want "cdn.example"
config.json:3:56: caches[1].id "" is empty; want a short name such as "google"
config.json:3:86: caches[2] is 7; want an object
config.json:4:24: email.senders[0] "nobody" is not an email address; want an address such as "news@example.com", or "*@example.com"
config.json:4:46: maxAge "1.5s" is not a whole number of seconds; want whole seconds, such as 10m0s
config.json:5:25: source.maxStale "1s" is less than the TTL, during which a publisher gets in anyway; want 1m0s at least`},
		{name: "values", file: `{
	"publishers": ["a.example", "ü.example", "https://b.example"],
	"caches": [{"id": "g", "cacheDomain": "CDN.example"}, {"cacheDomain": "b.example"}],
	"email": {"senders": ["nobody"]}, "maxAge": "1.5s",
	"source": {"maxStale": "1s"}
}`, text: "", want: `config.json:2:43: publishers[2] "https://b.example" has a scheme; want "b.example"
config.json:3:40: caches[0].cacheDomain "CDN.example" is not in lower-case ASCII; want "cdn.example"
config.json:3:56: caches[1].id "" is empty; want a short name such as "google"
config.json:4:24: email.senders[0] "nobody" is not an email address; want an address such as "news@example.com", or "*@example.com"
config.json:4:46: maxAge "1.5s" is not a whole number of seconds; want whole seconds, such as 10m0s
config.json:5:25: source.maxStale "1s" is less than the TTL, during which a publisher gets in anyway; want 1m0s at least`},
		{name: "a source and no database", file: `{"publishers": ["a.example"], "source": {}}`, text: "",
			want: `config.json:1:41: source says how a database is asked, and no database is named; want a database, or remove it`},
		{name: "no publisher", file: "\n {}", text: "", want: `config.json:2:2: publishers is missing, and nothing else allows anybody: no ` +
			`origins, email.senders or Source; want at least one publisher, such as "example.com"`},
		{name: "a list of publishers", file: `{"publishers": ["-a.example"], "publishersFile": "publishers.txt"}`,
			text: "a.example\n# b\n\n  http://b.example # c\nü.example\n\tc.example/\n",
			want: `config.json:1:17: publishers[0] "-a.example" has a label that begins or ends with a hyphen; want a domain such as ` +
				`"www.example.com"
publishers.txt:4:3: "http://b.example" has a scheme; want "b.example"
publishers.txt:6:2: "c.example/" has a path, query or fragment; want "c.example"`},
		{name: "a truncated list", file: `{"publishersFile": "publishers.txt"}`, text: "a.example\nwww.example.co",
			want: `publishers.txt:2:15: the last line has no line break: the file may be truncated; want a line break at the end`},
		{name: "a truncated list with errors", file: `{"publishersFile": "publishers.txt"}`, text: "-a.example\nb.example\n" +
			"http://c.example\nwww.exa", want: `publishers.txt:1:1: "-a.example" has a label that begins or ends with a hyphen; want a ` +
			`domain such as "www.example.com"
publishers.txt:3:1: "http://c.example" has a scheme; want "c.example"
publishers.txt:4:8: the last line has no line break: the file may be truncated; want a line break at the end`},
		{name: "a list in another encoding", file: `{"publishersFile": "publishers.txt"}`, text: "a.example\nb\xfccher.example\n",
			want: `publishers.txt:2:2: is not UTF-8; want UTF-8`},
		{name: "a list with a byte order mark", file: `{"publishersFile": "publishers.txt"}`, text: "\ufeffa.example\n",
			want: `publishers.txt:1:1: begins with a byte order mark; want UTF-8 without one`},
		{name: "a list that was emptied", file: `{"publishersFile": "publishers.txt"}`, text: "",
			want: `publishers.txt:1:1: names no publisher; want at least one, or no publishersFile`},
		{name: "a list without a name", file: `{"publishersFile": "", "publishers": ["a.example"]}`, text: "",
			want: `config.json:1:20: publishersFile cannot be read: DIR: it is not a regular file`},
		{name: "a list that is the file itself", file: `{"publishersFile": "./config.json", "publishers": ` +
			`["a"]}`, text: "", want: `config.json:1:20: publishersFile cannot be read: config.json: it is this file itself
config.json:1:52: publishers[0] "a" has no dot; want a domain such as "www.example.com"`},
		{name: "a list with lone carriage returns", file: `{"publishersFile": "publishers.txt"}`,
			text: "a.example\r\n# ours\rb.example\rc.example\r\n",
			want: `publishers.txt:2:7: has a carriage return inside a line; want lines that end in a line feed`},
		{name: "no list", file: "{\n\"publishersFile\": \"none.txt\"}", text: "",
			want: `config.json:2:19: publishersFile cannot be read: none.txt: no such file or directory`},
		{name: "truncated", file: "{\n\t\"publishers\": [\"a.exam", text: "",
			want: `config.json:2:24: is not JSON: unexpected end of JSON input`},
		{name: "empty", file: "", text: "", want: `config.json:1:1: is not JSON: unexpected end of JSON input`},
		{name: "a comma too many", file: "{\n\t\"publishers\": [\"a.example\",]}", text: "",
			want: `config.json:2:29: is not JSON: invalid character ']' looking for beginning of value; want no comma before it`},
		{name: "a comma that is missing", file: "{\n\t\"publishers\": [\"a.example\"]\n\t\"credentialed\": true}", text: "",
			want: `config.json:3:2: is not JSON: invalid character '"' after object key:value pair; want a comma before it`},
		{name: "text after the object", file: "{}\n}", text: "",
			want: `config.json:2:1: is not JSON: invalid character '}' after top-level value`},
		{name: "another encoding", file: "{\"publishers\": [\"b\xfccher.example\"]}", text: "",
			want: `config.json:1:19: is not UTF-8; want UTF-8`},
		{name: "a byte order mark", file: "\ufeff{}", text: "", want: `config.json:1:1: begins with a byte order mark; want UTF-8 without one`},
		{name: "a list", file: ` ["a.example"]`, text: "", want: `config.json:1:2: is a list; want an object`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, map[string]string{"config.json": test.file, "publishers.txt": test.text})
			file := File{Path: filepath.Join(dir, "config.json")}
			if strings.Contains(test.file, `"source": {"`) {
				file.Set = withSource
			}
			cfg, err := file.Config()
			if err == nil {
				t.Fatal("no problem was found")
			}
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""), dir, "DIR")
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if !reflect.DeepEqual(cfg, ampcors.Config{}) {
				t.Errorf("beside the error there is %+v", cfg)
			}
			for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
				if e := (*Error)(nil); !errors.As(err, &e) {
					t.Errorf("%T", err)
				}
			}
		})
	}
}

func TestAnInlineIsNotAFile(t *testing.T) {
	dir := write(t, map[string]string{"p.txt": "listed.example\n"})
	list := filepath.Join(dir, "p.txt")
	quoted, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("with a list", func(t *testing.T) {
		text := fmt.Sprintf(`{"publishers": ["a.example"], "publishersFile": %s}`, quoted)
		cfg, err := Inline{Name: "AMPCORS_CONFIG", JSON: []byte(text), Set: func(cfg *ampcors.Config) { cfg.ReportOnly = true }}.Config()
		if err != nil || !slices.Equal(cfg.Publishers, []string{"a.example", "listed.example"}) || !cfg.ReportOnly {
			t.Errorf("got %+v, %v", cfg, err)
		}
	})
	t.Run("with errors", func(t *testing.T) {
		cfg, err := Inline{Name: "AMPCORS_CONFIG", JSON: []byte(`{"publishers": ["b"], "publishersFile": "p.txt"}`)}.Config()
		want := `AMPCORS_CONFIG:1:17: publishers[0] "b" has no dot; want a domain such as "www.example.com"
AMPCORS_CONFIG:1:41: publishersFile "p.txt" is a relative path, and this configuration has no directory; want an absolute path`
		if err == nil || err.Error() != want || len(cfg.Publishers) != 0 {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	})
}

func TestAnErrorWrapsItsCause(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{"publishers": ["a.example", "b"]}`})
	_, err := File{Path: filepath.Join(dir, "config.json")}.Config()
	var e *Error
	var v *badvalue.Error
	if !errors.As(err, &e) || !errors.As(err, &v) || v.Path != "publishers[1]" || e.Path != "publishers[1]" || e.Column != 30 {
		t.Errorf("%#v, %#v", e, v)
	}
	_, err = File{Path: filepath.Join(dir, "none.json")}.Config()
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != filepath.Join(dir, "none.json")+": cannot be read: no such file or directory" {
		t.Error(err)
	}
}

// An error in the list does not hide an error in what the program sets.
func TestAnErrorInTheListHidesNoOther(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{"publishersFile": "p"}`, "p": "a.example"})
	_, err := File{Path: filepath.Join(dir, "config.json"), Set: func(cfg *ampcors.Config) { cfg.MaxAge = -1 }}.Config()
	if err == nil || !strings.Contains(err.Error(), "maxAge") || !strings.Contains(err.Error(), "p:1:10: the last line has no line break") {
		t.Error(err)
	}
}

// An error in what the program puts before the list has no line in the list.
func TestErrorsOfTheProgramHaveNoLine(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{"publishersFile": "p"}`, "p": "a.example\nb\n"})
	_, err := File{Path: filepath.Join(dir, "config.json"), Set: func(cfg *ampcors.Config) {
		cfg.Publishers = append([]string{"bad one", "x.example"}, cfg.Publishers...)
	}}.Config()
	if err == nil || strings.Contains(err.Error(), "p:1") || !strings.Contains(err.Error(), `config.json: publishers[0] "bad one" has`) {
		t.Error(err)
	}
}

func TestAFileThatIsTooLongIsNotRead(t *testing.T) {
	path := filepath.Join(write(t, map[string]string{"config.json": "{}"}), "config.json")
	if err := os.Truncate(path, maxFile+1); err != nil {
		if os.Getenv("AMPCORS_CI") != "" {
			t.Fatal(err)
		}
		t.Skip("this file system has no sparse files: ", err)
	}
	if _, err := (File{Path: path}).Config(); err == nil || !strings.HasSuffix(err.Error(), "cannot be read: it is longer than 1 GiB") {
		t.Error(err)
	}
}

func TestManyErrorsAreCounted(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{"publishersFile": "p"}`, "p": strings.Repeat("/\n", 1234)})
	_, err := File{Path: filepath.Join(dir, "config.json")}.Config()
	errs := err.(interface{ Unwrap() []error }).Unwrap()
	if len(errs) != maxProblems+1 || !strings.HasSuffix(errs[maxProblems].Error(), "p: 1134 more errors") ||
		!strings.Contains(errs[99].Error(), "p:100:1: ") {
		t.Errorf("%d errors, the last %v", len(errs), errs[len(errs)-1])
	}
}

func TestSetIsApplied(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{"credentialed": true}`})
	cfg, err := File{Path: filepath.Join(dir, "config.json"),
		Set: func(cfg *ampcors.Config) { cfg.Publishers = []string{"a.example"} }}.Config()
	if err != nil || !cfg.Credentialed || len(cfg.Publishers) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
	dir = write(t, map[string]string{"config.json": ` {"publishersFile": "p", "maxAge": "-1ns"}`, "p": "a.example\nb\n"})
	_, err = File{Path: filepath.Join(dir, "config.json"), Set: func(cfg *ampcors.Config) {
		cfg.Publishers = append(cfg.Publishers, "c", "*")
	}}.Config()
	want := `config.json:1:2: publishers[2] "c" has no dot; want a domain such as "www.example.com"
config.json:1:2: publishers[3] "*" has a * that does not stand alone before the first dot; want a domain such as "www.example.com"; in ` +
		`a list of publishers also a pattern such as "*.example.com"
config.json:1:36: maxAge "-1ns" is out of range; want 0 to 24h
p:2:1: "b" has no dot; want a domain such as "www.example.com"`
	if err == nil || strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "") != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Every path that validation can report names a member of the file.
func TestEveryFieldIsFound(t *testing.T) {
	bad := ampcors.Config{
		Publishers: []string{"/"}, Origins: []string{"/"}, Methods: []string{"/"}, RequestHeaders: []string{"/"}, ResponseHeaders: []string{"/"},
		Email: ampcors.Email{Senders: []string{"/"}, Clients: []string{"/"}}, MaxAge: -1, Caches: []cacheurl.Cache{{}},
	}
	lookup := decoder{result: file{Asked: source.Config{TTL: -1, NegativeTTL: -1, MaxStale: -1, Timeout: -1, MaxConcurrent: -1,
		MaxEntries: -1}}}
	err := errors.Join(bad.Validate(), lookup.sourceErrors())
	document := strictjson.Decode([]byte(" {}"), new(file), strictjson.Options{})
	for problem := range badvalue.All(err) {
		path := problem.Path
		name, member, _ := strings.Cut(path, ".")
		name, _, _ = strings.Cut(name, "[")
		_, fields := strictjson.Members(reflect.New(reflect.TypeFor[file]()).Elem())
		field, ok := fields[name]
		if ok && member != "" {
			if field.Kind() == reflect.Slice {
				field = reflect.New(field.Type().Elem()).Elem()
			}
			member, _, _ = strings.Cut(member, "[")
			_, fields = strictjson.Members(field)
			_, ok = fields[member]
		}
		if !ok {
			t.Errorf("%v: there is no member %q", err, path)
		}
	}
	if offset := document.Offset("future[3].x"); offset != 1 {
		t.Errorf("at %d", offset)
	}
}

// New returns the same errors as Config.
func TestNewChecksAsConfigDoes(t *testing.T) {
	dir := write(t, map[string]string{"good.json": `{"publishersFile": "p"}`, "bad.json": `{"publishersFile": "q", "maxAge": 1}`,
		"p": "a.example\n", "q": "a.example\nhttps://b.example\n"})
	mw, err := File{Path: filepath.Join(dir, "good.json"), Set: func(cfg *ampcors.Config) {
		cfg.Origins = []string{"https://set.example"}
	}}.New()
	if err != nil || !mw.CheckOrigin("https://a.example").Allowed || !mw.CheckOrigin("https://set.example").Allowed {
		t.Errorf("%v", err)
	}
	mw, err = File{Path: filepath.Join(dir, "bad.json")}.New()
	_, want := File{Path: filepath.Join(dir, "bad.json")}.Config()
	if mw != nil || err == nil || err.Error() != want.Error() || !strings.Contains(err.Error(), "q:2:1:") ||
		!strings.Contains(err.Error(), "maxAge is 1") {
		t.Errorf("got %v\nwant %v", err, want)
	}
}

// FuzzLoad checks that encoding/json accepts every file that File.Config accepts, with the same
// result.
func FuzzLoad(f *testing.F) {
	f.Add(`{"publishers": ["a.example"], "credentialed": true}`, "a.example\n")
	f.Add(`{"publishersFile": "publishers.txt", "caches": [{"id": "g", "cacheDomain": "cdn.ampproject.org"}]}`, "b.example # b\n")
	f.Add(`{"source": {"ttl": "5m"}, "email": {"senders": ["*@a.example"], "clients": []}, "maxAge": "1h"}`, "")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file, list string) {
		if strings.Contains(file, "publishersFile") && !strings.Contains(file, `"publishersFile": "publishers.txt"`) {
			return // it could be any file on this machine
		}
		dir, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		writeFile(t, filepath.Join(dir, "config.json"), file)
		writeFile(t, filepath.Join(dir, "publishers.txt"), list)
		cfg, err := File{Path: filepath.Join(dir, "config.json")}.Config()
		checkLoaded(t, file, list, cfg, err)
	})
}

// checkLoaded compares the result of File.Config with the results of encoding/json and of a
// simple reading of the list.
func checkLoaded(t *testing.T, file, list string, cfg ampcors.Config, err error) {
	t.Helper()
	if err != nil {
		for _, err := range unwrap(err) {
			e := (*Error)(nil)
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Reason == "" {
				t.Fatalf("%q: %#v", file, err)
			}
			text := file
			if strings.HasSuffix(e.File, ".txt") {
				text = list
			}
			lines := strings.Split(text, "\n")
			if e.Line > len(lines) || e.Column > len([]rune(lines[e.Line-1]))+1 {
				t.Fatalf("%q: there is no place %d:%d: %v", text, e.Line, e.Column, e)
			}
		}
		return
	}
	type config ampcors.Config // without its methods
	type lookup source.Config  // without the durations, which are strings here
	var plain struct {
		config
		MaxAge string `json:"maxAge"`
		Lookup struct {
			lookup
			TTL         string `json:"ttl"`
			NegativeTTL string `json:"negativeTTL"`
			MaxStale    string `json:"maxStale"`
			Timeout     string `json:"timeout"`
		} `json:"source"`
		PublishersFile string `json:"publishersFile"`
	}
	_ = plain.config // only encoding/json writes to it
	decoder := json.NewDecoder(strings.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&plain); err != nil {
		t.Fatalf("%q: encoding/json says %v", file, err)
	}
	if plain.PublishersFile != "" {
		for _, line := range strings.Split(list, "\n") {
			if fields := strings.Fields(strings.SplitN(line, "#", 2)[0]); len(fields) == 1 {
				plain.Publishers = append(plain.Publishers, fields[0])
			}
		}
	}
	want := ampcors.Config(plain.config)
	want.MaxAge = duration(plain.MaxAge)
	options := source.Config(plain.Lookup.lookup)
	options.TTL, options.NegativeTTL = duration(plain.Lookup.TTL), duration(plain.Lookup.NegativeTTL)
	options.MaxStale, options.Timeout = duration(plain.Lookup.MaxStale), duration(plain.Lookup.Timeout)
	if got, err := (Inline{JSON: []byte(file)}).SourceConfig(); got != options || err != nil {
		t.Fatalf("%q: Lookup returns %+v, %v; want %+v", file, got, err, options)
	}
	if !reflect.DeepEqual(want, cfg) {
		t.Fatalf("%q is\n%+v; encoding/json has\n%+v", file, cfg, want)
	}
}

func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s) // "" is zero
	return d
}

func unwrap(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Inline reads what Marshal writes, even where an empty list is not the same as no list.
func TestMarshalIsReadAgain(t *testing.T) {
	t.Parallel()
	full := ampcors.Config{
		Publishers: []string{"*.example.com"}, Caches: cacheurl.DefaultCaches(), Origins: []string{"https://a.example"}, Credentialed: true,
		Methods: []string{"PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxAge: 90 * time.Second,
		Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{"https://mail.example"},
			DangerouslyAllowMailProviderWildcards: true},
		ReportOnly: true, DangerouslyAllowHTTPOwnOrigins: true, DangerouslyAllowPublicSuffixWildcards: true,
		DangerouslyAllowUnsafeRequestsWithoutOrigin: true, DangerouslyAllowAmbiguousPrefixes: true,
	}
	for i, v := 0, reflect.ValueOf(full); i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() && f.Tag.Get("json") != "-" {
			t.Errorf("the test does not set %s", f.Name)
		}
	}
	for name, cfg := range map[string]ampcors.Config{
		"full":  full,
		"small": {Publishers: []string{"a.example"}},
		"empty": {Publishers: []string{"a.example"}, ResponseHeaders: []string{},
			Email: ampcors.Email{Senders: []string{"a@example.com"}, Clients: []string{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := Marshal(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := (Inline{JSON: data}).Config(); err != nil || !reflect.DeepEqual(got, cfg) {
				t.Errorf("%s\nis read as %+v, %v", data, got, err)
			}
		})
	}
}

// cachesFile is a copy of the registry, in place of caches.
func TestTheCachesOfAFileAreTrusted(t *testing.T) {
	t.Parallel()
	const registry = `{"caches": [{"id": "other", "name": "Other", "docs": "", "cacheDomain": "cache.example", ` +
		`"updateCacheApiDomainSuffix": "", "thirdPartyFrameDomainSuffix": ""}]}`
	dir := write(t, map[string]string{"caches.json": registry, "empty.json": "", "none.json": `{"caches": []}`})
	path := filepath.Join(dir, "config.json")
	for _, test := range []struct{ json, want string }{
		{`{"publishers": ["www.example.com"], "cachesFile": "caches.json"}`, ""},
		{`{"publishers": ["www.example.com"], "cachesFile": "caches.json", "caches": ["google"]}`,
			`config.json:1:51: cachesFile is set, and so is caches; want one of them`},
		{`{"publishers": ["www.example.com"], "cachesFile": "empty.json"}`, `config.json:1:51: cachesFile cannot be used: `},
		{`{"publishers": ["www.example.com"], "cachesFile": "none.json"}`, `names no cache`},
		{`{"publishers": ["www.example.com"], "cachesFile": "nowhere.json"}`, `cachesFile cannot be read: `},
		{`{"publishers": ["www.example.com"], "cachesFile": "config.json"}`, `it is this file itself`},
	} {
		writeFile(t, path, test.json)
		cfg, err := File{Path: path}.Config()
		if test.want == "" && (err != nil || len(cfg.Caches) != 1 || cfg.Caches[0].CacheDomain != "cache.example") || test.want != "" &&
			(err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %+v, %v; want %q", test.json, cfg.Caches, err, test.want)
		}
	}
	if _, err := (Inline{JSON: []byte(`{"publishers": ["www.example.com"], "cachesFile": "caches.json"}`)}).Config(); err == nil ||
		!strings.Contains(err.Error(), "cachesFile \"caches.json\" is a relative path") {
		t.Error(err)
	}
}
