package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors/announce/sitemap"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/probe"
)

// A probeFlags has the values of the flags of the command probe.
type probeFlags struct {
	output, failOn, baseline              string
	pages, sitemap, list                  string
	endpoints, publishers, header, ignore []string
	senders, mailClients                  []string
	pageHeader                            []string
	method, body, contentType             string
	credentials, unsafe, insecure         bool
	plan, requireAll                      bool
	advice                                string
	cookie                                string
	allowHosts, onlyHosts, resolve        []string
	rate                                  float64
	maxAnswer                             int64
	timeout, maxTime                      time.Duration
	maxEndpoints                          int
	caches                                *cachesFile
	noCaches                              *bool
}

// outputs are the formats of a report, in the order of the help.
var outputs = []string{"text", "json", "junit", "sarif", "github", "html"}

// failOns are the values of --fail-on.
var failOns = []string{"low", "medium", "high", "none"}

func newProbe() *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe [URLs of AMP documents, files of AMP emails]",
		Short: "Test from outside whether a backend answers the AMP pages of its publishers, and no others",
		Long: `Test from outside whether a backend answers the AMP pages of its publishers, and no others.

It finds the endpoints in AMP documents, or takes them from --endpoint, and calls them as the
AMP runtime does from each origin at which the publisher's pages run, and as pages of other
sites could. It judges the answers as a browser does, and says what is wrong and how to fix it.
The backend may be written in any language.

It sends GET, HEAD and OPTIONS, and other methods only with --unsafe. It calls only the hosts of
the documents and of their endpoints, those of --endpoint, --list and --sitemap, and those of --allow-host.

Between its requests, it repeats one that is known to be answered. If the backend limits requests
or changes its answers, the report says what was not tested, and never counts it as fine.

Exit codes: 0 success, 1 a finding at or above --fail-on (medium by default) that neither --baseline nor --ignore ` +
			`names, 2 wrong usage,
3 nothing was tested, or a part was not: because of an error, --max-endpoints, or a -H or --cookie that an endpoint does
not get; with --require-all, for any reason.`,
		Example: `  ampcors probe https://www.example.com/article
  ampcors probe --sitemap https://www.example.com/sitemap.xml -o html >report.html
  ampcors probe --endpoint https://api.example.com/list --publisher www.example.com
  ampcors probe --endpoint https://api.example.com/mail --sender news@example.com
  ampcors probe email.html --sender news@example.com
  ampcors probe --endpoint https://api.example.com/vote --method POST --content-type application/json --credentials ` +
			`--publisher www.example.com --unsafe`,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "text",
		"text, json, junit, sarif (for code scanning), github (annotations of GitHub Actions) or html")
	flags.StringVar(&f.failOn, "fail-on", string(probe.Medium),
		"the lowest severity of findings that lead to exit code 1: low, medium or high; or none")
	flags.StringSliceVar(&f.ignore, "ignore", nil, "id of findings that do not lead to exit code 1; may be given "+
		"several times")
	flags.StringVar(&f.baseline, "baseline", "", "file with a report (-o json); a finding that is in it does not lead "+
		"to exit code 1, unless it now shows at further origins")
	flags.BoolVar(&f.requireAll, "require-all", false, "exit code 3 if anything was not tested for any reason, such as "+
		"its method, or a URL that only the browser knows")
	flags.StringVar(&f.pages, "pages", "", `file with URLs of AMP documents, one on each line; "-" is standard input`)
	flags.StringVar(&f.sitemap, "sitemap", "", "file or URL of a sitemap whose pages are AMP documents")
	flags.StringArrayVar(&f.endpoints, "endpoint", nil, "URL to test; may be given several times")
	flags.StringVar(&f.list, "list", "", `file with URLs of endpoints, one on each line; "-" is standard input`)
	flags.StringVar(&f.method, "method", http.MethodGet, "method of --endpoint and --list")
	flags.StringVar(&f.contentType, "content-type", "", "Content-Type of the body")
	flags.StringVar(&f.body, "body", "", "body of the request")
	flags.BoolVar(&f.credentials, "credentials", false,
		"pages call the endpoints of --endpoint and --list with the reader's cookies")
	flags.StringSliceVar(&f.publishers, "publisher", nil,
		"domain whose pages must work; by default the host of each document")
	flags.StringSliceVar(&f.senders, "sender", nil,
		"address of a sender whose AMP emails must work: with --endpoint, --list and documents that are AMP emails")
	flags.StringSliceVar(&f.mailClients, "mail-client", nil, "origin of a mail client at which emails must work with "+
		"version 1 of the protocol; by default https://mail.google.com")
	flags.StringArrayVarP(&f.header, "header", "H", nil,
		`header, such as "Authorization: Bearer …", of each request to the origins of documents and endpoints `+
			`that you name (preflights get no Authorization and no Cookie); it is not in the report`)
	flags.StringArrayVar(&f.pageHeader, "page-header", nil,
		`header that the publisher's pages send, such as X-Token or "X-Token: 1": preflights ask for it`)
	flags.StringVar(&f.cookie, "cookie", "", "cookies of the requests with credentials; they are not in the report")
	flags.BoolVar(&f.unsafe, "unsafe", false, "also send methods that may change data")
	flags.StringSliceVar(&f.allowHosts, "allow-host", nil,
		"host that may be called as well, for example because of a redirect; it gets no values of -H and --cookie")
	flags.StringSliceVar(&f.onlyHosts, "only-host", nil, "the only hosts that may be called")
	flags.StringArrayVar(&f.resolve, "resolve", nil, resolveHelp)
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate")
	flags.Float64Var(&f.rate, "rate", probe.DefaultRate, "requests per second; 0 for no limit")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "time limit of a request")
	flags.DurationVar(&f.maxTime, "max-time", 0, "time limit of the whole probe; if 0: 5 minutes for documents, and "+
		"then 5 minutes, or three times as long as the requests take at --rate, if that is longer")
	flags.Int64Var(&f.maxAnswer, "max-answer", 1, "largest answer or document that is read, in MiB")
	flags.IntVar(&f.maxEndpoints, "max-endpoints", 200, "test at most this many endpoints of a document")
	f.caches = addCaches(cmd)
	f.noCaches = addNoCaches(cmd)
	flags.BoolVar(&f.plan, "plan", false, "print what would be tested, and send only the requests that fetch "+
		"documents and sitemaps")
	flags.StringVar(&f.advice, "advice", "", "print after the findings what to configure in this server: "+
		or(probe.Servers()))
	complete(cmd, "output", outputs)
	complete(cmd, "fail-on", failOns)
	complete(cmd, "ignore", textsOf(probe.IDs()))
	complete(cmd, "advice", probe.Servers())
	complete(cmd, "method", []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodHead})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return runProbe(cmd, args, f)
	}
	return cmd
}

