// Command email serves an API that AMP emails call. The sender is a claim that any program can make: put a
// token into URLs that are not public.
//
//	go run ./examples/email
//	curl -i -H 'AMP-Email-Sender: news@example.com' http://localhost:8080/
//	curl -i -H 'AMP-Email-Sender: evil@evil.example' http://localhost:8080/
package main

import (
	"encoding/json"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
)

func main() {
	mw, err := ampcors.New(config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", mw.WrapDecision(http.HandlerFunc(whoCalls))))
}

func config() ampcors.Config {
	return ampcors.Config{Email: ampcors.Email{
		Senders: []string{"news@example.com", "*@letters.example.com"},
		// Gmail, which is the default, and its playground. An empty list answers version 2 of the protocol alone.
		Clients: []string{"https://mail.google.com", "https://amp.gmail.dev"},
	}}
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.EmailSender}) // whose email calls
}
