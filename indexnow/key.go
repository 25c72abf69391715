package indexnow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A Key has 8 to 128 of the characters a–z, A–Z, 0–9 and hyphen. Who has it, and can
// guess where its file is, can submit the site's pages.
//
// It is masked where packages fmt, log/slog and encoding/json print it, by itself or in an
// exported field, also if that is to store it: "4f9a…". string(key) is the key itself. Of
// an unexported field of yours, fmt prints the key, as it cannot call methods there.
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
		reason = "has white space around it, as what is read from a file may"
	case strings.HasSuffix(string(k), "…"):
		reason = "is a masked key, as it is printed"
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

// Format writes of a Client no more than which key it has, masked.
func (c Client) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), "indexnow.Client with key "+c.key.String())
}

// Format masks the key, which may be in KeyLocation as well.
func (cfg Config) Format(f fmt.State, verb rune) {
	type plain Config // without this method
	cfg.KeyLocation = (&Client{key: &cfg.Key}).mask(cfg.KeyLocation)
	fmt.Fprintf(f, fmt.FormatString(f, verb), plain(cfg))
}

// mask masks the key in a text.
func (c *Client) mask(text string) string {
	key := strings.TrimSpace(string(*c.key)) // one that is refused for its white space
	if len(key) < minKey {
		return text // nor is it a key
	}
	return strings.ReplaceAll(text, key, c.key.String())
}

// maskProblem masks the key in an error on a value that may have it, such as a URL.
func (c *Client) maskProblem(problem *ampcors.ValueError) *ampcors.ValueError {
	problem.Package = "indexnow"
	problem.Value, problem.Reason, problem.Want = c.mask(problem.Value), c.mask(problem.Reason), c.mask(problem.Want)
	return problem
}

// KeyPath is the path of the key file: "/{key}.txt", or that of Config.KeyLocation. The key
// is in it, so it is not for a log.
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

// ErrKeyFile is what [Client.Verify] reports of a key file that was fetched.
var ErrKeyFile = errors.New("the key file is not as search engines need it")

// Verify fetches the key file of each host, as a search engine would, and compares it with
// the key. It wants 200 at once, without a redirect, the type text/plain, and the key with
// nothing before or behind it. An error says what is wrong with which, and is [ErrKeyFile];
// or it is that of the network, or an *[ampcors.ValueError] on a host. The hosts are asked
// one after the other, and all errors are joined.
//
// With Config.KeyLocation there is one file, and no host need be named.
func (c *Client) Verify(ctx context.Context, hosts ...string) error {
	refuse := func(path, value, reason, want string) error {
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
			errs = append(errs, refuse(at(i), host, "is not the host of KeyLocation", fmt.Sprintf("%q", c.keyLocation.Host)))
		}
	}
	if c.keyLocation != nil {
		files = append(files, c.keyLocation.String())
	} else if len(hosts) == 0 {
		errs = append(errs, refuse("hosts", "", "names no host", `at least one, such as "www.example.com"`))
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("indexnow: %s and what follows: %w", c.mask(file), err))...)
		}
		answer, err := outbound.Get(ctx, c.http, file)
		if err == nil {
			err = c.compare(string(answer.Body))
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

// compare tells what is wrong with the contents of a key file.
func (c *Client) compare(file string) error {
	switch {
	case file == string(*c.key):
		return nil
	case strings.TrimSpace(strings.TrimPrefix(file, "\uFEFF")) == string(*c.key):
		return errors.New("it holds the key, but also white space or a byte order mark; want the key and nothing else")
	case strings.Contains(file, string(*c.key)):
		return errors.New("it holds the key, but also other text; want the key and nothing else")
	}
	return fmt.Errorf("it holds %d bytes that are not the key", len(file))
}

// A maskedError is an error in which there may be the key, as in the URL of a redirect.
type maskedError struct {
	c   *Client
	err error
}

func (e maskedError) Error() string { return outbound.Shorten(e.c.mask(e.err.Error())) }

// There is no Unwrap, as that would lead to the key.
func (e maskedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e maskedError) As(target any) bool   { return errors.As(e.err, target) }
