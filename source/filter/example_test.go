package filter_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/filter"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// This example needs a database, so it is not run.
func Example() {
	db, err := sql.Open("pgx", "postgres://ampcors@db.internal/cms") // with the driver of your database
	if err != nil {
		log.Fatal(err)
	}
	table, err := sqlsource.New(db, sqlsource.Config{})
	if err != nil {
		log.Fatal(err)
	}
	filtered, err := filter.New(table.Database(), filter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(filtered.Run(context.Background())) }()

	publishers, err := source.New(filtered.Database(), source.Config{})
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
