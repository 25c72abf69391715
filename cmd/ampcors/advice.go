package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

func newAdvice() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advice SERVER",
		Short: "Print what to configure in a server or framework, so that it answers the pages of publishers",
		Long: "Print what to configure in a server or framework, so that it answers the pages of publishers and of no other site: " +
			or(probe.Servers()) + ". A publisher has several origins on the default caches, and each must be listed. For patterns, or many publishers, " +
			"put ampcors in front of the backend.\n\nTest the result with ampcors probe.",
		Example: "  ampcors advice nginx --publisher www.example.com --publisher www.example.org\n  ampcors advice HAProxy --config config.json",
		Args: func(cmd *cobra.Command, args []string) error {
			return oneArg("the name of a server ("+or(probe.Servers())+")")(cmd, args)
		},
		ValidArgs: probe.Servers(),
	}
	file := cmd.Flags().String("config", "", "JSON file with the configuration: its publishers, caches, methods and request headers are used")
	publishers := cmd.Flags().StringSlice("publisher", nil, "a domain whose pages are allowed")
	caches := addCaches(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i := slices.IndexFunc(probe.Servers(), func(s string) bool { return strings.EqualFold(s, args[0]) })
		if i < 0 {
			return fmt.Errorf("there is no advice for %q; want %s", args[0], or(probe.Servers()))
		}
		known, err := caches.read()
		if err != nil {
			return err
		}
		cfg := ampcors.Config{Caches: known}
		if *file != "" {
			if cfg, err = (configfile.File{Path: *file, Set: func(cfg *ampcors.Config) {
				cfg.Source = new(source.Source) // it is never asked
			}}).Config(); err != nil {
				return err
			}
			if cfg.Caches == nil || *caches != "" {
				cfg.Caches = known
			}
		}
		cfg.Publishers = append(cfg.Publishers, *publishers...)
		switch {
		case len(cfg.Publishers) == 0:
			return errors.New("there is no publisher; use --publisher or --config")
		case slices.ContainsFunc(cfg.Publishers, func(p string) bool { return strings.HasPrefix(p, "*.") }):
			return errors.New("a pattern such as *.example.com cannot be written as a list of origins: name each domain, or put ampcors in front of the backend")
		case len(cfg.Origins)+len(cfg.Email.Senders) > 0:
			fmt.Fprintln(cmd.ErrOrStderr(), "note: the advice does not include the file's origins and email senders")
		}
		snippets, err := probe.Advice(cfg.Publishers, cfg.Caches, cfg.Methods, cfg.RequestHeaders)
		if err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), snippets[i].Text)
		return nil
	}
	return cmd
}
