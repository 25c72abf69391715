package domains

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
)

// MaxOrigin is the length of the longest origin that can be allowed:
// "https://", a domain, and a port.
const MaxOrigin = len("https://") + MaxDomain + len(":65535")

// appSchemes are those of frameworks for apps. Every app that is made with one has the same origin.
var appSchemes = []string{"app", "capacitor", "file", "ionic", "tauri"}

// CheckOrigin returns why value is not an origin as browsers serialize it. Only that form
// can be equal to an Origin header.
// https://html.spec.whatwg.org/#ascii-serialization-of-an-origin
func CheckOrigin(value string) *Problem {
	const example = `an origin such as "https://www.example.com" or "http://localhost:8080"`
	switch {
	case value == "null":
		return &Problem{Code: badvalue.Unsafe, Reason: "is what every sandboxed frame and local file sends", Want: example}
	case value == "*":
		return &Problem{Code: badvalue.Unsafe, Reason: "would allow everybody", Want: example}
	case len(value) > MaxOrigin:
		return &Problem{Code: badvalue.OutOfRange, Reason: fmt.Sprintf("is longer than %d bytes", MaxOrigin), Want: example}
	}
	u, err := url.Parse(value)
	scheme, rest, hasScheme := strings.Cut(value, "://")
	switch {
	case strings.ContainsAny(value, ", ") && strings.Count(value, "://") != 1:
		return &Problem{Reason: "is several origins in one text", Want: "an element of the list for each"}
	case strings.HasPrefix(rest, "*."):
		return &Problem{Code: badvalue.Unsafe, Reason: "is a pattern, and origins are compared byte by byte",
			Want: fmt.Sprintf("%q in publishers, which allows own pages and those on AMP Caches", rest)}
	case hasScheme && slices.Contains(appSchemes, scheme):
		return &Problem{Code: badvalue.Unsafe, Reason: "is the origin of every app that is made with that framework",
			Want: "no entry; requests that the app sends itself, and not its web view, need no CORS"}
	}
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return &Problem{Reason: "is not an http or https origin", Want: example}
	}
	host, port := strings.ToLower(u.Hostname()), u.Port() // url.Parse accepts only digits as a port
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && (addr.Is4In6() || addr.Zone() != ""):
		return &Problem{Reason: "has an address that browsers write in another way", Want: example}
	case err == nil && addr.Is6():
		host = "[" + addr.String() + "]"
	case !IsASCII(host):
		parsed, err := ParseBase(host)
		if err != nil {
			return &Problem{Reason: "has a host that " + err.Reason, Want: example}
		}
		host = parsed
	case err != nil && IsNumber(host[strings.LastIndexByte(host, '.')+1:]):
		return &Problem{Reason: "has an address that browsers write in another way", Want: example}
	case err != nil && !isHost(host):
		return &Problem{Reason: "has a host that is not letters, digits, hyphens and underscores between single dots",
			Want: example}
	}
	canonical := u.Scheme + "://" + host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return &Problem{Code: badvalue.OutOfRange, Reason: "has a port above 65535", Want: example}
		}
		if isDefault := u.Scheme == "http" && n == 80 || u.Scheme == "https" && n == 443; !isDefault {
			canonical += fmt.Sprintf(":%d", n)
		}
	}
	if canonical != value {
		return &Problem{Reason: "is not how browsers write this origin", Instead: canonical}
	}
	return nil
}

// isHost reports whether s can be the host of an origin, which need not be a
// publisher's domain: "localhost" and "foo-.example.com" are allowed.
func isHost(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, Bytes) != "" {
			return false
		}
	}
	_, p := Decode(s)
	return p != ProblemALabel
}

// HostOf returns the host of an origin.
func HostOf(origin string) string {
	_, host, _ := strings.Cut(origin, "://")
	host, _, _ = strings.Cut(host, ":")
	return host
}

// DevelopmentOrigin returns the origin of a local address such as "localhost:8080", or "" if
// value is not one.
func DevelopmentOrigin(value string) string {
	_, host, found := strings.Cut(value, "//")
	if !found {
		host = value
	}
	host, _, _ = strings.Cut(host, "/")
	name, _, _ := strings.Cut(host, ":")
	if origin := "http://" + host; name == "localhost" || IsIPAddress(name) {
		if CheckOrigin(origin) == nil {
			return origin
		}
	}
	return ""
}
