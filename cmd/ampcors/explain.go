package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [origin ...]",
		Short: "Show step by step why an Origin is allowed or denied",
		Long: "Show step by step why an Origin is allowed or denied, by a configuration file, a list of publishers, or " +
			"both. " +
			"With a database, the file must be JSON, and publishers in the table are looked up, as serve-proxy and " +
			"serve-authz do.\n\n" +
			"With --sender, the requests of that sender's emails are explained: by version 2 of the protocol, and by version " +
			"1 from each origin in the arguments, or else from each of the file's email.clients.\n\n" +
			"The exit code is 1 if an Origin or a sender is denied, or (without --sender) an entry of the file is wrong, and " +
			"3 if the database cannot say whether one is allowed.",
		Example: "  ampcors explain --publisher www.example.com https://www-example-com.cdn.ampproject.org\n  ampcors " +
			"explain --config config.json null\n" +
			"  ampcors explain --config config.json --sender news@example.com https://mail.google.com\n" +
			"  ampcors explain --config config.json --database postgres:///cms https://www.customer77.example",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("config", "", "configuration file, or list of publishers with one on each line")
	publishers := cmd.Flags().StringSlice("publisher", nil,
		"a publisher that is allowed, or a pattern such as *.example.com")
	senders := cmd.Flags().StringSlice("sender", nil, "the address of a sender; its AMP for Email requests are explained")
	caches := addCachesOver(cmd)
	var d database
	d.addFlags(cmd)
	d.addNoTriggers(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := d.checkFlags(cmd); err != nil {
			return err
		}
		if len(*senders) > 0 && *file == "" && len(*publishers) == 0 && d.address() == "" {
			return errors.New("--sender needs --config, with a file that has email.senders")
		}
		mw, cfg, end, err := middleware(*file, *publishers, caches, &d)
		isPartly := errors.Is(err, errPartly)
		if isPartly {
			complain(cmd.ErrOrStderr(), err.Error())
		} else if err != nil {
			return err
		}
		defer end()
		if cfg.ReportOnly {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: reportOnly is set, so that nothing is denied now")
		}
		if len(*senders) > 0 {
			if len(args) == 0 {
				args = clientsOf(cfg)
			}
			return explainSenders(cmd, mw, cfg, *senders, args, *output)
		}
		origins, err := inputs(cmd, args)
		if err != nil {
			return err
		}
		hints := hintsOf(cmd.Context(), cfg, &d)
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
			hint := ""
			for _, hintFor := range hints {
				if hint = hintFor(origin, e.Decision); hint != "" {
					break
				}
			}
			if hint != "" {
				explained.Steps = append(explained.Steps, step{Name: "hint", Value: hint})
			}
			if len(origins) > 1 {
				explained.heading = origin
			}
			return explained, nil
		})
		if isPartly && code == exitClean {
			code = exitFindings
		}
		if err == nil && code != exitClean {
			err = exitError{code: code}
		}
		return err
	}
	return cmd
}

// hintsOf returns what may say more than the steps about a denied origin, the most certain first. Each returns "" if it
// has nothing to say.
func hintsOf(ctx context.Context, cfg ampcors.Config, d *database) []func(origin string,
	decision ampcors.Decision) string {
	hasUnfilled := sync.OnceValue(func() bool { return d.address() != "" && d.withoutPrefix(ctx) > 0 })
	unlisted := func(origin string, decision ampcors.Decision) (publisher string) {
		switch decision.Reason {
		case ampcors.ReasonPublisherNotAllowed, ampcors.ReasonUnknownHost:
			return cmp.Or(decision.ClaimedPublisher, strings.TrimPrefix(origin, "https://"))
		}
		return ""
	}
	return []func(string, ampcors.Decision) string{
		func(origin string, _ ampcors.Decision) string {
			if origin == "null" { // the steps say what that is
				return ""
			}
			return notAnOrigin(origin)
		},
		func(origin string, _ ampcors.Decision) string {
			if host, _, _ := strings.Cut(origin, ":"); !strings.Contains(origin, "://") && strings.Contains(host, ".") {
				return fmt.Sprintf("An origin begins with its scheme; want %q.", "https://"+origin)
			}
			return ""
		},
		func(origin string, decision ampcors.Decision) string {
			if decision.Reason != ampcors.ReasonUnknownHost {
				return ""
			}
			return besideCache(origin)
		},
		func(origin string, decision ampcors.Decision) string {
			if decision.Reason != ampcors.ReasonHashNotKnown {
				return ""
			}
			hint := hashHint(cfg, origin)
			if d.table.NoPrefixes {
				return hint + " " + withoutPrefixes
			}
			if d.address() != "" {
				hint += " If its row is in the table, ampcors check, with the same flags, says whether the row's hash prefix is " +
					"wrong."
			}
			if hasUnfilled() {
				hint += " Some rows of the table have no hash prefix: ampcors source fill, with the same flags, adds them."
			}
			return hint
		},
		func(origin string, decision ampcors.Decision) string {
			publisher := unlisted(origin, decision)
			if publisher == "" || d.address() == "" {
				return ""
			}
			return d.rowHint(ctx, publisher)
		},
		func(origin string, decision ampcors.Decision) string {
			return closeHint(unlisted(origin, decision), cfg.Publishers)
		},
	}
}

