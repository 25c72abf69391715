package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

// The commands of this file convert names and URLs, explain decisions and check configurations. Only explain and
// check ask something: a database, if one is named.

func newPrefix() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "prefix [domain ...]",
		Short:   "Print the domain prefix of publishers on AMP Caches",
		Example: "  ampcors prefix www.example.com\n  ampcors prefix --all in--trouble.com\n  ampcors prefix --hash <domains.txt",
	}
	output := addOutput(cmd)
	hash := cmd.Flags().Bool("hash", false, "print the hash prefix, which some caches use")
	all := cmd.Flags().Bool("all", false, "print each prefix that a known implementation gives, and which do")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return answer(cmd, args, *output, func(domain string) (any, error) {
			switch {
			case *all:
				found, err := cacheurl.Prefixes(domain)
				return prefixes(found), err
			case *hash:
				return cacheurl.HashPrefix(domain)
			}
			return cacheurl.DomainPrefix(domain)
		})
	}
	return cmd
}

// prefixes are printed with a line for each.
type prefixes []cacheurl.Prefix

func (all prefixes) String() string {
	lines := make([]string, len(all))
	for i, p := range all {
		by := strings.Join(p.By, ", ")
		if by == "" {
			by = "nobody today, but caches have used it"
		}
		lines[i] = fmt.Sprintf("%-63s  %s", p.Prefix, by)
		if p.Denied {
			lines[i] += "; denied, because another host has it too"
		}
	}
	return strings.Join(lines, "\n")
}

func newOrigins() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "origins [domain ...]",
		Short:   "Print the origins at which pages of publishers run",
		Long:    "Print the origins at which pages of publishers run: the publisher's own, and on each AMP Cache one for each domain prefix that a known implementation gives, unless another host has the same prefix. It is not public which one a cache uses.",
		Example: "  ampcors origins www.example.com",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		return answer(cmd, args, *output, func(domain string) (any, error) { return probe.Origins(domain, known...) })
	}
	return cmd
}

func newReverse() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "reverse [origin ...]",
		Short:   "Print the publisher that a cache origin or a domain prefix names",
		Example: "  ampcors reverse https://www-example-com.cdn.ampproject.org\n  ampcors reverse www-example-com",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		return answer(cmd, args, *output, func(arg string) (any, error) {
			prefix := strings.TrimPrefix(arg, "https://")
			for _, c := range known {
				prefix = strings.TrimSuffix(prefix, "."+c.CacheDomain)
			}
			switch u, err := url.Parse(arg); {
			case err != nil || !cacheurl.IsOnCache(arg, known...) || u.Path == "":
			case u.Path == "/" && u.RawQuery == "" && u.Fragment == "":
				return nil, fmt.Errorf("%q has a slash at its end, which no Origin has; want %q", arg, strings.TrimSuffix(arg, "/"))
			default:
				return nil, fmt.Errorf("%.300q is a URL, and not an origin; want ampcors cacheurl, which prints the publisher's URL", arg)
			}
			if arg != prefix && strings.Contains(prefix, ".") {
				return nil, fmt.Errorf("%q is not an origin of a known cache, which has one label before the cache's domain; --caches names others", arg)
			}
			domain, err := cacheurl.PublisherDomain(prefix)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", arg, err)
			}
			return domain, nil
		})
	}
	return cmd
}

func newCacheURL() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cacheurl [URL ...]",
		Short: "Convert URLs of publishers to those of an AMP Cache, and back",
		Long: "Convert URLs of publishers to those of an AMP Cache, and back.\n\n" +
			"The URL of a publisher becomes that of the cache. The URL of any known cache becomes that of the publisher.",
		Example: "  ampcors cacheurl 'https://www.example.com/article?id=7'\n  ampcors cacheurl --cache bing --type i https://www.example.com/photo.jpg",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	cacheID := cmd.Flags().String("cache", "", "the id of the AMP Cache; if empty, the first of --caches is used, which is google without it")
	prefix := cmd.Flags().String("prefix", "", "the domain prefix, one of ampcors prefix --all; if empty, that of ampcors prefix is used")
	contentType := cmd.Flags().String("type", "", "the content type: c, v, wp, cert, i, ii or r; if empty, it is guessed from the extension")
	query := cmd.Flags().String("cache-query", "", "query parameters for the cache, such as amp_latest_update_time=1795262400")
	params := cmd.Flags().String("image-params", "", "parameters of an image (type i or ii), such as w800")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		cache, err := cacheWithID(known, cmp.Or(*cacheID, known[0].ID))
		if err != nil {
			return err
		}
		if err := checkType(*contentType); err != nil {
			return err
		}
		return answer(cmd, args, *output, func(arg string) (any, error) {
			if page, note, err := pasted(arg, known); page != "" || err != nil {
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: %s\n", arg, note)
				}
				return page, err
			}
			if cacheurl.IsOnCache(arg, known...) {
				u, err := cacheurl.Parse(arg, known...)
				return u.Publisher, err
			}
			t, guessed := cacheurl.ContentType(*contentType), cacheurl.GuessType(arg)
			if t == "" && *params == "" {
				t = guessed
			}
			if isDocument := t == cacheurl.Document || t == cacheurl.Viewer || t == cacheurl.SignedExchange; isDocument &&
				guessed != cacheurl.Document {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is an image or a font by its extension, and not a document; its type is %s\n", arg, guessed)
			}
			return cacheurl.URL{Publisher: arg, Cache: cache, Prefix: *prefix, Type: t, ImageParams: *params, CacheQuery: *query}.Build()
		})
	}
	return cmd
}

