package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/readme"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
)

// run runs the command with a standard input.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs servertest.Buffer // a server's goroutines may write when the command has ended
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = execute(t.Context(), root)
	noteFlags(root)
	return code, out.String(), errs.String()
}

// Each flag in a rule is one of the commands that it names: otherwise it would be no rule.
func TestRulesNameFlags(t *testing.T) {
	for _, rule := range flagRules {
		for _, name := range strings.Fields(rule.commands) {
			cmd, _, err := newRoot().Find([]string{name})
			if err != nil || cmd.Name() != name {
				t.Fatalf("%s: %v", name, err)
			}
			for _, flag := range strings.Fields(rule.flags + " " + rule.needs + " " + rule.excludes) {
				if cmd.Flags().Lookup(flag) == nil {
					t.Errorf("%s has no flag %s", name, flag)
				}
			}
		}
	}
}

// members has a value for each member of a configuration file.
var members = map[string]string{
	"$schema": "", "publishers": "", // not for the server; and in each file
	"publishersFile": `"publishers.txt"`, "cachesFile": `"caches.json"`, "source": `{}`, "caches": `[]`,
	"origins": `["https://partner.example"]`,
	"email":   `{"senders": ["news@example.com"]}`, "credentialed": `true`, "methods": `["PUT"]`, "requestHeaders": `["X-Token"]`,
	"responseHeaders": `["X-Total"]`, "maxAge": `"10m"`, "reportOnly": `true`, "dangerouslyAllowAmbiguousPrefixes": `true`,
	"dangerouslyAllowHTTPOwnOrigins": `true`, "dangerouslyAllowPublicSuffixWildcards": `true`,
	"dangerouslyAllowUnsafeRequestsWithoutOrigin": `true`,
}

// Each member of a file is in the advice, or a note says that it is not.
func TestAdviceUsesOrNamesEachMember(t *testing.T) {
	values := members
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "publishers.txt"), "www.example.org\n")
	if err := os.Rename(otherCaches(t), filepath.Join(dir, "caches.json")); err != nil {
		t.Fatal(err)
	}
	advice := func(server, members string) (text, notes string) {
		t.Helper()
		file := filepath.Join(dir, "config.json")
		writeFile(t, file, `{"publishers": ["www.example.com"]`+members+`}`)
		code, text, notes := run(t, "", "advice", server, "--config", file)
		if code != exitClean {
			t.Errorf("%s: exit code %d, %s", members, code, notes)
		}
		return text, notes
	}
	for _, server := range probe.Servers() {
		plain, plainNotes := advice(server, "")
		if strings.Contains(plain, "Allow-Credentials: true") || strings.Contains(plain, "Allow-Credentials true") ||
			strings.Contains(plain, "Credentials', 'true'") || strings.Contains(plain, "Credentialed: true") {
			t.Errorf("%s: credentials are allowed:\n%s", server, plain)
		}
		for _, member := range slices.Sorted(maps.Keys(schemaMembers(t))) {
			value, isKnown := values[member]
			if !isKnown {
				t.Errorf("%s is new: this test needs a value", member)
			}
			if value == "" {
				continue
			}
			if text, notes := advice(server, fmt.Sprintf(`, %q: %s`, member, value)); text == plain && notes == plainNotes {
				t.Errorf("%s: neither the advice nor a note has %s", server, member)
			} else if member == "caches" && strings.Contains(text, "cdn.ampproject.org") {
				t.Errorf("%s: an AMP Cache is allowed, though none is trusted:\n%s", server, text)
			}
		}
	}
}

