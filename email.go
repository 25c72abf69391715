package ampcors

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
)

// Email lists the AMP emails that may call. An email is not a page at an origin: the mail client, in Gmail's
// case a proxy, makes the request and names the email's sender, which it has authenticated. There are two ways
// to do this, and both are accepted:
//
//   - Version 2: the header AMP-Email-Sender has the sender's address, and the client wants it back in
//     AMP-Email-Allow-Sender. AMP-Email-Sender outranks everything else, Origin included. No page of another
//     origin can send it, because no preflight is granted for it.
//   - Version 1, which is deprecated but is what Gmail's documentation asks for: Origin is the mail client's,
//     and the query has the address in __amp_source_origin. The client wants both back, in
//     Access-Control-Allow-Origin and AMP-Access-Control-Allow-Source-Origin. AMP's document accepts any
//     Origin; ampcors accepts only those in Clients, and otherwise ignores the query parameter.
//
// Requests of websites are allowed or denied as if Email were zero. There are two differences. Their Vary also has
// AMP-Email-Sender, so that a shared cache does not give a page's response to an email. And a mail client's Origin
// that is denied has ReasonNoEmailSender, unless the Source fails.
//
// Responses to emails never have Access-Control-Allow-Credentials, and expose no header except the one that
// version 1 needs. Like Origin, the sender is a claim that any program can make: what an email may read must
// not be secret, unless its URL has a token. A page at the API's own origin can make that claim, too.
//
// Sources: CORS in AMP for Email,
// https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email, and Gmail's security
// requirements, https://developers.google.com/gmail/ampemail/security-requirements
type Email struct {
	// Senders are the addresses whose emails may call: "news@example.com", or "*@example.com" for everybody at
	// example.com, but not at its subdomains. All addresses at such a domain must be yours: at "gmail.com" anybody
	// can have one. The part before the "@" is compared byte by byte: list each spelling that is sent. An empty list
	// turns Email off (then Clients must be missing or empty, too).
	//
	// Domains of large mail providers are prohibited after "*@" unless DangerouslyAllowMailProviderWildcards is
	// set. Not all providers are known here. Domains are compared in lower-case ASCII; they may be written in
	// Unicode here. The part before the "@" (RFC 5321 section 2.4) may have ASCII letters, digits, single dots
	// inside, and the punctuation of RFC 5322 section 3.2.3 except "*". A quoted name is prohibited, as in
	// "\"a b\"@example.com". The part before the "@" has at most 64 bytes, and the whole address at most 254.
	Senders []string `json:"senders,omitempty"`

	// Clients are the origins of mail clients to trust with version 1 of AMP for Email, in the form of Config.Origins.
	// If missing, "https://mail.google.com" is used. An empty list allows version 2 alone. A page at such an origin can
	// also call in any sender's name.
	//
	// A request from such an origin, even a publisher's, is an AMP for Email request if __amp_source_origin has an
	// "@", occurs twice or is malformed. Hosts of AMP Caches are prohibited.
	Clients []string `json:"clients,omitzero"`

	// DangerouslyAllowMailProviderWildcards allows senders such as "*@gmail.com", and so the emails of everybody
	// who has an address at that provider.
	DangerouslyAllowMailProviderWildcards bool `json:"dangerouslyAllowMailProviderWildcards,omitempty"`
}

const (
	maxAddress   = 254 // bytes of a path, RFC 5321 section 4.5.3.1.3, without "<" and ">"
	maxLocalPart = 64  // bytes, section 4.5.3.1.1
)

// An emailPolicy is a compiled Email: which senders and mail clients may call.
type emailPolicy struct {
	// addresses, and "*@" with a domain at which each is allowed; the domain in lower-case ASCII
	senders map[string]struct{}
	clients map[string]struct{} // origins
}

// newEmailPolicy returns the policy for senders as parseSender returns them.
func newEmailPolicy(senders, clients []string) *emailPolicy {
	if clients == nil {
		clients = []string{"https://mail.google.com"}
	}
	return &emailPolicy{senders: setOf(senders), clients: setOf(clients)}
}

// A sender is what a request says of the email that makes it.
type sender struct {
	reason       Reason // why the AMP for Email request is allowed or denied; 0 if it is a website's request
	address      string
	isMailClient bool // a website's request, from the origin of a mail client
}

