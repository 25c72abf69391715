package ampcors_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

func TestCacheOriginsReturnsOneOriginPerCache(t *testing.T) {
	got, err := ampcors.CacheOrigins("Example.com")
	want := []string{"https://example-com.cdn.ampproject.org", "https://example-com.www.bing-amp.com"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("CacheOrigins = %q, %v; want %q", got, err, want)
	}
	got, err = ampcors.CacheOrigins("example.com", ampcors.Cache{ID: "mine", CacheDomain: "amp.example.net"})
	if want := []string{"https://example-com.amp.example.net"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("CacheOrigins = %q, %v; want %q", got, err, want)
	}
	_, err = ampcors.CacheOrigins("example.com", ampcors.Cache{ID: "good", CacheDomain: "amp.example.net"}, ampcors.Cache{ID: "bad", CacheDomain: "https://amp.example.org"})
	var v *ampcors.ValueError
	if !errors.As(err, &v) || v.Path != "caches[1].cacheDomain" || !strings.Contains(v.Want, `"amp.example.org"`) {
		t.Errorf("CacheOrigins with a bad cache: %v", err)
	}
}