// What check prints changes with each member of the file.
func TestCheckShowsEachMember(t *testing.T) {
	check := func(members string) string {
		t.Helper()
		file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]`+members+`}`)
		code, text, stderr := run(t, "", "check", "--with-database", file)
		if code != exitClean {
			t.Errorf("%s: exit code %d, %s", members, code, stderr)
		}
		return text
	}
	plain, withSenders := check(""), check(`, "email": {"senders": ["news@example.com"]}`)
	for member := range schemaMembers(t) {
		value, before := members[member], plain
		switch member {
		case "$schema", "publishers", "source": // in each file; how a database is asked, and not what is allowed
			continue
		case "cachesFile":
			value = fmt.Sprintf("%q", otherCaches(t))
		case "publishersFile":
			value = fmt.Sprintf("%q", filepath.Join(t.TempDir(), "publishers.txt"))
			writeFile(t, strings.Trim(value, `"`), "www.example.org\n")
		}
		if value == "" {
			t.Errorf("%s is new: members needs a value of it", member)
			continue
		}
		if text := check(fmt.Sprintf(`, %q: %s`, member, value)); text == before {
			t.Errorf("%s is not shown:\n%s", member, text)
		}
	}
	for _, clients := range []string{`[]`, `["https://amp.gmail.dev"]`} {
		if text := check(`, "email": {"senders": ["news@example.com"], "clients": ` + clients + `}`); text == withSenders {
			t.Errorf("clients %s are not shown:\n%s", clients, text)
		}
	}
}

