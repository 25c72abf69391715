package e2e

import (
	"math"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/probe"
)

// publisher is the publisher of most backends.
const publisher = "www.example.com"

// runProbe probes the site's API.
func runProbe(t *testing.T, s *site, cfg probe.Config) *probe.Report {
	t.Helper()
	cfg.Rate, cfg.Resolve, cfg.Insecure, cfg.Timeout, cfg.MaxTime = math.Inf(1), map[string]string{"api.example.org:443": s.https}, true,
		time.Minute, time.Hour
	report, err := probe.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// originsOf returns the origins at which pages of a publisher may run: its own, and each form on each cache.
func originsOf(t *testing.T, publisher string) []string {
	t.Helper()
	origins := []string{"https://" + publisher}
	prefixes, err := cacheurl.Prefixes(publisher)
	if err != nil {
		t.Fatal(err)
	}
	for _, cache := range cacheurl.DefaultCaches() {
		for _, p := range prefixes {
			if !p.Denied {
				origins = append(origins, "https://"+p.Prefix+"."+cache.CacheDomain)
			}
		}
	}
	return origins
}
