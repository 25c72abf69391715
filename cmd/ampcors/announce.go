package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
)

// This file has what the commands verify, flush and submit share.

// indexNowFlags are the flags about the keys of IndexNow and about its services.
type indexNowFlags struct {
	locations      []string
	keys, endpoint string
	accepted       func(indexnow.Batch) // see indexnow.Config
}

func addIndexNow(cmd *cobra.Command) *indexNowFlags {
	f := &indexNowFlags{}
	cmd.Flags().StringArrayVar(&f.locations, "key-location", nil,
		"URL of a key file of IndexNow that is not at the root. A key file covers the pages of its folder. May be "+
			"repeated, also together with --keys")
	cmd.Flags().StringVar(&f.keys, "keys", "", "JSON file with the keys of each host, the current one first: "+
		"{\"www.example.com\": [\"…\"]}; or the keys of its folders, for the pages in each: {\"www.example.com\": "+
		"{\"/catalog/\": [\"…\"]}}")
	return f
}

// client returns an IndexNow client. It reads the key from a file or the environment, because a
// flag would show it in the shell's history and the list of processes.
func (f *indexNowFlags) client(errs io.Writer, client *http.Client) (*indexnow.Client, error) {
	cfg := indexnow.Config{KeyLocations: f.locations, Endpoint: f.endpoint, Accepted: f.accepted, Logger: silent,
		HTTPClient: client}
	if f.keys != "" {
		data, err := os.ReadFile(f.keys)
		if err != nil {
			return nil, err
		}
		keys, err := indexnow.ParseKeys(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.keys, err)
		}
		warnOfMode(errs, f.keys, 0o077, "others may read or change the keys: chmod 600 it")
		cfg.KeysOf, cfg.KeyLocations = keys.Of, append(f.locations, keys.Locations()...)
		return indexnow.New(cfg)
	}
	key := strings.TrimSpace(os.Getenv("INDEXNOW_KEY"))
	if key == "" {
		return nil, errors.New("INDEXNOW_KEY is not set; set it to the IndexNow key, or use --keys")
	}
	cfg.Key = indexnow.Key(key)
	return indexnow.New(cfg)
}

const exitHelp = "Exit codes: 0 all is right, 1 an error that a retry does not fix, 2 wrong usage, 3 try again later."

// silent discards the clients' logs, because the commands print the same errors.
var silent = slog.New(slog.DiscardHandler)
