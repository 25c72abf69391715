package header

import "strings"

// IsForbiddenRequest reports whether no script can set a request header, so that no preflight asks for it. name is in
// lower case. It implements the list in https://fetch.spec.whatwg.org/#forbidden-request-header
func IsForbiddenRequest(name string) bool {
	switch name {
	case "accept-charset", "accept-encoding", "access-control-request-headers",
		"access-control-request-method", "connection", "content-length", "cookie",
		"cookie2", "date", "dnt", "expect", "host", "keep-alive", "origin", "referer",
		"set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "via":
		return true
	}
	return strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "sec-")
}
