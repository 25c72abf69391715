package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/cacheurl"
)

// This file has what the commands verify, flush and submit share.

// indexNowFlags are the flags about the keys of IndexNow and about its services.
type indexNowFlags struct{ location, keys, endpoint string }

func addIndexNow(cmd *cobra.Command) *indexNowFlags {
	f := &indexNowFlags{}
	cmd.Flags().StringVar(&f.location, "key-location", "", "URL of IndexNow's key file, if it is not at the root")
	cmd.Flags().StringVar(&f.keys, "keys", "", "JSON file with the keys of each host, the current one first: {\"www.example.com\": [\"…\"]}")
	return f
}

// client returns an IndexNow client. It reads the key from a file or the environment, because a
// flag would show it in the shell's history and the list of processes.
func (f *indexNowFlags) client(client *http.Client) (*indexnow.Client, error) {
	cfg := indexnow.Config{KeyLocation: f.location, Endpoint: f.endpoint, Logger: silent, HTTPClient: client}
	if f.keys != "" {
		data, err := os.ReadFile(f.keys)
		if err != nil {
			return nil, err
		}
		keys, err := parseKeys(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.keys, err)
		}
		cfg.KeysOf = func(_ context.Context, host string) ([]indexnow.Key, error) { return keys[host], nil }
		return indexnow.New(cfg)
	}
	key := strings.TrimSpace(os.Getenv("INDEXNOW_KEY"))
	if key == "" {
		return nil, errors.New("INDEXNOW_KEY is not set; set it to the IndexNow key, or use --keys")
	}
	cfg.Key = indexnow.Key(key)
	return indexnow.New(cfg)
}

// parseKeys returns the keys of each host. It reads the members one by one, because a host that is there twice
// would otherwise have its last keys.
func parseKeys(data []byte) (map[string][]indexnow.Key, error) {
	errForm := errors.New(`is not a JSON object with a list of keys for each host; want {"www.example.com": ["…"]}`)
	decoder := json.NewDecoder(bytes.NewReader(data))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errForm
	}
	keys := make(map[string][]indexnow.Key)
	for decoder.More() {
		name, err := decoder.Token()
		host, _ := name.(string)
		var own []indexnow.Key
		if err != nil || decoder.Decode(&own) != nil {
			return nil, errForm
		}
		domain, err := cacheurl.CanonicalDomain(host)
		if err != nil {
			return nil, err
		}
		if _, isThere := keys[domain]; isThere {
			return nil, fmt.Errorf("%s is there twice, also in another spelling; want one list of its keys", domain)
		}
		keys[domain] = own
	}
	if _, err := decoder.Token(); err != nil { // the end of the object
		return nil, errForm
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errForm
	}
	return keys, nil
}

const exitHelp = "Exit codes: 0 all is right, 1 an error that a retry does not fix, 2 wrong usage, 3 try again later."

// httpClient sends the requests. Tests replace it.
var httpClient = &http.Client{Timeout: 30 * time.Second}

// silent discards the clients' logs, because the commands print the same errors.
var silent = slog.New(slog.DiscardHandler)
