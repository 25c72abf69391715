package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/probe"
)

// The commands of this file convert domains, prefixes and origins. They ask no server.

func newPrefix() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prefix [domain ...]",
		Short: "Print the domain prefix of publishers on AMP Caches",
		Example: "  ampcors prefix www.example.com\n  ampcors prefix --all in--trouble.com\n  ampcors prefix --hash " +
			"<domains.txt",
	}
	output := addOutput(cmd)
	hash := cmd.Flags().Bool("hash", false, "print the hash prefix, which caches use for some names")
	all := cmd.Flags().Bool("all", false, "print each prefix that a known implementation gives, and the hash prefix, "+
		"with the names of the implementations that give it")
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
		Use:   "origins [domain ...]",
		Short: "Print the origins at which pages of publishers run",
		Long: "Print the origins at which pages of publishers run: the publisher's own, and on each AMP Cache one for " +
			"each prefix that ampcors prefix --all prints, unless another host has the same prefix. It is not public " +
			"which one a cache uses.",
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

// notAnOrigin says what an argument is that somebody has pasted in place of an origin; "" if it may be one.
func notAnOrigin(arg string) string {
	if value, ok := strings.CutPrefix(strings.ToLower(arg), "origin:"); ok {
		return fmt.Sprintf("%.300q has the name of the header; want %q", arg, strings.TrimSpace(arg[len(arg)-len(value):]))
	}
	if arg == "null" {
		return `"null" names nobody: sandboxed frames, local files and redirects of any website send it`
	}
	if strings.Count(arg, "://") > 1 || strings.Contains(arg, ",") {
		return fmt.Sprintf("%.300q are several origins. A browser sends one: look for a proxy that doubles the header", arg)
	}
	u, err := url.Parse(arg)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path+u.RawQuery+u.Fragment == "":
		return ""
	case u.Path == "/" && u.RawQuery == "" && u.Fragment == "":
		return fmt.Sprintf("%q has a slash at its end, which no Origin has; want %q", arg, strings.TrimSuffix(arg, "/"))
	}
	return fmt.Sprintf("%.300q is a URL, and not an origin; ampcors cacheurl prints the publisher's URL of a page on a "+
		"cache", arg)
}

func newReverse() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reverse [origin ...]",
		Short: "Print the publisher that a cache origin or a domain prefix names",
		Example: "  ampcors reverse https://www-example-com.cdn.ampproject.org\n  ampcors reverse www-example-com\n  " +
			"ampcors reverse --among publishers.txt qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	among := cmd.Flags().String("among", "", "file with domains, one on each line, or - for standard input: a hash "+
		"prefix is tried with each of them")
	config := cmd.Flags().String("config", "", "configuration file or list of publishers: a hash prefix is tried with "+
		"each publisher of it")
	cmd.MarkFlagsMutuallyExclusive("among", "config")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		candidates, from, err := candidatesOf(cmd, args, *among, *config)
		if err != nil {
			return err
		}
		hashes := sync.OnceValue(func() map[string]string { return hashesOf(candidates) })
		return answer(cmd, args, *output, func(arg string) (any, error) {
			prefix := strings.TrimPrefix(arg, "https://")
			for _, c := range known {
				prefix = strings.TrimSuffix(prefix, "."+c.CacheDomain)
			}
			if hint := notAnOrigin(arg); hint != "" {
				return nil, errors.New(hint)
			}
			if host, isHTTP := strings.CutPrefix(arg, "http://"); isHTTP && cacheurl.IsOnCache("https://"+host, known...) {
				return nil, fmt.Errorf("%q has the scheme http, and pages on an AMP Cache have https; want %q", arg,
					"https://"+host)
			}
			if arg != prefix && strings.Contains(prefix, ".") {
				return nil, fmt.Errorf("%q is not an origin of a known cache, which has one label before the cache's domain; "+
					"--caches names others", arg)
			}
			domain, err := cacheurl.PublisherDomain(prefix)
			switch {
			case err == nil:
				return domain, nil
			case from == "" && isHash(prefix):
				return nil, fmt.Errorf("%q: %w; --among FILE or --config FILE tries it with the domains there", arg, err)
			case from == "" || !isHash(prefix):
				return nil, fmt.Errorf("%q: %w", arg, err)
			}
			if domain, ok := hashes()[prefix]; ok {
				return domain, nil
			}
			return nil, fmt.Errorf("%q is the hash prefix of none of the %s in %s", arg,
				count(len(candidates), "domain", "domains"), from)
		})
	}
	return cmd
}

func isHash(prefix string) bool { return len(prefix) == 52 && !strings.Contains(prefix, "-") }

// candidatesOf returns the domains with which a hash prefix is tried, and where they are from.
func candidatesOf(cmd *cobra.Command, args []string, among, config string) (domains []string, from string, err error) {
	switch {
	case config != "":
		read, err := configurationIn(config, "", func(cfg *ampcors.Config) { domains = cfg.Publishers })
		if err != nil {
			return nil, "", err
		}
		if _, err := read.Config(); len(domains) == 0 && err != nil {
			return nil, "", err
		}
		return domains, config, nil
	case among == "-":
		if len(args) == 0 {
			return nil, "", errors.New("--among - reads the domains from standard input, so the prefixes must be arguments")
		}
		domains, err = stdinLines(cmd)
		return domains, "standard input", err
	case among != "":
		file, err := os.Open(among)
		if err != nil {
			return nil, "", err
		}
		defer file.Close()
		if domains, err = lines(file); err == nil && len(domains) > 0 && strings.HasPrefix(domains[0], "{") {
			return nil, "", fmt.Errorf("%s is JSON, and --among reads one domain on each line; want --config %[1]s", among)
		}
		return domains, among, err
	}
	return nil, "", nil
}

// hashesOf returns the domains by their hash prefixes. Lines that are no domain, such as patterns and comments,
// have none.
func hashesOf(domains []string) map[string]string {
	hashes := make(map[string]string, len(domains))
	for _, line := range domains {
		domain, _, _ := strings.Cut(line, "#")
		if prefix, err := cacheurl.HashPrefix(strings.TrimSpace(domain)); err == nil {
			hashes[prefix] = strings.TrimSpace(domain)
		}
	}
	return hashes
}
