module github.com/ampcors/ampcors/probe

go 1.26.0

replace github.com/ampcors/ampcors => ../

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/andybalholm/brotli v1.3.0
	golang.org/x/net v0.62.0
	golang.org/x/text v0.43.0
	golang.org/x/time v0.16.0
)

require github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