// googleHosts are the hosts of Google Search, in any country.
var googleHosts = regexp.MustCompile(`^www\.google\.[a-z]{2,3}(\.[a-z]{2})?$`)

// pasted reads URLs as people copy them that are not in the form of AMP's document: of the viewers of search engines,
// and of caches without a domain prefix or a content type. It returns the publisher's URL and what
// the argument is, or "" if it is none of these.
func pasted(arg string, known []cacheurl.Cache) (page, note string, err error) {
	u, err := url.Parse(arg)
	if err != nil || u.Scheme != "https" {
		return "", "", nil
	}
	host, path, cache := strings.ToLower(u.Host), strings.TrimPrefix(u.EscapedPath(), "/"), known[0]
	for _, c := range known {
		if host == c.CacheDomain || strings.HasSuffix(host, "."+c.CacheDomain) {
			cache = c
		}
	}
	viewed, isViewer := strings.CutPrefix(path, "amp/")
	segment, rest, _ := strings.Cut(path, "/")
	switch {
	case isViewer && (googleHosts.MatchString(host) || host == "www.bing.com"):
		path, note = "c/"+viewed, "the URL of a viewer, which shows this page"
	case host == cache.CacheDomain && checkType(segment) == nil && rest != "":
		note = "the URL of a cache without a domain prefix"
	case strings.HasSuffix(host, "."+cache.CacheDomain) && (segment == "s" || strings.Contains(segment, ".")):
		path, note = "c/"+path, "the URL of a cache without a content type, as in examples of AMP's document"
	default:
		return "", "", nil
	}
	_, shown, _ := strings.Cut(path, "/")
	publisher, _, _ := strings.Cut(strings.TrimPrefix(shown, "s/"), "/")
	prefix, err := cacheurl.DomainPrefix(publisher)
	if err != nil {
		return "", "", fmt.Errorf("%.300q is %s, but its host cannot be read: %w", arg, note, err)
	}
	on := prefix + "." + cache.CacheDomain
	if strings.HasSuffix(host, "."+cache.CacheDomain) {
		on = host // and so it must belong to the page
	}
	whole := "https://" + on + "/" + path
	if u.RawQuery != "" {
		whole += "?" + u.RawQuery
	}
	parsed, err := cacheurl.Parse(whole, known...)
	return parsed.Publisher, note, err
}

// checkType returns an error for a value of --type that is no content type.
func checkType(value string) error {
	types := []string{"c", "v", "wp", "cert", "i", "ii", "r"}
	if value != "" && !slices.Contains(types, value) {
		return fmt.Errorf("--type %q is no content type; want %s", value, or(types))
	}
	return nil
}

// cacheWithID returns the cache with an ID.
func cacheWithID(known []cacheurl.Cache, id string) (cacheurl.Cache, error) {
	i := slices.IndexFunc(known, func(c cacheurl.Cache) bool { return c.ID == id })
	if i < 0 {
		return cacheurl.Cache{}, fmt.Errorf("the cache %q is unknown; want %s", id, strings.Join(cacheIDs(known), " or "))
	}
	return known[i], nil
}

func cacheIDs(caches []cacheurl.Cache) (ids []string) {
	for _, c := range caches {
		ids = append(ids, c.ID)
	}
	return ids
}

// A cachesFile is the file of --caches, or "".
type cachesFile string

// addCaches adds the flag --caches.
func addCaches(cmd *cobra.Command) *cachesFile {
	file := cmd.Flags().String("caches", "", "file with the AMP Caches, as https://cdn.ampproject.org/caches.json; if empty, Google's and Bing's are used")
	return (*cachesFile)(file)
}

