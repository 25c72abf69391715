package filter_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/filter"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// This example needs a database, so it is not run.
func Example() {
	db, err := sql.Open("pgx", "postgres://ampcors@db.internal/cms") // with the driver of your database
	if err != nil {
		log.Fatal(err)
	}
	publishers, err := sqlsource.New(db, sqlsource.Config{})
	if err != nil {
		log.Fatal(err)
	}
	source, err := filter.New(publishers, filter.Config{File: "/var/cache/api/publishers.filter"})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(source.Run(context.Background())) }()

	mw, err := ampcors.New(ampcors.Config{Source: source})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", mw.Wrap(http.DefaultServeMux)))
}
