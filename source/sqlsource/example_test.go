package sqlsource_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func Example() {
	ctx := context.Background()
	db := sql.OpenDB(sqlsource.Fake("www.example.com")) // in place of sql.Open
	defer db.Close()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)

	table, err := sqlsource.New(db, sqlsource.Config{Table: "sites", DomainColumn: "host", Condition: "active"}) // not suspended
	if err != nil {
		log.Fatal(err)
	}
	if err := table.Ping(ctx); err != nil {
		log.Print(err) // not ready yet: table, column or database is missing
	}
	publishers, err := source.New(table.Database(), source.Config{TTL: time.Minute, MaxStale: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer publishers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: publishers})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mw.CheckOrigin("https://www-example-com.cdn.ampproject.org").Reason)
	fmt.Println(mw.CheckOrigin("https://www-evil-example.cdn.ampproject.org").Reason)
	// Output:
	// cache_origin
	// publisher_not_allowed
}
