package indexnow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

const maxURLs = 10_000 // in one request, by the protocol

// The errors that an [Error] can wrap. Test for them with errors.Is.
var (
	// ErrMalformed: 400. The engine does not understand the request.
	ErrMalformed = errors.New("the engine finds the request malformed")
	// ErrKeyPending: 403 with SiteVerificationNotCompleted. The engine has not fetched the
	// key file yet; the same URLs can be submitted again in some minutes.
	ErrKeyPending = errors.New("the engine has not verified the key yet")
	// ErrKeyNotFound: 403 with KeyNotFound. The key file is missing or holds another key;
	// see [Client.Verify].
	ErrKeyNotFound = errors.New("the engine does not find the key on the site")
	// ErrRotateKey: 403 with UserForbiddedToAccessSite (the engine's spelling). Sites got it for a key file that was
	// missing or wrong, for a key that several hosts share, for a check that failed earlier, and for a site that the
	// engine had not verified. Check the key file first, with [Client.Verify]. If it is right, make another key.
	ErrRotateKey = errors.New("the engine does not accept this key for the site: verify the key file first, and if it " +
		"is right, make another key")
	// ErrForbidden: 403 with any other code, or a complete answer without one.
	ErrForbidden = errors.New("the engine rejects the key")
	// ErrTooLarge: 413. The request has too many URLs, or too long ones.
	ErrTooLarge = errors.New("the engine finds the request too large")
	// ErrUnprocessable: 422. A URL belongs to another host, or the key is malformed.
	ErrUnprocessable = errors.New("the engine finds a URL of another host, or a malformed key")
	// ErrRateLimited: 429.
	ErrRateLimited = errors.New("the engine says that there are too many requests")
	// ErrServer: 500 and above, or 408, 421 or 425.
	ErrServer = errors.New("the engine has a problem")
	// ErrUnexpected: any other answer, such as a redirect.
	ErrUnexpected = errors.New("the engine's answer is not defined by IndexNow")
	// ErrAllRejected: 400, 413 or 422 for everything of one host and key file that was sent in this call.
	// The cause may be the key or the request, and no page is given up. Check the key first, with
	// [Client.Verify]. Somebody has to act, so it is not Retryable.
	ErrAllRejected = errors.New("the engine rejects all that was sent of this host, so the cause may be the key (verify " +
		"it first), and not a page")
	// ErrNotSent: the batch was not sent, because an earlier one failed, or too many were rejected.
	ErrNotSent = errors.New("not sent, after an earlier failure")
	// ErrSearchLimit, an ErrNotSent: the search for rejected pages ended, after 64 rejected requests or, in a Queue,
	// after a page sent alone failed. Submit the same URLs again soon: each call makes progress.
	ErrSearchLimit = fmt.Errorf("%w: %d requests of this call were rejected; the next call goes on", ErrNotSent,
		maxRejected)
)

// An Error is the reason why a batch was not accepted.
type Error struct {
	Host       string        // the host of the URLs; of a batch that was not sent, the host whose request failed
	URL        string        // the page that the engine rejects, if it was found; the key in it is masked
	Err        error         // one of the errors above, or an error of KeysOf, the network or the context
	Status     int           // of the engine's answer, or 0
	Code       string        // the errorCode in it, if there is one
	Message    string        // its message, on one line of at most 300 bytes
	RetryAfter time.Duration // its Retry-After, or 0
}

