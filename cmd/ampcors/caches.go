package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
