module github.com/ampcors/ampcors/e2e

go 1.26.0

replace github.com/ampcors/ampcors => ../

replace github.com/ampcors/ampcors/cmd/ampcors => ../cmd/ampcors

require (
	github.com/ampcors/ampcors v0.0.0-00010101000000-000000000000
	github.com/ampcors/ampcors/cmd/ampcors v0.0.0-00010101000000-000000000000
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/jub0bs/cors v0.13.0
	github.com/rs/cors v1.11.1
	golang.org/x/image v0.47.0
	golang.org/x/net v0.62.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
