// Command tenants serves an API for the pages of many customers, without AMP. Their domains are in a
// database, and the handler learns whose page calls. If paths belong to customers, compare: see
// docs/tenants.md.
//
//	go run ./examples/tenants
//	curl -i -H 'Origin: https://shop.example' http://localhost:8080/
package main

import (
	"database/sql"
	"encoding/json"
	"log"
	"net/http"

	_ "modernc.org/sqlite"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func main() {
	db, err := sql.Open("sqlite", "file:customers?mode=memory&cache=shared") // in place of your database
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE customers (domain TEXT PRIMARY KEY); INSERT INTO customers VALUES ('shop.example')`); err != nil {
		log.Fatal(err)
	}
	h, err := handler(db)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}

func handler(db *sql.DB) (http.Handler, error) {
	// Without AMP Caches, no hash prefix is looked up.
	table, err := sqlsource.New(db, sqlsource.Config{Table: "customers", DomainColumn: "domain", PrefixColumn: "domain"})
	if err != nil {
		return nil, err
	}
	customers, err := source.New(table.Database(), source.Config{}) // remembers for a minute that a domain is a customer's, and for 10 seconds that it is not
	if err != nil {
		return nil, err
	}
	mw, err := ampcors.New(ampcors.Config{Source: customers, Caches: []cacheurl.Cache{}, Credentialed: true}) // no AMP Cache is trusted
	if err != nil {
		return nil, err
	}
	return mw.WrapDecision(http.HandlerFunc(whoCalls)), nil
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.Publisher}) // whose page calls
}
