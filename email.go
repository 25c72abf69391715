package ampcors

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Email says which emails may call. An AMP email is not a page at an origin: the mail
// client, in Gmail's case a proxy, makes the request and names the email's sender, whom
// it has authenticated. There are two ways to do this, and both are accepted:
//
//   - Version 2: the header AMP-Email-Sender has the sender's address, and the client
//     wants it back in AMP-Email-Allow-Sender. This outranks everything else, Origin
//     included. No page of another origin can send it, because no preflight is
//     granted for it.
//   - Version 1, which is deprecated but is what Gmail's documentation asks for: Origin
//     is the mail client's, and the query has the address in __amp_source_origin. The
//     client wants both back, in Access-Control-Allow-Origin and
//     AMP-Access-Control-Allow-Source-Origin. AMP's document lets any Origin pass;
//     here it must be one of Clients, and from elsewhere the query says nothing.
//
// Requests of websites are decided as without it. Only their Vary also has
// AMP-Email-Sender, so that a shared cache does not give an email the answer to a page.
//
// Answers to emails never have Access-Control-Allow-Credentials, and no headers are
// exposed but what version 1 needs. Like Origin, the sender is a claim that any program
// can make: what an email may read must not be secret, unless its URL has a token. A
// page at the API's own origin can make it as well.
//
// Sources: CORS in AMP for Email,
// https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email, and
// Gmail's security requirements, https://developers.google.com/gmail/ampemail/security-requirements
type Email struct {
	// Senders are the addresses whose emails may call: "news@example.com", or
	// "*@example.com" for everybody at example.com, but not below it. That must be a
	// domain where nobody else can have an address, as at "gmail.com" everybody can. An
	// empty list turns Email off.
	//
	// Domains are compared in lower-case ASCII; they may be written in Unicode here.
	// What stands before the "@" is compared octet for octet, as RFC 5321 section
	// 2.4 has it: list each spelling that is sent. It may have ASCII letters, digits,
	// single dots inside, and the punctuation of RFC 5322 section 3.2.3 but "*"; a
	// quoted name, as in "\"a b\"@example.com", is prohibited. It has 64 octets at most,
	// and the whole address 254.
	Senders []string `json:"senders,omitempty"`

	// Clients are the origins of mail clients to trust with version 1, in the form of
	// Config.Origins; nil stands for "https://mail.google.com". An empty list allows
	// version 2 alone. A page at such an origin, too, can call in any sender's name.
	// If it is also a website's that is allowed, its requests are emails' if
	// __amp_source_origin has an "@". Prohibited are the hosts of AMP Caches.
	Clients []string `json:"clients,omitzero"`
}

const (
	maxAddress   = 254 // octets of a path, RFC 5321 section 4.5.3.1.3, without "<" and ">"
	maxLocalPart = 64  // octets, section 4.5.3.1.1
)

// mailbox decides on emails. It is what Email compiles to.
type mailbox struct {
	senders map[string]struct{} // whole addresses, the domain in lower-case ASCII
	domains map[string]struct{} // those of which every address is allowed
	clients map[string]struct{} // origins
}

// email returns nil if cfg is off.
func (v *validator) email(cfg Email, foreign []string) *mailbox {
	m := &mailbox{senders: make(map[string]struct{}), domains: make(map[string]struct{}), clients: make(map[string]struct{})}
	clients := cfg.Clients
	if clients == nil {
		clients = []string{"https://mail.google.com"}
	}
	for i, client := range clients {
		reason, want := originFault(client, foreign)
		_, host, _ := strings.Cut(client, "://")
		host, _, _ = strings.Cut(host, ":")
		if isOrIsBelowAny(host, foreign) {
			reason, want = "is an AMP Cache's, not a mail client's", "to leave it out"
		}
		if reason != "" {
			v.report("Email.Clients", i, client, reason, want)
		}
		m.clients[client] = struct{}{}
	}
	for i, sender := range cfg.Senders {
		address, reason, want := parseSender(sender)
		if reason != "" {
			v.report("Email.Senders", i, sender, reason, want)
		}
		if domain, all := strings.CutPrefix(address, "*@"); all {
			m.domains[domain] = struct{}{}
		} else {
			m.senders[address] = struct{}{}
		}
	}
	if len(cfg.Senders) > 0 {
		return m
	}
	if len(cfg.Clients) > 0 {
		v.report("Email.Senders", -1, "", "is missing, though there are Clients", wantAddress)
	}
	return nil
}

const wantAddress = `an address such as "news@example.com", or "*@example.com"`

