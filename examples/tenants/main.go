// Command tenants serves an API for the pages of many customers, without AMP. A customer has several domains, or
// all names below one, in a table of a database. Each path belongs to a customer, whose pages alone may use it.
// Programs call a path beside it. See docs/tenants.md.
//
//	go run ./examples/tenants
//	curl -i -H 'Origin: https://shop.example' http://localhost:8080/tenants/shop/cart
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"net/http"

	_ "modernc.org/sqlite"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// schema is that of your database.
const schema = `CREATE TABLE customers (domain TEXT PRIMARY KEY, tenant TEXT);
	INSERT INTO customers VALUES ('shop.example', 'shop'), ('www.shop.example', 'shop'), ('*.acme.example', 'acme'),
		('b.acme.example', 'b')`

func main() {
	var development []string
	flag.Func("development", `origin of a page while you develop, such as "http://localhost:3000"; never in production`,
		func(origin string) error {
			development = append(development, origin)
			return nil
		})
	flag.Parse()
	db, err := sql.Open("sqlite", "file:customers?mode=memory&cache=shared") // in place of your database
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(schema); err != nil {
		log.Fatal(err)
	}
	h, err := handler(db, development)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}

// handler returns the API. Pages at the origins of development may act for each tenant.
func handler(db *sql.DB, development []string) (http.Handler, error) {
	// Without AMP Caches, no hash prefix is looked up.
	table, err := sqlsource.New(db, sqlsource.Config{Table: "customers", DomainColumn: "domain", NoPrefixes: true})
	if err != nil {
		return nil, err
	}
	// It remembers for a minute that a domain is a customer's, and for 10 seconds that it is not.
	customers, err := source.New(table.Database(), source.Config{Patterns: true})
	if err != nil {
		return nil, err
	}
	// No AMP Cache is trusted.
	mw, err := ampcors.New(ampcors.Config{Source: customers, Caches: []cacheurl.Cache{}, Origins: development,
		Credentialed: true})
	if err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	api.HandleFunc("/tenants/{tenant}/cart", func(w http.ResponseWriter, r *http.Request) {
		switch isFor, err := isForTenant(r.Context(), db, r.PathValue("tenant")); {
		case err != nil:
			log.Print(err)
			http.Error(w, "the customers cannot be read", http.StatusServiceUnavailable)
		case !isFor:
			http.Error(w, "another tenant's page", http.StatusForbidden)
		default:
			fmt.Fprintln(w, "the reader's cart")
		}
	})
	all := http.NewServeMux()
	all.Handle("/", mw.WrapDecision(api))
	all.HandleFunc("POST /webhooks/payment", webhook) // beside ampcors: programs send no Origin
	return all, nil
}

// isForTenant reports whether a request may act for a tenant: its page is at one of the tenant's domains. A tenant
// that does not exist has none. A tenant's pattern does not count for a page whose domain is a row of another tenant.
func isForTenant(ctx context.Context, db *sql.DB, tenant string) (bool, error) {
	d, ok := ampcors.DecisionFromContext(ctx)
	if !ok {
		return false, fmt.Errorf("there is no decision: wrap the router with WrapDecision")
	}
	rows, err := db.QueryContext(ctx, `SELECT domain FROM customers WHERE tenant = $1
		AND NOT EXISTS (SELECT 1 FROM customers WHERE domain = $2 AND tenant <> $1)`, tenant, d.Publisher)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var domain string // or a pattern
		if err := rows.Scan(&domain); err != nil {
			return false, err
		}
		if d.IsFor(domain) || d.Reason == ampcors.ReasonExtraOrigin { // Origins has pages of the development alone
			return true, nil
		}
	}
	return false, rows.Err()
}

// webhook is for a program, which proves with a signature who it is. No page can: the signature needs a secret.
func webhook(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Signature") != "of the body, by a key that only the other program has" {
		http.Error(w, "the signature is wrong", http.StatusForbidden)
	}
}
