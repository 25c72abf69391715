// Package mwtest has what the tests of the root package and those of folder proof share.
package mwtest

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/vectors"
	"github.com/ampcors/ampcors/source"
)

// Origins that the tests use, of www.example.com unless a name or comment says otherwise.
const (
	CacheOrigin       = "https://www-example-com.cdn.ampproject.org"
	BingOrigin        = "https://www-example-com.www.bing-amp.com"
	OwnOrigin         = "https://www.example.com"
	EvilOrigin        = "https://evil-example.cdn.ampproject.org" // another publisher's page
	PlaygroundOrigin  = "https://playground.amp.dev"
	WildOrigin        = "https://blog-example-net.cdn.ampproject.org" // below *.example.net
	IDNOrigin         = "https://xn--bcher-ch-65a.cdn.ampproject.org" // bücher.ch
	UnknownHashOrigin = "https://v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq.cdn.ampproject.org"
)

// HashOrigin has the hash prefix of www.example.com.
var HashOrigin = "https://" + Hash("www.example.com") + ".cdn.ampproject.org"

// Config has publishers of each kind, another origin, and credentials.
func Config() ampcors.Config {
	return ampcors.Config{
		Publishers:   []string{"www.example.com", "bücher.ch", "*.example.net"},
		Origins:      []string{PlaygroundOrigin},
		Credentialed: true,
	}
}

// New returns the Middleware of a valid Config.
func New(t testing.TB, cfg ampcors.Config) *ampcors.Middleware {
	t.Helper()
	m, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A Spy is a handler that records whether it ran, and sets headers of its own.
type Spy struct{ Ran bool }

func (s *Spy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Ran = true
	w.Header().Add("Vary", "Accept")
	w.Header().Set("X-Handler", "ran")
	w.WriteHeader(http.StatusAccepted)
}

// Headers makes a header of "Key: value" lines.
func Headers(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		h.Add(key, value)
	}
	return h
}

// A Database is a database of publishers in memory. It can be slow or fail.
type Database struct {
	mu       sync.Mutex
	domains  map[string]bool
	prefixes map[string]string
	Asked    []string // the first 1000 keys
	count    int
	Err      error
	Delay    time.Duration // by the clock of synctest
}

// NewDatabase returns a Database that has these publishers.
func NewDatabase(domains ...string) *Database {
	s := &Database{domains: make(map[string]bool), prefixes: make(map[string]string)}
	for _, d := range domains {
		s.Add(d)
	}
	return s
}

func (s *Database) Add(domain string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.domains[domain] = true; !strings.HasPrefix(domain, "*") {
		s.prefixes[Hash(domain)] = domain
	}
}

func (s *Database) Remove(domain string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.domains, domain)
	delete(s.prefixes, Hash(domain))
}

// Fail makes each lookup from now on return an error, or none.
func (s *Database) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Err = err
}

// Lookups returns how often it was asked.
func (s *Database) Lookups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *Database) answer(ctx context.Context, key string) (known bool, domain string, err error) {
	s.mu.Lock()
	if s.count++; s.count <= 1000 {
		s.Asked = append(s.Asked, key)
	}
	known, domain, err = s.domains[key], s.prefixes[key], s.Err
	delay := s.Delay
	s.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return false, "", ctx.Err()
		}
	}
	return known, domain, err
}

// Confirms returns a lookup that finds the domains for which has is true.
func Confirms(has func(context.Context, string) (bool, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, domain string) (string, error) {
		ok, err := has(ctx, domain)
		if !ok {
			return "", err
		}
		return domain, err
	}
}

func (s *Database) hasPublisher(ctx context.Context, domain string) (bool, error) {
	known, _, err := s.answer(ctx, domain)
	return known, err
}

func (s *Database) PublisherByHash(ctx context.Context, prefix string) (string, error) {
	_, domain, err := s.answer(ctx, prefix)
	return domain, err
}

