package probe_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/probe"
	"github.com/ampcors/ampcors/probe/probetest"
)

// TestEachMistakeIsFound checks that the probe finds exactly the ids of each backend.
func TestEachMistakeIsFound(t *testing.T) {
	for _, c := range probetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.Backend())
			defer server.Close()
			c.Endpoint.URL = server.URL + "/"
			report, err := probe.Run(t.Context(), probe.Config{Rate: math.Inf(1), Endpoints: []probe.Endpoint{c.Endpoint},
				Publishers: []string{c.Publisher},
				Unsafe:     c.Unsafe, Cookie: c.Cookie, Timeout: time.Minute, MaxTime: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, string(f.ID))
				if f.Title == "" || f.Remedy == "" || len(f.Evidence) == 0 || !strings.HasPrefix(f.Curl, "curl -gsi ") ||
					strings.Contains(f.Remedy, "%!") {
					t.Errorf("%+v", f)
				}
			}
			for _, trial := range report.Trials {
				if slices.Contains(trial.Causes, probe.CachedWrongOrigin) && trial.Kind == probe.KindPage && (trial.Works || trial.Reason == "") {
					t.Errorf("a page works that gets another's answer: %+v", trial)
				}
				if slices.Contains(trial.Causes, "acao-missing") && trial.Kind == probe.KindPage && trial.Reason == "" || trial.Outcome == probe.Fine &&
					trial.Reason != "" {
					t.Errorf("the reason is not that of the outcome: %+v", trial)
				}
			}
			slices.Sort(got)
			isOfBackend := slices.ContainsFunc(got, func(id string) bool {
				return !slices.Contains([]probe.ID{probe.CachedWrongOrigin, probe.HTTPError, probe.NotJSON, probe.NotScript}, probe.ID(id))
			})
			if hasAdvice := len(report.Snippets) == len(probe.Servers()); hasAdvice && len(got) == 0 || isOfBackend && !hasAdvice {
				t.Errorf("%d findings, and advice for %d servers", len(got), len(report.Snippets))
			}
			s := report.Summary
			if s.Planned != s.Fine+s.Problems+s.NotTested || s.Planned != len(report.Trials) || s.Planned < 50 {
				t.Errorf("not every trial has an outcome: %+v", s)
			}
			isFound := slices.ContainsFunc(report.Untested, func(u probe.Untested) bool {
				return c.NotTested != "" &&
					strings.Contains(u.Reason, c.NotTested)
			})
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

// TestEachMistakeAboutEmailsIsFound is the same for the emails of a sender.
func TestEachMistakeAboutEmailsIsFound(t *testing.T) {
	for _, c := range probetest.EmailCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.Backend)
			defer server.Close()
			endpoint := probe.Endpoint{URL: server.URL + "/", Method: "GET", Answer: probe.AnswerJSON}
			report, err := probe.Run(t.Context(), probe.Config{Rate: math.Inf(1), Endpoints: []probe.Endpoint{endpoint},
				Senders: []string{probetest.Sender},
				Timeout: time.Minute, MaxTime: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, string(f.ID))
				if f.Sender == "" || f.Remedy == "" || len(f.Evidence) < 2 || !strings.HasPrefix(f.Curl, "curl -gsi ") ||
					strings.Contains(f.Remedy, "%[") {
					t.Errorf("%+v", f)
				}
			}
			slices.Sort(got)
			if s := report.Summary; !slices.Equal(got, c.Want) || len(report.Snippets) > 0 || s.Planned != 10 ||
				s.Planned != s.Fine+s.Problems+s.NotTested {
				t.Errorf("got %q; want %q; %+v", got, c.Want, report)
			}
			isFound := slices.ContainsFunc(report.Untested, func(u probe.Untested) bool {
				return c.NotTested != "" &&
					strings.Contains(u.Reason, c.NotTested)
			})
			if isFound != (c.NotTested != "") || c.NotTested == "" && report.Summary.NotTested > 0 {
				t.Errorf("not tested: %+v; want %q", report.Untested, c.NotTested)
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
	for _, c := range probetest.EmailCases() {
		shown = append(shown, c.Want...)
	}
	for _, id := range probe.IDs() {
		if !slices.Contains(shown, string(id)) {
			t.Errorf("no backend shows %s", id)
		}
	}
}

// TestEachIDIsAConstant: ids.go has each id once, and no other file spells one, so that a misspelled id does not compile.
func TestEachIDIsAConstant(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range probe.IDs() {
			want := 0
			if name == "ids.go" {
				want = 1
			}
			if n := strings.Count(string(text), `"`+string(id)+`"`); n != want {
				t.Errorf("%s spells %s %d times; want %d", name, id, n, want)
			}
		}
	}
}

// A right backend without preflights is asked exactly as often as the estimate says: it is the sum of what the shapes and controls cost.
func TestTheEstimateOfARightBackendIsExact(t *testing.T) {
	check := func(name string, backend http.Handler, cfg probe.Config, want int) {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(backend)
			defer server.Close()
			cfg.Endpoints[0].URL = server.URL + "/"
			report, err := probe.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if e, s := report.Estimate, report.Summary; e.Requests != want || s.Requests != want || e.Trials != s.Planned {
				t.Errorf("estimated: %+v; %+v; want %d", e, s, want)
			}
		})
	}
	for _, c := range probetest.Cases() {
		if want := map[string]int{"right": 171, "ampcors": 171, "ampcors, a form": 186}[c.Name]; want > 0 {
			check(c.Name, c.Backend(), probe.Config{Endpoints: []probe.Endpoint{c.Endpoint}, Publishers: []string{c.Publisher},
				Caches: cacheurl.DefaultCaches()[:2], Unsafe: c.Unsafe, Cookie: c.Cookie}, want)
		}
	}
	for _, c := range probetest.EmailCases() {
		if c.Name == "right" {
			check("emails", c.Backend, probe.Config{Endpoints: []probe.Endpoint{{Method: "GET", Answer: probe.AnswerJSON}},
				Senders: []string{probetest.Sender}}, 11)
		}
	}
}
