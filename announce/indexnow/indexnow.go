// Package indexnow tells search engines which pages of a site are new, have changed or are
// gone, by the IndexNow protocol (https://www.indexnow.org/documentation). The engines
// share what they receive, so one is enough.
//
//  1. Make a [Key] once (openssl rand -hex 16, or [NewKey]), and keep it with the
//     configuration.
//  2. With [Client.ServeKeys], wrap the handler of each host whose pages are submitted.
//  3. Once that is served, call [Client.Verify].
//  4. Call [Client.Submit] for pages that change together, or let [Client.NewQueue] gather those
//     that change one by one. The URL is the page's canonical one, not the URL of its AMP version.
//
// A Client serves any number of hosts, and is safe for concurrent use by multiple
// goroutines. Hosts that serve the same key trust each other: anyone who can read the files of
// one can submit pages of all. If hosts have different owners, [Config].KeysOf gives each its own.
//
// The protocol also has a GET for a single URL. Submit does not use it, because the key would be in
// the URL of the request, which proxies and servers log.
//
// Submit sends one request, then the first requests of the other hosts, several at one time, then all others one
// after another, and returns when all have ended. Only a Queue works in the background. Submit sends each URL once,
// unless the engine rejects a request because of one of its URLs: then it sends halves of that request, to find the
// URL. A Queue also searches, and retries.
package indexnow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// API is the endpoint of the protocol's own service. Those of the participating engines are listed
// at https://www.indexnow.org/faq.
const API = "https://api.indexnow.org/indexnow"

// Config configures a [Client].
type Config struct {
	// Key is sent with each submission. The host serves it as well, which proves to the
	// engine that the submission comes from the host.
	Key Key

	// KeysOf returns the keys of a host, for hosts that do not share a key. If location is not "", it is one of
	// KeyLocations, in canonical form, and KeysOf returns the keys of that file: several files of one host can have
	// different keys. The first key is sent. ServeKeys and Verify use all keys if there is no location, and otherwise
	// only the first. An engine may verify a submission long after it was sent: so after a change of the key, return
	// the old one behind the new one for some days. An error that is [ErrNoKey] says that the host has none; any
	// other, that its keys cannot be found now. It is called for each batch and for each request of a key file, so it
	// should remember its answers, and must be safe for concurrent use by multiple goroutines. If it is set, Key must
	// be empty.
	KeysOf func(ctx context.Context, host, location string) ([]Key, error)

	// KeyLocations are the URLs of key files, such as "https://www.example.com/catalog/indexnow.txt", each with the
	// key of its host or, if KeysOf returns one for the file, with a key of its own. If empty, the file is
	// "/{key}.txt" at the root of each host, and covers all its pages. Otherwise each covers only pages with the same
	// scheme and host, in the file's own directory or below it: here those that begin with
	// "https://www.example.com/catalog/". A page is sent with the file of the longest directory that covers it (the
	// first of equals), or else rejected. The protocol calls this option 2 (https://www.indexnow.org/documentation).
	KeyLocations []string

	// Endpoint is the URL of the service to notify. If empty, [API] is used.
	Endpoint string

	// AtOnce is how many first requests of Submit are sent at one time, each for another host or key file: at most
	// 1000. If zero, 16 is used.
	AtOnce int

	// UserAgent is sent with each submission. If empty, "ampcors-indexnow" is used.
	UserAgent string

	// HTTPClient sends the requests. A copy of it is used, which follows no redirects, and
	// has a timeout of 30 seconds if none is set. If nil, a new client is used.
	HTTPClient *http.Client
	// Accepted, if set, is called with each request's batch as soon as the engine has accepted it, before Submit
	// returns: for a program that saves what is done, or shows it. It must be safe for concurrent use by multiple
	// goroutines.
	Accepted func(Batch)
	// Logger gets each batch that was accepted (Info) or failed (Warn), but never the key. If nil,
	// slog.Default() is used.
	Logger *slog.Logger
}

// A Client submits URLs. [New] makes one.
type Client struct {
	keys      *[]Key    // the current one is the first. A pointer: fmt would print an unexported Key unmasked
	locations *keyFiles // none: at the root of each host. A pointer, because the key may be in it
	keysOf    func(ctx context.Context, host, location string) ([]Key, error)
	endpoint  string
	userAgent string
	http      *http.Client
	accepted  func(Batch)
	atOnce    int // first requests of hosts
	log       *slog.Logger
}

// New returns a Client, or all the problems of the configuration, joined, each an
// *[badvalue.Error].
func New(cfg Config) (*Client, error) {
	var problems []error
	c := &Client{
		keys:      &[]Key{cfg.Key},
		locations: &keyFiles{of: make(map[string][]pageurl.URL)},
		keysOf:    cfg.KeysOf,
		endpoint:  cmp.Or(cfg.Endpoint, API),
		userAgent: cfg.UserAgent,
		http:      outbound.Client(cfg.HTTPClient),
		accepted:  cfg.Accepted,
		atOnce:    cmp.Or(cfg.AtOnce, defaultAtOnce),
		log:       cfg.Logger,
	}
	if cfg.KeysOf == nil {
		if problem := cfg.Key.check("Key"); problem != nil {
			problems = append(problems, problem)
		}
	} else if cfg.Key != "" {
		problems = append(problems, &badvalue.Error{Code: badvalue.Conflict, Path: "KeysOf", Reason: "is set, and so is Key",
			Want: "one of the two"})
	}
	for i, value := range cfg.KeyLocations {
		location, problem := parseLocation(fmt.Sprintf("KeyLocations[%d]", i), value)
		if problem != nil {
			problems = append(problems, c.maskProblem(problem))
		}
		if slices.Contains(c.locations.of[location.Host], location) {
			continue
		}
		c.locations.all = append(c.locations.all, location)
		c.locations.of[location.Host] = append(c.locations.of[location.Host], location)
	}
	if cfg.AtOnce < 0 || cfg.AtOnce > maxAtOnce {
		problems = append(problems, &badvalue.Error{Code: badvalue.OutOfRange, Path: "AtOnce",
			Value: strconv.Itoa(cfg.AtOnce), Reason: "is out of range",
			Want: fmt.Sprintf("0 for the default, or at most %d requests", maxAtOnce)})
	}
	if c.userAgent == "" {
		c.userAgent = "ampcors-indexnow"
	} else if !httpguts.ValidHeaderFieldValue(c.userAgent) {
		problems = append(problems, &badvalue.Error{Code: badvalue.Malformed, Path: "UserAgent", Value: c.mask(c.userAgent),
			Reason: "has a character that headers cannot have", Want: "printable ASCII"})
	}
	if u, err := url.Parse(c.endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(c.endpoint, " ?#") {
		// It may hold a password, or the key as a parameter.
		value, _, _ := strings.Cut(c.endpoint[strings.LastIndexByte(c.endpoint, '@')+1:], "?")
		problems = append(problems, c.maskProblem(&badvalue.Error{Code: badvalue.Malformed, Path: "Endpoint", Value: value,
			Reason: "is not exactly the URL of an IndexNow service", Want: fmt.Sprintf("one such as %q", API)}))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	return c, nil
}
