module github.com/ampcors/ampcors/changes

go 1.26.0

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/mmcdole/gofeed v1.4.2
	golang.org/x/net v0.62.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/mmcdole/goxpp/v2 v2.0.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/ampcors/ampcors => ../
