package main

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) {
	quiet := fiber.ListenConfig{DisableStartupMessage: true}
	stacktest.Run(t, nil,
		func(mw *ampcors.Middleware, l net.Listener) error { return global(mw).Listener(l, quiet) },
		func(mw *ampcors.Middleware, l net.Listener) error { return group(mw).Listener(l, quiet) },
		stacktest.Limits{})
}
