package probe

import (
	"bufio"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/time/rate"

	"github.com/ampcors/ampcors/cacheurl"
)

const (
	maxHeader    = 64 << 10 // bytes of an answer's header
	maxRedirects = 20       // as browsers do, by "HTTP-redirect fetch" of the Fetch standard
	userAgent    = "ampcors-probe (+https://github.com/ampcors/ampcors)"

	// browserAgent is sent by default, because some backends treat browsers differently. phoneAgent and
	// iPhoneAgent are sent in one trial each, because some treat phones differently.
	browserAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
	phoneAgent   = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile " +
		"Safari/537.36"
	iPhoneAgent = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/18.6 Mobile/15E148 Safari/604.1"
)

var errMaxTime = errors.New("the time limit of the probe is reached")

// A client sends the requests of a probe, within its limits.
type client struct {
	http     *http.Transport
	limiter  *rate.Limiter
	timeout  time.Duration
	header   http.Header // of each request
	cookie   string      // of requests with credentials
	allowed  map[string]bool
	hostFlag string          // that allows another host
	maxBody  int64           // of an answer
	secrets  *regexp.Regexp  // nil if there are none
	trusted  map[string]bool // origins to which header and cookie are sent
	got      sync.Map        // the part of trusted that got them
	sent     atomic.Int64    // requests
	begun    time.Time
	limit    atomic.Pointer[string] // a note on the first answer that limits requests
}

func newClient(cfg Config) *client {
	dialer := &net.Dialer{Timeout: cfg.Timeout}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		MaxResponseHeaderBytes: maxHeader,
		TLSHandshakeTimeout:    cfg.Timeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: cfg.Insecure},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if to, ok := cfg.Resolve[addr]; ok {
				addr = to
			}
			return dialer.DialContext(ctx, network, addr)
		},
	}
	limit := rate.Inf
	if cfg.Rate > 0 && !math.IsInf(cfg.Rate, 1) {
		limit = rate.Limit(cfg.Rate)
	}
	allowed := make(map[string]bool)
	for _, host := range cfg.OnlyHosts {
		for _, scheme := range []string{"https", "http"} {
			allowed[cacheurl.CanonicalHost(&url.URL{Scheme: scheme, Host: host})] = true
		}
	}
	hostFlag := "--allow-host"
	if cfg.OnlyHosts != nil {
		hostFlag = "--only-host"
	}
	return &client{
		hostFlag: hostFlag,
		http:     transport,
		limiter:  rate.NewLimiter(limit, 1),
		timeout:  cfg.Timeout,
		header:   cfg.Header,
		cookie:   cfg.Cookie,
		maxBody:  cmp.Or(cfg.MaxAnswer, 1<<20),
		allowed:  allowed,
		trusted:  make(map[string]bool),
		secrets:  secretsOf(cfg),
		begun:    time.Now(),
	}
}

// gotSecrets returns the origins to which header or cookie were sent.
func (c *client) gotSecrets() (origins []string) {
	c.got.Range(func(origin, _ any) bool {
		origins = append(origins, origin.(string))
		return true
	})
	slices.Sort(origins)
	return origins
}

// A request is a request that a page makes the browser send.
type request struct {
	method      string
	url         string
	origin      string // "" for none
	header      http.Header
	body        string
	credentials bool
	navigates   bool // a form sends it, and not a script
	isProxied   bool // a mail client sends it, and not a browser
	isReady     bool // it has waited for the limit of requests
}

// A response is an answer that was read.
type response struct {
	Status int
	Header http.Header
	Body   []byte
}

