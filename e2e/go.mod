// Nobody imports this module.
module github.com/ampcors/ampcors/e2e

go 1.26.0

replace github.com/ampcors/ampcors => ../

replace github.com/ampcors/ampcors/cmd/ampcors => ../cmd/ampcors

replace github.com/ampcors/ampcors/metrics => ../metrics

replace github.com/ampcors/ampcors/probe => ../probe

replace github.com/ampcors/ampcors/source/pgsource => ../source/pgsource

replace github.com/ampcors/ampcors/source/redissource => ../source/redissource

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/ampcors/ampcors/probe v0.0.0-00010101000000-000000000000
	github.com/chromedp/cdproto v0.159.0 // indirect
	github.com/chromedp/chromedp v0.23.0
	github.com/jub0bs/cors v0.13.0
	github.com/rs/cors v1.11.1
	golang.org/x/image v0.47.0
	golang.org/x/net v0.62.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/exp v0.0.0-20261113113407-e3970619a1a4 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	golang.org/x/tools v0.52.1-0.20261106145633-d407941a339a // indirect
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/ampcors/ampcors/source/pgsource v0.0.0-00010101000000-000000000000
	github.com/ampcors/ampcors/source/redissource v0.0.0-00010101000000-000000000000
	github.com/go-sql-driver/mysql v1.10.1
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/mod v0.42.0
	modernc.org/sqlite v1.50.0
)

tool golang.org/x/exp/cmd/apidiff
