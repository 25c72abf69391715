// Package indexnow tells search engines which pages of a site are new, have changed or are
// gone, by the IndexNow protocol (https://www.indexnow.org/documentation). The engines
// share what they receive, so one is enough.
//
//  1. Make a [Key] once (openssl rand -hex 16, or [NewKey]), and keep it with the
//     configuration.
//  2. Serve [Client.KeyHandler] at [Client.KeyPath] on each host whose pages are to be
//     submitted, or wrap the host's handler with [Client.ServeKeys] if there are OldKeys or
//     KeysOf.
//  3. Once that is served, call [Client.Verify].
//  4. Call [Client.Submit] for pages that change together, or let [Client.NewQueue] gather those
//     that change one by one. The URL is the page's canonical one, not that of its AMP
//     version.
//
// A Client serves any number of hosts, and is safe for concurrent use by multiple
// goroutines. Hosts that serve the same key trust each other: anyone who can read the files of
// one can submit pages of all. If hosts have different owners, [Config].KeysOf gives each its own.
//
// The protocol also has a GET for a single URL. Submit does not use it, because the key would be in
// the URL of the request, which proxies and servers log. [Request.GetURL] returns that URL.
//
// The package starts no goroutine, but for the requests of a Queue that runs. Submit repeats a
// request only if [Config.Attempts] says so; a Queue retries by itself.
package indexnow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
)

// The endpoints of the protocol's own service and of the participating engines, as listed
// at https://www.indexnow.org/faq.
const (
	API    = "https://api.indexnow.org/indexnow"
	Bing   = "https://www.bing.com/indexnow"
	Naver  = "https://searchadvisor.naver.com/indexnow"
	Seznam = "https://search.seznam.cz/indexnow"
	Yandex = "https://yandex.com/indexnow"
	Yep    = "https://indexnow.yep.com/indexnow"
)

// Config configures a [Client].
type Config struct {
	// Key is sent with each submission. The host serves it as well, which proves to the
	// engine that the submission comes from the host.
	Key Key

	// OldKeys are earlier keys of the hosts, which are served too. An engine may verify a
	// submission long after it was sent: keep the old key here for some days after a change.
	OldKeys []Key

	// KeysOf returns the key files of a host, for hosts that do not share a key, or that have
	// several, such as one for each of their teams. A page is submitted with the first whose file
	// covers it; all are served, and checked by Verify. So to replace a key, put the new one before
	// the old one, at another path: a server cannot serve two keys at one, not even at http and https,
	// because a handler does not see the scheme. An error that is [ErrNoKey] says that the host has
	// none; any other, that it cannot be found now. It is called for each batch and for each request
	// of a key file, so it should remember its answers, and must be safe for concurrent use by
	// multiple goroutines. If it is set, Key, OldKeys and KeyLocation must be empty.
	KeysOf func(ctx context.Context, host string) ([]KeyFile, error)

	// KeyLocation is the [KeyFile].Location of Key. If empty, the file is "/{key}.txt" at the root
	// of each host.
	KeyLocation string

	// Endpoint is the URL of the service to notify. If empty, [API] is used.
	Endpoint string
	// Failover is the URL of another service, which gets a request if Endpoint does not answer,
	// or answers with [ErrServer]. If empty, there is none.
	Failover string

	// UserAgent is sent with each request. If empty, "ampcors-indexnow" is used.
	UserAgent string

	// Attempts is the maximum number of times that a request is sent. It is retried if
	// there is no answer, or one that says "too many requests", "server error" or "key not
	// verified yet". 0 and 1 mean once, and 100 is the maximum.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles before each further one,
	// and is reduced at random by up to half. If zero, 1 second is used. A Retry-After of
	// the engine is added to it.
	Backoff time.Duration
	// MaxWait bounds the backoff. If a Retry-After is longer, there is no further attempt.
	// If zero, 1 minute is used. Backoff and MaxWait are at most 24 hours.
	MaxWait time.Duration

	// HTTPClient sends the requests. A copy of it is used, which follows no redirects, and
	// has a timeout of 30 seconds if none is set. If nil, a new client is used.
	HTTPClient *http.Client
	// Logger gets each batch that is accepted (Info) or not (Warn), but never the key. If nil,
	// slog.Default() is used.
	Logger *slog.Logger

	clock outbound.Clock // for tests
}