// send sends a request and reads the answer, but follows no redirect.
func (c *client) send(ctx context.Context, req request) (*response, error) {
	u, err := url.Parse(req.url)
	if err != nil {
		return nil, err
	}
	if host := cacheurl.CanonicalHost(u); !c.allowed[host] {
		for other := range c.allowed {
			if (&url.URL{Host: other}).Hostname() != u.Hostname() {
				continue
			}
			if u.Port() == "" {
				return nil, fmt.Errorf("the backend leads to %s://%s: use that URL in the document or with --endpoint, or %s %[2]s",
					u.Scheme, u.Host, c.hostFlag)
			}
			return nil, fmt.Errorf("the backend leads to %s, another port of its host, at which another program may listen, "+
				"and the probe does not call it: use %s %[1]s if readers reach it there. "+
				"Often the proxy in front does not pass on the Host or the port that readers use", u.Host, c.hostFlag)
		}
		return nil, fmt.Errorf("the probe is not allowed to call the host %s: use %s %s", u.Host, c.hostFlag, u.Host)
	}
	if !req.isReady && c.limiter.Wait(ctx) != nil {
		return nil, errMaxTime
	}
	c.sent.Add(1)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var body io.Reader
	if req.body != "" {
		body = strings.NewReader(req.body)
	}
	r, err := http.NewRequestWithContext(ctx, req.method, req.url, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", browserAgent)
	if !req.isProxied { // as Chromium does, but for zstd, which few servers have
		r.Header.Set("Accept-Language", "en-US,en;q=0.9")
		r.Header.Set("Accept-Encoding", "gzip, deflate")
		if u.Scheme == "https" {
			r.Header.Set("Accept-Encoding", "gzip, deflate, br")
		}
	}
	isTrusted, gets := c.trusted[originOf(u)], false
	isPreflight := req.method == http.MethodOptions && req.header.Get("Access-Control-Request-Method") != ""
	for key, values := range c.header {
		// Browsers send no credentials with a preflight.
		if isTrusted && !(isPreflight && (key == "Authorization" || key == "Cookie")) {
			r.Header[key], gets = slices.Clone(values), true
			if key == "Host" {
				r.Host = values[0]
			}
		}
	}
	for key, values := range req.header {
		r.Header[key] = slices.Clone(values)
	}
	isRead := req.method == http.MethodGet || req.method == http.MethodHead
	if req.origin != "" && !(isRead && originOf(u) == req.origin) { // browsers send none within an origin
		r.Header.Set("Origin", req.origin)
	}
	if _, isOlder := req.header["Sec-Fetch-Site"]; req.origin != "" && !req.isProxied && !isOlder {
		mode, dest := "cors", "empty"
		if req.navigates {
			mode, dest = "navigate", "document"
		}
		r.Header.Set("Sec-Fetch-Site", fetchSite(req.origin, u))
		r.Header.Set("Sec-Fetch-Mode", cmp.Or(req.header.Get("Sec-Fetch-Mode"), mode))
		r.Header.Set("Sec-Fetch-Dest", dest)
	}
	if req.credentials && isTrusted && c.cookie != "" {
		r.Header.Set("Cookie", c.cookie)
		gets = true
	}
	resp, err := c.http.RoundTrip(r) // follows no redirect
	if gets && err == nil {
		c.got.Store(originOf(u), true)
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the server closed the connection without an answer")
	} else if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	c.noteLimit(u, resp)
	if resp.StatusCode == http.StatusSwitchingProtocols { // the body is the open connection, which no timeout ends
		return nil, errors.New("the answer is 101 Switching Protocols, which the request did not ask for")
	}
	decoded := io.Reader(resp.Body)
	if !isPreflight { // whose body nobody reads
		if decoded, err = decode(resp); err != nil {
			return nil, err
		}
	}
	read, err := io.ReadAll(io.LimitReader(decoded, c.maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer is truncated, or cannot be decoded by its Content-Encoding: %w", err)
	case int64(len(read)) > c.maxBody:
		return nil, fmt.Errorf("the answer is longer than %d bytes: use a larger --max-answer (MiB)", c.maxBody)
	}
	return &response{resp.StatusCode, resp.Header, read}, nil
}

// decode returns the body without its content coding (RFC 9110 section 8.4.1). Several codings are an error: nobody
// needs them, and a small body could then be gigabytes between two.
func decode(resp *http.Response) (io.Reader, error) {
	body := bufio.NewReader(resp.Body)
	start, _ := body.Peek(2)
	if len(start) == 0 {
		return body, nil // the answer to HEAD, or a 304
	}
	var decoded io.Reader
	var err error
	switch coding := strings.ToLower(strings.Join(resp.Header["Content-Encoding"], ",")); coding {
	case "gzip", "x-gzip":
		var unzipped *gzip.Reader
		if unzipped, err = gzip.NewReader(body); err == nil {
			unzipped.Multistream(false) // browsers ignore what follows
			decoded = unzipped
		}
	case "deflate": // browsers also take what some servers send: without the header and checksum of zlib
		if len(start) == 2 && start[0]&0xf == 8 && (int(start[0])<<8|int(start[1]))%31 == 0 {
			decoded, err = zlib.NewReader(body)
		} else {
			decoded = flate.NewReader(body)
		}
	case "br":
		decoded = brotli.NewReader(body)
	default:
		if coding == "zstd" || strings.Contains(coding, ",") {
			return nil, fmt.Errorf("the answer has Content-Encoding: %.40q, which the request did not ask for", coding)
		}
		return body, nil // browsers ignore what they do not know
	}
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be decoded by its Content-Encoding: %w", err)
	}
	return decoded, nil
}

// parseURL parses a URL by the URL standard, https://url.spec.whatwg.org/, as far as documents need it: the host
// becomes lower case and punycode, \ in front of the query means /, and what is not ASCII is percent-encoded. base
// is nil, or what the URL is relative to. The fragment is removed, which browsers do not send.
func parseURL(base *url.URL, value string) (*url.URL, error) {
	value = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(strings.Trim(value, " \t\n\f\r"))
	value, _, _ = strings.Cut(value, "#")
	path, query, hasQuery := strings.Cut(value, "?")
	// also |, and % that encodes nothing, which Go does not take
	value = escaped(strings.ReplaceAll(path, `\`, "/"), "%\"<>^`{|}")
	if hasQuery {
		value += "?" + escaped(query, "\"'<>")
	}
	if base == nil {
		base = new(url.URL)
	}
	u, err := base.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, cmp.Or(err, errors.New("it is not the URL of a web server"))
	}
	u.Host = cacheurl.CanonicalHost(u)
	if host := u.Hostname(); strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		domain, err := cacheurl.CanonicalDomain(host)
		if err != nil {
			return nil, err
		}
		u.Host = strings.Replace(u.Host, host, domain, 1)
	}
	return u, nil
}

// escaped percent-encodes the bytes of a text that are in set or not ASCII, spaces, and control
// characters; but no percent sign that encodes something.
func escaped(text, set string) string {
	var b strings.Builder
	for i := range len(text) {
		ch := text[i]
		if ch == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) ||
			ch > ' ' && ch <= '~' && strings.IndexByte(set, ch) < 0 {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}

func isHex(ch byte) bool { return strings.IndexByte("0123456789ABCDEFabcdef", ch) >= 0 }

// noteLimit keeps after how many requests the backend first limited them.
func (c *client) noteLimit(u *url.URL, resp *http.Response) {
	if !isOverloaded(resp.StatusCode) {
		return
	}
	note := fmt.Sprintf("%s answered with status %d for the first time to request %d of the probe, %s after its start.",
		u.Host, resp.StatusCode, c.sent.Load(),
		time.Since(c.begun).Round(100*time.Millisecond))
	if value := resp.Header.Get("Retry-After"); value != "" {
		note += fmt.Sprintf(" That answer has Retry-After: %.40q.", value)
	}
	c.limit.CompareAndSwap(nil, &note)
}

// fetchSite returns the value of Sec-Fetch-Site,
// https://w3c.github.io/webappsec-fetch-metadata/#sec-fetch-site-header
func fetchSite(origin string, target *url.URL) string {
	from, err := url.Parse(origin)
	switch {
	case err != nil || from.Host == "":
		return "cross-site" // null
	case originOf(target) == origin:
		return "same-origin"
	case from.Scheme == target.Scheme && site(from.Hostname()) == site(target.Hostname()):
		return "same-site"
	}
	return "cross-site"
}

func site(host string) string {
	if registrable, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return registrable
	}
	return host
}

// originOf returns the origin of a URL as browsers serialize it.
func originOf(u *url.URL) string { return u.Scheme + "://" + cacheurl.CanonicalHost(u) }

// A fetch is a request with its redirects, as a browser follows them for a page.
type fetch struct {
	request  request   // the first
	last     request   // after redirects
	response *response // the last; nil if there was none
	err      error     // a network error, or a limit that was reached; nil if none
	blocked  error     // why the browser blocks the response; nil if it does not
	hop      int       // redirects before the response

	isEndless bool // there are more redirects than browsers follow
}

// fetch sends the request and follows redirects, by the section "HTTP-redirect fetch". The CORS
// check is made on each answer, unless the page is at the target's own origin.
func (c *client) fetch(ctx context.Context, req request) *fetch {
	f := &fetch{request: req}
	seen := make(map[string]bool) // by method and URL: without cookies, one that redirects to itself always does
	for ; ; f.hop++ {
		f.last = req
		seen[req.method+req.url] = true
		resp, err := c.send(ctx, req)
		if err != nil {
			f.err = err
			return f
		}
		f.response, req.isReady = resp, false
		target, _ := url.Parse(req.url) // send has parsed it
		if req.origin != "" && originOf(target) != req.origin {
			if f.blocked = checkCORS(req.origin, req.credentials, resp.Header); f.blocked != nil {
				return f
			}
		}
		location := resp.Header.Get("Location")
		if !isRedirect(resp.Status) || location == "" {
			return f
		}
		next, err := parseURL(target, location)
		switch {
		case err != nil:
			f.blocked = fmt.Errorf("the redirect to %.200q does not lead to a web server", c.clean(location))
			return f
		case next.User != nil:
			f.blocked = fmt.Errorf("the redirect to %.200q has user information", c.clean(next.Redacted()))
			return f
		}
		if target.Scheme == "https" && next.Scheme == "http" {
			f.blocked = fmt.Errorf("the redirect to %.200q is mixed content", c.clean(location))
			return f
		}
		if originOf(next) != originOf(target) && originOf(target) != req.origin && req.origin != "" {
			req.origin = "null" // a redirect across origins taints the origin
		}
		if resp.Status == http.StatusSeeOther && req.method != http.MethodHead ||
			(resp.Status == http.StatusMovedPermanently || resp.Status == http.StatusFound) && req.method == http.MethodPost {
			req.method, req.body = http.MethodGet, ""
			req.header = req.header.Clone()
			req.header.Del("Content-Type")
		}
		req.url = next.String()
		if f.hop == maxRedirects || seen[req.method+req.url] {
			f.isEndless = true
			f.blocked = fmt.Errorf("the redirects do not end: the last leads to %.200q", c.clean(location))
			return f
		}
		if f.blocked, f.err = c.preflightOf(ctx, req, next); f.blocked != nil || f.err != nil {
			return f
		}
	}
}

// preflightOf makes the preflight that browsers send for a request after a redirect, if it needs
// one, and reports why the browser does not send the request.
func (c *client) preflightOf(ctx context.Context, req request, target *url.URL) (blocked, err error) {
	headers := unsafeHeaders(req.header)
	if req.origin == "" || originOf(target) == req.origin || isSafelistedMethod(req.method) && len(headers) == 0 {
		return nil, nil
	}
	resp, err := c.send(ctx, preflight(req, headers))
	if err != nil {
		return nil, err
	}
	if why := checkPreflight(req.origin, req.credentials, req.method, headers, resp.Status, resp.Header); why != nil {
		return fmt.Errorf("the redirect to %.200q needs a preflight: %w", c.clean(req.url), why), nil
	}
	return nil, nil
}

// unsafeHeaders returns the names of a request's headers for which browsers send a preflight, in lower
// case.
func unsafeHeaders(h http.Header) (names []string) {
	for key := range h {
		switch key {
		case "Accept", "Accept-Language", "Cache-Control", "Pragma", "Referer", "User-Agent", "Sec-Fetch-Mode",
			"Sec-Fetch-Site",
			"If-None-Match", "If-Modified-Since":
			// safelisted, or set by the browser and not by the page
		case "Content-Type":
			if !isSafelistedContentType(h.Get(key)) {
				names = append(names, "content-type")
			}
		default:
			names = append(names, strings.ToLower(key))
		}
	}
	slices.Sort(names)
	return names
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return true
	}
	return false
}
