package indexnow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A Key has 8 to 128 of the characters a–z, A–Z, 0–9 and hyphen. Anyone who has it and can
// guess the location of its file can submit the site's pages.
//
// Packages fmt, log/slog and encoding/json print it masked ("4f9a…"), by itself or in an
// exported field. So do not store it with them: string(key) is the key itself. In an
// unexported field, fmt prints the key unmasked, because it cannot call methods there.
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

func (k Key) check() error {
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
	return &ampcors.ValueError{Package: "indexnow", Path: "Key", Value: k.String(), Reason: reason, Want: "8 to 128 of a-z, A-Z, 0-9 and hyphen; NewKey makes one"}
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

// LogValue masks the key for package log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText masks the key for packages that encode, such as encoding/json.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Format prints only the masked key of a Client.
func (c Client) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), "indexnow.Client with key "+c.key.String())
}

// masked returns cfg with the key masked in KeyLocation and in the endpoints too.
func (cfg Config) masked() Config {
	c := Client{key: &cfg.Key}
	cfg.KeyLocation, cfg.Endpoint, cfg.Failover = c.mask(cfg.KeyLocation), c.mask(cfg.Endpoint), c.mask(cfg.Failover)
	return cfg
}

// Format masks the key, which may be in KeyLocation as well.
func (cfg Config) Format(f fmt.State, verb rune) {
	type plain Config // without this method
	fmt.Fprintf(f, fmt.FormatString(f, verb), plain(cfg.masked()))
}

// MarshalJSON masks the key, as Format does. HTTPClient and Logger are omitted.
func (cfg Config) MarshalJSON() ([]byte, error) {
	cfg = cfg.masked()
	return json.Marshal(struct {
		Key                             Key
		KeyLocation, Endpoint, Failover string        `json:",omitempty"`
		UserAgent                       string        `json:",omitempty"`
		Attempts                        int           `json:",omitempty"`
		Backoff, MaxWait                time.Duration `json:",omitempty"`
	}{cfg.Key, cfg.KeyLocation, cfg.Endpoint, cfg.Failover, cfg.UserAgent, cfg.Attempts, cfg.Backoff, cfg.MaxWait})
}

// mask masks the key in a text.
func (c *Client) mask(text string) string {
	key := strings.TrimSpace(string(*c.key)) // white space makes a key invalid, but it is still secret
	if len(key) < minKey {
		return text // too short for a key
	}
	return strings.ReplaceAll(text, key, c.key.String())
}

// maskProblem masks the key in an error about a value that may contain it, such as a URL.
func (c *Client) maskProblem(problem *ampcors.ValueError) *ampcors.ValueError {
	problem.Package = "indexnow"
	problem.Value, problem.Reason, problem.Want = c.mask(problem.Value), c.mask(problem.Reason), c.mask(problem.Want)
	return problem
}

// KeyPath returns the path of the key file: "/{key}.txt", or that of Config.KeyLocation.
// The path may contain the key, so do not log it.
func (c *Client) KeyPath() string {
	if c.keyLocation != nil {
		return c.keyLocation.Path
	}
	return "/" + string(*c.key) + ".txt"
}

// KeyHandler serves the key at [Client.KeyPath], exactly and without a line break, and
// answers 404 for any other path.
func (c *Client) KeyHandler() http.Handler {
	return outbound.TextFile(c.KeyPath(), []byte(*c.key))
}

// ErrKeyFile: [Client.Verify] got an answer, but not the key file that search engines need.
var ErrKeyFile = errors.New("search engines cannot use the key file")

// Verify fetches the key file of each host, as a search engine would, and compares it with
// the key. The answer must be 200 without a redirect, of the type text/plain, with the key
// and nothing else but white space and line breaks behind it. A byte order mark, which some
// engines may not accept, is logged (Warn). Verify checks the hosts one after the other, and
// joins all errors. Each
// error is an *[ampcors.ValueError] about a host, [ErrKeyFile], or an error of the network.
//
// With Config.KeyLocation there is only one file, and hosts may be empty.
func (c *Client) Verify(ctx context.Context, hosts ...string) error {
	reject := func(path, value, reason, want string) error {
		return &ampcors.ValueError{Package: "indexnow", Path: path, Value: value, Reason: reason, Want: want}
	}
	at := func(i int) string { return fmt.Sprintf("hosts[%d]", i) }
	var errs []error
	var files []string
	for i, host := range hosts {
		domain, problem := pageurl.Domain(host)
		switch {
		case problem != nil:
			problem.Path = at(i)
			errs = append(errs, c.maskProblem(problem))
		case c.keyLocation == nil:
			files = append(files, "https://"+domain+c.KeyPath())
		case domain != c.keyLocation.Host:
			errs = append(errs, reject(at(i), host, "is not the host of KeyLocation", fmt.Sprintf("%q", c.keyLocation.Host)))
		}
	}
	if c.keyLocation != nil {
		files = append(files, c.keyLocation.String())
	} else if len(hosts) == 0 {
		errs = append(errs, reject("hosts", "", "names no host", `at least one, such as "www.example.com"`))
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("indexnow: not verified: %s and the files after it: %w", c.mask(file), err))...)
		}
		answer, err := outbound.Get(ctx, c.http, file)
		if err == nil {
			text, hasMark := strings.CutPrefix(string(answer.Body), "\uFEFF")
			if err = c.compare(text); err == nil && hasMark {
				c.log.WarnContext(ctx, "indexnow: the key file begins with a byte order mark", "file", c.mask(file))
			}
		}
		switch {
		case err != nil && answer.Status == 0:
			errs = append(errs, fmt.Errorf("indexnow: the key file %s cannot be fetched: %w", c.mask(file), maskedError{c, err}))
		case err != nil:
			errs = append(errs, fmt.Errorf("indexnow: %s: %w: %w", c.mask(file), ErrKeyFile, maskedError{c, err}))
		}
	}
	return errors.Join(errs...)
}

// compare reports what is wrong with the contents of a key file.
func (c *Client) compare(file string) error {
	switch {
	case strings.TrimRight(file, " \t\r\n") == string(*c.key):
		return nil
	case strings.TrimSpace(file) == string(*c.key):
		return errors.New("it holds the key, but also white space before it; want the key first")
	case strings.Contains(file, string(*c.key)):
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
