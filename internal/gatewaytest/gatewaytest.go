// Package gatewaytest compares a gateway in front of a backend with the Middleware.
package gatewaytest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/guard"
	"github.com/ampcors/ampcors/internal/header"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// PublisherHeader is the request header in which the gateway must send the publisher.
const PublisherHeader = "Ampcors-Publisher"

// Source is the Database that the gateway's Source must ask. It fails for some domains.
var Source = source.Database{
	PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
		if strings.HasPrefix(domain, "down") {
			return false, mwtest.ErrDown
		}
		return domain == "www.source.example", nil
	}),
}

// NewMiddleware returns a Middleware with the configuration that the gateway must have.
func NewMiddleware(t testing.TB) *ampcors.Middleware {
	t.Helper()
	asked := mwtest.NewSource(t, Source)
	t.Cleanup(asked.Close)
	return mwtest.New(t, ampcors.Config{
		Publishers: []string{"www.example.com", "*.news.example"}, Credentialed: true, RequestHeaders: []string{"X-Any"},
		Email:  ampcors.Email{Senders: []string{"news@example.com"}},
		Source: asked,
	})
}

// Backend sets CORS headers of its own, which are wrong, and a Vary. It answers with what it
// got.
func Backend(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Credentials", "true")
	w.Header().Set("Access-Control-Allow-Methods", "PURGE")
	w.Header().Set("Access-Control-Allow-Headers", "X-Wrong")
	w.Header().Set("Access-Control-Expose-Headers", "X-Internal")
	w.Header().Set("Access-Control-Max-Age", "86400")
	w.Header().Set("AMP-Access-Control-Allow-Source-Origin", "https://evil.example")
	w.Header().Set("AMP-Email-Allow-Sender", "evil@evil.example")
	w.Header().Set("Vary", "Accept-Language")
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, "%s %s %q", r.Method, r.Header.Get(PublisherHeader), body)
}

var origins = []string{
	"", "https://www-example-com.cdn.ampproject.org", "https://www.example.com",
	"https://sport-news-example.cdn.ampproject.org",
	"https://www-source-example.www.bing-amp.com", "https://www-evil-example.cdn.ampproject.org",
	"https://down-example.cdn.ampproject.org", "null", "https://cdn.ampproject.org",
	"https://mail.google.com",
}

var headers = []string{
	"", "AMP-Same-Origin: true", "Access-Control-Request-Method: POST", "X-Original-Method: GET",
	PublisherHeader + ": forged.example", strings.ReplaceAll(PublisherHeader, "-", "_") + ": forged.example",
	"Connection: " + PublisherHeader, "Sec-Fetch-Site: same-origin",
	"AMP-Email-Sender: news@example.com",
}

// A Limit is what a gateway cannot do.
type Limit string

// NoPreflight503 is the limit of a gateway that answers 403 to a preflight in place of 503: a browser sees no
// difference.
const NoPreflight503 Limit = "a preflight gets 403 in place of 503"

// Compare sends requests of many kinds to the gateway, which must be in front of [Backend], and
// to the Middleware with its guard, in front of the same. Through both, the backend must get the
// same requests, and the client the same status, CORS headers and reason. A hint behind the reason may
// be missing.
func Compare(t *testing.T, gateway string, limits ...Limit) {
	t.Helper()
	api := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ampcors.DecisionFromContext(r.Context())
		r.Header.Set(PublisherHeader, d.Publisher)
		Backend(w, r)
	}))
	server := httptest.NewServer(NewMiddleware(t).WrapDecision(api))
	defer server.Close()
	for _, origin := range origins {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS"} {
			for _, line := range headers {
				t.Run(fmt.Sprint(origin, " ", method, " ", line), func(t *testing.T) {
					got, want := call(t, gateway, origin, method, line), call(t, server.URL, origin, method, line)
					isDenial := want.status == http.StatusForbidden || want.status == http.StatusServiceUnavailable
					if isDenial && slices.Contains(limits, NoPreflight503) && method == "OPTIONS" &&
						strings.HasPrefix(line, "Access-Control-Request-Method") {
						want.status, got.body, want.body = http.StatusForbidden, "", ""
					} else if isDenial && method != "HEAD" {
						for _, r := range []*response{&got, &want} {
							text, _, _ := strings.Cut(strings.TrimSuffix(r.body, "\n"), ";") // a hint may follow
							r.body = text + "\n"
						}
					}
					if got.status != want.status || got.body != want.body {
						t.Errorf("%d %q; want %d %q", got.status, got.body, want.status, want.body)
					}
					names := []string{"Vary", "Cache-Control", "Retry-After", "X-Ampcors-Status", "X-Ampcors-Reason",
						"X-Ampcors-Publisher"}
					if isDenial {
						names = append(names, "X-Content-Type-Options")
						for i, r := range []response{got, want} {
							if kind, _, _ := strings.Cut(r.headers.Get("Content-Type"), ";"); kind != "text/plain" {
								t.Errorf("the denial %d has the type %q", i, kind)
							}
						}
					}
					for _, all := range []http.Header{got.headers, want.headers} {
						for name := range all {
							if header.IsCORS(name) {
								names = append(names, name)
							}
						}
					}
					for _, r := range []response{got, want} {
						if vary := r.headers["Vary"]; vary != nil {
							r.headers["Vary"] = members(vary)
						}
					}
					for _, name := range names {
						if !slices.Equal(got.headers[name], want.headers[name]) {
							t.Errorf("%s: %q; want %q", name, got.headers[name], want.headers[name])
						}
					}
				})
			}
		}
	}
}

// members returns the members of a header's lines, each once: a gateway may repeat some.
func members(lines []string) []string {
	all := strings.FieldsFunc(strings.Join(lines, ","), func(c rune) bool { return c == ',' || c == ' ' })
	slices.Sort(all)
	return slices.Compact(all)
}

type response struct {
	status  int
	headers http.Header
	body    string
}

func call(t *testing.T, server, origin, method, line string) response {
	t.Helper()
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader("a body")
	}
	r, err := http.NewRequest(method, server+"/api?__amp_source_origin=news%40example.com", body)
	if err != nil {
		t.Fatal(err)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	if name, value, ok := strings.Cut(line, ": "); ok {
		r.Header[name] = []string{value} // not in canonical form
		if name == "Access-Control-Request-Method" {
			r.Header.Set("Access-Control-Request-Headers", "x-any")
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, string(data)}
}
