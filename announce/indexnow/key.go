package indexnow

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

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
// such as one of KeyLocations, and an unexported field are not masked.
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
	reason, code := "", badvalue.Malformed
	switch {
	case k == "":
		reason, code = "is missing", badvalue.Missing
	case strings.TrimSpace(string(k)) != string(k):
		reason = "has white space around it, such as a line break from a file"
	case strings.HasSuffix(string(k), "…"):
		reason = "is a masked key, not the key itself"
	case strings.Trim(string(k), keyChars) != "":
		reason = "has other characters than a-z, A-Z, 0-9 and hyphen"
	case len(k) < minKey || len(k) > maxKey:
		reason, code = fmt.Sprintf("has %d characters", len(k)), badvalue.OutOfRange
	default:
		return nil
	}
	return &badvalue.Error{Code: code, Path: path, Value: k.String(), Reason: reason,
		Want: "8 to 128 of a-z, A-Z, 0-9 and hyphen"}
}

// parseLocation parses one of Config.KeyLocations.
func parseLocation(where, location string) (pageurl.URL, *badvalue.Error) {
	u, problem := pageurl.Parse(where, location, pageurl.AsRFC3986)
	if problem == nil && (u.Query != "" || u.Path == "" || strings.HasSuffix(u.Path, "/") ||
		strings.Contains(u.Path, "//")) {
		problem = pageurl.Problem(badvalue.Malformed, where, location, "is not the URL of a file",
			`one such as "https://www.example.com/catalog/indexnow.txt"`)
	}
	return u, problem
}

// keyFiles are the URLs of key files.
type keyFiles struct {
	all []pageurl.URL
	of  map[string][]pageurl.URL // by host
}

// isKeyFile reports whether the file of a key of the host is at a path.
func (c *Client) isKeyFile(path string, key Key) bool {
	if len(c.locations.all) == 0 {
		return path == "/"+string(key)+".txt"
	}
	return slices.ContainsFunc(c.locations.all, func(location pageurl.URL) bool { return location.Path == path })
}

// directory returns the beginning of all URLs that a key file covers.
func directory(location pageurl.URL) string {
	return location.Scheme + "://" + location.Host + location.Path[:strings.LastIndexByte(location.Path, '/')+1]
}

// locationOf returns the location with which a page is sent: the longest that covers it. It is "" if there are no
// locations. ok is false if no location covers the page.
func (c *Client) locationOf(page string) (location string, ok bool) {
	longest := 0
	_, rest, _ := strings.Cut(page, "://")
	host, _, _ := strings.Cut(rest, "/")
	for _, l := range c.locations.of[host] {
		path, isBelow := strings.CutPrefix(page, directory(l))
		path, _, _ = strings.Cut(path, "?")
		isRoot := strings.Count(l.Path, "/") == 1
		if isBelow && (isRoot || !hasParentSegment(path)) && len(directory(l)) > longest {
			location, longest = l.String(), len(directory(l))
		}
	}
	return location, longest > 0 || len(c.locations.all) == 0
}

// hasParentSegment reports whether a path has a segment "..". The path is canonical, so a ".." in it
// can only be an escaped one, but a server that unescapes first may read "..%2f" as such a segment.
func hasParentSegment(path string) bool {
	for range 4 { // some unescape more than once
		for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
			// Some servers cut a segment off at a ;, a space or a control character.
			if rest, isParent := strings.CutPrefix(segment, ".."); isParent && (rest == "" || !isNameByte(rest[0])) {
				return true
			}
		}
		if !utf8.ValidString(path) { // such as dots that are encoded in a way that UTF-8 does not allow
			return true
		}
		unescaped, err := url.PathUnescape(path)
		if err != nil { // a server may be more tolerant
			return strings.Contains(path, "..")
		}
		path = unescaped
	}
	return false
}

