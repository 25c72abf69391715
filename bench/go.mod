module github.com/ampcors/ampcors/bench

go 1.26.0

replace github.com/ampcors/ampcors => ../

replace github.com/ampcors/ampcors/source/filter => ../source/filter

replace github.com/ampcors/ampcors/source/pgsource => ../source/pgsource

require (
	github.com/ampcors/ampcors v0.0.0
	github.com/go-chi/cors v1.2.2
	github.com/jackc/pgx/v5 v5.12.0
	github.com/jub0bs/cors v0.13.0
	github.com/rs/cors v1.11.1
	golang.org/x/net v0.62.0
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da
)

require (
	github.com/FastFilter/xorfilter v0.4.2-0.20260120015552-4e5a4d9df65a // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/ampcors/ampcors/source/filter v0.0.0
	github.com/ampcors/ampcors/source/pgsource v0.0.0-00010101000000-000000000000
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/text v0.43.0 // indirect
)

tool golang.org/x/perf/cmd/benchstat
