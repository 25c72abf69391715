package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/cmd/ampcors/probe"
	"github.com/spf13/cobra"
)

// A probeFlags has the values of the flags of the command probe.
type probeFlags struct {
	output, failOn, list          string
	endpoints, publishers, header []string
	method, body, contentType     string
	credentials, unsafe, insecure bool
	cookie                        string
	allowHosts, resolve           []string
	rate                          float64
	timeout, maxTime              time.Duration
}

func newProbe() *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe [URL of an AMP document]",
		Short: "Test from outside whether a backend answers AMP pages, and only those of its publishers",
		Long: `Test from outside whether a backend answers AMP pages, and only those of its publishers.

It finds the endpoints in an AMP document, or takes them from --endpoint, and calls them as the
AMP runtime does from each origin at which the publisher's pages run, and as pages of other
sites could. It judges the answers as a browser does, and says what is wrong and how to fix it.
The backend may be written in any language.

It sends GET, HEAD and OPTIONS, and other methods only with --unsafe. It calls only the hosts of
the document and of its endpoints, or those of --allow-host.

Exit codes: 0 no finding at or above --fail-on, 1 such findings, 2 wrong usage, 3 something could
not be tested because of an error, or nothing was tested.`,
		Example: `  ampcors probe https://www.example.com/article
  ampcors probe --endpoint https://api.example.com/list --publisher www.example.com
  ampcors probe --endpoint https://api.example.com/vote --method POST --content-type application/json --credentials --publisher www.example.com --unsafe
  ampcors probe -o html https://www.example.com/article >report.html`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "table", "table, json, junit or html")
	flags.StringVar(&f.failOn, "fail-on", string(probe.Low), "the lowest severity of findings that lead to exit code 1: low, medium or high")
	flags.StringSliceVar(&f.endpoints, "endpoint", nil, "URL to test; may be given several times")
	flags.StringVar(&f.list, "list", "", `file with URLs of endpoints, one on each line; "-" is standard input`)
	flags.StringVar(&f.method, "method", http.MethodGet, "method of --endpoint and --list")
	flags.StringVar(&f.contentType, "content-type", "", "Content-Type of the body")
	flags.StringVar(&f.body, "body", "", "body of the request")
	flags.BoolVar(&f.credentials, "credentials", false, "the page sends --endpoint and --list with the reader's cookies")
	flags.StringSliceVar(&f.publishers, "publisher", nil, "domain whose pages must work; by default the host of the document")
	flags.StringArrayVarP(&f.header, "header", "H", nil, `header of each request, such as "Authorization: Bearer …"; it is not in the report`)
	flags.StringVar(&f.cookie, "cookie", "", "cookies of the requests with credentials; they are not in the report")
	flags.BoolVar(&f.unsafe, "unsafe", false, "also send methods that may change data")
	flags.StringSliceVar(&f.allowHosts, "allow-host", nil, "the only hosts that may be called")
	flags.StringArrayVar(&f.resolve, "resolve", nil, "host:addr:port: connect to addr:port for this host")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate")
	flags.Float64Var(&f.rate, "rate", 10, "requests per second; 0 for no limit")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "time limit of a request")
	flags.DurationVar(&f.maxTime, "max-time", 5*time.Minute, "time limit of the whole probe")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runProbe(cmd, args, f) }
	return cmd
}

func runProbe(cmd *cobra.Command, args []string, f probeFlags) error {
	write, ok := writers[f.output]
	if !ok {
		return fmt.Errorf("the output %q is unknown; want table, json, junit or html", f.output)
	}
	failOn, err := probe.ParseSeverity(f.failOn)
	if err != nil {
		return fmt.Errorf("--fail-on: %w", err)
	}
	cfg, err := f.config(cmd, args)
	if err != nil {
		return err
	}
	report, err := probe.Run(cmd.Context(), cfg)
	switch {
	case errors.Is(err, probe.ErrConfig):
		return err
	case err != nil:
		return exitError{exitUntested, err}
	}
	if out, ok := terminal(cmd); ok && f.output == "table" {
		err = writeTable(out, report, true)
	} else {
		err = write(cmd.OutOrStdout(), report)
	}
	if err != nil {
		return err
	}
	isSevere := slices.ContainsFunc(report.Findings, func(f probe.Finding) bool { return f.Severity.AtLeast(failOn) })
	switch {
	case isSevere:
		return exitError{code: exitFindings}
	case slices.ContainsFunc(report.Untested, func(u probe.Untested) bool { return u.Failed }),
		!slices.ContainsFunc(report.Endpoints, func(e probe.Endpoint) bool { return e.Tested }):
		return exitError{code: exitUntested}
	}
	return nil
}

// config returns the configuration that the flags describe.
func (f *probeFlags) config(cmd *cobra.Command, args []string) (probe.Config, error) {
	cfg := probe.Config{
		Publishers: f.publishers, Unsafe: f.unsafe, Insecure: f.insecure, Cookie: f.cookie, AllowHosts: f.allowHosts,
		Rate: f.rate, Timeout: f.timeout, MaxTime: f.maxTime, Header: make(http.Header), Resolve: make(map[string]string),
	}
	if len(args) == 1 {
		cfg.Document = args[0]
	}
	urls := f.endpoints
	if f.list != "" {
		lines, err := f.readList(cmd)
		if err != nil {
			return cfg, err
		}
		urls = append(urls, lines...)
	}
	for _, u := range urls {
		cfg.Endpoints = append(cfg.Endpoints, probe.Endpoint{
			URL: u, Component: "endpoint", Method: strings.ToUpper(f.method), ContentType: f.contentType, Body: f.body, Credentials: f.credentials, Answer: probe.AnswerJSON,
		})
	}
	if cfg.Document == "" && len(cfg.Endpoints) == 0 {
		return cfg, errors.New("there is nothing to test; give the URL of a document, --endpoint or --list")
	}
	if cfg.Document == "" && len(cfg.Publishers) == 0 {
		return cfg, errors.New("there is no publisher; use --publisher with the domain whose pages call the endpoint")
	}
	for _, line := range f.header {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return cfg, fmt.Errorf("the header %.20q… has no name and colon", line)
		}
		cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	for _, r := range f.resolve {
		host, addr, ok := strings.Cut(r, ":")
		if !ok || host == "" || addr == "" {
			return cfg, fmt.Errorf("--resolve %q is not host:addr", r)
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return cfg, fmt.Errorf("--resolve %q: the address needs a port: %w", r, err)
		}
		cfg.Resolve[host] = addr
	}
	if isTerminal(os.Stderr) {
		cfg.Progress = func(done, total int, endpoint string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d: %s\n", done+1, total, endpoint)
		}
	}
	return cfg, nil
}

func (f *probeFlags) readList(cmd *cobra.Command) (urls []string, err error) {
	if f.list == "-" {
		urls, err = stdinLines(cmd)
	} else {
		var file *os.File
		if file, err = os.Open(f.list); err != nil {
			return nil, err
		}
		defer file.Close()
		urls, err = interruptible(cmd.Context(), func() ([]string, error) { return lines(file) })
	}
	return slices.DeleteFunc(urls, func(line string) bool { return strings.HasPrefix(line, "#") }), err
}

// terminal returns the terminal that the output goes to, if it shows colors (https://no-color.org).
func terminal(cmd *cobra.Command) (out *os.File, ok bool) {
	if p, isPrinter := cmd.OutOrStdout().(*printer); isPrinter {
		out, ok = p.out.(*os.File)
	}
	return out, ok && os.Getenv("NO_COLOR") == "" && isTerminal(out)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