// identify finds the sender of an AMP for Email request, by the steps of "Implementing CORS" in AMP's document.
func (e *emailPolicy) identify(c *caller) (s sender) {
	// 1. Version 2. Not even Origin is read.
	switch senders := c.senders(); len(senders) {
	case 0:
	case 1:
		return sender{reason: e.decide(senders[0]), address: senders[0]}
	default:
		return sender{reason: ReasonNoEmailSender} // a mail client sends one, so several are ambiguous
	}

	// 2. Version 1.
	if _, isClient := e.clients[c.origin]; isClient {
		address, ok := c.sourceOrigin()
		if !ok {
			return sender{isMailClient: true}
		}
		s = sender{reason: e.decide(address), address: address}
		if s.reason == ReasonEmail {
			s.reason = ReasonEmailV1
		}
	}

	// 3. Neither: a website's request.
	return s
}

const wantAddress = `an address such as "news@example.com", or "*@example.com"`

// parseSender returns one of Email.Senders with its domain in lower-case ASCII, or what is wrong with it.
func parseSender(value string) (address string, p *domains.Problem) {
	at := strings.LastIndexByte(value, '@')
	if at < 0 {
		return "", &domains.Problem{Reason: "is not an email address", Want: wantAddress}
	}
	local, base := value[:at], value[at+1:]
	domain, err := domains.Parse(base)
	switch {
	case strings.TrimSpace(value) != value:
		return "", &domains.Problem{Reason: "has white space around it", Instead: strings.TrimSpace(value)}
	case local != "*" && !isLocalPart(local):
		return "", &domains.Problem{Reason: fmt.Sprintf("has a part before the @ that is not 1 to %d ASCII letters, "+
			"digits, single dots inside and !#$%%&'+-/=?^_`{|}~", maxLocalPart), Want: wantAddress}
	case strings.HasPrefix(base, "*."):
		return "", &domains.Problem{Reason: "is a pattern for subdomains, which senders do not have",
			Want: wantAddress + " for each subdomain"}
	case err != nil && err.Instead != "":
		return "", &domains.Problem{Reason: "has a domain that " + err.Reason, Instead: local + "@" + err.Instead}
	case err != nil:
		return "", &domains.Problem{Reason: "has a domain that " + err.Reason, Want: wantAddress}
	case len(local)+len("@")+len(domain) > maxAddress:
		return "", &domains.Problem{Code: badvalue.OutOfRange, Reason: fmt.Sprintf("is longer than %d bytes", maxAddress),
			Want: wantAddress}
	}
	return local + "@" + domain, nil
}

// atext has the characters that RFC 5322 section 3.2.3 calls atext, without "*". A response repeats the sender, and
// "*" there would allow everybody.
const atext = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'+-/=?^_`{|}~"

// isLocalPart reports whether s can be before the "@": atoms, separated by single dots.
func isLocalPart(s string) bool {
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" || strings.Trim(atom, atext) != "" {
			return false
		}
	}
	return len(s) <= maxLocalPart
}

// decide decides on a sender's address.
func (e *emailPolicy) decide(address string) Reason {
	if len(address) > maxAddress || !domains.IsASCII(address) {
		return ReasonNoEmailSender
	}
	at := strings.LastIndexByte(address, '@')
	if at < 0 || !isLocalPart(address[:at]) {
		return ReasonNoEmailSender
	}
	domain := strings.ToLower(address[at+1:])
	if _, p := domains.Check(domain); p != nil {
		return ReasonNoEmailSender
	}
	if _, ok := e.senders["*@"+domain]; ok { // no request names this sender: "*" is no isLocalPart
		return ReasonEmail
	}
	if _, ok := e.senders[address[:at+1]+domain]; ok {
		return ReasonEmail
	}
	return ReasonEmailSenderNotAllowed
}

// isMailProvider reports whether domain belongs to a mail provider at which anybody can get an address. The
// list has large providers, and cannot be complete.
func isMailProvider(domain string) bool {
	if _, ok := mailProviders[domain]; ok {
		return true
	}
	name, suffix, _ := strings.Cut(domain, ".")
	if actual, _ := publicsuffix.PublicSuffix(domain); actual != suffix {
		return false // it is not directly below a public suffix
	}
	switch name {
	case "aol", "gmx", "hotmail", "outlook", "protonmail", "tutanota", "yahoo", "yandex", "ymail", "zohomail":
		return true // these providers have domains in many countries
	}
	return false
}

var mailProviders = setOf(strings.Fields(`
	gmail.com googlemail.com live.com icloud.com me.com mac.com msn.com proton.me pm.me zoho.com fastmail.com mail.com
	mail.ru
	comcast.net att.net verizon.net btinternet.com web.de freenet.de t-online.de free.fr orange.fr laposte.net libero.it
	wp.pl seznam.cz uol.com.br qq.com 163.com 126.com sina.com naver.com daum.net docomo.ne.jp rediffmail.com
`))
