// Command config serves an API behind ampcors, with the configuration in a file that it follows. Edit the list
// of publishers while it runs: changes take effect within two seconds, each is logged, and a file with an error
// is not applied.
//
//	go run ./examples/config examples/config/config.json
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("name one configuration file")
	}
	mw, watcher, err := configfile.File{Path: os.Args[1]}.Watch(configfile.WatcherConfig{})
	if err != nil {
		log.Fatal(err) // each error with its file, line and column, and what would be right
	}
	go func() { log.Fatal(watcher.Run(context.Background())) }()
	log.Fatal(http.ListenAndServe("localhost:8080", mw.WrapDecision(http.HandlerFunc(whoCalls))))
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.Publisher}) // whose page calls
}
