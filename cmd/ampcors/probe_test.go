package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/probe"
)

// public starts an API that anybody may read, with pages.
func public(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		switch r.URL.Path {
		case "/1", "/2":
			w.Header().Set("Cache-Control", map[string]string{"/1": "public, max-age=3600", "/2": "s-maxage=5, Max-Age=86400"}[r.URL.Path])
			io.WriteString(w, `<amp-list src="/list"></amp-list><amp-list src="`+r.URL.Path+`/own"></amp-list>`)
		case "/empty":
			io.WriteString(w, "<p>no component</p>")
		default:
			io.WriteString(w, "{}")
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// probeJSON runs the probe, and returns its report.
func probeJSON(t *testing.T, code int, args ...string) (report runReport) {
	t.Helper()
	got, stdout, stderr := run(t, "", append([]string{"probe", "--rate", "0", "-o", "json", "--publisher", "www.example.com"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || got != code {
		t.Fatalf("exit code %d; want %d: %v\n%s\n%s", got, code, err, stdout, stderr)
	}
	return report
}

func TestAnEndpointOfSeveralPagesIsTestedOnce(t *testing.T) {
	server := public(t)
	file := writeFile(t, filepath.Join(t.TempDir(), "pages"), "# ours\n"+server.URL+"/2\n")
	sitemap := writeFile(t, filepath.Join(t.TempDir(), "sitemap.xml"), `<urlset><url><loc>`+server.URL+`/empty</loc></url></urlset>`)
	report := probeJSON(t, exitClean, server.URL+"/1", "--pages", file, "--sitemap", sitemap)
	var urls []string
	for _, e := range report.Endpoints {
		urls = append(urls, strings.TrimPrefix(e.URL, server.URL))
	}
	if !slices.Equal(urls, []string{"/list", "/1/own", "/2/own"}) {
		t.Errorf("tested %q", urls)
	}
	slow := server.URL + "/2 has Cache-Control: max-age=86400. AMP Caches may serve an old copy for that long, and ampcors flush only makes " +
		"them fetch a new one within that time."
	if !slices.Contains(report.Notes, slow) || strings.Count(strings.Join(report.Notes, "\n"), "max-age=") != 1 {
		t.Errorf("notes: %q", report.Notes)
	}
	if !slices.Contains(report.Notes, server.URL+"/empty has no endpoint: nothing in it needs CORS.") {
		t.Errorf("notes: %q", report.Notes)
	}
}

func TestAPageThatCannotBeFetchedIsNotTested(t *testing.T) {
	server := public(t)
	down := httptest.NewServer(http.NotFoundHandler())
	defer down.Close()
	report := probeJSON(t, exitUntested, server.URL+"/1", down.URL+"/3")
	if u := report.Untested; len(u) != 1 || !u[0].Failed || u[0].Endpoint != down.URL+"/3" || !strings.Contains(u[0].Reason, "404") {
		t.Errorf("%+v", u)
	}
}

func TestAPlanSendsNoTrial(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		io.WriteString(w, `<amp-list src="/list"></amp-list>`)
	}))
	defer server.Close()
	code, stdout, stderr := run(t, "", "probe", "--plan", "--publisher", "www.example.com", server.URL+"/article")
	if code != exitClean || asked != 1 || !strings.HasPrefix(stdout, "endpoint: GET "+server.URL+"/list (amp-list)\n") ||
		!strings.Contains(stdout, "look-alikes: ") || !strings.Contains(stdout, "1 endpoint, ") {
		t.Errorf("exit code %d, %d requests\n%s\n%s", code, asked, stdout, stderr)
	}
}

// A POST that needs no preflight and may not be sent is not tested, whatever its answer would be.
func TestAnUnsafeRequestIsNotTested(t *testing.T) {
	server := public(t)
	for _, args := range [][]string{{}, {"--content-type", "text/plain"}} {
		report := probeJSON(t, exitUntested, append(args, "--endpoint", server.URL, "--method", "POST", "--credentials")...)
		if s := report.Summary; s.NotTested != s.Planned || s.Requests != 0 {
			t.Errorf("%q: %+v", args, s)
		}
	}
	// The publisher's page at the endpoint's own origin sends no preflight.
	report := probeJSON(t, exitFindings, "--endpoint", server.URL, "--method", "POST", "--content-type", "application/json", "--credentials",
		"--resolve", "www.example.com:443:"+strings.TrimPrefix(server.URL, "http://"), "--endpoint", "https://www.example.com/", "--insecure")
	for _, trial := range report.Trials {
		if trial.Origin == "https://www.example.com" && strings.HasPrefix(trial.Endpoint, "https:") && trial.Kind == probe.KindPage &&
			(trial.Outcome != probe.NotTested || strings.Contains(trial.Reason, "granted")) {
			t.Errorf("%+v", trial)
		}
	}
}

// Findings can be ignored by id, or because an earlier report has them. They are still in the report.
func TestKnownFindings(t *testing.T) {
	server := article(t)
	page := server.URL + "/article"
	first := probeJSON(t, exitFindings, page)
	if len(first.Findings) != 1 || first.Findings[0].Known || first.Summary.High != 1 {
		t.Fatalf("%+v", first.Findings)
	}
	data, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	baseline := writeFile(t, filepath.Join(t.TempDir(), "baseline.json"), string(data))
	for _, args := range [][]string{{"--baseline", baseline}, {"--ignore", string(first.Findings[0].ID)}} {
		report := probeJSON(t, exitClean, append(args, page)...)
		if len(report.Findings) != 1 || !report.Findings[0].Known || report.Summary.High != 0 {
			t.Errorf("%q: %+v", args, report.Findings)
		}
	}
	// What the baseline does not have is not known: another publisher, or more origins.
	probeJSON(t, exitFindings, "--baseline", baseline, "--publisher", "www.example.net", page)
	first.Findings[0].Origins = first.Findings[0].Origins[1:]
	if data, err = json.Marshal(first); err != nil {
		t.Fatal(err)
	}
	writeFile(t, baseline, string(data))
	probeJSON(t, exitFindings, "--baseline", baseline, page)
	probeJSON(t, exitClean, "--fail-on", "none", page)
	probeJSON(t, exitUntested, "--fail-on", "none", "--require-all", page) // it has a form
}

// What hangs is an error for CI, and not skipped.
func TestJUnitTellsErrorsFromWhatIsSkipped(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	server := public(t)
	code, stdout, _ := run(t, "", "probe", "--rate", "0", "-o", "junit", "--publisher", "www.example.com", "--endpoint", down.URL,
		"--endpoint", server.URL+"/a,b")
	var suites junitSuites
	if err := xml.Unmarshal([]byte(stdout), &suites); err != nil || code != exitUntested {
		t.Fatalf("exit code %d, %v\n%s", code, err, stdout)
	}
	if s := suites.Suite; s.Errors == 0 || s.Failures != 0 || s.Skipped != 0 ||
		s.Cases[len(s.Cases)-1].Class != "GET "+server.URL+"/a,b www.example.com" || s.Cases[len(s.Cases)-1].Failure != nil {
		t.Errorf("%+v", s)
	}
}

func TestGitHubAnnotations(t *testing.T) {
	server := article(t)
	_, stdout, _ := run(t, "", "probe", "--rate", "0", "-o", "github", "--publisher", "www.example.com", server.URL+"/article")
	first, rest, _ := strings.Cut(stdout, "\n")
	if !strings.HasPrefix(first, "::error title=wildcard-with-credentials::"+server.URL+"/list: ") || !strings.Contains(first, "%0A") ||
		!strings.HasPrefix(rest, "::warning title=not tested::") {
		t.Error(stdout)
	}
}

func TestREADMEsCommandForCI(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(readme), "- run: ./ampcors ")
	command, _, _ = strings.Cut(command, "\n")
	server := public(t)
	site := httptest.NewTLSServer(server.Config.Handler)
	defer site.Close()
	args := append(strings.Fields(strings.Replace(command, "/article", "/1", 1)), "--rate", "0", "--insecure",
		"--resolve", "staging.example.com:443:"+strings.TrimPrefix(site.URL, "https://"))
	code, stdout, stderr := run(t, "", args...)
	if code != exitClean || !strings.Contains(stdout, " fine, 0 problems, 0 not tested") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// Headers of the page lead to a preflight. A Host of the user replaces that of the URL.
func TestHeadersOfThePageAndOfTheUser(t *testing.T) {
	var mu sync.Mutex
	asked, host := "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		host = r.Host
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			asked = r.Header.Get("Access-Control-Request-Headers")
			w.Header().Set("Access-Control-Allow-Headers", "x-token")
			return
		}
		io.WriteString(w, `{"token": "`+r.Header.Get("X-Token")+`"}`)
	}))
	defer server.Close()
	report := probeJSON(t, exitClean, "--endpoint", server.URL, "--page-header", "X-Token: 1", "-H", "Host: api.example.com")
	if !strings.Contains(asked, "x-token") || host != "api.example.com" || report.Summary.Fine != report.Summary.Planned {
		t.Errorf("the preflight asks for %q, the host is %q, %+v", asked, host, report.Summary)
	}
}