// closeHint names the entries of a list that differ from a value in one or two bytes, or is "".
func closeHint(value string, list []string) string {
	// Two changes leave one of three parts as it is, so that few entries of a long list are compared.
	third := (len(value) + 2) / 3
	parts := slices.Collect(slices.Chunk([]byte(value), max(third, 1)))
	var candidates, found []string
	for _, entry := range list {
		isCandidate := slices.ContainsFunc(parts, func(part []byte) bool { return strings.Contains(entry, string(part)) })
		if isCandidate && max(len(value)-len(entry), len(entry)-len(value)) <= 2 {
			candidates = append(candidates, entry)
		}
	}
	for _, entry := range nearest(value, candidates) {
		if len(found) < 3 {
			found = append(found, strconv.Quote(entry))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("Perhaps a typo, unless it was removed: the list has %s, and not %q.", strings.Join(found, " and "),
		value)
}

// besideCache says which domain a cache has, if an origin is at another host of the cache's site, as one that was
// typed from memory.
func besideCache(origin string) string {
	_, host, _ := strings.Cut(origin, "://")
	for _, cache := range cacheurl.DefaultCaches() {
		site, err := publicsuffix.EffectiveTLDPlusOne(cache.CacheDomain)
		if err == nil && strings.HasSuffix(host, "."+site) && !strings.HasSuffix(host, "."+cache.CacheDomain) {
			return fmt.Sprintf("Pages on the AMP Cache %q are below %s. ampcors origins DOMAIN prints a publisher's origins "+
				"there.", cache.ID, cache.CacheDomain)
		}
	}
	return ""
}

// usualLabels are those of hosts that a pattern is often for.
var usualLabels = []string{"www", "amp", "m", "mobile", "news", "blog", "shop", "en"}

// hashHint says whose hash prefix an origin has, if that is a usual host below a pattern, and otherwise how to find
// out.
func hashHint(cfg ampcors.Config, origin string) string {
	hash, _, _ := strings.Cut(strings.TrimPrefix(origin, "https://"), ".")
	for _, p := range cfg.Publishers {
		base, isPattern := strings.CutPrefix(p, "*.")
		if !isPattern {
			continue
		}
		for _, label := range usualLabels {
			if prefix, err := cacheurl.HashPrefix(label + "." + base); err == nil && prefix == hash {
				return fmt.Sprintf("This is the hash prefix of %s.%s. %q does not match a hash: list %[1]s.%[2]s by itself.", label,
					base, p)
			}
		}
	}
	return "ampcors reverse --among FILE says which of the domains in a file has this hash prefix. List that domain by " +
		"itself."
}

// explainSenders explains the requests of emails, with version 1 at each client.
func explainSenders(cmd *cobra.Command, mw *ampcors.Middleware, cfg ampcors.Config, senders, clients []string,
	output format) error {
	code := exitClean
	err := answerAll(cmd, senders, output, func(sender string) (any, error) {
		e := explanation{Allowed: true}
		explain := func(version, name, value string, r *http.Request) {
			explained := mw.ExplainRequest(r)
			reason, detail := explained.Decision.Reason, explained.Steps[0].Detail
			isAllowed := reason == ampcors.ReasonEmail || reason == ampcors.ReasonEmailV1
			if e.Allowed = e.Allowed && isAllowed; e.Reason == 0 || !isAllowed {
				e.Reason = reason
			}
			if explained.Steps[0].Name == "sender" {
			} else if len(cfg.Email.Senders) == 0 {
				detail = "email.senders is empty, so that no email gets the header that it needs."
			} else if version == "version 1" && reason != ampcors.ReasonNoEmailSender {
				detail = "This origin is not in email.clients, so that the sender does not count."
			}
			if reason == ampcors.ReasonEmailSenderNotAllowed {
				if hint := cmp.Or(inOtherCase(sender, cfg.Email.Senders), closeHint(sender, cfg.Email.Senders)); hint != "" {
					detail += " " + hint
				}
			}
			e.Steps = append(e.Steps, step{version, isAllowed, name + ": " + value,
				detail + " Reason: " + reason.String() + "."})
		}
		r, err := http.NewRequest(http.MethodGet, "/?"+url.Values{"__amp_source_origin": {sender}}.Encode(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("AMP-Email-Sender", sender)
		explain("version 2", "AMP-Email-Sender", sender, r)
		for _, client := range clients {
			r := r.Clone(cmd.Context())
			r.Header = http.Header{"Origin": {client}}
			explain("version 1", "Origin", client, r)
		}
		if !e.Allowed {
			code = exitFindings
		}
		if len(senders) > 1 {
			e.heading = sender
		}
		return e, nil
	})
	if err == nil && code != exitClean {
		err = exitError{code: code}
	}
	return err
}

// inOtherCase says which of the senders differs from an address only in case; "" if none does.
func inOtherCase(address string, senders []string) string {
	for _, sender := range senders {
		if strings.EqualFold(sender, address) {
			return fmt.Sprintf("It has %s: before the @, upper and lower case differ (RFC 5321 section 2.4).", sender)
		}
	}
	return ""
}

// clientsOf returns the origins of mail clients that a configuration trusts with version 1.
func clientsOf(cfg ampcors.Config) []string {
	if cfg.Email.Clients == nil {
		return []string{"https://mail.google.com"}
	}
	return cfg.Email.Clients
}

// middleware returns a Middleware, and its Config, with the configuration of a file, publishers, a database, or all
// of them.
func middleware(file string, publishers []string, caches *cachesFile, d *database) (mw *ampcors.Middleware,
	used ampcors.Config, end func(), err error) {
	if file == "" && len(publishers) == 0 && d.address() == "" {
		return nil, used, nil, errors.New("there is no publisher; use --config, --publisher or --database")
	}
	var asked *source.Source
	end = func() {}
	if d.address() != "" {
		var opened lookups
		if asked, opened, err = d.source(file, slog.New(slog.DiscardHandler)); err != nil { // errors are in the steps
			return nil, used, nil, err
		}
		end = opened.end
	}
	add := func(cfg *ampcors.Config) {
		cfg.Publishers = append(cfg.Publishers, publishers...)
		if asked != nil {
			cfg.Source = asked
		}
		used = *cfg
	}
	if file != "" {
		var read configuration
		if read, err = configurationIn(file, string(*caches), add); err == nil {
			if mw, _, err = read.Watch(configfile.WatcherConfig{}); err != nil && isInEntries(err) {
				var partly *ampcors.Middleware
				if partly, used = withoutWrongEntries(used); partly != nil {
					return partly, used, end, fmt.Errorf("%w\n%w", err, errPartly)
				}
			}
			err = withoutDatabase(err, "--database or "+databaseEnv)
		}
	} else {
		var cfg ampcors.Config
		if cfg.Caches, err = caches.read(); err == nil {
			add(&cfg)
			mw, err = ampcors.New(cfg)
		}
	}
	if err != nil {
		end()
		return nil, used, nil, err
	}
	return mw, used, end, nil
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
	return explanation{Allowed: d.Allowed, Reason: d.Reason, Publisher: d.Publisher, Claimed: d.ClaimedPublisher,
		Cache: d.CacheID,
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
