package caddy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

// parseDirective rejects a matcher: what it does not match would reach the backend without a decision.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	hasStar := h.NextArg() && h.Val() == "*" // Caddy's matcher of all requests, which is none
	h.Reset()
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	if matcher != nil {
		h.Next()
		return nil, h.Err("has a matcher, and requests that it does not match would reach the backend without a decision; " +
			"want the directive without a matcher. For paths with different publishers, want one ampcors with all publishers " +
			"and a publisher_header, " +
			"which the backend compares with the publisher of the path; or a host name for each publisher, with a backend of " +
			"its own")
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil && hasStar {
		return nil, fmt.Errorf("%w (* is Caddy's matcher of all requests, and no publisher)", err)
	} else if err != nil {
		return nil, err
	}
	return h.NewRoute(nil, handler), nil
}

// UnmarshalCaddyfile reads
//
//	ampcors [<publishers...>] {
//		publishers       <domain or pattern...>
//		publishers_file  <path>
//		caches_file      <path>       in place of caches
//		caches           [<id...>]    without an id, none is trusted
//		caches {
//			id           <name>
//			cache_domain <domain>
//		}
//		origins          <origin...>
//		email {
//			senders      <address...>
//			clients      <origin...>
//		}
//		credentialed
//		methods          <method...>
//		request_headers  <name...>
//		response_headers <name...>
//		max_age          <duration>
//		report_only
//		source_config {
//			ttl          <duration>
//			negative_ttl <duration>
//			...
//		}
//		source           redis|postgres ...
//		publisher_header <name>
//		denied           <body> [<content type>]
//		name             <name>
//	}
//
// All members of [ampcors.Config] can be set: the names are as in its JSON, in snake case. A list can also be a block
// with a value on each line, and can occur several times. All errors are reported with their lines, but of a block of
// source only the first.
//
// All requests to the handlers behind it must pass through it, preflights too. So a matcher is an error. For several
// publishers with paths of their own, see the README.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	p := parser{directive: d.Token(), places: make(map[string]caddyfile.Token)}
	config := make(map[string]any)
	for d.NextArg() {
		p.add(config, "publishers", "publishers", d.Val(), d.Token())
	}
	for option := range lines(d) {
		switch option.Val() {
		case "source":
			p.source(option, h)
		case "publisher_header":
			if p.text(option, &h.PublisherHeader) {
				if err := checkPublisherHeader(h.PublisherHeader); err != nil {
					p.report(option, "%w", err)
				}
			}
		case "denied":
			p.denied(option, h)
		case "name":
			p.text(option, &h.Name)
		default:
			p.option(option, reflect.TypeFor[options](), "", config)
		}
	}
	if len(config) > 0 {
		h.Config = caddyconfig.JSON(config, nil)
	}
	p.validate(config, h.SourceRaw != nil)
	return p.err()
}

// denied reads what a denied request gets.
func (p *parser) denied(d *caddyfile.Dispenser, h *Handler) {
	switch args := d.RemainingArgs(); {
	case h.Denied != nil:
		p.report(d, "denied occurs twice")
	case len(args) == 0 || len(args) > 2:
		p.report(d, "denied has %d values; want a body, and perhaps its content type", len(args))
	default:
		h.Denied = &Denial{Body: args[0]}
		if len(args) == 2 {
			h.Denied.ContentType = args[1]
		}
		p.noBlock(d, "denied")
	}
}

// lines returns an iterator over the lines of a block, each with its own block. The Dispenser of a line is at its
// first word.
func lines(d *caddyfile.Dispenser) iter.Seq[*caddyfile.Dispenser] {
	return func(yield func(*caddyfile.Dispenser) bool) {
		for nesting := d.Nesting(); d.NextBlock(nesting); {
			line := d.NewFromNextSegment()
			if line.Next(); !yield(line) {
				return
			}
		}
	}
}

// options has the members of a configuration of package configfile.
type options struct {
	ampcors.Config
	PublishersFile string        `json:"publishersFile"`
	CachesFile     string        `json:"cachesFile"`
	SourceConfig   source.Config `json:"sourceConfig"` // the option source is a module
}

// A parser translates a block of a Caddyfile to the JSON of package configfile.
type parser struct {
	directive caddyfile.Token
	places    map[string]caddyfile.Token // by the path of the value, such as "email.senders[0]"
	problems  []problem
}

