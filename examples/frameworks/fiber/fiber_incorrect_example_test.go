package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
	"github.com/gofiber/fiber/v3"
)

// Incorrect: to keep a Decision's Origin beyond the request. It lies in memory that
// fasthttp uses for the next request, and becomes what that one says. Clone it.
func Example_incorrectKeepingAnOrigin() {
	var kept, cloned []string
	cfg := api.Config()
	cfg.Observe = func(r *http.Request, d ampcors.Decision) {
		kept = append(kept, d.Origin)
		cloned = append(cloned, strings.Clone(d.Origin))
	}
	mw, err := ampcors.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go func() { _ = global(mw).Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()

	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, origin := range []string{"https://news.example", "https://evil.example"} {
		fmt.Fprintf(conn, "GET /api/comments HTTP/1.1\r\nHost: api\r\nOrigin: %s\r\n\r\n", origin)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	fmt.Println("kept:", kept)
	fmt.Println("cloned:", cloned)
	// Output:
	// kept: [https://evil.example https://evil.example]
	// cloned: [https://news.example https://evil.example]
}