// read returns the caches in the file or, without a file, the default ones.
func (f *cachesFile) read() ([]cacheurl.Cache, error) {
	if *f == "" {
		return cacheurl.DefaultCaches(), nil
	}
	file, err := os.Open(string(*f))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	caches, err := cacheurl.ParseCaches(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", string(*f), err)
	}
	return caches, nil
}

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [origin ...]",
		Short: "Show step by step why an Origin is allowed or denied",
		Long: "Show step by step why an Origin is allowed or denied, by a configuration file, a list of publishers, or both. " +
			"With a database, publishers in its table are looked up, as serve-authz does.\n\n" +
			"The exit code is 1 if an Origin is denied, and 3 if the database cannot say whether one is allowed.",
		Example: "  ampcors explain --publisher www.example.com https://www-example-com.cdn.ampproject.org\n  ampcors explain --config config.json null\n" +
			"  ampcors explain --config config.json --database postgres:///cms https://www.customer77.example",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("config", "", "JSON file with the configuration")
	publishers := cmd.Flags().StringSlice("publisher", nil, "a publisher that is allowed, or a pattern such as *.example.com")
	var d database
	d.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := d.checkFlags(cmd); err != nil {
			return err
		}
		mw, end, err := middleware(*file, *publishers, &d)
		if err != nil {
			return err
		}
		defer end()
		origins, err := inputs(cmd, args)
		if err != nil {
			return err
		}
		code := exitClean
		err = answer(cmd, origins, *output, func(origin string) (any, error) {
			e := mw.Explain(origin)
			switch {
			case e.Decision.Reason == ampcors.ReasonSourceUnavailable:
				code = exitUntested
			case !e.Decision.Allowed && code == exitClean:
				code = exitFindings
			}
			explained := newExplanation(e)
			if len(origins) > 1 {
				explained.heading = origin
			}
			return explained, nil
		})
		if err == nil && code != exitClean {
			err = exitError{code: code}
		}
		return err
	}
	return cmd
}

// middleware returns a Middleware with the configuration of a file, publishers, a database, or all of them.
func middleware(file string, publishers []string, d *database) (mw *ampcors.Middleware, end func(), err error) {
	if file == "" && len(publishers) == 0 && d.address() == "" {
		return nil, nil, errors.New("there is no publisher; use --config, --publisher or --database")
	}
	add := func(cfg *ampcors.Config) { cfg.Publishers = append(cfg.Publishers, publishers...) }
	end = func() {}
	if d.address() != "" {
		asked, opened, err := d.source(file, slog.New(slog.DiscardHandler)) // errors are in the steps
		if err != nil {
			return nil, nil, err
		}
		end = opened.end
		add = func(cfg *ampcors.Config) {
			cfg.Publishers = append(cfg.Publishers, publishers...)
			cfg.Source = asked
		}
	}
	if file != "" {
		mw, err = configfile.File{Path: file, Set: add}.New()
		err = withoutDatabase(err, "--database or "+databaseEnv)
	} else {
		var cfg ampcors.Config
		add(&cfg)
		mw, err = ampcors.New(cfg)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return mw, end, nil
}

// An explanation is printed with a line for each step.
type explanation struct {
	Allowed   bool           `json:"allowed"`
	Reason    ampcors.Reason `json:"reason"`
	Publisher string         `json:"publisher,omitempty"`
	Claimed   string         `json:"claimedPublisher,omitempty"`
	Cache     string         `json:"cache,omitempty"`
	Steps     []step         `json:"steps"`

	heading string // the origin, if there are several
}

type step struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Value  string `json:"value"`
	Detail string `json:"detail"`
}

func newExplanation(e ampcors.Explanation) explanation {
	d := e.Decision
	steps := make([]step, len(e.Steps))
	for i, s := range e.Steps {
		steps[i] = step(s)
	}
	return explanation{Allowed: d.Allowed, Reason: d.Reason, Publisher: d.Publisher, Claimed: d.ClaimedPublisher, Cache: d.CacheID,
		Steps: steps}
}

