package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check file",
		Short: "Check a configuration file, and show what it allows",
		Long: "Check a configuration file, or a list of publishers with one on each line, and show what it allows. " +
			"Warnings name publishers whose domain prefix is denied, because another host has the same one.\n\n" +
			"With a database, the file must be JSON. Check also tries whether serve-proxy or serve-authz with the same flags " +
			"can look up publishers in it. If not, the exit code is 3, or 1 if only some rows are wrong.\n\n" +
			"With - in place of the file, check reads the configuration of Caddy in JSON (caddy adapt) from standard input, " +
			"and shows what each ampcors in it allows.",
		Example: "  ampcors check config.json\n  caddy adapt --config Caddyfile | ampcors check -\n  ampcors check " +
			"--database postgres:///cms config.json\n  ampcors check --schema >schema.json",
	}
	output := addOutput(cmd)
	hasDatabase := cmd.Flags().Bool("with-database", false,
		"the server looks up publishers in a database; check does not ask it, and accepts a file that lists no publisher")
	caches := addCachesOver(cmd)
	var d database
	d.addFlags(cmd)
	d.addNoTriggers(cmd)
	isSchema := cmd.Flags().Bool("schema", false, "print a JSON Schema of the file, with which editors complete and "+
		"explain it")
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
		if args[0] == "-" {
			for _, flag := range []string{"caches", "with-database", "database", "table", "domain-column", "prefix-column",
				"no-prefixes", "condition", "no-triggers"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s has no effect on -, because Caddy's configuration names its own caches and database; "+
						"remove it", flag)
				}
			}
			return checkCaddys(cmd, *output)
		}
		read, err := configurationIn(args[0], string(*caches), func(cfg *ampcors.Config) {
			if *hasDatabase || d.address() != "" {
				cfg.Source = new(source.Source) // it is never asked
			}
		})
		if err != nil {
			return err
		}
		cfg, err := read.Config()
		err = withoutDatabase(err, "--database, "+databaseEnv+" or --with-database")
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) &&
			(unread.Path == args[0] || unread.Path == string(*caches)) {
			return err
		}
		if err != nil {
			return exitError{exitFindings, err}
		}
		warn(cmd.ErrOrStderr(), cfg)
		if *output == formatJSON {
			data, err := configfile.Marshal(cfg)
			if err != nil {
				return err
			}
			if err := writeJSON(cmd.OutOrStdout(), json.RawMessage(data)); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), summary(cfg, string(*caches)))
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
		if d.table.NoPrefixes && (cfg.Caches == nil || len(cfg.Caches) > 0) {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", withoutPrefixes)
		}
		return nil
	}
	return cmd
}

// warn writes what users may not expect of a configuration.
func warn(w io.Writer, cfg ampcors.Config) {
	if slices.ContainsFunc(cfg.Publishers, func(p string) bool {
		return strings.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf })
	}) {
		fmt.Fprintf(w, "note: publishers are written in Unicode, and which letters are valid depends on its version, here "+
			"%s: Go 1.27 has a newer one than Go 1.26. A-labels (xn--...) are the same for all.\n", idna.UnicodeVersion)
	}
	for _, warning := range cfg.Warnings() {
		fmt.Fprintln(w, "warning:", warning)
	}
	for _, p := range cfg.Publishers {
		if base, isPattern := strings.CutPrefix(p, "*."); isPattern && getsHash("www."+base) {
			fmt.Fprintf(w, "warning: %q: AMP Caches use a hash prefix for names below it, such as for www.%s, and a pattern "+
				"matches no hash prefix: list each name by itself\n", p, base)
		}
	}
}

// getsHash reports whether an implementation that is known gives a domain its hash prefix.
func getsHash(domain string) bool {
	found, err := cacheurl.Prefixes(domain)
	return err == nil && len(found) > 0 && len(found[len(found)-1].By) > 0
}

// summary returns a text that says what a configuration allows.
func summary(cfg ampcors.Config, cachesFile string) string {
	var b strings.Builder
	patterns := 0
	for _, p := range cfg.Publishers {
		if strings.HasPrefix(p, "*.") {
			patterns++
		}
	}
	fmt.Fprintf(&b, "publishers: %d, and %s", len(cfg.Publishers)-patterns, count(patterns, "pattern", "patterns"))
	line := func(name string, values []string) {
		if len(values) > 0 {
			fmt.Fprintf(&b, "\n%s: %s", name, strings.Join(values, ", "))
		}
	}
	// Emails are at no cache, and their clients expose what version 1 needs by itself.
	hasOnlyEmails := len(cfg.Publishers) == 0 && len(cfg.Origins) == 0 && cfg.Source == nil && len(cfg.Email.Senders) > 0
	caches, from := cfg.Caches, "as the file says"
	switch {
	case cachesFile != "":
		from = "as " + cachesFile + " says"
	case caches == nil:
		caches, from = cacheurl.DefaultCaches(), "built in"
	}
	if !hasOnlyEmails {
		if line("caches", cacheIDs(caches)); len(caches) == 0 {
			b.WriteString("\ncaches: none")
		}
		fmt.Fprintf(&b, " (%s)", from)
	}
	if mw, err := ampcors.New(cfg); err == nil && len(cfg.Publishers) > 0 {
		fmt.Fprintf(&b, "\nfingerprint of the list: %d", mw.Stats().Fingerprint)
	}
	line("origins", cfg.Origins)
	if line("email senders", cfg.Email.Senders); len(cfg.Email.Senders) > 0 {
		clients := clientsOf(cfg)
		if line("email clients, with version 1", clients); len(clients) == 0 {
			b.WriteString("\nemail clients, with version 1: none")
		}
	}
	line("methods", addedTo([]string{"GET", "HEAD", "POST"}, cfg.Methods))
	line("request headers", addedTo([]string{"Content-Type"}, cfg.RequestHeaders))
	exposed := cfg.ResponseHeaders
	if exposed == nil {
		exposed = []string{"AMP-Redirect-To"}
	}
	if !hasOnlyEmails {
		line("response headers", exposed)
	}
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

// addedTo adds those names to the defaults that are not among them.
func addedTo(defaults, names []string) []string {
	for _, name := range names {
		if !slices.ContainsFunc(defaults, func(has string) bool { return strings.EqualFold(has, name) }) {
			defaults = append(defaults, name)
		}
	}
	return defaults
}
