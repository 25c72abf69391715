// Command caddy is the Caddy server with the handler of ampcors.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/ampcors/ampcors/caddy"
)

func main() { caddycmd.Main() }
