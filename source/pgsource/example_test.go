package pgsource_test

import (
	"context"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
)

// This example needs PostgreSQL, so it is not run.
func Example() {
	table, err := pgsource.New(pgsource.Config{
		ConnString: "postgres://ampcors@db-1.internal,db-2.internal/cms",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	// Once, such as in a migration:
	if err := table.Install(context.Background()); err != nil {
		log.Fatal(err)
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