// Remembered returns a Source that asks the Database.
func (s *Database) Remembered(t testing.TB, options ...source.Config) *source.Source {
	t.Helper()
	return NewSource(t, source.Database{PublisherByDomain: Confirms(s.hasPublisher), PublisherByHash: s.PublisherByHash},
		options...)
}

// NewSource returns a Source. Without options, it has the defaults.
func NewSource(t testing.TB, s source.Database, options ...source.Config) *source.Source {
	t.Helper()
	c, err := source.New(s, append(options, source.Config{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// WithSource moves the publishers to a Source, but for patterns that only a list may have.
func WithSource(t testing.TB, cfg ampcors.Config) (ampcors.Config, *Database) {
	t.Helper()
	s := NewDatabase()
	var patterns []string
	for _, p := range cfg.Publishers {
		base, isPattern := strings.CutPrefix(p, "*.")
		domain, err := cacheurl.CanonicalDomain(base)
		switch {
		case isPattern && (err != nil || domains.IsPublicSuffix(domain)):
			patterns = append(patterns, p)
		case err != nil:
			t.Fatal(err)
		case isPattern:
			s.Add("*." + domain)
		default:
			s.Add(domain)
		}
	}
	cfg.Publishers, cfg.Source = patterns, s.Remembered(t, source.Config{Patterns: true})
	return cfg, s
}

// OtherOrigin is that of a page of other.example.
const OtherOrigin = "https://other-example.cdn.ampproject.org"

// ErrDown is what a Database returns that cannot be asked.
var ErrDown = errors.New("the database is down")

// RaceEnabled is whether this program was built with the race detector.
var RaceEnabled = func() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// UnsafeString returns a string that shares the memory of b.
func UnsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// MailOrigin is that of a client of AMP for Email.
const MailOrigin = "https://mail.google.com"

// EmailConfig is Config with senders and clients of AMP for Email.
func EmailConfig() ampcors.Config {
	cfg := Config()
	cfg.Origins = append(cfg.Origins, "https://amp.gmail.dev")
	cfg.Email = ampcors.Email{
		Senders: []string{"news@example.com", "*@bücher.example", "Shop@Café.Example"},
		Clients: []string{MailOrigin, "https://amp.gmail.dev", "https://blog.example.net", "http://localhost:8080",
			"https://mail.example:8443"},
	}
	return cfg
}

// Vectors reads a file of the folder conformance.
func Vectors(t testing.TB, path string) vectors.File {
	t.Helper()
	f, err := vectors.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Policies returns the configurations of a file.
func Policies(t testing.TB, f vectors.File) map[string]ampcors.Config {
	t.Helper()
	policies := make(map[string]ampcors.Config)
	for name, data := range f.Policies {
		cfg, err := configfile.Inline{Name: name, JSON: data}.Config()
		if err != nil {
			t.Fatal(err)
		}
		policies[name] = cfg
	}
	return policies
}

// Reason returns the reason that a vector names, and fails if the file does not have it.
func Reason(t testing.TB, f vectors.File, label string) (reason ampcors.Reason) {
	t.Helper()
	for reason = 1; reason.String() != label; reason++ {
		if reason.String() == ampcors.Reason(0).String() {
			t.Fatalf("there is no reason %q", label)
		}
	}
	if r, ok := f.Reasons[label]; f.Reasons != nil && (!ok || r.Allowed != reason.Allowed()) {
		t.Errorf("the file says of %s: %+v, %t", label, r, ok)
	}
	return reason
}

// Handler202 is a handler without state.
type Handler202 struct{}

func (*Handler202) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusAccepted)
}

// Hash returns what AMP's fallback algorithm gives a text.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(strings.TrimRight(base32.StdEncoding.EncodeToString(sum[:]), "="))
}

// ALabel returns the A-label of a text, or the text if it is ASCII.
func ALabel(text string) string {
	label, err := idna.Punycode.ToASCII(text)
	if err != nil {
		panic(err)
	}
	return label
}