// schemaMembers returns the members of a configuration file.
func schemaMembers(t *testing.T) map[string]any {
	t.Helper()
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(configfile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Properties
}

// article starts a server with an AMP document, and an API that answers * to every request.
func article(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/article" {
			io.WriteString(w, `<!doctype html><html amp><script async src="https://cdn.ampproject.org/v0.js"></script><amp-list src="/list" `+
				`credentials="include"></amp-list><form method="post" action-xhr="/form"></form><amp-list [src]="'/x'"></amp-list>`)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		io.WriteString(w, `{"<script>": "</script>"}`)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestProbeWritesEachFormat(t *testing.T) {
	server := article(t)
	probeArticle := func(t *testing.T, output string) string {
		t.Helper()
		code, stdout, stderr := run(t, "", "probe", "--rate", "0", "--publisher", "www.example.com", "-H", "X-Api-Key: s3cret", "--cookie",
			"session=s3cret", "-o", output, server.URL+"/article")
		if code != exitFindings || stderr != "" || strings.Contains(stdout, "s3cret") {
			t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
		return stdout
	}
	t.Run("json", func(t *testing.T) {
		var report probe.Report
		if err := json.Unmarshal([]byte(probeArticle(t, "json")), &report); err != nil {
			t.Fatal(err)
		}
		if report.Target != server.URL+"/article" || len(report.Endpoints) != 2 || len(report.Findings) != 1 ||
			report.Findings[0].ID != "wildcard-with-credentials" || report.Summary.High != 1 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("junit", func(t *testing.T) {
		var suites junitSuites
		if err := xml.Unmarshal([]byte(probeArticle(t, "junit")), &suites); err != nil {
			t.Fatal(err)
		}
		s := suites.Suite
		i := slices.IndexFunc(s.Cases, func(c junitCase) bool { return c.Failure != nil })
		if s.Tests != len(s.Cases) || s.Failures != 1+2*len(cacheurl.DefaultCaches()) || s.Skipped < 90 || s.Tests < 190 ||
			s.Cases[i].Failure.Type != "high" || s.Cases[i].Name != "pages: the publisher's own page https://www.example.com" ||
			s.Cases[i].Failure.Message != "wildcard-with-credentials: Access-Control-Allow-Origin is * for a request with credentials" {
			t.Errorf("%+v", s)
		}
	})
	t.Run("sarif", func(t *testing.T) { // by what GitHub's documentation of code scanning says that it reads
		var log struct {
			Version string
			Runs    []struct {
				Tool struct {
					Driver struct {
						Name  string
						Rules []struct {
							ID                     string
							ShortDescription, Help struct{ Text string }
						}
					}
				}
				Invocations []struct {
					ExecutionSuccessful        bool
					ToolExecutionNotifications []struct{ Message struct{ Text string } }
				}
				Results []struct {
					RuleID, Level string
					Message       struct{ Text string }
					Locations     []struct {
						PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
					}
					PartialFingerprints map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(probeArticle(t, "sarif")), &log); err != nil || log.Version != "2.1.0" || len(log.Runs) != 1 {
			t.Fatalf("%v: %+v", err, log)
		}
		run := log.Runs[0]
		if len(run.Results) != 1 || len(run.Tool.Driver.Rules) != 1 || len(run.Invocations) != 1 {
			t.Fatalf("%+v", run)
		}
		r, rule, path := run.Results[0], run.Tool.Driver.Rules[0], strings.ReplaceAll(strings.TrimPrefix(server.URL, "http://"), ":", "_")+"/list"
		if r.RuleID != "wildcard-with-credentials" || rule.ID != r.RuleID || r.Level != "error" || rule.ShortDescription.Text == "" ||
			rule.Help.Text == "" || !strings.Contains(r.Message.Text, "Access-Control-Allow-Origin: *") ||
			r.Locations[0].PhysicalLocation.ArtifactLocation.URI != path ||
			r.PartialFingerprints["ampcors/v1"] != "wildcard-with-credentials GET "+server.URL+"/list amp-list, with cookies www.example.com" {
			t.Errorf("%+v", r)
		}
		notTested := run.Invocations[0]
		if !notTested.ExecutionSuccessful || !slices.ContainsFunc(notTested.ToolExecutionNotifications,
			func(n struct{ Message struct{ Text string } }) bool {
				return strings.Contains(n.Message.Text, "only sent with --unsafe")
			}) {
			t.Errorf("%+v", notTested)
		}
	})
	t.Run("html", func(t *testing.T) {
		got := probeArticle(t, "html")
		root, err := html.Parse(strings.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		articles := 0
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "article" {
				articles++
			}
			if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "link" || n.Data == "img") {
				t.Errorf("the page is not self-contained: <%s>", n.Data)
			}
		}
		if articles != 1 {
			t.Errorf("%d findings in\n%s", articles, got)
		}
	})
}

func TestExitCodesOfProbe(t *testing.T) {
	broken := article(t)
	clean := public(t)
	granting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "content-type")
	}))
	defer granting.Close()
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	for _, test := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{name: "clean", args: []string{"--endpoint", clean.URL, "--publisher", "www.example.com"}, code: exitClean},
		{name: "findings", args: []string{"--endpoint", clean.URL, "--publisher", "www.example.com", "--credentials"}, code: exitFindings},
		{name: "findings that are not severe enough", args: []string{"--endpoint", clean.URL + "/", "--publisher", "www.example.com", "--fail-on",
			"high"},
			code: exitClean},
		{name: "no argument", code: exitUsage, err: "nothing to test"},
		{name: "no publisher", args: []string{"--endpoint", clean.URL}, code: exitUsage, err: "--publisher"},
		{name: "an unknown severity", args: []string{"--fail-on", "awful", broken.URL}, code: exitUsage, err: "want low, medium, high or none"},
		{name: "an unknown format", args: []string{"-o", "pdf", broken.URL}, code: exitUsage, err: "html"},
		{name: "a wrong header", args: []string{"-H", "secret", broken.URL}, code: exitUsage, err: "no name and colon"},
		{name: "a wrong address", args: []string{"--resolve", "a.example", broken.URL}, code: exitUsage, err: "not host:port:address"},
		{name: "a server that is down", args: []string{"--endpoint", down.URL, "--publisher", "www.example.com"}, code: exitUntested},
		{name: "a document that is not there", args: []string{"--publisher", "www.example.com", down.URL}, code: exitUntested},
		{name: "one server of two that is down", args: []string{"--endpoint", clean.URL, "--endpoint", down.URL, "--publisher",
			"www.example.com"},
			code: exitUntested},
		{name: "the same endpoint twice, and it is down",
			args: []string{"--endpoint", down.URL, "--endpoint", down.URL, "--publisher", "www.example.com"}, code: exitUntested},
		{name: "only a preflight, which is right", args: []string{"--endpoint", granting.URL, "--method", "POST", "--content-type",
			"application/json", "--publisher", "www.example.com"}, code: exitClean},
		{name: "no URL", args: []string{"--endpoint", "foo", "--publisher", "www.example.com"}, code: exitUsage, err: "not the URL"},
		{name: "no document", args: []string{"--publisher", "www.example.com", "ftp://a.example"}, code: exitUsage,
			err: "not the URL of a web server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := run(t, "", append([]string{"probe", "--rate", "0"}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.err) || (stderr == "") != (test.err == "") {
				t.Errorf("exit code %d; want %d\n%s\n%s", code, test.code, stdout, stderr)
			}
		})
	}
}

