package indexnow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A Key has 8 to 128 of the characters a–z, A–Z, 0–9 and hyphen. Anyone who has it and can
// guess the location of its file can submit the site's pages.
//
// Packages fmt, log/slog and encoding/json print it masked ("4f9a…"), by itself or in an
// exported field. So do not store it with them: string(key) is the key itself. A URL that has the key,
// such as KeyLocation, and an unexported field are not masked.
type Key string

// NewKey returns a new random key of 32 hexadecimal digits.
func NewKey() Key {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return Key(hex.EncodeToString(random[:]))
}

const (
	minKey   = 8
	maxKey   = 128
	keyChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
)

func (k Key) check(path string) error {
	reason := ""
	switch {
	case k == "":
		reason = "is missing"
	case strings.TrimSpace(string(k)) != string(k):
		reason = "has white space around it, such as a line break from a file"
	case strings.HasSuffix(string(k), "…"):
		reason = "is a masked key, not the key itself"
	case strings.Trim(string(k), keyChars) != "":
		reason = "has other characters than a-z, A-Z, 0-9 and hyphen"
	case len(k) < minKey || len(k) > maxKey:
		reason = fmt.Sprintf("has %d characters", len(k))
	default:
		return nil
	}
	return &badvalue.Error{Path: path, Value: k.String(), Reason: reason, Want: "8 to 128 of a-z, A-Z, 0-9 and hyphen; NewKey makes one"}
}

// parseLocation parses Config.KeyLocation.
func parseLocation(location string) (pageurl.URL, *badvalue.Error) {
	u, problem := pageurl.Parse("KeyLocation", location, pageurl.AsRFC3986)
	if problem == nil && (u.Query != "" || u.Path == "" || strings.HasSuffix(u.Path, "/") || strings.Contains(u.Path, "//")) {
		problem = pageurl.Problem("KeyLocation", location, "is not the URL of a file", `one such as "https://www.example.com/catalog/indexnow.txt"`)
	}
	return u, problem
}

// path returns the path of the file of a key.
func (c *Client) path(key Key) string {
	if c.location != nil {
		return c.location.Path
	}
	return "/" + string(key) + ".txt"
}

// directory returns what the URLs of covered pages begin with, if there is a location.
func (c *Client) directory() string {
	path := c.location.Path
	return c.location.Scheme + "://" + c.location.Host + path[:strings.LastIndexByte(path, '/')+1]
}

// covers reports whether engines accept the page with the key file. The page is canonical, and so its
// path has no ".." segment, but a server that unescapes first may read "..%2f" as one.
func (c *Client) covers(page string) bool {
	if c.location == nil {
		return true
	}
	path, isBelow := strings.CutPrefix(page, c.directory())
	path, _, _ = strings.Cut(path, "?")
	isRoot := strings.Count(c.location.Path, "/") == 1
	return isBelow && (isRoot || !strings.Contains(path, ".."))
}

// String returns the key masked: at most an eighth of it, and no more than four characters.
func (k Key) String() string {
	if k == "" {
		return ""
	}
	return string(k[:min(len(k)/8, 4)]) + "…"
}

// Format masks the key for package fmt.
func (k Key) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), k.String()) }

// MarshalText masks the key for packages that encode, such as encoding/json and log/slog.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// mask masks the keys in a text.
func (c *Client) mask(text string) string {
	keys := slices.Clone(*c.keys)
	slices.SortStableFunc(keys, func(a, b Key) int { return len(b) - len(a) }) // one may be a part of another
	for _, key := range keys {
		secret := strings.TrimSpace(string(key)) // white space makes a key invalid, but it is still secret
		if len(secret) >= minKey {               // otherwise it is too short for a key
			text = strings.ReplaceAll(text, secret, key.String())
		}
	}
	if c.keysOf != nil { // the keys are not known here
		text = keyPath.ReplaceAllStringFunc(text, func(path string) string {
			return "/" + Key(path[len("/"):len(path)-len(".txt")]).String() + ".txt"
		})
	}
	return text
}

// keyPath matches what may be the path of a key file.
var keyPath = regexp.MustCompile(`/[A-Za-z0-9-]{8,128}\.txt`)

// ErrNoKey: Config.KeysOf has no valid key for a host.
var ErrNoKey = errors.New("the host has no valid key")

// A keysError is an error of Config.KeysOf.
type keysError struct{ error }

func (e keysError) Unwrap() error { return e.error }

// of returns a Client with the keys of a host.
func (c *Client) of(ctx context.Context, host string) (*Client, error) {
	if c.keysOf == nil {
		return c, nil
	}
	keys, err := c.keysOf(ctx, host)
	if err != nil {
		return nil, keysError{fmt.Errorf("KeysOf: %w", err)}
	}
	if len(keys) == 0 {
		return nil, keysError{ErrNoKey}
	}
	for i, key := range keys {
		if err := key.check(fmt.Sprintf("KeysOf[%d]", i)); err != nil {
			return nil, keysError{fmt.Errorf("%w: %w", ErrNoKey, err)}
		}
	}
	keys = slices.Clone(keys) // the caller may change its own
	own := *c
	own.keys, own.keysOf = &keys, nil
	return &own, nil
}

// maskProblem masks the key in an error about a value that may contain it, such as a URL.
func (c *Client) maskProblem(problem *badvalue.Error) *badvalue.Error {
	problem.Value, problem.Reason, problem.Want = c.mask(problem.Value), c.mask(problem.Reason), c.mask(problem.Want)
	return problem
}

