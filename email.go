package ampcors

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Email says which emails may call. An AMP email is not a page at an origin: the mail
// client, in Gmail's case a proxy, makes the request and names the email's sender, whom
// it has authenticated. There are two ways to do this, and both are accepted:
//
//   - Version 2: the header AMP-Email-Sender has the sender's address, and the client
//     wants it back in AMP-Email-Allow-Sender. This outranks everything else, Origin
//     included. No other site's page can send it, because no preflight is granted for it.
//   - Version 1, which is deprecated but is what Gmail's documentation asks for: Origin
//     is the mail client's, and the query has the address in __amp_source_origin. The
//     client wants both back, in Access-Control-Allow-Origin and
//     AMP-Access-Control-Allow-Source-Origin. AMP's document lets any Origin pass;
//     here it must be one of Clients.
//
// Requests of websites are decided as without it. Only their Vary also has
// AMP-Email-Sender, so that a shared cache does not give an email the answer to a page.
//
// Answers to emails never have Access-Control-Allow-Credentials, and no headers are
// exposed but what version 1 needs. Like Origin, the sender is a claim that any program
// can make: what an email may read must not be secret, unless its URL has a token.
//
// Source: CORS in AMP for Email,
// https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email
type Email struct {
	// Senders are the addresses whose emails may call: "news@example.com", or
	// "*@example.com" for everybody at example.com, but not below it. An empty list
	// turns Email off.
	//
	// Domains are compared in lower-case ASCII; they may be written in Unicode here.
	// What stands before the "@" is compared octet for octet, as RFC 5321 section
	// 2.4 has it: list each spelling that is sent. It may have ASCII letters, digits,
	// single dots inside, and the punctuation of RFC 5322 section 3.2.3 but "*"; a
	// quoted name, as in "\"a b\"@example.com", is prohibited. Whole addresses have 254
	// octets at most.
	Senders []string `json:"senders,omitempty"`

	// Clients are the origins of mail clients to trust with version 1, in the form of
	// Config.Origins; nil stands for "https://mail.google.com". An empty list allows
	// version 2 alone. A page at such an origin, too, can call in any sender's name.
	// Prohibited are the hosts of AMP Caches.
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
	if len(cfg.Senders) == 0 {
		if len(cfg.Clients) > 0 {
			v.report("Email.Senders", -1, "", "is missing, though there are Clients", wantAddress)
		}
		return nil
	}
	clients := cfg.Clients
	if clients == nil {
		clients = []string{"https://mail.google.com"}
	}
	m := &mailbox{senders: make(map[string]struct{}), domains: make(map[string]struct{})}
	m.clients = v.origins("Email.Clients", clients, foreign)
	for i, client := range clients {
		_, host, _ := strings.Cut(client, "://")
		host, _, _ = strings.Cut(host, ":")
		if slices.ContainsFunc(foreign, func(domain string) bool { return host != domain && isOrIsBelow(host, domain) }) {
			v.report("Email.Clients", i, client, "is the origin of pages in an AMP Cache, not of a mail client", "to leave it out")
		}
	}
	for i, value := range cfg.Senders {
		at := strings.LastIndexByte(value, '@')
		local, base := value[:max(at, 0)], value[at+1:]
		domain, err := parseDomain(base)
		switch {
		case at < 0:
			v.report("Email.Senders", i, value, "is not an email address", wantAddress)
		case err != nil:
			*v = append(*v, err.at("Email.Senders", i, value, value[:at+1]))
		case local == "*":
			m.domains[domain] = struct{}{}
		case !isLocalPart(local):
			v.report("Email.Senders", i, value, fmt.Sprintf("has before the @ what is not 1 to %d ASCII letters, digits, single dots inside and !#$%%&'+-/=?^_`{|}~", maxLocalPart), wantAddress)
		case len(local)+len("@")+len(domain) > maxAddress:
			v.report("Email.Senders", i, value, fmt.Sprintf("is longer than %d octets", maxAddress), wantAddress)
		default:
			m.senders[local+"@"+domain] = struct{}{}
		}
	}
	return m
}

const wantAddress = `an address such as "news@example.com", or "*@example.com"`

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

// decideEmail decides on a request where emails are allowed.
// The steps are those of "Implementing CORS" in AMP's document.
func (p *policy) decideEmail(v *verdict, r *http.Request) {
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
		return
	}

	// 2. Version 1.
	if len(origins) == 1 {
		if _, isClient := p.mailbox.clients[origins[0]]; isClient {
			sender := sourceOrigin(r)
			reason := p.mailbox.check(sender)
			if reason == ReasonEmail {
				v.origin, v.sender, v.reason = origins[0], sender, ReasonEmailV1
				p.checkPreflight(v, r)
				return
			}
			p.decideSite(v, r) // the client's host may have pages that are allowed
			switch v.reason {
			case ReasonUnknownHost, ReasonMalformed, ReasonNotHTTPS: // as a site's origin
				v.sender, v.reason = sender, reason
			}
			return
		}
	}

	// 3. Neither: it is no email's.
	p.decideSite(v, r)
}

// sourceOrigin returns the query's __amp_source_origin, or "" if there is not exactly
// one. A plus sign is one, though forms write spaces so: an address has no space, and a
// client that leaves "@" as it is may leave "+" as well.
func sourceOrigin(r *http.Request) (value string) {
	if r.URL == nil {
		return ""
	}
	found := false
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		key, escaped, _ := strings.Cut(pair, "=")
		if key, err := url.PathUnescape(key); err != nil || key != "__amp_source_origin" {
			continue
		}
		if found {
			return "" // who reads the first, and who the last?
		}
		found = true
		value, _ = url.PathUnescape(escaped) // "" if that is malformed
	}
	return value
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