// isNameByte reports whether a byte is one of RFC 3986's unreserved characters, or a percent sign, which is decoded
// later.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~%", c) >= 0
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
func (c *Client) of(ctx context.Context, host, location string) (*Client, error) {
	if c.keysOf == nil {
		return c, nil
	}
	keys, err := c.keysOf(ctx, host, location)
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
			mayBe := mayBeKeyFile(path)
			if len(c.locations.all) > 0 {
				mayBe = c.locationAt(domain, path) != ""
			}
			if !mayBe || problem != nil {
				next.ServeHTTP(w, r)
				return
			}
			var err error
			if own, err = c.of(r.Context(), domain, c.locationAt(domain, path)); errors.Is(err, ErrNoKey) {
				next.ServeHTTP(w, r)
				return
			} else if err != nil {
				c.log.ErrorContext(r.Context(), "ampcors: indexnow: the key file cannot be served", "host", domain, "error", err)
				http.Error(w, "503 service unavailable", http.StatusServiceUnavailable)
				return
			}
		}
		for _, key := range *own.keys {
			if own.isKeyFile(path, key) {
				outbound.TextFile(path, []byte(key)).ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// locationAt returns the location with a host and a path, or "".
func (c *Client) locationAt(host, path string) string {
	for _, location := range c.locations.of[host] {
		if location.Path == path {
			return location.String()
		}
	}
	return ""
}

// mayBeKeyFile reports whether a path is that of a key file, and not such as /robots.txt: KeysOf is
// not asked about each request of a site.
func mayBeKeyFile(path string) bool {
	name, isText := strings.CutSuffix(path, ".txt")
	return isText && Key(strings.TrimPrefix(name, "/")).check("") == nil
}

// ErrKeyFile: [Client.Verify] got an answer, but not the key file that search engines need.
var ErrKeyFile = errors.New("search engines cannot use the key file")

// Verify fetches the key file of each host, as a search engine would, and compares it with the key; with
// Config.KeysOf, the files of all keys. The answer must be 200 without a redirect, with the key and nothing else
// but white space and line breaks behind it. A byte order mark, which some engines may not accept, is logged
// (Warn). Verify checks the hosts one after the other, and joins all errors. Each error is an *[badvalue.Error]
// about a host, [ErrKeyFile], or an error of KeysOf, of the network or of ctx.
//
// The file is fetched with https. For a host that serves only http, write "http://www.example.com".
//
// With Config.KeyLocations, the key files of the hosts are fetched, or all key files if hosts is empty.
func (c *Client) Verify(ctx context.Context, hosts ...string) error {
	var errs []error
	reject := func(code badvalue.Code, path, value, reason, want string) {
		errs = append(errs, &badvalue.Error{Code: code, Path: path, Value: value, Reason: reason, Want: want})
	}
	if len(hosts) == 0 {
		for _, location := range c.locations.all {
			if c.locations.of[location.Host][0] == location {
				hosts = append(hosts, location.Host)
			}
		}
	}
	if len(hosts) == 0 {
		reject(badvalue.Missing, "hosts", "", "names no host", `at least one, such as "www.example.com"`)
	}
	for i, host := range hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		name, isHTTP := strings.CutPrefix(host, "http://")
		domain, problem := domains.ParsePublisher(path, strings.TrimPrefix(name, "https://"))
		if problem != nil {
			errs = append(errs, c.maskProblem(problem))
			continue
		}
		var files []string // of the host, if there are locations
		for _, location := range c.locations.of[domain] {
			files = append(files, location.String())
		}
		if len(c.locations.all) > 0 && files == nil {
			reject(badvalue.Unknown, path, host, "is not a host of KeyLocations", fmt.Sprintf("%q", c.locations.all[0].Host))
			continue
		}
		if files == nil {
			files = []string{""} // of each key, at the root
		}
		for _, file := range files {
			own, err := c.of(ctx, domain, file)
			if err != nil {
				errs = append(errs, fmt.Errorf("indexnow: %s: %w", domain, err))
				continue
			}
			for i, key := range *own.keys {
				if err := ctx.Err(); err != nil {
					return errors.Join(append(errs, fmt.Errorf("indexnow: not verified: %s and what is after it: %w", domain, err))...)
				}
				at := file
				switch {
				case file != "" && i > 0:
					continue // a file has one key, which is the current one
				case file == "" && isHTTP:
					at = "http://" + domain + "/" + string(key) + ".txt"
				case file == "":
					at = "https://" + domain + "/" + string(key) + ".txt"
				}
				errs = append(errs, own.verify(ctx, at, key))
			}
		}
	}
	return errors.Join(errs...)
}

// verify fetches the file of one key.
func (c *Client) verify(ctx context.Context, file string, key Key) error {
	answer, err := outbound.GetAnyType(ctx, c.http, file) // the protocol names no media type
	file = c.mask(file)
	if err == nil {
		text, hasMark := strings.CutPrefix(string(answer.Body), "\uFEFF")
		if err = key.compare(text); err == nil && hasMark {
			c.log.WarnContext(ctx, "ampcors: indexnow: the key file begins with a byte order mark", "file", file)
		}
		if err != nil && answer.MediaType() != "text/plain" {
			err = fmt.Errorf("%w; its Content-Type is %.100q", err, answer.Header.Get("Content-Type"))
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
	case strings.HasPrefix(file, "\xff\xfe"), strings.HasPrefix(file, "\xfe\xff"), strings.Contains(file, "\x00"):
		return errors.New("it is UTF-16; want UTF-8, as Windows' editors save it if they are asked to")
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

// A KeySet has the keys of a JSON file: see [ParseKeys].
type KeySet struct {
	hosts     map[string][]Key // of key files at the root
	files     map[string][]Key // by location
	locations []string
	earlier   []string // locations of keys that are not the current ones
}

// Of returns the keys of a host or of a key file: it is a Config.KeysOf.
func (s *KeySet) Of(_ context.Context, host, location string) ([]Key, error) {
	if location != "" && s.files[location] != nil {
		return s.files[location], nil
	}
	return s.hosts[host], nil
}

// Locations returns the URLs of the key files if a host has some in folders, for Config.KeyLocations. Otherwise
// there are none.
func (s *KeySet) Locations() []string { return slices.Clone(s.locations) }

// ParseKeys reads the keys of each host from a JSON file: the current key is the first of a list. A host has a list
// for all its pages, or one for each folder, for option 2 of https://www.indexnow.org/documentation:
//
//	{"www.example.com": ["…"], "shop.example.com": {"/catalog/": ["…"], "/help/": ["…"]}}
//
// The key file of a folder is in it, as {key}.txt, with https. A host that is there twice, also in another
// spelling, is an error.
func ParseKeys(data []byte) (*KeySet, error) {
	errForm := errors.New(`is not a JSON object with a list of keys for each host; want {"www.example.com": ["…"]}`)
	switch {
	case bytes.HasPrefix(data, []byte("\uFEFF")):
		return nil, errors.New("begins with a byte order mark (U+FEFF), which JSON must not have; want UTF-8 without it")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, errors.New("is UTF-16; want UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errForm
	}
	s := &KeySet{hosts: make(map[string][]Key), files: make(map[string][]Key)}
	seen, hasFolders := make(map[string]bool), false
	for decoder.More() {
		name, err := decoder.Token()
		host, _ := name.(string)
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			return nil, errForm
		}
		domain, problem := domains.ParsePublisher("host", host)
		if problem != nil {
			return nil, problem
		}
		if seen[domain] {
			return nil, fmt.Errorf("%s is there twice, also in another spelling; want one list of its keys", domain)
		}
		seen[domain] = true
		var own []Key
		var folders map[string][]Key
		switch {
		case json.Unmarshal(value, &own) == nil:
			s.hosts[domain] = own
			continue
		case json.Unmarshal(value, &folders) != nil:
			return nil, errForm
		}
		hasFolders = true
		for folder, own := range folders {
			if err := s.addFile(domain, folder, own); err != nil {
				return nil, err
			}
		}
	}
	if _, err := decoder.Token(); err != nil { // the end of the object
		return nil, errForm
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errForm
	}
	if !hasFolders {
		return s, nil
	}
	for host, own := range s.hosts { // without a location, their pages would not be covered
		if err := s.addFile(host, "/", own); err != nil {
			return nil, err
		}
	}
	slices.Sort(s.locations)
	slices.Sort(s.earlier)
	s.locations = append(s.locations, s.earlier...) // of two files in one folder, the first is sent
	return s, nil
}

// addFile adds the key files of a folder.
func (s *KeySet) addFile(host, folder string, keys []Key) error {
	if !strings.HasPrefix(folder, "/") || !strings.HasSuffix(folder, "/") {
		return &badvalue.Error{Code: badvalue.Malformed, Path: host, Value: folder, Reason: "is not the path of a folder",
			Want: `one such as "/catalog/"`}
	}
	if len(keys) == 0 {
		return &badvalue.Error{Code: badvalue.Missing, Path: host, Value: folder, Reason: "has no key", Want: "at least one"}
	}
	for i, key := range keys {
		if err := key.check(host + " " + folder); err != nil {
			return err
		}
		location, problem := parseLocation(host, "https://"+host+folder+string(key)+".txt")
		if problem != nil {
			problem.Value = folder // the location has the key
			return problem
		}
		switch at := location.String(); {
		case s.files[at] != nil: // the same key twice
		case i == 0:
			s.files[at], s.locations = keys, append(s.locations, at)
		default: // an engine may still fetch the file of a key that was sent before
			s.files[at], s.earlier = []Key{key}, append(s.earlier, at)
		}
	}
	return nil
}