// A problem is an error at a token. The text of the error has the token's file and line.
type problem struct {
	token caddyfile.Token
	err   error
}

// report reports a problem at the current token.
func (p *parser) report(d *caddyfile.Dispenser, format string, args ...any) {
	p.problems = append(p.problems, problem{d.Token(), d.Errf(format, args...)})
}

// reportAt reports a problem at a token.
func (p *parser) reportAt(token caddyfile.Token, text string) {
	d := caddyfile.NewDispenser([]caddyfile.Token{token})
	d.Next()
	p.report(d, "%s", text)
}

// err returns all problems, in the order of their lines.
func (p *parser) err() error {
	slices.SortStableFunc(p.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.token.File, b.token.File), cmp.Compare(a.token.Line, b.token.Line))
	})
	var errs []error
	for _, problem := range p.problems {
		errs = append(errs, problem.err)
	}
	return errors.Join(errs...)
}

// option reads one option of a struct.
func (p *parser) option(d *caddyfile.Dispenser, t reflect.Type, path string, values map[string]any) {
	option, all := d.Val(), members(t)
	m, ok := all[option]
	if !ok {
		known := slices.Collect(maps.Keys(all))
		if path == "" {
			known = append(known, "source", "publisher_header", "denied", "name")
		}
		slices.Sort(known)
		p.report(d, "unknown option %q; want one of %s", option, strings.Join(known, ", "))
		return
	}
	kind := m.Kind()
	if _, isTwice := values[m.name]; isTwice && kind != reflect.Slice {
		p.report(d, "%s occurs twice", option)
		return
	}
	path = strings.TrimPrefix(path+"."+m.name, ".")
	p.places[path] = d.Token()
	switch kind {
	case reflect.Slice:
		p.list(d, m, path, values)
	case reflect.Struct:
		if d.NextArg() {
			p.report(d, "%s takes no value; want a block", option)
			return
		}
		object := make(map[string]any)
		for line := range lines(d) {
			p.option(line, m.Type, path, object)
		}
		values[m.name] = object
	case reflect.Bool:
		if values[m.name] = true; d.NextArg() {
			p.report(d, "%s takes no value; remove %q, or the line", option, d.Val())
		} else {
			p.noBlock(d, option)
		}
	default:
		if text := ""; p.text(d, &text) {
			values[m.name] = scalar(m.Type, text)
		}
	}
}

