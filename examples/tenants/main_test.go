package main

import (
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
	"github.com/ampcors/ampcors/cacheurl"
)

func newDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/customers.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(schema); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestEachPathIsForItsTenant(t *testing.T) {
	const development = "http://localhost:3000"
	db := newDB(t)
	production, err := handler(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	developing, err := handler(db, []string{development})
	if err != nil {
		t.Fatal(err)
	}
	const cart, denied = "200 the reader's cart", "403 another tenant's page"
	for _, test := range []struct {
		method, path, origin, site string
		want, whileDeveloping      string // the same if ""
	}{
		{"POST", "/tenants/shop/cart", "https://shop.example", "cross-site", cart, ""},
		{"POST", "/tenants/shop/cart", "https://www.shop.example", "cross-site", cart, ""},
		{"POST", "/tenants/shop/cart", "https://eu.acme.example", "cross-site", denied, ""},
		{"POST", "/tenants/acme/cart", "https://eu.acme.example", "cross-site", cart, ""},
		{"POST", "/tenants/acme/cart", "https://acme.example", "cross-site", "403 Forbidden: unknown_host", ""},
		{"POST", "/tenants/acme/cart", "https://shop.example", "cross-site", denied, ""},
		{"POST", "/tenants/acme/cart", "https://b.acme.example", "cross-site", denied, ""}, // which a pattern of acme matches
		{"POST", "/tenants/b/cart", "https://b.acme.example", "cross-site", cart, ""},
		{"POST", "/tenants/none/cart", "https://shop.example", "cross-site", denied, ""},
		{"GET", "/tenants/none/cart", "", "", denied, ""},
		{"POST", "/tenants/shop/cart", "https://evil.example", "cross-site", "403 Forbidden: unknown_host", ""},
		{"POST", "/tenants/shop/cart", "https://shop-example.cdn.ampproject.org", "cross-site", "403 Forbidden: unknown_host", ""},
		{"POST", "/tenants/shop/cart", "https://api.platform.example", "same-origin", cart, ""},
		{"POST", "/tenants/shop/cart", development, "cross-site", "403 Forbidden: not_https", cart},
		{"POST", "/tenants/none/cart", development, "cross-site", "403 Forbidden: not_https", denied},
		{"POST", "/tenants/shop/cart", "", "", "403 Forbidden: no_origin_unsafe", ""},
		{"POST", "/webhooks/payment", "", "", "403 the signature is wrong", ""},
		{"POST", "/webhooks/payment", "https://shop.example", "cross-site", "403 the signature is wrong", ""},
	} {
		for _, isDeveloping := range []bool{false, true} {
			h, want := production, test.want
			if isDeveloping {
				h = developing
				if test.whileDeveloping != "" {
					want = test.whileDeveloping
				}
			}
			r := httptest.NewRequest(test.method, test.path, nil)
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
				r.Header.Set("Sec-Fetch-Site", test.site)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Result().Status[:4] + w.Body.String(); !strings.HasPrefix(got, want) {
				t.Errorf("%s %s from %q, developing %t: %s; want %s", test.method, test.path, test.origin, isDeveloping, got, want)
			}
		}
	}
	r := httptest.NewRequest("POST", "/webhooks/payment", nil)
	r.Header.Set("X-Signature", "of the body, by a key that only the other program has")
	w := httptest.NewRecorder()
	if production.ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("a webhook: %d %s", w.Code, w.Body)
	}
	if ok, err := isForTenant(t.Context(), db, "shop"); ok || err == nil || !strings.Contains(err.Error(), "WrapDecision") {
		t.Errorf("without a decision: %t, %v", ok, err)
	}
	if ok, err := isForTenant(ampcors.ContextWithDecision(t.Context(), ampcors.Decision{}), db, "shop"); ok || err != nil {
		t.Errorf("with the zero decision: %t, %v", ok, err)
	}
}

// The check of docs/tenants.md.
func TestPagesOfATenantMayCallItsPath(t *testing.T) {
	h, err := handler(newDB(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	route := ampcorstest.Route{Publisher: "shop.example", Method: "POST", Path: "/tenants/shop/cart", Credentialed: true,
		Caches: []cacheurl.Cache{}, OtherPublisher: "eu.acme.example"}
	if err := ampcorstest.Check(h, route); err != nil {
		t.Error(err)
	}
}