func runProbe(cmd *cobra.Command, args []string, f probeFlags) error {
	write := writers[f.output]
	switch {
	case !slices.Contains(outputs, f.output):
		return fmt.Errorf("the output %q is unknown; want %s", f.output, or(outputs))
	case !slices.Contains(failOns, f.failOn):
		return fmt.Errorf("--fail-on: %q is not a severity; want %s", f.failOn, or(failOns))
	}
	if i := slices.IndexFunc(probe.Servers(), func(s string) bool { return strings.EqualFold(s, f.advice) }); i >= 0 {
		f.advice = probe.Servers()[i]
	} else if f.advice != "" {
		return fmt.Errorf("--advice: there is none for %q; want %s", f.advice, or(probe.Servers()))
	}
	if f.advice != "" && f.output != "text" {
		return errors.New("--advice needs -o text; -o json and -o html contain the advice anyway")
	}
	if f.plan && f.output != "text" && f.output != "json" {
		return errors.New("--plan needs -o text or -o json")
	}
	cfg, err := f.config(cmd, args)
	if err != nil {
		return err
	}
	known, err := f.known()
	if err != nil {
		return err
	}
	test := probe.Run
	if f.plan {
		test = probe.Plan
	}
	clear := func() {}
	if c := consoleOf(cmd.ErrOrStderr()); c.file != nil {
		cfg.Started = func(e probe.Estimate) { fmt.Fprintln(cmd.ErrOrStderr(), effort(e)) }
		var show func(line string)
		show, clear = c.progress()
		cfg.Progress = func(done, total int, endpoint string) {
			show(fmt.Sprintf("%d of %d trials: %s", done, total, endpoint))
		}
	}
	result, err := test(cmd.Context(), cfg)
	clear()
	if err != nil {
		return err
	}
	result.Know(known)
	report := &runReport{result, version(), commandLine(cmd, args), probe.Severity(f.failOn)}
	if f.plan {
		if err := writePlan(cmd.OutOrStdout(), f.output, report); err != nil {
			return err
		}
		if slices.ContainsFunc(report.Untested, func(u probe.Untested) bool { return u.Failed }) {
			return exitError{code: exitUntested}
		}
		return nil
	}
	if c := consoleOf(cmd.OutOrStdout()); f.output == "text" {
		out := cmd.OutOrStdout()
		if c.file != nil {
			out = c.file // writeTable makes it printable, because escape sequences of colors must not go through a printer
		}
		err = writeTable(out, result, c, f.advice)
	} else {
		err = write(cmd.OutOrStdout(), report)
	}
	if err != nil {
		return err
	}
	if code := f.exitCode(result); code != exitClean {
		return exitError{code: code}
	}
	return nil
}

