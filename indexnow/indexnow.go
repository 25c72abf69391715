// Package indexnow tells search engines which pages of a site are new, have changed or are
// gone, by the IndexNow protocol (https://www.indexnow.org/documentation). The engines
// that take part tell each other, so that one is enough.
//
//  1. Make a [Key] once (openssl rand -hex 16, or [NewKey]), and keep it with the
//     configuration.
//  2. Serve [Client.KeyHandler] at [Client.KeyPath] on each host whose pages are to be
//     submitted.
//  3. Once that is served, call [Client.Verify].
//  4. Call [Client.Submit] for pages that change together, or let a [Queue] gather those
//     that change one by one. The URL is the page's canonical one, not that of its AMP
//     version.
//
// One Client does for any number of hosts, by many goroutines at once. But all these hosts
// then serve the same key, and whoever can read the files of one can submit for all. Where
// hosts belong to different people, give each a key, and so a Client, of its own.
//
// Nothing happens but in these calls: there is no goroutine. Submit tries nothing twice
// unless [Config] says so; a Queue does.
package indexnow

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// The endpoints of the protocol's own service and of the engines that take part, as
// https://www.indexnow.org/faq lists them.
const (
	API    = "https://api.indexnow.org/indexnow"
	Bing   = "https://www.bing.com/indexnow"
	Naver  = "https://searchadvisor.naver.com/indexnow"
	Seznam = "https://search.seznam.cz/indexnow"
	Yandex = "https://yandex.com/indexnow"
	Yep    = "https://indexnow.yep.com/indexnow"
)

// Config configures a [Client]. Package fmt prints it with the key masked.
type Config struct {
	// Key is sent with each submission. That the host serves it as well proves to the
	// engine that the submission is the host's.
	Key Key

	// KeyLocation is the URL of the key file, if that is not "/{key}.txt" at the root of
	// each host: "https://www.example.com/catalog/indexnow.txt". Such a file covers no other
	// host, and of this one only what is in the same directory or below it, here what
	// begins with "/catalog/".
	KeyLocation string

	// Endpoint is the service that is told. "" stands for [API].
	Endpoint string

	// Attempts is how often a request is sent, in all, if there is no answer, or one that
	// says "too many requests", "server error" or "key not verified yet". 0 and 1 stand
	// for once.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles before each further one,
	// and up to half of it is left out at random. 0 stands for 1 s. A Retry-After of the
	// engine comes on top.
	Backoff time.Duration
	// MaxWait bounds the backoff. If a Retry-After is longer, there is no further attempt.
	// 0 stands for 1 min.
	MaxWait time.Duration

	// HTTPClient sends the requests. It follows no redirect here, and has a timeout of 30 s
	// if it has none. nil stands for a new one.
	HTTPClient *http.Client
	// Logger gets each batch that is accepted (Info) or not (Warn), and the URLs that a Queue
	// gives up (Error), but never the key. If nil, slog.Default() is used.
	Logger *slog.Logger

	clock outbound.Clock // of tests
}

// A Client submits URLs. [New] makes one.
type Client struct {
	key         *Key         // a pointer, as package fmt prints what is in fields of structs
	keyLocation *pageurl.URL // nil: at the root of each host
	endpoint    string
	retry       outbound.Retry
	http        *http.Client
	log         *slog.Logger
	clock       outbound.Clock
}

// New returns a Client, or all the problems of the configuration, joined, each an
// *[ampcors.ValueError].
func New(cfg Config) (*Client, error) {
	var problems []error
	c := &Client{
		key:      &cfg.Key,
		endpoint: cfg.Endpoint,
		retry:    outbound.Retry{Attempts: cfg.Attempts, Backoff: cfg.Backoff, MaxWait: cfg.MaxWait},
		http:     outbound.Client(cfg.HTTPClient),
		log:      cfg.Logger,
		clock:    cfg.clock,
	}
	if problem := cfg.Key.check(); problem != nil {
		problems = append(problems, problem)
	}
	if cfg.KeyLocation != "" {
		location, problem := pageurl.Parse(cfg.KeyLocation, pageurl.AsRFC3986)
		if problem == nil && (location.Query != "" || location.Path == "" || strings.HasSuffix(location.Path, "/") || strings.Contains(location.Path, "//")) {
			problem = pageurl.Problem(cfg.KeyLocation, "is not the URL of a file", `one such as "https://www.example.com/catalog/indexnow.txt"`)
		}
		if problem != nil {
			problem.Path = "KeyLocation"
			problems = append(problems, c.maskProblem(problem))
		}
		c.keyLocation = &location
	}
	if c.endpoint == "" {
		c.endpoint = API
	} else if u, err := url.Parse(c.endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(c.endpoint, " ") {
		// It may hold a password, or the key as a parameter.
		value, _, _ := strings.Cut(c.endpoint[strings.LastIndexByte(c.endpoint, '@')+1:], "?")
		problems = append(problems, c.maskProblem(&ampcors.ValueError{Path: "Endpoint", Value: value, Reason: "is not, or is more than, the URL of an IndexNow service", Want: fmt.Sprintf("one such as %q", API)}))
	}
	problems = append(problems, c.retry.Check("indexnow")...)
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