func (e *Error) Error() string {
	s := fmt.Sprintf("indexnow: %s: %v", cmp.Or(e.URL, e.Host), e.Err)
	if e.Status != 0 {
		s += fmt.Sprintf(" (status %d", e.Status)
		for _, text := range []string{e.Code, e.Message} {
			if text != "" {
				s += fmt.Sprintf(" %q", text)
			}
		}
		s += ")"
	}
	if e.RetryAfter > 0 {
		s += fmt.Sprintf("; try again after %v", e.RetryAfter.Round(time.Second))
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the engine may accept the same batch later without any change. If not, somebody has to act.
func (e *Error) Retryable() bool {
	for _, final := range []error{ErrNoKey, ErrMalformed, ErrTooLarge, ErrKeyNotFound, ErrRotateKey, ErrForbidden,
		ErrUnprocessable, ErrUnexpected} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return true
}

// IsFinal reports whether a program that keeps URLs should give up the URLs of the batch. It is false
// for ErrAllRejected: the URLs may be right, so the program should send them again, in long intervals.
func (e *Error) IsFinal() bool { return !e.Retryable() && !errors.Is(e.Err, ErrAllRejected) }

// OfHost reports whether the failure has a cause that concerns the whole host, such as its key, and not
// the engine: other hosts may work.
func (e *Error) OfHost() bool {
	return e.kind() == ofKey || slices.ContainsFunc(
		[]error{ErrAllRejected, ErrKeyPending, ErrKeyNotFound, ErrRotateKey, ErrForbidden},
		func(of error) bool { return errors.Is(e.Err, of) })
}

// A kind is what a failure is about, and so what may still be sent.
type kind int

const (
	unexpected kind = iota // nothing follows for other requests
	ofEngine               // nothing more is sent
	ofKey                  // of the host: nothing more is sent with this key
	ofContent              // the engine may accept a part of the same URLs
)

// kind returns what the failure is about.
func (e *Error) kind() kind {
	switch {
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge,
		e.Status == http.StatusUnprocessableEntity:
		return ofContent
	case e.Status == http.StatusForbidden, errors.As(e.Err, new(keysError)):
		return ofKey
	case e.Retryable():
		return ofEngine
	}
	return unexpected
}

// A Batch has at most 10,000 URLs of one host with the same result: the URLs of one request that was
// accepted or failed, one page that the engine rejects, or URLs that were not sent.
type Batch struct {
	Host    string
	URLs    []string // escaped, as they are sent
	Pending bool     // accepted with 202: the engine has the URLs, and uses them once it has verified the key
	// Err is nil if it was accepted, otherwise an *[Error]. The protocol names only 200 and 202; each other status
	// from 200 to 299 means accepted, whatever the body is: an engine that does not want URLs says so with 300 or
	// more, and over https nobody else can answer in its place.
	Err error
}

// A Report is the result of one [Client.Submit].
type Report struct {
	Batches []Batch
	// Rejected are the URLs that were not sent, because they are not URLs of web pages
	// or because the key file does not cover them.
	Rejected []Rejected
}

// A Rejected is an argument of [Client.Submit] that was not sent.
type Rejected struct {
	Index int // in the arguments
	Err   *badvalue.Error
}

// Submit submits the URLs of pages that are new, have changed or are gone. It groups them by host into requests of
// up to 10,000 URLs. The very first request is sent alone. Then come the first requests of the other hosts, at most
// Config.AtOnce at one time, and at last all other requests, one after the other. The report has the batches in the
// order of their first URLs; the parts of a rejected request come after them. A URL that is given twice is sent
// once. URLs are escaped as RFC 3986 requires, with hosts in A-labels and without fragments.
//
// If the engine rejects a request with 400, 413 or 422, it accepts none of its URLs, and does not say which one is
// the cause. Then Submit sends halves of the request, until it has found the page. A call stops its search after 64
// rejected requests. The first requests of other hosts do not count. URLs that are left have [ErrNotSent] in the
// report: call Submit again with them. But if a page was rejected when it was sent alone, and no page of its host was
// accepted, the URLs of this host that are left have [ErrAllRejected]. After a 413, requests have half as many URLs
// as the rejected one, but at least as many as the largest accepted one. Error.URL names a page only if another one
// of its host was accepted; otherwise the error is [ErrAllRejected].
//
// The report has the result of each URL. The error is nil if all URLs were accepted, and
// otherwise joins the first ten errors of the report. After a failure that would happen again, the
// remaining requests are not sent, and are in the report with [ErrNotSent]: those to the
// same host after a 403, and all of them after no answer, [ErrRateLimited] or [ErrServer].
func (c *Client) Submit(ctx context.Context, urls ...string) (Report, error) {
	report, batches := c.group(urls)
	report.Batches = c.deliver(ctx, batches, false)
	notSent := 0
	for _, b := range report.Batches {
		if errors.Is(b.Err, ErrNotSent) {
			notSent += len(b.URLs)
		}
	}
	if notSent > 0 {
		c.log.WarnContext(ctx, "ampcors: indexnow: not sent, after a failure", "urls", notSent)
	}
	return report, report.err()
}

// group returns the batches of URLs, by host and location of the key, and a Report of those that are rejected.
func (c *Client) group(urls []string) (report Report, batches []*Batch) {
	open := make(map[string]*Batch, 1) // the last batch of each host and location
	seen := make(map[string]bool, len(urls))
	for i, u := range urls {
		page, problem := c.page(fmt.Sprintf("urls[%d]", i), u)
		if problem != nil {
			report.Rejected = append(report.Rejected, Rejected{i, problem})
			continue
		}
		canonical := page.String()
		if seen[canonical] {
			continue
		}
		seen[canonical] = true
		key := c.groupOf(&Batch{Host: page.Host, URLs: []string{canonical}})
		b := open[key]
		if b == nil || len(b.URLs) == maxURLs {
			b = &Batch{Host: page.Host}
			open[key] = b
			batches = append(batches, b)
		}
		b.URLs = append(b.URLs, canonical)
	}
	return report, batches
}

// maxListed bounds the errors that are joined into one.
const maxListed = 10

func (r Report) err() error {
	var errs []error
	for _, b := range r.Batches {
		if b.Err != nil {
			errs = append(errs, b.Err)
		}
	}
	for _, rejected := range r.Rejected {
		errs = append(errs, rejected.Err)
	}
	if more := len(errs) - maxListed; more > 0 {
		errs = append(errs[:maxListed], fmt.Errorf("indexnow: and %d more errors, see the report", more))
	}
	return errors.Join(errs...)
}

// Canonical returns a URL in the form in which Submit sends it, and its host, or the
// *[badvalue.Error] with which Submit would reject it. A program that keeps its own list of
// URLs can compare them in this form.
func (c *Client) Canonical(url string) (canonical, host string, err error) {
	page, problem := c.page("url", url)
	if problem != nil {
		return "", "", problem
	}
	return page.String(), page.Host, nil
}

// Group returns a URL as [Client.Canonical] does, and its group: URLs of one host with the same key
// file. A request has URLs of one group, and what an engine says of the key holds for all of them. A
// group is the host, and the URL of the key file if it is not at its usual place.
func (c *Client) Group(url string) (canonical, group string, err error) {
	page, problem := c.page("url", url)
	if problem != nil {
		return "", "", problem
	}
	return page.String(), c.groupOf(&Batch{Host: page.Host, URLs: []string{page.String()}}), nil
}

// page parses a URL and checks that the key file covers it. path is the Path of the error.
func (c *Client) page(path, u string) (pageurl.URL, *badvalue.Error) {
	page, problem := pageurl.Parse(path, u, pageurl.AsRFC3986)
	if problem != nil {
		return page, c.maskProblem(problem)
	}
	if page.Path == "" {
		page.Path = "/" // RFC 3986 section 6.2.3
	}
	canonical := page.String()
	if n := len(canonical); n > pageurl.MaxBytes {
		return page, c.maskProblem(pageurl.Problem(badvalue.OutOfRange, path, u, fmt.Sprintf("has %d bytes, escaped", n),
			fmt.Sprintf("at most %d", pageurl.MaxBytes)))
	}
	if _, ok := c.locationOf(canonical); !ok {
		own := c.locations.of[page.Host]
		for _, location := range own {
			if strings.HasPrefix(canonical, directory(location)) { // and so its path is the reason
				return page, c.maskProblem(pageurl.Problem(badvalue.NotCovered, path, u,
					`has a segment "..", so that it may be outside of the key file's folder`, "a path without it"))
			}
		}
		if own == nil {
			own = c.locations.all
		}
		var folders []string
		for _, location := range own {
			if folder := strconv.Quote(directory(location)); len(folders) < maxListed && !slices.Contains(folders, folder) {
				folders = append(folders, folder)
			}
		}
		return page, c.maskProblem(pageurl.Problem(badvalue.NotCovered, path, u,
			"is not covered by the key file, which is for its own folder",
			"a page below "+strings.Join(folders, " or ")))
	}
	return page, nil
}

// A Request is a POST that [Client.Submit] sends.
type Request struct {
	URL  string // of the service
	Body []byte // JSON, with the key
	GET  string // if the body has one URL, the URL of the GET that does the same, with the key
}

// Masked returns the body with the key masked.
func (r Request) Masked() []byte {
	var p payload
	_ = json.Unmarshal(r.Body, &p)                                              // Requests has made it
	return bytes.ReplaceAll(r.Body, []byte(p.Key), []byte(Key(p.Key).String())) // it may also be in URLs
}

// Requests returns the requests that [Client.Submit] would send if the engine accepted each, for a
// program that shows them or sends them itself. It sends nothing. The error joins at most ten errors,
// of URLs that Submit would reject and of hosts without a key.
func (c *Client) Requests(ctx context.Context, urls ...string) (requests []Request, err error) {
	report, batches := c.group(urls)
	for _, b := range batches {
		location, _ := c.locationOf(b.URLs[0])
		own, err := c.of(ctx, b.Host, location)
		if err != nil {
			b.Err = &Error{Host: b.Host, Err: err}
			report.Batches = append(report.Batches, *b)
			continue
		}
		requests = append(requests, Request{c.endpoint, own.body(b), own.get(b)})
	}
	return requests, report.err()
}

// A payload is the body of a request.
type payload struct {
	Host        string   `json:"host"`
	Key         string   `json:"key"`
	KeyLocation string   `json:"keyLocation,omitempty"`
	URLList     []string `json:"urlList"`
}

// body returns the body of the request that submits a batch.
func (c *Client) body(b *Batch) []byte {
	p := payload{Host: b.Host, Key: string((*c.keys)[0]), URLList: b.URLs}
	p.KeyLocation, _ = c.locationOf(b.URLs[0]) // that of all
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // keeps an & in a URL
	_ = encoder.Encode(p)        // strings can be encoded
	return bytes.TrimSuffix(body.Bytes(), []byte("\n"))
}

// get returns the URL of the GET that submits the one URL of a batch, by https://www.indexnow.org/documentation, or "".
func (c *Client) get(b *Batch) string {
	if len(b.URLs) != 1 {
		return ""
	}
	query := url.Values{"url": b.URLs, "key": {string((*c.keys)[0])}}
	if location, _ := c.locationOf(b.URLs[0]); location != "" {
		query.Set("keyLocation", location)
	}
	return c.endpoint + "?" + query.Encode()
}

func (c *Client) post(ctx context.Context, b *Batch) *Error {
	fail := func(err error) *Error { return &Error{Host: b.Host, Err: maskedError{c, err}} }
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(c.body(b)))
	if err != nil {
		return fail(err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", c.userAgent)
	answer, err := outbound.Do(c.http, r)
	if err != nil {
		return fail(err)
	}
	if answer.Status >= 200 && answer.Status < 300 {
		b.Pending = answer.Status == http.StatusAccepted
		return nil
	}
	problem := &Error{Host: b.Host, Status: answer.Status, RetryAfter: answer.RetryAfter(time.Now())}
	var said struct{ ErrorCode, Message any } // strings, if the engine follows the protocol
	_ = json.Unmarshal(bytes.TrimPrefix(answer.Body, []byte("\uFEFF")), &said)
	code, _ := said.ErrorCode.(string)
	message, _ := said.Message.(string)
	if message == "" && code == "" {
		message = answer.Text()
	}
	problem.Code, problem.Message = outbound.Shorten(c.mask(code)), outbound.Shorten(c.mask(message))
	switch {
	case answer.Status == http.StatusBadRequest:
		problem.Err = ErrMalformed
	case answer.Status == http.StatusForbidden && code == "" && answer.Truncated():
		problem.Err = fmt.Errorf("the answer is truncated: %w", answer.BodyErr) // before its code
	case answer.Status == http.StatusForbidden:
		problem.Err = forbidden(code)
	case answer.Status == http.StatusRequestEntityTooLarge:
		problem.Err = ErrTooLarge
	case answer.Status == http.StatusUnprocessableEntity:
		problem.Err = ErrUnprocessable
	case answer.Status == http.StatusTooManyRequests:
		problem.Err = ErrRateLimited
	case answer.Retryable():
		problem.Err = ErrServer
	default:
		problem.Err = ErrUnexpected
	}
	return problem
}

// forbidden returns the error that a 403 means.
func forbidden(code string) error {
	switch strings.ToLower(code) {
	case "siteverificationnotcompleted":
		return ErrKeyPending
	case "keynotfound":
		return ErrKeyNotFound
	case "userforbiddedtoaccesssite", "userforbiddentoaccesssite": // the engine's spelling, and the right one
		return ErrRotateKey
	}
	return ErrForbidden
}