// parseSender returns one of Email.Senders with its domain in lower-case ASCII, or what
// is wrong with it.
func parseSender(value string) (address, reason, want string) {
	at := strings.LastIndexByte(value, '@')
	if at < 0 {
		return "", "is not an email address", wantAddress
	}
	local, base := value[:at], value[at+1:]
	domain, err := parseDomain(base)
	switch {
	case strings.TrimSpace(value) != value:
		return "", "has white space around it", fmt.Sprintf("%q", strings.TrimSpace(value))
	case local != "*" && !isLocalPart(local):
		return "", fmt.Sprintf("has before the @ what is not 1 to %d ASCII letters, digits, single dots inside and !#$%%&'+-/=?^_`{|}~", maxLocalPart), wantAddress
	case err != nil && err.instead != "":
		return "", "has a domain that " + err.reason, fmt.Sprintf("%q", local+"@"+err.instead)
	case err != nil:
		return "", "has a domain that " + err.reason, wantAddress
	case len(local)+len("@")+len(domain) > maxAddress:
		return "", fmt.Sprintf("is longer than %d octets", maxAddress), wantAddress
	}
	return local + "@" + domain, "", ""
}

// atext is that of RFC 5322 section 3.2.3 without "*", so that no sender can be taken
// for the "*" by which a response would allow everybody.
const atext = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'+-/=?^_`{|}~"

// isLocalPart tells whether s can stand before the "@": atoms between single dots.
func isLocalPart(s string) bool {
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" || strings.Trim(atom, atext) != "" {
			return false
		}
	}
	return len(s) <= maxLocalPart
}

// check decides on a sender.
func (m *mailbox) check(sender string) Reason {
	if len(sender) > maxAddress || !isASCII(sender) {
		return ReasonNoEmailSender
	}
	at := strings.LastIndexByte(sender, '@')
	if at < 0 || !isLocalPart(sender[:at]) {
		return ReasonNoEmailSender
	}
	domain := strings.ToLower(sender[at+1:])
	if _, f := checkDomain(domain); f != noFault {
		return ReasonNoEmailSender
	}
	if _, ok := m.domains[domain]; ok {
		return ReasonEmail
	}
	if _, ok := m.senders[sender[:at+1]+domain]; ok {
		return ReasonEmail
	}
	return ReasonEmailSenderNotAllowed
}

// hasClient tells whether the origin is a mail client's.
func (m *mailbox) hasClient(origin string) bool {
	if m == nil {
		return false
	}
	_, ok := m.clients[origin]
	return ok
}

// decideEmail decides on a request if it is an email's, and tells whether it is.
// The steps are those of "Implementing CORS" in AMP's document.
func (p *policy) decideEmail(v *verdict, r *http.Request) (isEmail bool) {
	origins := r.Header["Origin"]

	// 1. Version 2. Not even Origin is looked at.
	if senders := r.Header["Amp-Email-Sender"]; len(senders) > 0 {
		v.reason = ReasonNoEmailSender
		if len(senders) == 1 { // whom would the client mean? It sends one
			v.sender, v.reason = senders[0], p.mailbox.check(senders[0])
		}
		if len(origins) == 1 {
			v.origin = origins[0]
		}
		return true
	}

	// 2. Version 1.
	if len(origins) == 1 && p.mailbox.hasClient(origins[0]) {
		if sender, isEmail := sourceOrigin(r); isEmail {
			v.origin, v.sender, v.reason = origins[0], sender, p.mailbox.check(sender)
			if v.reason == ReasonEmail {
				v.reason = ReasonEmailV1
			}
			if r.Method == http.MethodOptions {
				p.checkPreflight(v, r)
			}
			return true
		}
	}

	// 3. Neither: as a website's.
	return false
}

const sourceOriginParam = "__amp_source_origin"

// sourceOrigin returns the query's __amp_source_origin, and whether it is an email's: a
// website's has the origin of a page there, with no "@" in it. If there are several, or
// one that cannot be read, it is an email's of nobody: a handler might take it for one.
//
// A plus sign is one, though forms write spaces so: an address has no space, and a client
// that leaves "@" as it is may leave "+" as well.
func sourceOrigin(r *http.Request) (value string, isEmail bool) {
	if r.URL == nil {
		return "", false
	}
	found := false
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		key, escaped, _ := strings.Cut(pair, "=")
		if len(key) > len(sourceOriginParam) {
			key, _ = url.PathUnescape(key) // "" if that is malformed
		}
		if key != sourceOriginParam {
			continue
		}
		if found {
			return "", true
		}
		found = true
		var err error
		if value, err = url.PathUnescape(escaped); err != nil {
			return "", true
		}
	}
	return value, strings.Contains(value, "@")
}

// grantEmail writes the headers of the response to an allowed email.
func (p *policy) grantEmail(h http.Header, v *verdict, vary string) {
	vals := &[4]string{v.sender, vary, v.origin, "AMP-Access-Control-Allow-Source-Origin"}
	addVary(h, vals[1:2:2])
	if v.reason == ReasonEmail {
		h["Amp-Email-Allow-Sender"] = vals[0:1:1]
		return
	}
	h["Amp-Access-Control-Allow-Source-Origin"] = vals[0:1:1]
	h["Access-Control-Allow-Origin"] = vals[2:3:3]
	h["Access-Control-Expose-Headers"] = vals[3:4:4]
}
