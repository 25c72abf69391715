package pgsource_test

import (
	"context"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
)

// This example needs PostgreSQL, so it is not run. The table was prepared before, by ampcors source install or [pgsource.InstallSQL] in
// a migration: the server needs only the right to read it. A whole program, with readiness, metrics and an orderly end, is in
// examples/postgres.
func Example() {
	table, err := pgsource.New(pgsource.Config{
		ConnString: "postgres://ampcors@db-1.internal,db-2.internal/cms",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	if err := table.Ping(context.Background()); err != nil {
		log.Print(err) // what is missing: the database, the table, a right, the triggers
	}

	publishers, err := source.New(table.Database(), source.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer publishers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: publishers})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", mw.Wrap(http.DefaultServeMux)))
}