// exitCode returns the exit code for a report.
func (f *probeFlags) exitCode(report *probe.Report) int {
	isSevere := slices.ContainsFunc(report.Findings, func(finding probe.Finding) bool {
		return !finding.Known && f.failOn != "none" && finding.Severity.AtLeast(probe.Severity(f.failOn))
	})
	switch {
	case isSevere:
		return exitFindings
	case slices.ContainsFunc(report.Untested, func(u probe.Untested) bool { return u.Failed || f.requireAll }),
		f.requireAll && len(report.Unknown) > 0,
		!slices.ContainsFunc(report.Endpoints, func(e probe.Endpoint) bool { return e.Tested }):
		return exitUntested
	}
	return exitClean
}

// known returns a function that reports whether a finding is ignored, or in the baseline.
func (f *probeFlags) known() (func(probe.Finding) bool, error) {
	for _, id := range f.ignore {
		if !slices.Contains(probe.IDs(), probe.ID(id)) {
			return nil, fmt.Errorf("--ignore: there is no finding with the id %q%s", id,
				suggest("", nearest(id, textsOf(probe.IDs()))))
		}
	}
	baseline := runReport{Report: new(probe.Report)}
	if f.baseline != "" {
		data, err := os.ReadFile(f.baseline)
		if err != nil {
			return nil, fmt.Errorf("--baseline: %w", err)
		}
		if err := json.Unmarshal(data, &baseline); err != nil || baseline.Version == "" {
			return nil, fmt.Errorf("--baseline: %s is not a report; want the output of ampcors probe -o json", f.baseline)
		}
	}
	return func(finding probe.Finding) bool {
		return slices.Contains(f.ignore, string(finding.ID)) ||
			slices.ContainsFunc(baseline.Findings, func(known probe.Finding) bool {
				isMore := slices.ContainsFunc(finding.Origins,
					func(origin string) bool { return !slices.Contains(known.Origins, origin) })
				return known.ID == finding.ID && known.Endpoint == finding.Endpoint && known.Method == finding.Method &&
					known.Call == finding.Call &&
					known.Subject() == finding.Subject() && !isMore
			})
	}, nil
}

