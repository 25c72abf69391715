package probe_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe/probetest"
	"github.com/ampcors/ampcors/internal/readme"
)

// TestEachMistakeIsFound checks that the probe finds exactly the ids of each backend.
func TestEachMistakeIsFound(t *testing.T) {
	for _, c := range probetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.Backend())
			defer server.Close()
			c.Endpoint.URL = server.URL + "/"
			report, err := probe.Run(t.Context(), probe.Config{Endpoints: []probe.Endpoint{c.Endpoint}, Publishers: []string{c.Publisher}, Unsafe: c.Unsafe, Cookie: c.Cookie, Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, f.ID)
				if f.Title == "" || f.Remedy == "" || len(f.Evidence) == 0 || !strings.HasPrefix(f.Curl, "curl -gsi ") || strings.Contains(f.Remedy, "%!") {
					t.Errorf("%+v", f)
				}
			}
			slices.Sort(got)
			if hasAdvice := len(report.Snippets) == len(probe.Servers()); hasAdvice != (len(got) > 0) {
				t.Errorf("%d findings, and advice for %d servers", len(got), len(report.Snippets))
			}
			s := report.Summary
			if s.Planned != s.Fine+s.Problems+s.NotTested || s.Planned != len(report.Trials) || s.Planned < 50 {
				t.Errorf("not every trial has an outcome: %+v", s)
			}
			isFound := slices.ContainsFunc(report.Untested, func(u probe.Untested) bool { return c.NotTested != "" && strings.Contains(u.Reason, c.NotTested) })
			if isFound != (c.NotTested != "") || c.NotTested == "" && len(c.Want) == 0 && s.NotTested > 0 {
				t.Errorf("not tested: %+v; want %q", report.Untested, c.NotTested)
			}
			if !slices.Equal(got, c.Want) {
				t.Errorf("got %q; want %q", got, c.Want)
				for _, f := range report.Findings {
					t.Logf("%s: %s", f.ID, f.Evidence)
				}
				for _, u := range report.Untested {
					t.Logf("not tested: %+v", u)
				}
			}
		})
	}
}

// TestEachIDHasABackend checks that at least one backend leads to each id. Otherwise the id
// would not be tested.
func TestEachIDHasABackend(t *testing.T) {
	var shown []string
	for _, c := range probetest.Cases() {
		shown = append(shown, c.Want...)
	}
	for _, id := range probe.IDs() {
		if !slices.Contains(shown, id) {
			t.Errorf("no backend shows %s", id)
		}
	}
}

// TestWhatOtherProbesFind compares the table in the README with what this probe and probes
// with fewer requests find. With UPDATE_README=1, it writes the table.
func TestWhatOtherProbesFind(t *testing.T) {
	table := "| backend | one GET for each cache | hostile origins by GET | `ampcors probe` |\n| --- | --- | --- | --- |\n"
	mark := map[bool]string{true: "found", false: ""}
	for _, c := range probetest.Cases() {
		if len(c.Want) == 0 || c.Remembers {
			continue // simpler probes send fewer requests, so that they see another backend
		}
		server := httptest.NewServer(c.Backend())
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", c.Name, mark[getForEachCache(t, server.URL, c)], mark[hostileGets(t, server.URL, c)], strings.Join(c.Want, ", "))
		server.Close()
	}
	readme.Check(t, "../../README.md", "probes", table)
}

// get returns the header of the answer to a GET from an origin.
func get(t *testing.T, url, origin string) http.Header {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", origin)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.Header
}

// getForEachCache reports whether the test of AMP Toolbox's linter finds a problem. It
// sends one GET for each cache. Access-Control-Allow-Origin must be the origin or *.
func getForEachCache(t *testing.T, url string, c probetest.Case) bool {
	origins, err := cacheurl.Origins(c.Publisher)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(origins, func(origin string) bool {
		allowed := get(t, url+"/?__amp_source_origin=https%3A%2F%2F"+c.Publisher, origin).Get("Access-Control-Allow-Origin")
		return allowed != origin && allowed != "*"
	})
}

// hostileGets reports whether the test of CORS scanners finds a problem. If the site's own
// origin is allowed, it sends a GET from each of several hostile origins.
func hostileGets(t *testing.T, url string, c probetest.Case) bool {
	own := "https://" + c.Publisher
	if get(t, url, own).Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	return slices.ContainsFunc([]string{"https://evil.example", "null", own + ".evil.example", "https://evil" + c.Publisher, "http://" + c.Publisher}, func(origin string) bool {
		h := get(t, url, origin)
		return h.Get("Access-Control-Allow-Origin") == origin && h.Get("Access-Control-Allow-Credentials") == "true" || h.Get("Access-Control-Allow-Origin") == "*" && h.Get("Access-Control-Allow-Credentials") == "true"
	})
}
