package probe

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// curl returns a command line that makes a request. Values of Config.Header and
// Config.Cookie may be secrets, so the command line refers to environment variables for
// them, and has none of them for a host to which the probe does not send them.
func (p *prober) curl(r request) string {
	var b strings.Builder
	b.WriteString("curl -gsi") // -g: brackets in a URL are no patterns
	if r.method != http.MethodGet {
		b.WriteString(" -X " + r.method)
	}
	if r.origin != "" {
		b.WriteString(" -H " + quote("Origin: "+r.origin))
	}
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		if name != "Accept" && name != "Pragma" && name != "Cache-Control" {
			b.WriteString(" -H " + quote(name+": "+r.header.Get(name)))
		}
	}
	isTrusted := p.client.trusted[originOfURL(r.url)]
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Header)) {
		if isTrusted {
			fmt.Fprintf(&b, " -H \"%s: $%s\"", name, variableName(name))
		}
	}
	if isTrusted && r.credentials && p.cfg.Cookie != "" {
		b.WriteString(` -H "Cookie: $COOKIE"`)
	}
	if r.body != "" {
		b.WriteString(" --data-raw " + quote(r.body))
	}
	u := r.url
	if parsed, err := url.Parse(u); err == nil {
		u = parsed.Redacted()
	}
	return b.String() + " " + quote(u)
}

// quote quotes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// variableName returns the name of the environment variable for a header.
func variableName(header string) string {
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, header))
}
