package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/jsonschema"
	"github.com/ampcors/ampcors/internal/vectors"
)

var update = flag.Bool("update", false, "write the answers into the files")

// TestTheAnswersAreThoseOfTheCode computes all answers, and compares them with the files. What is recorded of
// others is kept: a prefix with a note or a source. The answers in updatecache.json and indexnow.json are written
// by hand, and the tests of these packages compare them.
func TestTheAnswersAreThoseOfTheCode(t *testing.T) {
	names, err := filepath.Glob("*s.json")
	if err != nil || len(names) < 4 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range append(names, "indexnow.json", "updatecache.json") {
		t.Run(name, func(t *testing.T) {
			f, err := vectors.Read(name)
			if err != nil {
				t.Fatal(err)
			}
			removed := removeAnswers(&f)
			if err := complete(&f); err != nil {
				t.Fatal(err)
			}
			if err := number(&f); err != nil {
				t.Error(err)
			}
			got, err := format(f)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			wantLines := bytes.Split(want, []byte("\n"))
			for i, line := range bytes.Split(got, []byte("\n")) {
				if i >= len(wantLines) || !bytes.Equal(line, wantLines[i]) {
					t.Fatalf("line %d differs; go test ./conformance -update writes\n%s", i+1, line)
				}
			}
			if len(got) != len(want) || removed == 0 && f.UpdateCache == nil && f.IndexNow == nil {
				t.Errorf("%d bytes; want %d; %d answers computed", len(want), len(got), removed)
			}
		})
	}
}

func TestSchema(t *testing.T) {
	jsonschema.Check(t, "schema.json", "Vectors of ampcors", reflect.TypeFor[vectors.File](),
		map[reflect.Type]func(jsonschema.Schema) jsonschema.Schema{
			reflect.TypeFor[json.RawMessage](): func(jsonschema.Schema) jsonschema.Schema { return jsonschema.Schema{"type": "object"} },
		})
}

// removeAnswers removes what complete can compute, and returns how many vectors lost an answer.
func removeAnswers(f *vectors.File) (removed int) {
	for i, v := range f.Prefixes {
		recorded := slices.ContainsFunc(v.Prefixes, func(form vectors.Form) bool { return form.Note != "" || form.Published != nil })
		if v.Problem == "" && v.Note == "" && !recorded {
			f.Prefixes[i] = vectors.DomainPrefixes{ID: v.ID, Domain: v.Domain}
			removed++
		}
	}
	for i, v := range f.Domains {
		f.Domains[i] = vectors.PrefixDomain{ID: v.ID, Prefix: v.Prefix}
	}
	for i, v := range f.Origins {
		f.Origins[i] = vectors.Origin{ID: v.ID, Policy: v.Policy, Name: v.Name, Origin: v.Origin, Source: v.Source}
	}
	for i := range f.Requests {
		v := &f.Requests[i]
		v.Reason, v.Status, v.Response = "", 0, nil
	}
	for i := range f.CacheURLs {
		v := &f.CacheURLs[i]
		if v.URL != "" {
			v.CacheURL = ""
		}
		v.Canonical, v.Problem = "", ""
	}
	return removed + len(f.Domains) + len(f.Origins) + len(f.Requests) + len(f.CacheURLs)
}

// number gives each vector without an ID the next one of its list, such as "origins-7".
func number(f *vectors.File) error {
	lists := reflect.ValueOf(f).Elem()
	for i := range lists.NumField() {
		list := lists.Field(i)
		if list.Kind() != reflect.Slice {
			continue
		}
		name, _, _ := strings.Cut(lists.Type().Field(i).Tag.Get("json"), ",")
		last, seen := 0, make(map[string]bool)
		for j := range list.Len() {
			id := list.Index(j).FieldByName("ID").String()
			if id == "" {
				continue
			}
			n, err := strconv.Atoi(strings.TrimPrefix(id, name+"-"))
			if err != nil || seen[id] {
				return fmt.Errorf("the ID %q is malformed, or two vectors have it; remove it, and -update writes a new one", id)
			}
			last, seen[id] = max(last, n), true
		}
		for j := range list.Len() {
			if id := list.Index(j).FieldByName("ID"); id.String() == "" {
				last++
				id.SetString(fmt.Sprintf("%s-%d", name, last))
			}
		}
	}
	return nil
}