// config returns the configuration that the flags describe.
func (f *probeFlags) config(cmd *cobra.Command, args []string) (probe.Config, error) {
	cfg := probe.Config{
		Publishers: f.publishers, Unsafe: f.unsafe, Insecure: f.insecure, Cookie: f.cookie, AllowHosts: f.allowHosts,
		OnlyHosts: f.onlyHosts, Senders: f.senders, MailClients: f.mailClients,
		Rate: cmp.Or(f.rate, math.Inf(1)), Timeout: f.timeout, MaxTime: f.maxTime, MaxEndpoints: f.maxEndpoints,
		MaxAnswer: f.maxAnswer << 20,
	}
	err := addArguments(&cfg, args)
	if err != nil {
		return cfg, err
	}
	if *f.noCaches {
		cfg.Caches = []cacheurl.Cache{}
	} else if cfg.Caches, err = f.caches.read(); err != nil {
		return cfg, err
	}
	switch {
	case f.rate < 0:
		return cfg, errors.New("--rate is negative; 0 is no limit")
	case f.timeout <= 0 || f.maxTime < 0 || f.maxEndpoints <= 0:
		return cfg, errors.New("--timeout and --max-endpoints must be positive, and --max-time not negative")
	case f.maxAnswer < 1 || f.maxAnswer > 1024:
		return cfg, fmt.Errorf("--max-answer %d is out of range; want 1 to 1024 MiB", f.maxAnswer)
	case slices.Contains([]string{http.MethodConnect, http.MethodTrace, "TRACK"}, strings.ToUpper(f.method)):
		return cfg, fmt.Errorf("--method %s: browsers never send it for a page", f.method)
	case !httpguts.ValidHeaderFieldName(f.method): // a method is a token, too
		return cfg, fmt.Errorf("--method %q is not the name of a method", f.method)
	}
	more, found, err := f.morePages(cmd)
	if err != nil {
		return cfg, err
	}
	cfg.Documents, cfg.FoundDocuments = append(cfg.Documents, more...), found
	urls := f.endpoints
	if f.list != "" {
		lines, err := readList(cmd, f.list)
		if err != nil {
			return cfg, err
		}
		urls = append(urls, lines...)
	}
	answer := probe.AnswerJSON // what AMP's components read
	if *f.noCaches {
		answer = probe.AnswerAny
	}
	for _, u := range urls {
		cfg.Endpoints = append(cfg.Endpoints, probe.Endpoint{
			URL: u, Component: "endpoint", Method: strings.ToUpper(f.method), ContentType: f.contentType, Body: f.body,
			Credentials: f.credentials, Answer: answer,
		})
	}
	if len(cfg.Documents) == 0 && len(cfg.FoundDocuments) == 0 && len(cfg.Emails) == 0 && len(cfg.Endpoints) == 0 {
		return cfg, errors.New("there is nothing to test; give the URL of a document, the file of an AMP email, --endpoint " +
			"or --list")
	}
	for _, sender := range f.senders {
		if domain, isPattern := strings.CutPrefix(sender, "*@"); isPattern {
			return cfg, fmt.Errorf("--sender %q is a pattern; want one of its addresses, such as a@%s", sender, domain)
		}
		local, domain, _ := strings.Cut(sender, "@")
		if local == "" || domain == "" || strings.ContainsAny(sender, " <>") || !httpguts.ValidHeaderFieldValue(sender) {
			return cfg, fmt.Errorf("--sender %q is not an address; want one such as news@example.com", sender)
		}
	}
	for _, client := range f.mailClients {
		if u, err := url.Parse(client); err != nil || u.Scheme == "" || u.Host == "" || client != u.Scheme+"://"+u.Host {
			return cfg, fmt.Errorf("--mail-client %q is not an origin; want one such as https://mail.google.com", client)
		}
	}
	if len(cfg.Endpoints) > 0 && len(cfg.Publishers) == 0 && len(cfg.Senders) == 0 {
		return cfg, errors.New("there is no publisher; use --publisher with the domain whose pages call the endpoint, or " +
			"--sender with the address whose emails do")
	}
	if cfg.Header, err = headers(f.header); err != nil {
		return cfg, err
	}
	for _, line := range f.pageHeader {
		if !strings.Contains(line, ":") {
			line += ": ampcors-probe"
		}
		header, err := headers([]string{line})
		if err != nil {
			return cfg, fmt.Errorf("--page-header: %w", err)
		}
		if cfg.PageHeader == nil {
			cfg.PageHeader = make(http.Header)
		}
		for name, values := range header {
			cfg.PageHeader[name] = values
		}
	}
	if cfg.Resolve, err = addresses(f.resolve); err != nil {
		return cfg, err
	}
	return cfg, nil
}

// addArguments adds the arguments: URLs of documents, and files of emails.
func addArguments(cfg *probe.Config, args []string) error {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil && !isURL(arg) && (len(cfg.Senders) > 0 || strings.HasPrefix(arg, ".") || filepath.IsAbs(arg)) {
			return fmt.Errorf("%s is neither a file nor a URL", arg)
		}
		if isURL(arg) || err != nil || !info.Mode().IsRegular() {
			cfg.Documents = append(cfg.Documents, arg)
			continue
		}
		if len(cfg.Senders) == 0 {
			return fmt.Errorf("%s is a file: if it is an AMP email, use --sender with the address that sends it. Any other "+
				"document is fetched from its URL", arg)
		}
		html, err := os.ReadFile(arg)
		if err != nil {
			return err
		}
		cfg.Emails = append(cfg.Emails, probe.Email{Name: arg, HTML: html})
	}
	return nil
}