// scalar returns a value for JSON. A wrong one stays a string: package configfile then reports
// an error.
func scalar(t reflect.Type, text string) any {
	if t == reflect.TypeFor[time.Duration]() {
		if duration, err := caddy.ParseDuration(text); err == nil { // it also knows days
			return duration.String()
		}
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && t.Kind() == reflect.Int {
		return n
	}
	return text
}

// text reads the one value of an option.
func (p *parser) text(d *caddyfile.Dispenser, value *string) bool {
	option, args := d.Val(), d.RemainingArgs()
	switch {
	case *value != "":
		p.report(d, "%s occurs twice", option)
		return false
	case len(args) == 0 || args[0] == "":
		p.report(d, "%s has no value", option)
		return false
	}
	if *value = args[0]; len(args) > 1 {
		p.report(d, "%s has more than one value", option)
		return false
	}
	return p.noBlock(d, option)
}

// noBlock reports a block behind an option or a value that has none.
func (p *parser) noBlock(d *caddyfile.Dispenser, name string) bool {
	if d.NextBlock(0) {
		p.report(d, "%s takes no block", name)
		return false
	}
	return true
}

// list reads the values of a list: those on the line and those in the block, which is one value if it has options.
func (p *parser) list(d *caddyfile.Dispenser, m member, path string, values map[string]any) {
	if values[m.name] == nil {
		values[m.name] = []any{} // an empty list is not the default
	}
	for d.NextArg() {
		p.add(values, m.name, path, d.Val(), d.Token())
	}
	var object map[string]any
	for line := range lines(d) {
		if m.Elem().Kind() == reflect.Struct {
			if object == nil {
				object = make(map[string]any)
				path = p.add(values, m.name, path, object, line.Token())
			}
			p.option(line, m.Elem(), path, object)
			continue
		}
		p.add(values, m.name, path, line.Val(), line.Token())
		for line.NextArg() {
			p.add(values, m.name, path, line.Val(), line.Token())
		}
		p.noBlock(line, line.Val())
	}
}

// add adds a value to a list, and returns its path.
func (p *parser) add(values map[string]any, name, path string, value any, at caddyfile.Token) string {
	list, _ := values[name].([]any)
	path += "[" + strconv.Itoa(len(list)) + "]"
	p.places[path] = at
	values[name] = append(list, value)
	return path
}

// source reads the option "source".
func (p *parser) source(d *caddyfile.Dispenser, h *Handler) {
	const namespace = "http.handlers.ampcors.sources"
	if h.SourceRaw != nil {
		p.report(d, "source occurs twice")
		return
	}
	h.SourceRaw = json.RawMessage("{}") // so that validate knows of a source, even if it is wrong
	var known []string
	for _, module := range caddy.GetModules(namespace) {
		known = append(known, module.ID.Name())
	}
	if !d.NextArg() {
		p.report(d, "source has no name; want one of %s", strings.Join(known, ", "))
		return
	}
	name, at := d.Val(), d.Token()
	if !slices.Contains(known, name) {
		p.report(d, "unknown source %q; want one of %s", printable(name), strings.Join(known, ", "))
		return
	}
	source, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
	if err != nil {
		p.problems = append(p.problems, problem{at, err}) // the error has its line
		return
	}
	h.SourceRaw = caddyconfig.JSONModuleObject(source, "module", name, nil)
}

// validate reports what is wrong in the configuration, each problem at its token. The files
// that it names are not read: they may be on another machine.
func (p *parser) validate(config map[string]any, hasSource bool) {
	config = maps.Clone(config)
	_, hasList := config["publishersFile"]
	delete(config, "publishersFile")
	if _, hasCaches := config["caches"]; hasCaches && config["cachesFile"] != nil {
		p.reportAt(p.places["cachesFile"], "caches_file is set, and so is caches; want one of them")
	}
	delete(config, "cachesFile")
	_, err := configfile.Inline{JSON: caddyconfig.JSON(config, nil), Set: func(cfg *ampcors.Config) {
		// Without the following, a configuration that lists no publisher is an error.
		if hasSource {
			cfg.Source = new(source.Source) // it is never asked
		}
		if hasList {
			cfg.Publishers = append(cfg.Publishers, "www.listed.example")
		}
	}}.Config()
	for _, err := range split(err) {
		token := p.directive
		if located := (*configfile.Error)(nil); errors.As(err, &located) {
			token = p.place(located.Path)
			renamed := *located
			renamed.Path = snakeCase(renamed.Path)
			if name, rest, _ := strings.Cut(renamed.Path, "."); name == "source" { // it is sourceConfig in the struct
				renamed.Path = strings.TrimSuffix("source_config."+rest, ".")
			}
			err = withoutPosition(&renamed)
		}
		p.reportAt(token, inOptions(err.Error()))
	}
}

// inOptions returns the text of an error with the names of options in place of those of Go and of JSON.
func inOptions(text string) string {
	text = memberName.ReplaceAllStringFunc(text, snakeCase)
	return strings.ReplaceAll(text, "email.senders or Source", "email senders or source")
}

var memberName = regexp.MustCompile(`\bdangerously[A-Z]\w+`)

// place returns the token of the value at path, or of the nearest value that contains it.
func (p *parser) place(path string) caddyfile.Token {
	for ; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if token, ok := p.places[path]; ok {
			return token
		}
	}
	return p.directive
}

// A member is a field of a struct, with its name in JSON.
type member struct {
	reflect.Type
	name string
}

// members returns the members of a struct by the names of their options.
func members(t reflect.Type) map[string]member {
	found := make(map[string]member)
	for _, f := range reflect.VisibleFields(t) {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name {
		case "", "-":
		case "sourceConfig":
			found[snakeCase(name)] = member{f.Type, "source"} // as package configfile has it
		default:
			found[snakeCase(name)] = member{f.Type, name}
		}
	}
	return found
}

var (
	wordEnd  = regexp.MustCompile(`([a-z])([A-Z])`)
	acronyms = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
)

// snakeCase returns a name such as "negativeTTL" as "negative_ttl".
func snakeCase(name string) string {
	return strings.ToLower(acronyms.ReplaceAllString(wordEnd.ReplaceAllString(name, "${1}_$2"), "${1}_$2"))
}
