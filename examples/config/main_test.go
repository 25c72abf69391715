package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/configfile"
)

func TestTheFileAllowsItsPublishers(t *testing.T) {
	mw, err := configfile.File{Path: "config.json"}.New()
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]string{
		"https://www-example-com.cdn.ampproject.org":     `"for":"www.example.com"`,
		"https://sports-news-example.cdn.ampproject.org": `"for":"sports.news.example"`,
		"https://evil-example.cdn.ampproject.org":        "publisher_not_allowed",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", origin)
		if mw.WrapDecision(http.HandlerFunc(whoCalls)).ServeHTTP(w, r); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", origin, w.Code, w.Body)
		}
	}
}