// commandLine returns the command, without the values of flags that may be secret.
func commandLine(cmd *cobra.Command, args []string) string {
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if flag.Name == "header" || flag.Name == "cookie" {
				value = "…"
			} else if u, err := url.Parse(value); err == nil && u.User != nil {
				value = u.Redacted()
			}
			words = append(words, "--"+flag.Name+"="+quoted(value))
		}
	})
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// quoted returns a word for a POSIX shell, quoted if it must be.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+…"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// morePages returns the documents of --pages and --sitemap. Those that a sitemap from a URL lists on another origin
// than its own are found: the user has not named them.
func (f *probeFlags) morePages(cmd *cobra.Command) (pages, found []string, err error) {
	if f.pages != "" {
		if pages, err = readList(cmd, f.pages); err != nil {
			return nil, nil, err
		}
	}
	if f.sitemap == "" {
		return pages, nil, nil
	}
	isNamed := func(u *url.URL) bool {
		return slices.ContainsFunc(f.onlyHosts, func(host string) bool {
			return cacheurl.CanonicalHost(u) == cacheurl.CanonicalHost(&url.URL{Scheme: u.Scheme, Host: host})
		})
	}
	if u, err := url.Parse(f.sitemap); isURL(f.sitemap) && f.onlyHosts != nil && (err != nil || !isNamed(u)) {
		return nil, nil, errors.New("--sitemap is at a host that --only-host does not name")
	}
	if !isURL(f.sitemap) { // its pages may be at ports, which a Reader rejects
		file, err := opener(cmd.Context())(f.sitemap)
		if err != nil {
			return nil, nil, err
		}
		listed, err := sitemap.Pages(file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.sitemap, err)
		}
		return append(pages, listed...), nil, nil
	}
	client, err := resolvingClient(f.resolve, f.insecure)
	if err != nil {
		return nil, nil, err
	}
	hosts := f.allowHosts
	if f.onlyHosts != nil {
		hosts = f.onlyHosts
	}
	var state sitemap.State
	reader := sitemap.New(sitemap.Config{HTTPClient: client, Hosts: hosts, ForCaches: true})
	if err := whereTo(reader.Update(cmd.Context(), &state, f.sitemap)); err != nil {
		return nil, nil, exitError{exitUntested, err} // pages that were not found are not tested
	}
	for _, page := range state.PendingURLs() {
		if isSameOrigin(page, f.sitemap) {
			pages = append(pages, page)
		} else {
			found = append(found, page)
		}
	}
	return pages, found, nil
}

// isSameOrigin reports whether two URLs have the same scheme and host.
func isSameOrigin(a, b string) bool {
	one, err := url.Parse(a)
	other, err2 := url.Parse(b)
	return err == nil && err2 == nil && one.Scheme == other.Scheme &&
		cacheurl.CanonicalHost(one) == cacheurl.CanonicalHost(other)
}

// headers parses lines such as "X-Token: 1".
func headers(lines []string) (http.Header, error) {
	h := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || name == "":
			return nil, fmt.Errorf("the header %.20q… has no name and colon", line)
		case strings.EqualFold(name, "Origin"), strings.HasPrefix(strings.ToLower(name), "access-control-"):
			return nil, fmt.Errorf("the header %s is what the probe tests with", name)
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Errorf("the header %.20q… is not valid", name)
		}
		h.Add(name, value)
	}
	return h, nil
}

// readList returns the lines of a file, or of standard input, without comments.
func readList(cmd *cobra.Command, name string) (urls []string, err error) {
	if name == "-" {
		urls, err = stdinLines(cmd)
	} else {
		var file *os.File
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		defer file.Close()
		urls, err = interruptible(cmd.Context(), func() ([]string, error) { return lines(file) })
	}
	return slices.DeleteFunc(urls, func(line string) bool { return strings.HasPrefix(line, "#") }), err
}

// or lists values, such as "a, b or c".
func or(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
