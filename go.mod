module github.com/ampcors/ampcors

go 1.26.0

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7
	golang.org/x/net v0.62.0
)

require golang.org/x/text v0.43.0 // indirect
