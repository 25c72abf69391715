module github.com/ampcors/ampcors/source/redissource

go 1.26.0

replace github.com/ampcors/ampcors => ../../

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