// ServeKeys returns a handler that serves the key files, exactly and without a line break, and calls next
// for all other paths. With Config.KeysOf, the host is that of the request; if KeysOf cannot tell now, the
// answer to a request that may be for a key file is 503.
func (c *Client) ServeKeys(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, own := r.URL.EscapedPath(), c
		if c.keysOf != nil {
			host, _, _ := strings.Cut(r.Host, ":")
			domain, problem := domains.ParsePublisher("host", host)
			if !mayBeKeyFile(path) || problem != nil {
				next.ServeHTTP(w, r)
				return
			}
			var err error
			if own, err = c.of(r.Context(), domain); errors.Is(err, ErrNoKey) {
				next.ServeHTTP(w, r)
				return
			} else if err != nil {
				c.log.ErrorContext(r.Context(), "ampcors: indexnow: the key file cannot be served", "host", domain, "error", err)
				http.Error(w, "503 service unavailable", http.StatusServiceUnavailable)
				return
			}
		}
		for _, key := range *own.keys {
			if path == own.path(key) {
				outbound.TextFile(path, []byte(key)).ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// mayBeKeyFile reports whether a path is that of a key file, and not such as /robots.txt: KeysOf is
// not asked about each request of a site.
func mayBeKeyFile(path string) bool {
	name, isText := strings.CutSuffix(path, ".txt")
	return isText && Key(strings.TrimPrefix(name, "/")).check("") == nil
}

// ErrKeyFile: [Client.Verify] got an answer, but not the key file that search engines need.
var ErrKeyFile = errors.New("search engines cannot use the key file")

// Verify fetches the key file of each host, as a search engine would, and compares it with
// the key; with Config.KeysOf, the files of all keys. The answer must be 200 without
// a redirect, of the type text/plain, with the key and nothing else but white space and line
// breaks behind it. A byte order mark, which some engines may not accept, is logged (Warn). Verify
// checks the hosts one after the other, and joins all errors. Each error is an *[badvalue.Error] about a
// host, [ErrKeyFile], or an error of KeysOf, of the network or of ctx.
//
// The file is fetched with https, and with http for a host such as "http://www.example.com", which serves nothing else.
//
// With Config.KeyLocation there is only one file, and hosts may be empty.
func (c *Client) Verify(ctx context.Context, hosts ...string) error {
	var errs []error
	reject := func(path, value, reason, want string) {
		errs = append(errs, &badvalue.Error{Path: path, Value: value, Reason: reason, Want: want})
	}
	if c.location != nil && len(hosts) == 0 {
		hosts = []string{c.location.Host}
	}
	if len(hosts) == 0 {
		reject("hosts", "", "names no host", `at least one, such as "www.example.com"`)
	}
	for i, host := range hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		name, isHTTP := strings.CutPrefix(host, "http://")
		domain, problem := domains.ParsePublisher(path, strings.TrimPrefix(name, "https://"))
		if problem != nil {
			errs = append(errs, c.maskProblem(problem))
			continue
		}
		if c.location != nil && domain != c.location.Host {
			reject(path, host, "is not the host of KeyLocation", fmt.Sprintf("%q", c.location.Host))
			continue
		}
		own, err := c.of(ctx, domain)
		if err != nil {
			errs = append(errs, fmt.Errorf("indexnow: %s: %w", domain, err))
			continue
		}
		for _, key := range *own.keys {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(errs, fmt.Errorf("indexnow: not verified: %s and what is after it: %w", domain, err))...)
			}
			errs = append(errs, own.verify(ctx, map[bool]string{false: "https://", true: "http://"}[isHTTP]+domain, key))
		}
	}
	return errors.Join(errs...)
}

// verify fetches the file of one key at an origin, or at the location.
func (c *Client) verify(ctx context.Context, origin string, key Key) error {
	file := origin + c.path(key)
	if c.location != nil {
		file = c.location.String()
	}
	answer, err := outbound.Get(ctx, c.http, file)
	file = c.mask(file)
	if err == nil {
		text, hasMark := strings.CutPrefix(string(answer.Body), "\uFEFF")
		if err = key.compare(text); err == nil && hasMark {
			c.log.WarnContext(ctx, "ampcors: indexnow: the key file begins with a byte order mark", "file", file)
		}
	}
	switch {
	case err != nil && answer.Status == 0:
		return fmt.Errorf("indexnow: the key file %s cannot be fetched: %w", file, maskedError{c, err})
	case err != nil:
		return fmt.Errorf("indexnow: %s: %w: %w", file, ErrKeyFile, maskedError{c, err})
	}
	return nil
}

// compare reports what is wrong with the contents of a key file.
func (k Key) compare(file string) error {
	switch {
	case strings.TrimRight(file, " \t\r\n") == string(k):
		return nil
	case strings.TrimSpace(file) == string(k):
		return errors.New("it holds the key, but also white space before it; want the key first")
	case strings.Contains(file, string(k)):
		return errors.New("it holds the key, but also other text; want the key and nothing else")
	}
	return fmt.Errorf("it holds %d bytes that are not the key", len(file))
}

// A maskedError is an error that may contain the key, as in the URL of a redirect.
type maskedError struct {
	c   *Client
	err error
}

func (e maskedError) Error() string { return outbound.Shorten(e.c.mask(e.err.Error())) }

// There is no Unwrap, as it would reveal the key.
func (e maskedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e maskedError) As(target any) bool   { return errors.As(e.err, target) }
