package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// TestTheProgram prepares the table after the program has started, and stops the database.
func TestTheProgram(t *testing.T) {
	db := servertest.Postgres(t)
	database, api, admin := servertest.DSN(db.Addr), servertest.FreeAddress(t), servertest.FreeAddress(t)
	servertest.Background(t, func(ctx context.Context) error { return run(ctx, database, api, admin) })
	get := func(url, origin string) (int, string) {
		r, err := http.NewRequest("GET", "http://"+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error() // it does not listen yet
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	status := func(url, origin string, want int) {
		t.Helper()
		servertest.Until(t, url+" answers "+http.StatusText(want), servertest.Soon,
			func() bool { got, _ := get(url, origin); return got == want })
	}
	status(admin+"/readyz", "", http.StatusServiceUnavailable) // there is no table
	triggers, err := pgsource.InstallSQL(sqlsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`CREATE TABLE publishers (domain text COLLATE "C" PRIMARY KEY, hash_prefix text COLLATE "C" UNIQUE)`,
		triggers,
		"INSERT INTO publishers (domain) VALUES ('www.example.com')"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close(t.Context())
	status(admin+"/readyz", "", http.StatusOK)
	const page = "https://www-example-com.cdn.ampproject.org"
	status(api+"/", page, http.StatusOK)
	status(api+"/", "https://evil.example", http.StatusForbidden)
	if _, text := get(admin+"/metrics", ""); !strings.Contains(text, "\nampcors_source_listening 1\n") {
		t.Error(text)
	}
	db.Stop()
	if got, text := get(api+"/", page); got != http.StatusOK || !strings.Contains(text, "www.example.com") {
		t.Errorf("while the database is down, a remembered publisher gets %d %s", got, text)
	}
	status(admin+"/readyz", "", http.StatusOK)
	status(api+"/", "https://unknown.example", http.StatusServiceUnavailable)
}
