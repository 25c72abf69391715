package ampcorstest_test

import (
	"fmt"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
)

// In a test, Check is called with the router of the program, and t.Error gets what it returns.
func ExampleCheck() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true, Methods: []string{http.MethodPut}})
	if err != nil {
		log.Fatal(err)
	}
	ran := false // by the route's handler, since Ran was called
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /api/profile", func(http.ResponseWriter, *http.Request) { ran = true })
	route := ampcorstest.Route{Publisher: "www.example.com", Method: http.MethodPut, Path: "/api/profile", Credentialed: true,
		Ran: func() bool {
			before := ran
			ran = false
			return before
		}}
	fmt.Println("in front of the mux:", ampcorstest.Check(mw.Wrap(mux), route))
	fmt.Println("forgotten:", ampcorstest.Check(mux, route) != nil)
	// Output:
	// in front of the mux: <nil>
	// forgotten: true
}
