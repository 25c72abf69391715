package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/probe"
	"github.com/ampcors/ampcors/source"
)

func newAdvice() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advice SERVER",
		Short: "Print what to configure in a server or framework, so that it answers the pages of publishers",
		Long: "Print what to configure, so that a server or framework answers the pages of publishers, and of no other " +
			"site. The server is " +
			or(probe.Servers()) + ". A publisher has several origins on the default caches, and each must be listed. For " +
			"patterns, or many publishers, " +
			"put ampcors serve-proxy in front of the backend.\n\nTest the result with ampcors probe.",
		Example: "  ampcors advice nginx --publisher www.example.com --publisher www.example.org\n  ampcors advice HAProxy " +
			"--config config.json",
		Args: func(cmd *cobra.Command, args []string) error {
			return oneArg("the name of a server ("+or(probe.Servers())+")")(cmd, args)
		},
		ValidArgs: probe.Servers(),
	}
	file := cmd.Flags().String("config", "", "JSON file with the configuration; members that this server cannot have "+
		"are named in notes on standard error")
	publishers := cmd.Flags().StringSlice("publisher", nil, "a domain whose pages are allowed")
	senders := cmd.Flags().StringSlice("sender", nil,
		"there is no advice for AMP for Email requests: this prints what to use instead, and ends with an error")
	_ = cmd.Flags().MarkHidden("sender")
	caches := addCachesOver(cmd)
	noCaches := addNoCaches(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i := slices.IndexFunc(probe.Servers(), func(s string) bool { return strings.EqualFold(s, args[0]) })
		if i < 0 {
			return fmt.Errorf("there is no advice for %q; want %s", args[0], or(probe.Servers()))
		}
		if len(*senders) > 0 {
			return fmt.Errorf("there is no advice for AMP for Email requests: each names the sender of its email, and that "+
				"must be compared with the allowed senders. Put ampcors serve-proxy in front of the backend, with the "+
				"configuration {\"email\": {\"senders\": [\"%s\"]}}, and test it with ampcors probe --sender",
				strings.Join(*senders, `", "`))
		}
		cfg, asksDatabase, err := ampcors.Config{Credentialed: true}, false, error(nil)
		if *file != "" {
			if cfg, err = (configfile.File{Path: *file, CachesFile: string(*caches), Set: func(cfg *ampcors.Config) {
				cfg.Source = new(source.Source) // it is never asked
			}}).Config(); err != nil {
				return err
			}
			var members map[string]json.RawMessage
			if data, err := os.ReadFile(*file); err == nil { // it was valid just now
				_ = json.Unmarshal(data, &members)
			}
			_, asksDatabase = members["source"]
		}
		if *noCaches {
			cfg.Caches = []cacheurl.Cache{}
		}
		if cfg.Caches == nil {
			if cfg.Caches, err = caches.read(); err != nil {
				return err
			}
		}
		cfg.Publishers = append(cfg.Publishers, *publishers...)
		switch {
		case len(cfg.Publishers) == 0 && *file != "":
			return errors.New("the file lists no publisher, and a server can only compare origins of publishers: use " +
				"--publisher. For AMP for Email requests, origins and databases, put ampcors serve-proxy in front of the backend")
		case len(cfg.Publishers) == 0:
			return errors.New("there is no publisher; use --publisher or --config")
		case slices.ContainsFunc(cfg.Publishers, func(p string) bool { return strings.HasPrefix(p, "*.") }):
			return errors.New("a pattern such as *.example.com cannot be written as a list of origins: name each domain, or " +
				"put ampcors serve-proxy in front of the backend")
		}
		for _, note := range notInAdvice(cfg, asksDatabase, probe.Servers()[i]) {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
		}
		snippets, err := probe.Advice(probe.AdviceConfig{Publishers: cfg.Publishers, Caches: cfg.Caches,
			Credentialed: cfg.Credentialed, Methods: cfg.Methods,
			RequestHeaders: cfg.RequestHeaders, ResponseHeaders: cfg.ResponseHeaders, MaxAge: cfg.MaxAge})
		if err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), snippets[i].Text)
		return nil
	}
	return cmd
}

// notInAdvice says which members of a configuration the advice for a server does not have.
func notInAdvice(cfg ampcors.Config, asksDatabase bool, server string) (notes []string) {
	for _, n := range []struct {
		isSet bool
		text  string
	}{
		{len(cfg.Origins) > 0, "origins: the advice does not allow them; add those that you need, where it says how " +
			"partners are added"},
		{len(cfg.Email.Senders) > 0, "email: the advice does not allow AMP for Email requests"},
		{asksDatabase, "source: the advice does not allow publishers of a database"},
		{cfg.ReportOnly, "reportOnly: the advice denies"},
		{cfg.DangerouslyAllowAmbiguousPrefixes, "dangerouslyAllowAmbiguousPrefixes: the advice does not allow such prefixes"},
		{cfg.DangerouslyAllowHTTPOwnOrigins, "dangerouslyAllowHTTPOwnOrigins: the advice does not allow origins with http"},
		{cfg.DangerouslyAllowPublicSuffixWildcards, "dangerouslyAllowPublicSuffixWildcards: the advice has no patterns"},
		{!cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin && server != "Go",
			"requests without Origin that may change data (of programs and old browsers) are let through; ampcors would deny " +
				"them"},
		{cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin && server == "Go",
			"dangerouslyAllowUnsafeRequestsWithoutOrigin: the advice denies such requests"},
		{!cfg.Credentialed && server == "WordPress", "credentialed: WordPress itself sends " +
			"Access-Control-Allow-Credentials from admin-ajax.php"},
		{len(cfg.ResponseHeaders) > 0 && server == "WordPress",
			"responseHeaders: WordPress itself exposes X-WP-Total, X-WP-TotalPages and Link as well"},
	} {
		if n.isSet {
			notes = append(notes, n.text)
		}
	}
	return notes
}