// A redirect to another host says how to allow it. Then the endpoint's own host is still allowed.
func TestARedirectToAnotherHostNamesTheFlag(t *testing.T) {
	other := public(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		http.Redirect(w, r, other.URL+"/moved?"+r.URL.RawQuery, http.StatusFound)
	}))
	defer server.Close()
	host := strings.TrimPrefix(other.URL, "http://")
	report := probeJSON(t, exitUntested, "--endpoint", server.URL)
	if u := report.Untested; len(u) == 0 || !strings.Contains(u[0].Reason, "use --allow-host "+host) {
		t.Errorf("%+v", u)
	}
	probeJSON(t, exitClean, "--endpoint", server.URL, "--allow-host", host)
}

// An unsafe method is sent with its body, and only to hosts that may be called.
func TestProbeOfAnUnsafeEndpoint(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	var sitemaps atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			sitemaps.Add(1)
		}
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			bodies = append(bodies, string(body))
		}
	}))
	defer server.Close()
	args := []string{"probe", "--endpoint", server.URL + "/vote", "--publisher", "www.example.com", "--method", "POST", "--body", "a=1",
		"--content-type", "application/x-www-form-urlencoded", "--max-endpoints", "1", "--max-time", "20s"}
	if code, stdout, _ := run(t, "", args...); code != exitUntested || len(bodies) > 0 {
		t.Errorf("without --unsafe: exit code %d, %d requests\n%s", code, len(bodies), stdout)
	}
	if run(t, "", append(args, "--unsafe", "--only-host", "other.example")...); len(bodies) > 0 {
		t.Errorf("%d requests to a host that may not be called", len(bodies))
	}
	if code, _, stderr := run(t, "", append(args, "--sitemap", server.URL+"/sitemap.xml", "--only-host",
		"other.example")...); code != exitUsage ||
		sitemaps.Load() > 0 || !strings.Contains(stderr, "--only-host does not name") {
		t.Errorf("a sitemap: exit code %d, it was fetched %d times, %s", code, sitemaps.Load(), stderr)
	}
	host := server.Listener.Addr().String()
	if code, stdout, stderr := run(t, "", append(args, "--unsafe", "--only-host", host)...); code != exitFindings || len(bodies) == 0 ||
		bodies[0] != "a=1" {
		t.Errorf("exit code %d, bodies %q\n%s\n%s", code, bodies, stdout, stderr)
	}
}

