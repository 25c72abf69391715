package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
)

func newSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit [URL ...]",
		Short: "Tell search engines about changed pages with IndexNow",
		Long: "Tell search engines about changed pages with IndexNow. Set INDEXNOW_KEY to the key, or use --keys.\n\n" +
			exitHelp +
			"\n\nArguments, lines of standard input, or the pages of --sitemap are the canonical URLs." +
			pagesHelp + rejectedHelp + "\n\n" +
			"With -o json, an object for each host with accepted URLs says how many, and for how many of these the engine " +
			"still checks the key (pending). The object of a failure has notAccepted (how many URLs a later run can send), " +
			"rejected (URLs to correct) and retryAfter (seconds).",
		Example: "  INDEXNOW_KEY=… ampcors submit https://www.example.com/article\n" +
			"  INDEXNOW_KEY=… ampcors submit --sitemap https://www.example.com/sitemap.xml --state state.json",
	}
	output := addOutput(cmd)
	flags := addIndexNow(cmd)
	endpoints := cmd.Flags().StringArray("endpoint", nil,
		"the one service to tell, which tells all others: "+or(slices.Sorted(maps.Keys(engines)))+", or a URL; if empty, "+
			indexnow.API)
	complete(cmd, "endpoint", slices.Sorted(maps.Keys(engines)))
	given := addPages(cmd)
	openLog := addRunLog(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing to search engines, and print the requests, with the key "+
		"masked")
	showKey := cmd.Flags().Bool("show-key", false, "with --dry-run, print command lines of curl that send the requests, "+
		"with the key, which lets everybody submit URLs of the host")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(*endpoints) > 1 {
			return errors.New("--endpoint is given twice; want one, because the search engines of IndexNow share what one of " +
				"them is told")
		}
		name := strings.Join(*endpoints, "")
		if flags.endpoint = cmp.Or(engines[strings.ToLower(name)], name); name != "" &&
			!strings.Contains(flags.endpoint, "://") {
			return fmt.Errorf("--endpoint %q is no engine of IndexNow; want %s, or a URL", name,
				or(slices.Sorted(maps.Keys(engines))))
		}
		shown := newSubmission(cmd, *output, given)
		flags.accepted = shown.accept
		c, err := flags.client(cmd.ErrOrStderr(), httpClient)
		if err != nil {
			return err
		}
		given.isDryRun = *dryRun
		given.isValid = func(page string) bool {
			_, _, err := c.Canonical(page)
			return err == nil
		}
		defer given.unlock()
		urls, err := given.pages(cmd, args)
		if err != nil {
			return err
		}
		if *dryRun {
			requests, err := c.Requests(cmd.Context(), urls...)
			printed := make([]shownRequest, len(requests))
			for i, r := range requests {
				if printed[i] = (shownRequest{Method: http.MethodPost, URL: r.URL, Body: r.Masked()}); *showKey {
					printed[i].Body, printed[i].Curl = r.Body, curlLines(r)
				}
			}
			return given.finish(writeRequests(cmd, *output, printed, err))
		}
		if shown.log, err = openLog(); err != nil {
			return err
		}
		shown.expect(c, urls)
		report, err := c.Submit(cmd.Context(), urls...)
		for _, r := range report.Rejected { // until their lastmod changes
			given.state.Reject(urls[r.Index], string(r.Err.Code), inOurWords(r.Err).Error())
		}
		for _, b := range report.Batches {
			if problem := (*indexnow.Error)(nil); errors.As(b.Err, &problem) && problem.URL != "" {
				given.state.Reject(b.URLs[0], rejectedByEngine, problem.Error())
			}
		}
		return given.finish(cmp.Or(shown.write(report, urls, err), shown.problem, shown.log.close()))
	}
	return cmd
}

// keyFile is what may be the path of a key file at the end of a URL.
var keyFile = regexp.MustCompile(`/[A-Za-z0-9-]{8,128}\.txt$`)

// maskKey masks the key in the URL of a key file, which somebody may submit by mistake: a log is read by more
// people than the key is for.
func maskKey(u string) string {
	return keyFile.ReplaceAllStringFunc(u, func(file string) string {
		return "/" + indexnow.Key(strings.TrimSuffix(file[1:], ".txt")).String() + ".txt"
	})
}

// engines are the endpoints of the engines that take part in IndexNow, as public copies of
// https://www.indexnow.org/searchengines.json and https://www.indexnow.org/faq had them in September 2026. That
// page itself could not be read here.
var engines = map[string]string{
	"amazon":          "https://indexnow.amazonbot.amazon/indexnow",
	"bing":            "https://www.bing.com/indexnow",
	"internetarchive": "https://web-static.archive.org/indexnow",
	"naver":           "https://searchadvisor.naver.com/indexnow",
	"seznam":          "https://search.seznam.cz/indexnow",
	"yandex":          "https://yandex.com/indexnow",
	"yep":             "https://indexnow.yep.com/indexnow",
}

// rejectedByEngine is the code of pages that an engine rejects. Those that were not sent have a code of package
// badvalue.
const rejectedByEngine = "engine"

// A shownRequest is a request of IndexNow as it is printed, with the key masked or with command lines.
type shownRequest struct {
	Method string          `json:"method"`
	URL    string          `json:"url"`
	Body   json.RawMessage `json:"body"`
	Curl   []string        `json:"curl,omitempty"`
}

// curlLines returns command lines that send a request: the POST, with its body on standard input, since 10,000 URLs
// are more than an argument may have; and, for one URL, the GET.
func curlLines(r indexnow.Request) []string {
	lines := []string{fmt.Sprintf("curl -sS -H 'Content-Type: application/json; charset=utf-8' --data-binary @- %s "+
		"<<'END'\n%s\nEND", quoted(r.URL), r.Body)}
	if r.GET != "" {
		lines = append(lines, "curl -sS "+quoted(r.GET))
	}
	return lines
}

// writeRequests writes requests that were not sent.
func writeRequests(cmd *cobra.Command, output format, shown []shownRequest, problem error) error {
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), shown); err != nil {
			return err
		}
	} else {
		for _, r := range shown {
			if r.Curl != nil {
				fmt.Fprintln(cmd.OutOrStdout(), strings.Join(r.Curl, "\n"))
				continue
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n%s\n", r.Method, r.URL, r.Body)
		}
	}
	if problem != nil {
		return exitError{exitFindings, problem}
	}
	return nil
}