func (e explanation) String() string {
	var b strings.Builder
	if e.heading != "" {
		fmt.Fprintf(&b, "%s\n", e.heading)
	}
	for _, step := range e.Steps {
		mark := "ok  "
		if !step.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %-10s %s\n", mark, step.Name, step.Value)
		if step.Detail != "" {
			fmt.Fprintf(&b, "%18s%s\n", "", step.Detail)
		}
	}
	if e.heading != "" { // an empty line before the next
		return b.String()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check file",
		Short: "Check a configuration file, and show what it allows",
		Long: "Check a configuration file, and show what it allows. Warnings name publishers whose domain prefix is denied, because another host has the same one.\n\n" +
			"With a database, also check that serve-authz with the same flags can look up publishers in it. The exit code is 3 if it cannot.",
		Example: "  ampcors check config.json\n  ampcors check --database postgres:///cms config.json\n  ampcors check --schema >schema.json",
	}
	output := addOutput(cmd)
	hasDatabase := cmd.Flags().Bool("with-database", false,
		"the server looks up publishers in a database, which is not asked now: the file need not list any")
	var d database
	d.addFlags(cmd)
	isSchema := cmd.Flags().Bool("schema", false, "print a JSON Schema of the file, with which editors complete and explain it")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *isSchema {
			return noArgs(cmd, args)
		}
		return oneArg("a configuration file")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *isSchema {
			_, err := cmd.OutOrStdout().Write(configfile.Schema())
			return err
		}
		if err := d.checkFlags(cmd); err != nil {
			return err
		}
		cfg, err := configfile.File{Path: args[0], Set: func(cfg *ampcors.Config) {
			if *hasDatabase || d.address() != "" {
				cfg.Source = new(source.Source) // it is never asked
			}
		}}.Config()
		err = withoutDatabase(err, "--database, "+databaseEnv+" or --with-database")
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) && unread.Path == args[0] {
			return err
		}
		if err != nil {
			return exitError{exitFindings, err}
		}
		if slices.ContainsFunc(cfg.Publishers, func(p string) bool {
			return strings.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf })
		}) {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: publishers are written in Unicode, and which letters are valid depends on its version, here %s: Go 1.27 has a newer one than Go 1.26. A-labels (xn--...) are the same for all.\n", idna.UnicodeVersion)
		}
		for _, warning := range cfg.Warnings() {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
		}
		if *output == formatJSON {
			data, err := configfile.Marshal(cfg)
			if err != nil {
				return err
			}
			if err := writeJSON(cmd.OutOrStdout(), json.RawMessage(data)); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), summary(cfg))
		}
		if d.address() == "" || *hasDatabase {
			return nil
		}
		asked, err := d.check(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if *output == formatText {
			fmt.Fprintln(cmd.OutOrStdout(), "database:", asked)
		}
		return nil
	}
	return cmd
}

// summary returns a text that says what a configuration allows.
func summary(cfg ampcors.Config) string {
	var b strings.Builder
	patterns := 0
	for _, p := range cfg.Publishers {
		if strings.HasPrefix(p, "*.") {
			patterns++
		}
	}
	fmt.Fprintf(&b, "publishers: %d, and %d patterns", len(cfg.Publishers)-patterns, patterns)
	line := func(name string, values []string) {
		if len(values) > 0 {
			fmt.Fprintf(&b, "\n%s: %s", name, strings.Join(values, ", "))
		}
	}
	caches := cfg.Caches
	if caches == nil {
		caches = cacheurl.DefaultCaches()
	}
	if line("caches", cacheIDs(caches)); len(caches) == 0 {
		b.WriteString("\ncaches: none")
	}
	line("origins", cfg.Origins)
	if line("email senders", cfg.Email.Senders); len(cfg.Email.Senders) > 0 {
		clients := cfg.Email.Clients
		if clients == nil {
			clients = []string{"https://mail.google.com"}
		}
		if line("email clients, with version 1", clients); len(clients) == 0 {
			b.WriteString("\nemail clients, with version 1: none")
		}
	}
	line("methods", append([]string{"GET", "HEAD", "POST"}, cfg.Methods...))
	line("request headers", append([]string{"Content-Type"}, cfg.RequestHeaders...))
	exposed := cfg.ResponseHeaders
	if exposed == nil {
		exposed = []string{"AMP-Redirect-To"}
	}
	line("response headers", exposed)
	fmt.Fprintf(&b, "\ncredentials: %t", cfg.Credentialed)
	if cfg.MaxAge > 0 {
		fmt.Fprintf(&b, "\npreflights are remembered for: %s", cfg.MaxAge)
	}
	if cfg.ReportOnly {
		b.WriteString("\nreport only: nothing is denied")
	}
	var dangers []string
	for name, isSet := range map[string]bool{
		"ambiguous prefixes":              cfg.DangerouslyAllowAmbiguousPrefixes,
		"own origins with http":           cfg.DangerouslyAllowHTTPOwnOrigins,
		"patterns over public suffixes":   cfg.DangerouslyAllowPublicSuffixWildcards,
		"unsafe requests without Origin":  cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin,
		"all addresses of mail providers": cfg.Email.DangerouslyAllowMailProviderWildcards,
	} {
		if isSet {
			dangers = append(dangers, name)
		}
	}
	slices.Sort(dangers)
	line("dangerously allowed", dangers)
	return b.String()
}
