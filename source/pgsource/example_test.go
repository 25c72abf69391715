package pgsource_test

import (
	"context"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/pgsource"
)

// This example needs PostgreSQL, so it is not run.
func Example() {
	source, err := pgsource.New(pgsource.Config{
		ConnString: "postgres://ampcors@db-1.internal,db-2.internal/cms",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	// Once, such as in a migration:
	if err := source.Install(context.Background()); err != nil {
		log.Fatal(err)
	}

	mw, err := ampcors.New(ampcors.Config{Source: source})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", mw.Wrap(http.DefaultServeMux)))
}
