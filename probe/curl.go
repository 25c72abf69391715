package probe

import (
	"cmp"
	"fmt"
	"maps"
	"net"
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
	if p.cfg.Insecure {
		b.WriteString("k")
	}
	if u, err := url.Parse(r.url); err == nil {
		port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
		if to, ok := p.cfg.Resolve[net.JoinHostPort(u.Hostname(), port)]; ok {
			// otherwise curl would call another server than the probe did; curl --resolve cannot change the port
			b.WriteString(" --connect-to " + quote(net.JoinHostPort(u.Hostname(), port)+":"+to))
		}
	}
	switch r.method {
	case http.MethodGet:
	case http.MethodHead:
		b.WriteString(" --head") // with -X, curl would wait for a body
	default:
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

// quote quotes a word for a POSIX shell. Control characters need $'…', which bash, zsh and POSIX.1-2024 have.
func quote(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' }) {
		return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\r", `\r`, "\n", `\n`, "\t", `\t`).Replace(word) + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// variableName returns the name of the environment variable for a header.
func variableName(header string) string {
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, header))
}
