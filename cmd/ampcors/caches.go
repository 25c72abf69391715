package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

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

// addCaches adds the flag --caches to a command that reads no configuration with caches.
func addCaches(cmd *cobra.Command) *cachesFile {
	file := cmd.Flags().String("caches", "", "file with the AMP Caches, in the format of "+
		"https://cdn.ampproject.org/caches.json; if empty, those of AMP's registry are used")
	return (*cachesFile)(file)
}

// addCachesOver adds the flag --caches to a command whose configuration may name caches.
func addCachesOver(cmd *cobra.Command) *cachesFile {
	file := addCaches(cmd)
	cmd.Flags().Lookup("caches").Usage += ", unless the configuration names others"
	return file
}

// addNoCaches adds the flag --no-caches.
func addNoCaches(cmd *cobra.Command) *bool {
	none := cmd.Flags().Bool("no-caches", false, "no AMP Cache is trusted: pages run at the publishers' own origins, as "+
		"with caches: [] in a configuration")
	cmd.MarkFlagsMutuallyExclusive("caches", "no-caches")
	return none
}

// read returns the caches in the file or, without a file, the default ones.
func (f *cachesFile) read() ([]cacheurl.Cache, error) {
	if *f == "" {
		return cacheurl.DefaultCaches(), nil
	}
	if isURL(string(*f)) {
		return nil, fmt.Errorf("--caches reads a file, and %s is a URL; ampcors caches --compare %[1]s shows how that list "+
			"differs from the built-in one", string(*f))
	}
	file, err := os.Open(string(*f))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	caches, err := cacheurl.ParseCaches(file)
	if err != nil {
		for v := range badvalue.All(err) {
			if v.Code == badvalue.Missing && v.Path == "caches" {
				return nil, fmt.Errorf(`%s: %w. To trust no AMP Cache, use "caches": [] in a configuration, or --no-caches of `+
					`ampcors probe and ampcors advice`, string(*f), err)
			}
		}
		return nil, fmt.Errorf("%s: %w", string(*f), err)
	}
	return caches, nil
}

func newCaches() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "caches",
		Short: "Print the AMP Caches that are trusted, or compare them with another list",
		Long: "Print, as JSON, the AMP Caches that are trusted. The member cachesFile of a configuration can name a file " +
			"with this output. With --compare, print instead which caches of another list are new, gone or changed. Servers " +
			"fetch no list: whoever runs a trusted cache can serve any page as a page of any publisher, so a person must " +
			"decide whether to trust it.\n\n" +
			"Exit codes: 0 the lists are the same, or none is compared, 1 they differ, or the other URL has no valid list, 2 " +
			"wrong usage, 3 the other list cannot be fetched now.",
		Example: "  ampcors caches >caches.json\n  ampcors caches --compare https://cdn.ampproject.org/caches.json",
		Args:    noArgs,
	}
	caches := addCaches(cmd)
	compare := cmd.Flags().String("compare", "", "file or URL of the list to compare with, such as "+
		"https://cdn.ampproject.org/caches.json; only this flag makes the command fetch a list")
	resolve := cmd.Flags().StringArray("resolve", nil, resolveHelp)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		if *compare == "" {
			return writeJSON(cmd.OutOrStdout(), map[string]any{"caches": known})
		}
		client, err := resolvingClient(*resolve, false)
		if err != nil {
			return err
		}
		other, err := otherCachesOf(cmd.Context(), client, *compare)
		if err != nil {
			return err
		}
		differences := differencesOf(known, other)
		for _, line := range differences {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		if len(differences) > 0 {
			return exitError{code: exitFindings}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the same %s: %s\n", count(len(known), "cache", "caches"),
			strings.Join(cacheIDs(known), ", "))
		return nil
	}
	return cmd
}

// otherCachesOf reads the list with which the caches are compared.
func otherCachesOf(ctx context.Context, client *http.Client, name string) ([]cacheurl.Cache, error) {
	if !isURL(name) {
		file := cachesFile(name)
		return file.read()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "ampcors-caches")
	resp, err := client.Do(r)
	if err != nil {
		return nil, exitError{exitLater, fmt.Errorf("%s: %w", name, withoutURL(err))}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		code := exitFindings
		if announce.Retryable(resp.StatusCode) {
			code = exitLater
		}
		return nil, exitError{code, fmt.Errorf("%s: the answer is %d; want 200", name, resp.StatusCode)}
	}
	caches, err := cacheurl.ParseCaches(resp.Body)
	if err != nil {
		return nil, exitError{exitFindings, fmt.Errorf("%s: %w", name, err)}
	}
	return caches, nil
}

// differencesOf returns a line for each cache that only one of the lists has, or that differs.
func differencesOf(known, other []cacheurl.Cache) (lines []string) {
	for _, c := range other {
		i := slices.IndexFunc(known, func(k cacheurl.Cache) bool { return k.ID == c.ID })
		if i < 0 {
			lines = append(lines, fmt.Sprintf("new: %s, %s", c.ID, c.CacheDomain))
			continue
		}
		for _, member := range [][3]string{
			{"name", known[i].Name, c.Name}, {"docs", known[i].Docs, c.Docs},
			{"cacheDomain", known[i].CacheDomain, c.CacheDomain},
			{"updateCacheApiDomainSuffix", known[i].UpdateCacheAPIDomainSuffix, c.UpdateCacheAPIDomainSuffix},
			{"thirdPartyFrameDomainSuffix", known[i].ThirdPartyFrameDomainSuffix, c.ThirdPartyFrameDomainSuffix},
		} {
			if member[1] != member[2] {
				lines = append(lines, fmt.Sprintf("changed: %s, %s: %q, was %q", c.ID, member[0], member[2], member[1]))
			}
		}
	}
	for _, k := range known {
		if !slices.ContainsFunc(other, func(c cacheurl.Cache) bool { return c.ID == k.ID }) {
			lines = append(lines, fmt.Sprintf("gone: %s, %s", k.ID, k.CacheDomain))
		}
	}
	return lines
}
