// Package outbound is shared by the packages that send requests: it reads answers up to a
// limit, waits, and retries.
package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/ampcors/ampcors/badvalue"
)

// Clock tells the time and waits. Tests use their own.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time // as time.After
}

// SystemClock is the Clock of package time.
type SystemClock struct{}

func (SystemClock) Now() time.Time                         { return time.Now() }
func (SystemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// timeout bounds a request, answer included, of a client that has no timeout.
const timeout = 30 * time.Second

// Client returns a copy of the client, or a new one if it is nil, with a timeout and
// without redirects: following one turns a POST into a GET, and key files must not be
// redirected.
func Client(client *http.Client) *http.Client {
	var c http.Client
	if client != nil {
		c = *client
	}
	if c.Timeout <= 0 {
		c.Timeout = timeout
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// maxBody bounds what is read of an answer. Engines send a few hundred bytes.
const maxBody = 64 << 10

// An Answer is what a server answered.
type Answer struct {
	Status  int
	Header  http.Header
	Body    []byte // its first 64 KiB, or as many bytes as DoLimit reads
	BodyErr error  // why it was not read to its end; io.ErrShortBuffer if it is longer
}

// Do sends the request. It returns the error of the network or the context without the URL,
// which may hold a secret.
func Do(client *http.Client, r *http.Request) (Answer, error) { return DoLimit(client, r, maxBody) }

// DoLimit is Do, but reads up to limit bytes of the body.
func DoLimit(client *http.Client, r *http.Request, limit int) (Answer, error) {
	resp, err := client.Do(r)
	for wrapped := (*url.Error)(nil); errors.As(err, &wrapped) && wrapped.Err != nil; {
		err = wrapped.Err
	}
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	if a.Status == http.StatusSwitchingProtocols {
		return a, nil // the body is the open connection, which no timeout ends
	}
	a.Body, a.BodyErr = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if len(a.Body) > limit {
		a.Body, a.BodyErr = a.Body[:limit], io.ErrShortBuffer
	}
	return a, nil
}

// A ShortError shortens the text of an error, which a server may make as long as it wants.
type ShortError struct{ Err error }

func (e ShortError) Error() string { return Shorten(e.Err.Error()) }
func (e ShortError) Unwrap() error { return e.Err }

// maxRetryAfter bounds a Retry-After. Longer ones are garbage, such as seconds since 1970.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns the time that the answer asks to wait: its Retry-After in seconds or
// as a date (RFC 9110 section 10.2.3), or 0.
func (a Answer) RetryAfter(now time.Time) time.Duration {
	value := strings.TrimSpace(a.Header.Get("Retry-After"))
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		wait = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// Truncated reports whether the body ended too early.
func (a Answer) Truncated() bool {
	return a.BodyErr != nil && !errors.Is(a.BodyErr, io.ErrShortBuffer)
}

// Retryable reports whether the status, other than 429, says that the same request may
// succeed later.
func (a Answer) Retryable() bool {
	switch a.Status {
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly:
		return true
	}
	return a.Status >= 500
}

// MediaType returns the answer's media type, without parameters and in lower case.
func (a Answer) MediaType() string {
	mediaType, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// Text returns the text of the answer's body on one line, without the markup if it is HTML.
func (a Answer) Text() string {
	var text strings.Builder
	hidden := "" // the element whose text is not shown
	for tokens := html.NewTokenizer(bytes.NewReader(a.Body)); tokens.Next() != html.ErrorToken; {
		switch token := tokens.Token(); token.Type {
		case html.TextToken:
			if hidden == "" {
				text.WriteString(token.Data)
			}
		case html.StartTagToken:
			if token.Data == "style" || token.Data == "script" || token.Data == "title" {
				hidden = token.Data
			}
			text.WriteByte(' ')
		case html.EndTagToken:
			if token.Data == hidden {
				hidden = ""
			}
			text.WriteByte(' ')
		default:
			text.WriteByte(' ')
		}
	}
	return oneLine(text.String())
}

func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

// Shorten shortens a text for an error, to one line of at most 300 bytes.
func Shorten(text string) string {
	const most = 300
	if text = oneLine(text); len(text) <= most {
		return text
	}
	for text = text[:most-len("…")]; !utf8.ValidString(text); {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// Get fetches a publisher's key file, as a cache or a search engine does. It returns an
// error unless the answer is 200, complete and plain text. If there was no answer, Status
// is 0.
func Get(ctx context.Context, client *http.Client, url string) (Answer, error) {
	a, err := GetAnyType(ctx, client, url)
	if err == nil && a.MediaType() != "text/plain" {
		err = fmt.Errorf("the Content-Type is %.100q; want text/plain", a.Header.Get("Content-Type"))
	}
	return a, err
}

// GetAnyType does the same for a file of any media type.
func GetAnyType(ctx context.Context, client *http.Client, url string) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	a, err := Do(client, r)
	switch {
	case err != nil:
		return a, err
	case a.Status >= 300 && a.Status < 400:
		return a, fmt.Errorf("the answer is %d, a redirect to %q; want 200 and the key itself", a.Status, a.Header.Get("Location"))
	case a.Status != http.StatusOK:
		return a, fmt.Errorf("the answer is %d; want 200", a.Status)
	case errors.Is(a.BodyErr, io.ErrShortBuffer):
		return a, fmt.Errorf("the answer is longer than %d bytes; want the key and nothing else", maxBody)
	case a.BodyErr != nil:
		return a, fmt.Errorf("the answer is truncated: %w", a.BodyErr)
	}
	return a, nil
}

// A Retry limits how often and when a request is retried.
type Retry struct {
	Attempts int           // in total; 0 and 1 mean a single one
	Backoff  time.Duration // the wait before the second; it doubles before each further one. If zero, 1 second is used.
	MaxWait  time.Duration // the longest wait. If zero, 1 minute is used.
}

// Check returns what is wrong, and sets the defaults.
func (r *Retry) Check() (problems []error) {
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{{"Backoff", &r.Backoff, time.Second}, {"MaxWait", &r.MaxWait, time.Minute}} {
		if *d.value < 0 || *d.value > maxRetryAfter {
			problems = append(problems, &badvalue.Error{Path: d.field, Value: d.value.String(),
				Reason: "is not from 0 to " + maxRetryAfter.String(), Want: "0 for the default, " + d.def.String() + ", or more"})
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if r.Attempts < 0 || r.Attempts > 100 {
		problems = append(problems, &badvalue.Error{Path: "Attempts", Value: strconv.Itoa(r.Attempts), Reason: "is not from 0 to 100",
			Want: "0 or 1 for a single attempt, or more"})
	}
	return problems
}

// Wait returns how long to wait after this many failures in a row: Backoff, doubled with
// each failure up to longest, and reduced at random by up to half, so that clients do not
// retry all at once.
func (r Retry) Wait(failures int, longest time.Duration) time.Duration {
	wait := r.Backoff
	for i := 1; i < failures && wait < longest; i++ {
		wait *= 2
	}
	wait = min(wait, longest)
	return wait/2 + rand.N(wait/2+1)
}

// Again waits before the attempt after the given one, which counts from 1, and reports
// whether to make it. It returns false without waiting if the context would end before, or
// if the server asks for a longer wait than MaxWait.
func (r Retry) Again(ctx context.Context, clock Clock, attempt int, retryAfter time.Duration) bool {
	if attempt >= r.Attempts {
		return false
	}
	wait := r.Wait(attempt, r.MaxWait)
	if retryAfter > 0 {
		if retryAfter > r.MaxWait {
			return false
		}
		wait += retryAfter
	}
	return Wait(ctx, clock, wait) == nil
}

// Wait waits for d. It returns the context's error, at once if the context would end
// earlier.
func Wait(ctx context.Context, clock Clock, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-clock.After(d):
		return nil
	}
}

// TextFile serves a text at one path, and 404 elsewhere.
func TextFile(path string, text []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != path {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(text)))
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			_, _ = w.Write(text) // if it fails, the client is gone
		}
	})
}
