// Command server serves the backends of package probetest, and runs probes, for the tests in Chromium, which are in a module of
// their own. It writes its address, and ends with its standard input.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe/probetest"
)

// A backend is a Case with the path at which it is served.
type backend struct {
	probetest.Case
	Backend string // its path
}

func main() {
	mux := http.NewServeMux()
	var backends []backend
	for i, c := range probetest.Cases() {
		path := fmt.Sprintf("/probe/%d", i)
		mux.Handle(path, c.Backend())
		backends = append(backends, backend{c, path})
	}
	mux.HandleFunc("GET /backends", func(w http.ResponseWriter, _ *http.Request) { answer(w, backends) })
	mux.HandleFunc("GET /servers", func(w http.ResponseWriter, _ *http.Request) { answer(w, probe.Servers()) })
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		var cfg probe.Config
		if err := json.NewDecoder(r.Body).Decode(&cfg); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		report, err := probe.Run(r.Context(), cfg)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, report)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(listener, mux))
}

func answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err)
	}
}
