package probetest

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
)

// Sender is the sender whose emails the backends of EmailCases allow.
const Sender = "news@example.com"

// An EmailCase is a backend that the emails of Sender call.
type EmailCase struct {
	Name      string
	Backend   http.Handler
	NotTested string   // a part of an Untested.Reason; if empty, everything must be tested
	Want      []string // the ids that must be found, and no others; sorted
}

const mailClient = "https://mail.google.com"

// A mailBackend answers the emails of allowed senders.
type mailBackend struct {
	allows  func(sender string) bool
	clients func(origin string) bool
	any     bool                // AMP-Email-Allow-Sender: *
	drop    string              // a header that is missing
	header  func(h http.Header) // changes the headers of an answer
}

func (b mailBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	defer func() { io.WriteString(w, "{}") }()
	if sender := r.Header.Get("AMP-Email-Sender"); sender != "" {
		if b.any {
			sender = "*"
		} else if !b.allows(sender) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		h.Set("AMP-Email-Allow-Sender", sender)
	} else if origin, sender := r.Header.Get("Origin"), r.URL.Query().Get("__amp_source_origin"); origin != "" {
		if !b.clients(origin) || !b.allows(sender) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("AMP-Access-Control-Allow-Source-Origin", sender)
		h.Set("Access-Control-Expose-Headers", "AMP-Access-Control-Allow-Source-Origin")
	}
	if h.Del(b.drop); b.header != nil {
		b.header(h)
	}
}

// EmailCases returns the backends.
func EmailCases() []EmailCase {
	exactly := func(sender string) bool { return sender == Sender }
	gmail := func(origin string) bool { return origin == mailClient }
	all := func(string) bool { return true }
	own, err := ampcors.New(ampcors.Config{Publishers: []string{Publisher},
		Email: ampcors.Email{Senders: []string{Sender}}})
	if err != nil {
		panic(err)
	}
	version2, err := ampcors.New(ampcors.Config{Email: ampcors.Email{Senders: []string{Sender}, Clients: []string{}}})
	if err != nil {
		panic(err)
	}
	none, err := ampcors.New(ampcors.Config{Publishers: []string{Publisher}})
	if err != nil {
		panic(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	return []EmailCase{
		{Name: "right", Backend: mailBackend{allows: exactly, clients: gmail}},
		{Name: "ampcors", Backend: own.Wrap(answer)},
		{Name: "for everybody, with version 2", Backend: mailBackend{any: true, allows: exactly, clients: gmail}},
		{Name: "every sender at the domain", Backend: mailBackend{
			allows:  func(sender string) bool { return strings.HasSuffix(sender, "@example.com") },
			clients: gmail}},
		{Name: "public for websites", Backend: mailBackend{allows: exactly, clients: all, header: func(h http.Header) {
			if h.Get("Access-Control-Allow-Origin") != "" {
				h.Set("Access-Control-Allow-Origin", "*")
			}
		}}},
		{Name: "a server that is down", Backend: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}),
			NotTested: "is down (status 503)"},
		{Name: "another status each time", Backend: flicker(mailBackend{allows: exactly, clients: gmail}),
			NotTested: "which is repeated as a control"},

		{Name: "ampcors for websites alone", Backend: none.Wrap(answer),
			Want: []string{"email-sender-refused", "email-v1-refused"}},
		{Name: "ampcors without version 1", Backend: version2.Wrap(answer), Want: []string{"email-v1-refused"}},
		{Name: "no AMP-Email-Allow-Sender", Backend: mailBackend{allows: exactly, clients: gmail,
			drop: "AMP-Email-Allow-Sender"},
			Want: []string{"email-sender-refused"}},
		{Name: "two of AMP-Email-Allow-Sender", Backend: mailBackend{allows: exactly, clients: gmail,
			header: func(h http.Header) {
				if sender := h.Get("AMP-Email-Allow-Sender"); sender != "" {
					h.Add("AMP-Email-Allow-Sender", sender)
				}
			}}, Want: []string{"email-sender-refused"}},
		{Name: "version 1 is not exposed", Backend: mailBackend{allows: exactly, clients: gmail,
			drop: "Access-Control-Expose-Headers"},
			Want: []string{"email-v1-refused"}},
		{Name: "version 1 without the sender", Backend: mailBackend{allows: exactly, clients: gmail,
			drop: "AMP-Access-Control-Allow-Source-Origin"},
			Want: []string{"email-v1-refused"}},
		{Name: "every sender", Backend: mailBackend{allows: all, clients: gmail}, Want: []string{"email-any-sender"}},
		{Name: "the end of the sender", Backend: mailBackend{
			allows: func(sender string) bool { return strings.HasSuffix(sender, "example.com") }, clients: gmail},
			Want: []string{"email-any-sender"}},
		{Name: "the beginning of the sender", Backend: mailBackend{
			allows: func(sender string) bool { return strings.HasPrefix(sender, Sender) }, clients: gmail},
			Want: []string{"email-any-sender"}},
		{Name: "the sender's name", Backend: mailBackend{
			allows: func(sender string) bool { return strings.HasPrefix(sender, "news@") }, clients: gmail},
			Want: []string{"email-any-sender"}},
		{Name: "the sender *", Backend: mailBackend{allows: func(sender string) bool {
			return slices.Contains([]string{Sender, "*"}, sender)
		}, clients: gmail},
			Want: []string{"email-any-sender"}},
		{Name: "an answer to every request", Backend: mailBackend{allows: exactly, clients: gmail,
			header: func(h http.Header) {
				if h.Get("Access-Control-Allow-Origin") == "" && h.Get("AMP-Email-Allow-Sender") == "" {
					h.Set("AMP-Email-Allow-Sender", "*")
				}
			}}, Want: []string{"email-any-sender"}},
		{Name: "version 1 for every website", Backend: mailBackend{allows: exactly, clients: all},
			Want: []string{"email-origin-allowed"}},
	}
}

// flicker answers its first request with another status.
func flicker(next http.Handler) http.Handler {
	isFirst := true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isFirst {
			isFirst = false
			w.WriteHeader(http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}