func TestTheListOfEndpointsIsRead(t *testing.T) {
	server := article(t)
	code, stdout, _ := run(t, "# ours\n\n"+server.URL+"/1\n"+server.URL+"/2\n", "probe", "--rate", "0", "--publisher", "www.example.com",
		"--list", "-", "-o", "json")
	var report probe.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitClean || len(report.Endpoints) != 2 {
		t.Errorf("exit code %d, %v\n%s", code, err, stdout)
	}
}

// TestREADMEsTranscript compares the transcript in the README with what the second command
// prints, without the notes between the findings and the summary. With UPDATE_README=1, it writes the transcript.
func TestREADMEsTranscript(t *testing.T) {
	server := httptest.NewTLSServer(article(t).Config.Handler)
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	_, got, _ := run(t, "", "probe", "--insecure", "--rate", "0", "--max-answer", "2", "--resolve", "api.example.com:443:"+addr,
		"--endpoint", "https://api.example.com/list", "--publisher", "www.example.com", "--credentials")
	got = strings.ReplaceAll(got, "curl -gsik --connect-to 'api.example.com:443:"+addr+"' ", "curl -gsi ") // without flags of the test
	findings, rest, ok := strings.Cut(got, "\nWhat to configure: ")
	_, summary, ok2 := strings.Cut(rest, "\nThe publisher's pages ")
	if !ok || !ok2 {
		t.Fatalf("no notes, or no summary, in\n%s", got)
	}
	for _, want := range []string{
		"--advice SERVER prints it, and -o html has it, for nginx, ",
		"\nnot tested: https://api.example.com/list: 1 trial: fewer than two of the publisher's pages work\n",
		"\nnote: Some endpoints are called with cookies. On AMP Caches these are third-party cookies, ",
		"\nto test more: --method, --content-type and --page-header test preflights",
	} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q in\n%s", want, rest)
		}
	}
	readme.Check(t, "README.md", "transcript", "```text\n"+findings+"\n…\nThe publisher's pages "+summary+"```\n")
}

// TestREADMEsCommandsRun runs the commands of the README against a local server in place of
// the servers in the examples.
func TestREADMEsCommandsRun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(article(t).Config.Handler)
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	_, block, _ := strings.Cut(string(readme), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	lines := 0
	for line := range strings.Lines(block) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/ampcors ")
		if !ok {
			t.Fatalf("%q is not a call of the command", line)
		}
		lines++
		t.Run(args, func(t *testing.T) {
			all := append(strings.Fields(args), "--insecure", "--rate", "0", "--resolve", "www.example.com:443:"+addr, "--resolve",
				"api.example.com:443:"+addr)
			code, stdout, stderr := run(t, "", all...)
			if code != exitClean && code != exitFindings || stderr != "" || !strings.Contains(stdout, " trials: ") {
				t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
	if lines == 0 {
		t.Error("the README has no command")
	}
}