// format returns the file as JSON with a line for each vector. Characters other than Latin-1 are escaped:
// many look like others, or change the direction of the line.
func format(f vectors.File) ([]byte, error) {
	var compact, out bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(f); err != nil {
		return nil, err
	}
	depth, inString, isEscaped := 0, false, false
	for _, c := range compact.String() {
		isEnd := !inString && (c == '}' || c == ']')
		if isEnd {
			depth--
			if depth < 2 {
				out.WriteString("\n" + strings.Repeat("\t", depth))
			}
		}
		if c <= unicode.MaxLatin1 && (unicode.IsPrint(c) || c == '\n') {
			out.WriteRune(c)
		} else {
			for _, unit := range utf16.AppendRune(nil, c) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
		if c == '"' && !isEscaped {
			inString = !inString
		}
		isEscaped = c == '\\' && !isEscaped
		switch {
		case inString || isEnd:
		case c == '{' || c == '[':
			depth++
			if depth <= 2 {
				out.WriteString("\n" + strings.Repeat("\t", depth))
			}
		case c == ',' && depth <= 2:
			out.WriteString("\n" + strings.Repeat("\t", depth))
		case c == ',' || c == ':':
			out.WriteByte(' ')
		}
	}
	return out.Bytes(), nil
}

// complete adds the answers that are missing in a file.
func complete(f *vectors.File) error {
	for i := range f.Prefixes {
		completeDomain(&f.Prefixes[i])
	}
	for i := range f.Domains {
		v := &f.Domains[i]
		if v.Domain == "" && v.Problem == "" {
			domain, err := cacheurl.PublisherDomain(v.Prefix)
			v.Domain, v.Problem = domain, problemOf(err)
			if errors.Is(err, cacheurl.ErrHashPrefix) {
				v.Problem = "has no dash, so that it can only be a hash prefix"
			}
		}
	}
	policies := make(map[string]*ampcors.Middleware)
	for name, data := range f.Policies {
		cfg, err := configfile.Inline{Name: name, JSON: data}.Config()
		if err != nil {
			return err
		}
		if policies[name], err = ampcors.New(cfg); err != nil {
			return err
		}
	}
	for _, v := range f.Origins {
		if policies[v.Policy] == nil {
			return fmt.Errorf("origin %q: there is no policy %q", v.Origin, v.Policy)
		}
	}
	for _, v := range f.Requests {
		if policies[v.Policy] == nil {
			return fmt.Errorf("request %q: there is no policy %q", v.Name, v.Policy)
		}
	}
	for i := range f.Origins {
		if v := &f.Origins[i]; v.Reason == "" {
			d := policies[v.Policy].CheckOrigin(v.Origin)
			v.Reason, v.Publisher, v.Claimed, v.Cache = d.Reason.String(), d.Publisher, d.ClaimedPublisher, d.CacheID
		}
	}
	for i := range f.Requests {
		if v := &f.Requests[i]; v.Reason == "" {
			completeRequest(v, policies[v.Policy])
		}
	}
	for i := range f.CacheURLs {
		completeCacheURL(&f.CacheURLs[i])
	}
	return nil
}

// problemOf returns what is wrong with a value, or "".
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	var texts []string
	for v := range badvalue.All(err) {
		texts = append(texts, v.Reason)
	}
	if texts == nil {
		return err.Error()
	}
	return strings.Join(texts, "; ")
}

func completeDomain(v *vectors.DomainPrefixes) {
	if v.ASCII == "" && v.Problem == "" {
		ascii, err := cacheurl.CanonicalDomain(v.Domain)
		if v.Problem = problemOf(err); ascii != v.Domain {
			v.ASCII = ascii
		}
	}
	if v.Prefixes == nil {
		forms, _ := cacheurl.Prefixes(v.Domain)
		for _, form := range forms {
			v.Prefixes = append(v.Prefixes, vectors.Form{Prefix: form.Prefix, By: form.By, Denied: form.Denied})
		}
	}
	given := 0
	for _, form := range v.Prefixes {
		if len(form.By) > 0 {
			given++
		}
	}
	v.Disagree = given > 1
}

func completeRequest(v *vectors.Request, mw *ampcors.Middleware) {
	r := httptest.NewRequest(v.Method, "https://api.example.org/data?"+v.Query, nil)
	for _, header := range v.Headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	v.Reason = mw.Check(r).Reason.String()
	answer, passed := httptest.NewRecorder(), false
	mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(answer, r)
	if !passed {
		v.Status = answer.Code
	}
	for name, values := range answer.Header() {
		if name != "Content-Type" && name != "X-Content-Type-Options" {
			v.Response = append(v.Response, strings.Replace(name, "Amp-", "AMP-", 1)+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(v.Response)
}

func completeCacheURL(v *vectors.CacheURL) {
	if v.CacheURL == "" && v.Problem == "" {
		cacheURL, err := cacheurl.URL{
			Publisher: v.URL, Cache: cacheOf(v), Prefix: v.Prefix, Type: cacheurl.ContentType(v.Type),
			ImageParams: v.ImageParams, CacheQuery: v.CacheQuery,
		}.Build()
		v.CacheURL, v.Problem = cacheURL, problemOf(err)
	}
	if v.CacheURL == "" || v.Canonical != "" || v.Problem != "" {
		return
	}
	u, err := cacheurl.Parse(v.CacheURL, cacheOf(v))
	if v.URL == "" {
		v.Problem = problemOf(err)
		v.Prefix, v.Type, v.CacheQuery, v.ImageParams = u.Prefix, string(u.Type), u.CacheQuery, u.ImageParams
	}
	if u.Publisher != v.URL {
		v.Canonical = u.Publisher
	}
}

func cacheOf(v *vectors.CacheURL) cacheurl.Cache {
	if v.Cache == "" {
		return cacheurl.DefaultCaches()[0]
	}
	return cacheurl.Cache{ID: "other", CacheDomain: v.Cache}
}