// A document may call one URL with cookies and without. The scheme of an Authorization header is no secret, such as in the path /bearer.
func TestEndpointsOfOneURLAreApart(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/bearer" {
			io.WriteString(w, `<html amp><amp-list src="/bearer"></amp-list><amp-list src="/bearer" credentials="include"></amp-list>`)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	code, stdout, stderr := run(t, "", "probe", "-H", "Authorization: Bearer s3cret", "--publisher", "www.example.com", server.URL)
	for _, want := range []string{"/bearer, without cookies and without a preflight", "/bearer, with cookies and without a preflight"} {
		if strings.Count(stdout, want) != 1 {
			t.Errorf("%q is not there once", want)
		}
	}
	if _, without, _ := strings.Cut(stdout, "/bearer, without"); code != exitFindings ||
		strings.Contains(strings.SplitN(without, "/bearer", 2)[0], "blocked") {
		t.Errorf("exit code %d", code)
	}
	if t.Failed() {
		t.Log(stdout, stderr)
	}
}

// An answer that every site can read is not said to be denied to any.
func TestAPublicAnswerIsSaidToBePublic(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items": []}`)
	}))
	defer server.Close()
	code, stdout, stderr := run(t, "", "probe", "--endpoint", server.URL, "--publisher", "www.example.com")
	for _, want := range []string{"public     other sites, other publishers,", "readable by every site, as public answers are",
		"--credentials tests requests with cookies"} {
		if code != exitClean || !strings.Contains(stdout, want) || strings.Contains(stdout, "denied     ") {
			t.Errorf("exit code %d; want %q in\n%s%s", code, want, stdout, stderr)
		}
	}
}

