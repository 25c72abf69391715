package sqlsource_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func Example() {
	ctx := context.Background()
	db := sql.OpenDB(sqlsource.Fake("www.example.com")) // in place of sql.Open
	defer db.Close()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)

	source, err := sqlsource.New(db, sqlsource.Config{Table: "sites", DomainColumn: "host"})
	if err != nil {
		log.Fatal(err)
	}
	if err := source.Ping(ctx); err != nil {
		log.Print(err) // not ready yet: table, column or database is missing
	}
	mw, err := ampcors.New(ampcors.Config{
		Source: source,
		Lookup: ampcors.Lookup{TTL: time.Minute, MaxStale: time.Hour},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mw.CheckOrigin("https://www-example-com.cdn.ampproject.org").Reason)
	fmt.Println(mw.CheckOrigin("https://www-evil-example.cdn.ampproject.org").Reason)
	// Output:
	// cache origin
	// publisher not allowed
}
