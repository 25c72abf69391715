// Command server is an API behind one of the libraries, for a load generator. It
// serves until it is killed.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"

	"github.com/ampcors/ampcors/bench"
)

// answer is as long as the answer of a small API.
const answer = `{"items":[{"id":1,"title":"A first article","likes":12},{"id":2,"title":"A second article",` +
	`"likes":7},{"id":3,"title":"A third article","likes":31}]}`

func main() {
	library := flag.String("lib", "none", fmt.Sprintf("one of %q", bench.Libraries))
	publishers := flag.Int("publishers", 1, "how many publishers are allowed, among them "+bench.ASCII)
	addr := flag.String("addr", "localhost:0", "host and port to listen on; the address is printed")
	flag.Parse()

	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer)) // if it fails, the client is gone
	})
	policy, err := bench.NewPolicy(bench.Publishers(*publishers, bench.ASCII)...)
	if err != nil {
		log.Fatal(err)
	}
	h, err := bench.Wrap(*library, policy, api)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	ballast := bench.Ballast()
	err = http.Serve(listener, h)
	runtime.KeepAlive(ballast)
	log.Fatal(err)
}
