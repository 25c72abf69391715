package probe

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// This file judges responses as a browser does. Section names are those of the Fetch standard,
// https://fetch.spec.whatwg.org/.

// checkCORS returns why a browser does not let a page at origin read a response with these
// headers, by the section "CORS check". It returns nil if the browser does. credentials is
// true if the credentials mode of the request is "include".
func checkCORS(origin string, credentials bool, h http.Header) error {
	allowed, ok := combined(h, "Access-Control-Allow-Origin")
	switch {
	case !ok:
		return fmt.Errorf("there is no Access-Control-Allow-Origin")
	case allowed == "*" && !credentials:
		return nil
	case allowed == "*":
		return fmt.Errorf("Access-Control-Allow-Origin is \"*\", which does not allow requests with credentials")
	case allowed != origin:
		return fmt.Errorf("Access-Control-Allow-Origin is %.200q, not %q", allowed, origin)
	case !credentials:
		return nil
	}
	value, ok := combined(h, "Access-Control-Allow-Credentials")
	switch {
	case !ok:
		return fmt.Errorf("there is no Access-Control-Allow-Credentials, and the request has credentials")
	case value != "true":
		return fmt.Errorf("Access-Control-Allow-Credentials is %.100q, not \"true\"", value)
	}
	return nil
}

// checkPreflight returns why a browser does not send the actual request after this answer
// to a preflight, by the section "CORS-preflight fetch". It returns nil if the browser
// does. headers are the names of the request's headers that are not safelisted.
func checkPreflight(origin string, credentials bool, method string, headers []string, status int, h http.Header) error {
	if err := checkCORS(origin, credentials, h); err != nil {
		return err
	}
	if status < 200 || status > 299 {
		return fmt.Errorf("the status of the preflight is %d, not 2xx", status)
	}
	methods, err := names(h, "Access-Control-Allow-Methods")
	if err != nil {
		return err
	}
	if !isSafelistedMethod(method) && !slices.Contains(methods, method) &&
		(credentials || !slices.Contains(methods, "*")) {
		return fmt.Errorf("Access-Control-Allow-Methods does not have %s", method)
	}
	granted, err := names(h, "Access-Control-Allow-Headers")
	if err != nil {
		return err
	}
	for _, header := range headers {
		isNamed := slices.ContainsFunc(granted, func(name string) bool { return strings.EqualFold(name, header) })
		isWild := !credentials && slices.Contains(granted, "*") && !strings.EqualFold(header, "Authorization")
		if !isNamed && !isWild {
			return fmt.Errorf("Access-Control-Allow-Headers does not have %s", strings.ToLower(header))
		}
	}
	return nil
}

// isExposed reports whether a script can read a header of a response that passed the CORS check,
// by "CORS filtered response". It is not for safelisted response headers.
func isExposed(name string, credentials bool, h http.Header) bool {
	exposed, err := names(h, "Access-Control-Expose-Headers")
	return err == nil && slices.ContainsFunc(exposed, func(n string) bool {
		return strings.EqualFold(n, name) || n == "*" && !credentials
	})
}

// isSafelistedMethod implements "CORS-safelisted method".
func isSafelistedMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodPost
}

// isSafelistedContentType implements the part of "CORS-safelisted request-header" for
// Content-Type.
func isSafelistedContentType(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(essence)) {
	case "application/x-www-form-urlencoded", "multipart/form-data", "text/plain":
		return true
	}
	return false
}

// combined implements "get a header": all lines, joined by ", ".
func combined(h http.Header, name string) (value string, ok bool) {
	lines, ok := h[textproto.CanonicalMIMEHeaderKey(name)]
	return strings.Join(lines, ", "), ok && len(lines) > 0
}

// names implements "extract header list values" for lists of tokens.
func names(h http.Header, name string) ([]string, error) {
	value, ok := combined(h, name)
	if !ok {
		return nil, nil
	}
	var tokens []string
	for member := range strings.SplitSeq(value, ",") {
		token := strings.Trim(member, " \t")
		if token == "" {
			continue // the ABNF #rule allows empty members
		}
		if !httpguts.ValidHeaderFieldName(token) {
			return nil, fmt.Errorf("%s is %.200q, which is not a list of names", name, value)
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}
