package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

// Version 2 has the sender in a header, and version 1 in the query.
func TestOnlyAllowedSendersAreAnswered(t *testing.T) {
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ sender, origin, query, want string }{
		{sender: "news@example.com", want: `"for":"news@example.com"`},
		{sender: "a@letters.example.com", want: `"for":"a@letters.example.com"`},
		{sender: "evil@evil.example", want: "email_sender_not_allowed"},
		{sender: "*", want: "no_email_sender"},
		{origin: "https://mail.google.com", query: "?__amp_source_origin=news%40example.com", want: `"for":"news@example.com"`},
		{origin: "https://amp.gmail.dev", query: "?__amp_source_origin=evil%40evil.example", want: "email_sender_not_allowed"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/"+test.query, nil)
		for name, value := range map[string]string{"AMP-Email-Sender": test.sender, "Origin": test.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if mw.WrapDecision(http.HandlerFunc(whoCalls)).ServeHTTP(w, r); !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
	}
}
