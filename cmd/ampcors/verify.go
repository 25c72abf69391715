package main

import (
	"context"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/cacheurl"
)

func newVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [host ...]",
		Short: "Check that sites serve the key files of update-cache or IndexNow",
		Long: "Check that sites serve the key files that AMP Caches or search engines fetch.\n\n" +
			"With --key, check the key file of update-cache. With --key and --copies, check instead the copies of it that AMP " +
			"Caches have; if the copy is stale, this also makes the cache fetch the key file again. The command does not read " +
			"robots.txt, which must allow caches to fetch the key file. " +
			"Without --key, check the key file of IndexNow; set INDEXNOW_KEY to its key, or use --keys. An argument such as " +
			"www.example.com is asked with https; for a key file at the root, write http://www.example.com to ask with http. " +
			"With --key, a host is always asked with https, as caches do.\n\n" + exitHelp,
		Example: "  ampcors verify --key private.pem www.example.com\n  ampcors verify --key private.pem --copies " +
			"www.example.com\n  INDEXNOW_KEY=… ampcors verify www.example.com",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key of update-cache")
	copies := cmd.Flags().Bool("copies", false, "with --key, check the copies of the key file that AMP Caches have")
	caches := addCaches(cmd)
	flags := addIndexNow(cmd)
	resolve := cmd.Flags().StringArray("resolve", nil, resolveHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := resolvingClient(*resolve, false)
		if err != nil {
			return err
		}
		verify, err := verifier(cmd.ErrOrStderr(), client, *file, *copies, caches, flags)
		if err != nil {
			return err
		}
		isRight := ": the key file is correct"
		if *file != "" && !*copies {
			isRight += "; robots.txt, which must allow it, was not read"
		}
		return answer(cmd, args, *output, func(domain string) (any, error) {
			if err := verify(cmd.Context(), domain); err != nil {
				return nil, err
			}
			return domain + isRight, nil
		})
	}
	return cmd
}

func verifier(errs io.Writer, client *http.Client, file string, copies bool, caches *cachesFile,
	flags *indexNowFlags) (func(context.Context, ...string) error, error) {
	if file != "" {
		known := cacheurl.DefaultCaches()
		if copies {
			var err error
			if known, err = caches.read(); err != nil {
				return nil, err
			}
		}
		c, err := newUpdateClient(errs, client, file, known)
		if err != nil {
			return nil, err
		}
		if copies {
			return c.VerifyCaches, nil
		}
		return c.Verify, nil
	}
	c, err := flags.client(errs, client)
	if err != nil {
		return nil, err
	}
	return c.Verify, nil
}
