// Package outbound has what the packages that send requests share: a client, answers that are
// read up to a limit, and a handler that serves a key file.
package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/ampcors/ampcors/announce"
)

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
	Body    []byte // its first 64 KiB
	BodyErr error  // why it was not read to its end; io.ErrShortBuffer if it is longer
}

// Do sends the request. It returns the error of the network or the context without the URL,
// which may hold a secret.
func Do(client *http.Client, r *http.Request) (Answer, error) {
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "ampcors")
	}
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
	a.Body, a.BodyErr = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if len(a.Body) > maxBody {
		a.Body, a.BodyErr = a.Body[:maxBody], io.ErrShortBuffer
	}
	return a, nil
}

// A ShortError shortens the text of an error, which a server may make as long as it wants.
type ShortError struct{ Err error }

func (e ShortError) Error() string { return Shorten(e.Err.Error()) }
func (e ShortError) Unwrap() error { return e.Err }

// RetryAfter returns the time that the answer asks to wait, or 0.
func (a Answer) RetryAfter(now time.Time) time.Duration { return announce.RetryAfter(a.Header, now) }

// Truncated reports whether the body ended too early.
func (a Answer) Truncated() bool {
	return a.BodyErr != nil && !errors.Is(a.BodyErr, io.ErrShortBuffer)
}

// Retryable reports whether the status says that the same request may succeed later.
func (a Answer) Retryable() bool { return announce.Retryable(a.Status) }

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
		err = fmt.Errorf("the Content-Type is %.100q; want text/plain, which AMP's document about update-cache asks for",
			a.Header.Get("Content-Type"))
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
		return a, fmt.Errorf("the answer is %d, a redirect to %q; want 200 and the key itself", a.Status,
			a.Header.Get("Location"))
	case a.Status != http.StatusOK:
		return a, &announce.StatusError{Status: a.Status, RetryAfter: a.RetryAfter(time.Now())}
	case errors.Is(a.BodyErr, io.ErrShortBuffer):
		return a, fmt.Errorf("the answer is longer than %d bytes; want the key and nothing else", maxBody)
	case a.BodyErr != nil:
		return a, fmt.Errorf("the answer is truncated: %w", a.BodyErr)
	}
	return a, nil
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
