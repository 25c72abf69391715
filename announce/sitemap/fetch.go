package sitemap

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ampcors/ampcors/announce"
	"github.com/ampcors/ampcors/internal/outbound"
)

const (
	maxHeaders = 64 << 10 // bytes of an answer's headers
	maxTag     = 1000     // bytes of an ETag or Last-Modified that is kept
)

var errRedirects = errors.New("it redirects ten times")

// A RedirectError is the reason why a file that redirects to another host is not read. Its text does not have the
// URL, because a server chose that, and it may be internal.
type RedirectError struct {
	To string // the URL, without a password; if it has more than 2,048 bytes, only its scheme and host
}

func (*RedirectError) Error() string {
	return "it redirects to another host, which is not allowed"
}

// newHTTPClient returns a copy of the client with the limits of this package.
func (r *Reader) newHTTPClient(client *http.Client) *http.Client {
	var c http.Client
	if client != nil {
		c = *client
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Minute
	}
	transport := c.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	if t, ok := transport.(*http.Transport); ok && t.MaxResponseHeaderBytes == 0 {
		t = t.Clone()
		t.MaxResponseHeaderBytes = maxHeaders
		c.Transport = t
	}
	c.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		switch {
		case len(via) >= 10:
			return errRedirects
		case !isSameHost(to.URL, via[0].URL) && !r.isNamed(to.URL):
			if len(to.URL.String()) > maxFileURL { // there may be many, and a server chose them
				return &RedirectError{to.URL.Scheme + "://" + to.URL.Host[:min(len(to.URL.Host), maxFileURL)]}
			}
			return &RedirectError{to.URL.Redacted()}
		}
		to.URL.User = credentials(via[0].URL, to.URL)
		return nil
	}
	return &c
}

// A fetched is the answer to a request for a file.
type fetched struct {
	body        io.ReadCloser
	mediaType   string
	at          *url.URL // after redirects
	notModified bool     // since the last time
	state       File
}

// fetch requests a file, unless it has not been modified since the last time.
func (r *Reader) fetch(ctx context.Context, file *url.URL, known File) (fetched, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.String(), nil)
	if err != nil {
		return fetched{}, err
	}
	request.Header.Set("User-Agent", "ampcors-sitemap")
	for header, value := range map[string]string{"If-None-Match": known.ETag, "If-Modified-Since": known.LastModified} {
		if value != "" {
			request.Header.Set(header, value)
		}
	}
	resp, err := r.http.Do(request)
	if err != nil {
		return fetched{}, redact(err)
	}
	f := fetched{body: safeBody{resp.Body}, at: file}
	if resp.Request != nil { // a Transport need not set it
		f.at = resp.Request.URL
	}
	switch isConditional := known.ETag+known.LastModified != ""; {
	case resp.StatusCode == http.StatusNotModified && isConditional:
		f.notModified, f.state = true, known
		return f, nil
	case resp.StatusCode == http.StatusOK:
	default:
		resp.Body.Close()
		answer := outbound.Answer{Status: resp.StatusCode, Header: resp.Header}
		return fetched{}, &announce.StatusError{Status: answer.Status, RetryAfter: answer.RetryAfter(time.Now())}
	}
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && len(mediaType) <= 100 {
		f.mediaType = strings.Clone(mediaType)
	}
	if tag := resp.Header.Get("ETag"); len(tag) <= maxTag {
		f.state.ETag = tag
	}
	if modified := resp.Header.Get("Last-Modified"); len(modified) <= maxTag {
		f.state.LastModified = modified
	}
	return f, nil
}

// open opens or requests a file, unless it has not been modified since the last time.
func (r *Reader) open(ctx context.Context, l location, known File) (fetched, error) {
	if l.local == "" {
		return r.fetch(ctx, l.at, known)
	}
	body, err := r.cfg.Open(l.local)
	return fetched{body: body}, err
}

// A redactedError is an error of net/http whose text may quote what a server sent, such as its first
// line, if that is not HTTP, or the names in its certificate.
type redactedError struct {
	text string
	err  error
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// redact returns an error of net/http without the URL, which Error has, and without what the server
// sent.
func redact(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) && wrapped.Err != nil {
		err = wrapped.Err
	}
	switch cert := (*tls.CertificateVerificationError)(nil); {
	case isOurs(err):
		return err
	case errors.As(err, &cert):
		return redactedError{"its server's certificate is not valid", err}
	}
	return redactedError{"the request failed; the reason is not shown, because it may quote the server", err}
}

// isOurs reports whether an error says nothing but what this side of the connection saw.
func isOurs(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
		end interface{ Timeout() bool }
		to  *RedirectError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &end) && end.Timeout():
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
	case errors.As(err, &to), errors.Is(err, errRedirects):
	case errors.Is(err, io.ErrUnexpectedEOF):
	default:
		return false
	}
	return true
}

// A safeBody is the body of an answer. Its errors do not quote what the server sent.
type safeBody struct{ io.ReadCloser }

func (b safeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum): // net/http decompresses what has the header
		err = errors.New("its Content-Encoding is gzip, but it is not compressed with gzip; the header is wrong")
	case err != nil && err != io.EOF:
		err = redact(err)
	}
	return n, err
}

// A limited is a reader that returns an error after some bytes. io.LimitReader would return io.EOF,
// as if the file ended there.
type limited struct {
	io.Reader
	left, limit int64
}

func limit(r io.Reader, n int64) *limited { return &limited{r, n, n} }

// consumed returns how many bytes were read.
func (l *limited) consumed() int64 { return l.limit - l.left }

func (l *limited) Read(p []byte) (int, error) {
	if l.left == 0 {
		if n, err := l.Reader.Read(p[:min(1, len(p))]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("it has more than %d bytes", l.limit)
	}
	n, err := l.Reader.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// plain returns the content of a file, decompressed if it is a file such as sitemap.xml.gz. The limit
// applies before and after decompression, because a gzip file can have any number of empty members.
func plain(body io.Reader, maxBytes int64) (*limited, error) {
	buffered := bufio.NewReader(limit(body, maxBytes))
	if magic, _ := buffered.Peek(2); string(magic) != "\x1f\x8b" {
		return limit(buffered, maxBytes), nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, err
	}
	unzipped.Multistream(false)
	return limit(&members{unzipped, buffered}, maxBytes), nil
}

// members reads the members of a gzip file, one after another (RFC 1952 section 2.2). What some servers and
// archives put behind one is ignored: zeros, as gzip itself does, and white space.
type members struct {
	*gzip.Reader
	from *bufio.Reader
}

var errBehindGzip = errors.New("it has other bytes behind the end of its gzip data")

func (m *members) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	for n == 0 && err == io.EOF {
		if err := m.next(); err != nil {
			return 0, err
		}
		n, err = m.Reader.Read(p)
	}
	if err == io.EOF {
		err = nil // of this member
	}
	return n, err
}

// next goes to the next member, or returns io.EOF.
func (m *members) next() error {
	for {
		switch b, err := m.from.ReadByte(); {
		case err != nil:
			return err
		case b == 0 || b == ' ' || b == '\t' || b == '\r' || b == '\n':
			continue
		}
		_ = m.from.UnreadByte() // follows a ReadByte
		if magic, _ := m.from.Peek(2); string(magic) != "\x1f\x8b" {
			return errBehindGzip
		}
		if err := m.Reader.Reset(m.from); err != nil {
			return err
		}
		m.Reader.Multistream(false) // which Reset has switched on
		return nil
	}
}
