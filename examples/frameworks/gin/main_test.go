package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) {
	stacktest.Run(t,
		func(mw *ampcors.Middleware, l net.Listener) error { return http.Serve(l, global(mw)) },
		func(mw *ampcors.Middleware, l net.Listener) error { return http.Serve(l, group(mw)) })
}
