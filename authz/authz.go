// Package authz lets a proxy ask whether a request may go on, and with which response
// headers. So backends that are not in Go get the decisions of ampcors: the proxy asks this
// handler first, and adds the headers of its answer to the backend's response.
//
//	handler, err := authz.New(mw, authz.NGINX)
//	err = http.ListenAndServe("127.0.0.1:9000", handler)
//
// nginx.conf and envoy.yaml beside this package configure the proxies.
//
// # The answer
//
// 200 says that the request may go on. 403, 503 (for nginx: 403) or the status of 300 or more that Config.Denied
// wrote says that it may not. 204 answers an allowed preflight: the proxy must pass this answer on to the client,
// less the headers below. All decisions have the headers that ampcors writes for such a request: the CORS headers,
// Vary, and Cache-Control for a denial. They also have these, which should not reach the client:
//
//	X-Ampcors-Status: 200            the status that the client should get
//	X-Ampcors-Reason: cache_origin   see [ampcors.Reason.String]; or no_method, not_configured
//	X-Ampcors-Publisher: example.com only if it is known
//	X-Ampcors-Request: 4bf9…         nginx's number of the request, repeated: nginx denies a 200 without it
//
// If Envoy asks, and the publisher of a request that may go on is not known, the answer also has
// X-Envoy-Auth-Headers-To-Remove: the backend must not get an X-Ampcors-Publisher from the client.
//
// # What it trusts
//
// It trusts what it is told about the request. A client that reaches it directly learns the decision on its own
// request, and nothing else. The proxy must pass on unchanged the headers that envoy.yaml lists, and the query of the
// URL, and the method as [Proxy] says. A method that a client could choose, or an Origin that does not arrive, would
// let forged requests through. So a header must show that the proxy has the configuration beside this package:
// without it, a request is denied.
package authz

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/ampcors/ampcors"
)

// A Proxy is the way in which a proxy asks.
type Proxy string

const (
	// NGINX is the module auth_request of nginx. It asks with GET, and must set
	// X-Original-Method to $request_method. It treats all answers but 2xx, 401 and 403 as
	// its own failure, so 503 is answered as 403, with X-Ampcors-Status 503.
	NGINX Proxy = "nginx"

	// Envoy is Envoy's filter ext_authz over HTTP. It asks with the method of the request, and passes on
	// only the headers that allowed_headers lists: without that list, no Origin arrives. envoy.yaml
	// lists all that are needed. It also sets X-Ampcors-Proxy to "envoy", which is required. If ampcors
	// answers 5xx, Envoy answers the client itself, by status_on_error. Retry-After is then lost.
	Envoy Proxy = "envoy"
)

// The headers that the answer has for the proxy.
const (
	StatusHeader    = "X-Ampcors-Status"
	ReasonHeader    = "X-Ampcors-Reason"
	PublisherHeader = "X-Ampcors-Publisher"
)

// What only the configuration of the proxy sets, for each request.
const (
	methodHeader = "X-Original-Method" // of nginx: the method of the client's request
	proxyHeader  = "X-Ampcors-Proxy"   // of Envoy: its name

	// Of nginx: the number of the client's request. The answer repeats it, so that nginx can tell it from the answer of
	// another server, and from one to another request.
	requestHeader = "X-Ampcors-Request"
)

// New returns a handler that answers a proxy with the decisions of mw.
func New(mw *ampcors.Middleware, proxy Proxy) (http.Handler, error) {
	switch {
	case mw == nil:
		return nil, errors.New("authz: the Middleware is nil")
	case proxy != NGINX && proxy != Envoy:
		return nil, fmt.Errorf("authz: the proxy %.80q is unknown; want %q or %q", proxy, NGINX, Envoy)
	}
	return &handler{mw, proxy}, nil
}

type handler struct {
	mw    *ampcors.Middleware
	proxy Proxy
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch h.proxy {
	case NGINX:
		methods := r.Header[methodHeader]
		if len(methods) != 1 || methods[0] == "" {
			denyProxy(w, "no_method", "The proxy must set "+methodHeader+" once.")
			return
		}
		if number := r.Header.Get(requestHeader); number != "" {
			w.Header().Set(requestHeader, number)
		}
		r = r.Clone(r.Context()) // the server may use it again
		r.Method = methods[0]
	case Envoy:
		if names := r.Header[proxyHeader]; len(names) != 1 || names[0] != string(Envoy) {
			denyProxy(w, "not_configured", "Envoy must set "+proxyHeader+
				" to envoy, and send the headers that envoy.yaml lists.")
			return
		}
	}
	a := answer{header: w.Header()}
	decision, proceed := h.mw.Handle(&a, r)
	switch {
	case proceed:
		a.WriteHeader(http.StatusOK)
	case !decision.Allowed && a.status < 300:
		a.status = decision.StatusCode() // a proxy takes 2xx for permission, whatever Config.Denied wrote
	}
	w.Header().Set(StatusHeader, strconv.Itoa(a.status))
	w.Header().Set(ReasonHeader, decision.Reason.String())
	if decision.Publisher != "" {
		w.Header().Set(PublisherHeader, decision.Publisher)
	} else if h.proxy == Envoy && proceed {
		// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/ext_authz_filter
		w.Header().Set("X-Envoy-Auth-Headers-To-Remove", PublisherHeader)
	}
	if h.proxy == NGINX && a.status == http.StatusServiceUnavailable {
		a.status = http.StatusForbidden
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // an error means that the proxy is gone
}

// denyProxy answers a request that does not come from the proxy, or from a proxy with a wrong
// configuration.
func denyProxy(w http.ResponseWriter, reason, text string) {
	w.Header().Set(ReasonHeader, reason)
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, http.StatusForbidden)
}

// An answer keeps status and body until the decision, which has more headers, is known.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
