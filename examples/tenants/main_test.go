package main

import (
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOnlyCustomersOfTheDatabaseAreAnswered(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/customers.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE customers (domain TEXT PRIMARY KEY); INSERT INTO customers VALUES ('shop.example')`); err != nil {
		t.Fatal(err)
	}
	h, err := handler(db)
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]string{
		"https://shop.example":                    `"for":"shop.example"`,
		"https://evil.example":                    "unknown_host",
		"https://shop-example.cdn.ampproject.org": "unknown_host", // no AMP Cache is trusted
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", origin)
		if h.ServeHTTP(w, r); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", origin, w.Code, w.Body)
		}
	}
}