// A Client submits URLs. [New] makes one.
type Client struct {
	files     *[]keyFile // a pointer: fmt would print an unexported Key unmasked; none with keysOf
	keysOf    func(ctx context.Context, host string) ([]KeyFile, error)
	endpoints []string // the first is asked first
	userAgent string
	retry     outbound.Retry
	http      *http.Client
	log       *slog.Logger
	clock     outbound.Clock
}

// New returns a Client, or all the problems of the configuration, joined, each an
// *[badvalue.Error].
func New(cfg Config) (*Client, error) {
	var problems []error
	c := &Client{
		files:     cfg.files(),
		keysOf:    cfg.KeysOf,
		userAgent: cfg.UserAgent,
		retry:     outbound.Retry{Attempts: cfg.Attempts, Backoff: cfg.Backoff, MaxWait: cfg.MaxWait},
		http:      outbound.Client(cfg.HTTPClient),
		log:       cfg.Logger,
		clock:     cfg.clock,
	}
	if cfg.KeysOf == nil {
		if problem := cfg.Key.check("Key"); problem != nil {
			problems = append(problems, problem)
		}
		for i, key := range cfg.OldKeys {
			if problem := key.check(fmt.Sprintf("OldKeys[%d]", i)); problem != nil {
				problems = append(problems, problem)
			}
		}
		if cfg.KeyLocation != "" && len(cfg.OldKeys) > 0 {
			problems = append(problems, &badvalue.Error{Path: "OldKeys",
				Reason: "cannot be served, because the file of KeyLocation has one key",
				Want:   "none, or no KeyLocation; KeysOf can have a location for each key"})
		}
	} else if cfg.Key != "" || len(cfg.OldKeys) > 0 || cfg.KeyLocation != "" {
		problems = append(problems, &badvalue.Error{Path: "KeysOf", Reason: "is set, and so is Key, OldKeys or KeyLocation",
			Want: "one of the two"})
	}
	if cfg.KeyLocation != "" {
		location, problem := parseLocation(cfg.KeyLocation)
		if problem != nil {
			problem.Path = "KeyLocation"
			problems = append(problems, c.maskProblem(problem))
		}
		(*c.files)[0].location = &location
	}
	if c.userAgent == "" {
		c.userAgent = "ampcors-indexnow"
	} else if !httpguts.ValidHeaderFieldValue(c.userAgent) {
		problems = append(problems, &badvalue.Error{Path: "UserAgent", Value: c.mask(c.userAgent),
			Reason: "has a character that headers cannot have", Want: "printable ASCII"})
	}
	for _, endpoint := range []struct{ path, url string }{{"Endpoint", cmp.Or(cfg.Endpoint, API)}, {"Failover", cfg.Failover}} {
		if endpoint.url == "" {
			continue
		}
		c.endpoints = append(c.endpoints, endpoint.url)
		if u, err := url.Parse(endpoint.url); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
			u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(endpoint.url, " ?#") {
			// It may hold a password, or the key as a parameter.
			value, _, _ := strings.Cut(endpoint.url[strings.LastIndexByte(endpoint.url, '@')+1:], "?")
			problems = append(problems, c.maskProblem(&badvalue.Error{Path: endpoint.path, Value: value,
				Reason: "is not exactly the URL of an IndexNow service", Want: fmt.Sprintf("one such as %q", API)}))
		}
	}
	problems = append(problems, c.retry.Check()...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.clock == nil {
		c.clock = outbound.SystemClock{}
	}
	return c, nil
}