// The emails of a sender are tested with --endpoint and with documents that are AMP emails, and without pages of a publisher.
func TestTheEmailsOfASenderAreTested(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"},
		Clients: []string{"https://mail.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	api := mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mail" {
			io.WriteString(w, `<html amp4email><body><amp-list src="/list"></amp-list>`)
		} else {
			api.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	email := writeFile(t, filepath.Join(t.TempDir(), "email.html"),
		`<html ⚡4email><body><amp-list src="`+server.URL+`/list"></amp-list><amp-list src="/relative"></amp-list>`)
	const fine = "Emails of the senders are answered as mail clients want it in 2 of 2 trials; 0 of 8 requests with another sender or " +
		"origin were allowed.\n"
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--sender", "news@example.com", "--mail-client", "https://mail.example", "--endpoint", server.URL + "/list"}, exitClean,
			"GET " + server.URL + "/list, by a mail client, for emails of news@example.com\n        works      version 2, version 1 at " +
				"https://mail.example\n        denied     other senders\n"},
		{[]string{"--sender", "news@example.com", "--mail-client", "https://mail.example", server.URL + "/mail"}, exitClean, fine},
		{[]string{"--sender", "news@example.com", "--mail-client", "https://mail.example", email}, exitClean,
			`known only in the browser: amp-list: the URL "/relative"`},
		{[]string{"--sender", "news@example.com", "--mail-client", "https://amp.gmail.dev", email}, exitFindings, "add it to email.clients"},
		{[]string{"--sender", "amp@gmail.dev", "--mail-client", "https://amp.gmail.dev", email}, exitFindings,
			"Its body: Forbidden: email_sender_not_allowed"},
		{[]string{"--sender", "news@example.com", "--mail-client", "https://mail.example", "-H", "X-Token: 1", email}, exitUntested,
			"because only the document names it: --endpoint '" + server.URL + "/list' --sender news@example.com sends them there"},
		{[]string{"--sender", "news@example.com", server.URL + "/mail"}, exitFindings, "page at   https://mail.google.com\n"},
		{[]string{"--sender", "sales@example.com", server.URL + "/mail"}, exitFindings, "page at   none: a mail client, with version 2\n"},
		{[]string{server.URL + "/mail"}, exitUntested, "it is an AMP email, whose requests a reader's mail client makes: use --sender with the " +
			"address of its sender"},
		{[]string{"--sender", "news", server.URL + "/mail"}, exitUsage, `--sender "news" is not an address; want one such as news@example.com`},
		{[]string{"--endpoint", server.URL + "/list"}, exitUsage, "or --sender with the address whose emails do"},
	} {
		code, stdout, stderr := run(t, "", append([]string{"probe", "--rate", "0"}, test.args...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) || test.code == exitClean && !strings.Contains(stdout, fine) {
			t.Errorf("%q: exit code %d\n%s%s", test.args, code, stdout, stderr)
		}
	}
}

// The first command of somebody with an API is to probe its URL as a document. The answer has the command that tests it.
func TestAnAPIIsNoDocument(t *testing.T) {
	for name, test := range map[string]struct {
		header, body, want string
		args               []string
	}{
		"JSON":         {"application/json", `{"items": []}`, "it is no document, but JSON (status 200)", nil},
		"JSON as text": {"text/plain", ` [1]`, "it is no document, but JSON (status 200)", nil},
		"text":         {"text/csv", "a,b", "it is no document, but text/csv (status 200)", nil},
		"nothing":      {"application/json", "", "it is no document, but an empty answer (status 200)", nil},
		"JSON for a publisher": {"application/json", "{}", "--publisher www.a.example --publisher www.b.example",
			[]string{"--publisher", "www.a.example,www.b.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", test.header)
				io.WriteString(w, test.body)
			}))
			defer server.Close()
			report := probeJSON(t, exitUntested, append([]string{server.URL + "/list?a=b"}, test.args...)...)
			if len(report.Untested) != 1 || !strings.Contains(report.Untested[0].Reason, test.want) ||
				!strings.Contains(report.Untested[0].Reason, "use --endpoint '"+server.URL+"/list?a=b' --publisher ") {
				t.Errorf("%+v", report.Untested)
			}
		})
	}
}

// A finding that no trial shows fails in JUnit exactly if --fail-on says so, as the exit code does.
func TestJUnitObeysFailOn(t *testing.T) {
	for failOn, want := range map[probe.Severity]int{probe.Low: 1, probe.Medium: 1, probe.High: 0, "none": 0} {
		var b bytes.Buffer
		report := &runReport{FailOn: failOn, Report: &probe.Report{
			Findings: []probe.Finding{{ID: probe.AnswersDiffer, Severity: probe.Medium, Title: "a title"}}}}
		if err := writeJUnit(&b, report); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "<failure"); got != want || !strings.Contains(b.String(), "a title") {
			t.Errorf("--fail-on %s: %d failures; want %d\n%s", failOn, got, want, &b)
		}
	}
}

// Without AMP there is no component that reads JSON: an endpoint that answers with text is fine.
func TestWithoutCachesAnEndpointMayAnswerWithText(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"shop.example"}, Caches: []cacheurl.Cache{}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "text") })))
	defer server.Close()
	for flag, want := range map[string]int{"--no-caches": exitClean, "--credentials": exitFindings} {
		code, stdout, stderr := run(t, "", "probe", "--rate", "0", "--endpoint", server.URL, "--publisher", "shop.example", "--credentials", flag)
		if code != want {
			t.Errorf("%s: exit code %d\n%s%s", flag, code, stdout, stderr)
		}
	}
}
