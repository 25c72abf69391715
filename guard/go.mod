module github.com/ampcors/ampcors/guard

go 1.26.0

replace github.com/ampcors/ampcors => ../

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/felixge/httpsnoop v1.1.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
