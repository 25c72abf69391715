package probe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// An Endpoint is a URL that an AMP document makes the browser call, and how.
type Endpoint struct {
	URL         string `json:"url"`
	Component   string `json:"component"`             // such as "amp-list", or "endpoint" if it was given by hand
	Method      string `json:"method"`                // GET or POST, or any other if it was given by hand
	ContentType string `json:"contentType,omitempty"` // of the body
	Body        string `json:"body,omitempty"`
	Credentials bool   `json:"credentials"` // sent with the reader's cookies
	Answer      Answer `json:"answer"`

	// NoSourceOrigin is set if the runtime does not add __amp_source_origin.
	NoSourceOrigin bool `json:"noSourceOrigin,omitempty"`

	// Tested is set by [Run] if an answer to a publisher's page was judged.
	Tested bool `json:"tested"`
}

// An Answer is the kind of answers that a component accepts.
type Answer string

const (
	AnswerAny    Answer = "any"    // a status of 2xx
	AnswerJSON   Answer = "json"   // JSON, with any Content-Type
	AnswerForm   Answer = "form"   // JSON; reads AMP-Redirect-To
	AnswerScript Answer = "script" // JavaScript
)

// preflightHeaders returns the names of the request's headers that need a preflight.
func (e *Endpoint) preflightHeaders() []string {
	if e.ContentType == "" {
		return nil
	}
	return unsafeHeaders(http.Header{"Content-Type": {e.ContentType}})
}

// NeedsPreflight reports whether browsers send a preflight before the request.
func (e *Endpoint) NeedsPreflight() bool {
	return !isSafelistedMethod(e.Method) || len(e.preflightHeaders()) > 0
}

// An Unknown is a part of a document with a URL that only the browser knows, or that is
// invalid.
type Unknown struct {
	Component string `json:"component"`
	What      string `json:"what"`
}

const (
	typeURLEncoded = "application/x-www-form-urlencoded"
	typeJSON       = "application/json"
	typeMultipart  = "multipart/form-data; boundary=" + multipartBoundary
	typeText       = "text/plain;charset=utf-8"
	// multipartBoundary separates the parts of multipart/form-data bodies.
	multipartBoundary = "----ampcors-probe"
)

// maxURL is more bytes than servers take.
const maxURL = 8 << 10

// A finder collects the endpoints of a document.
type finder struct {
	base      *url.URL
	endpoints []Endpoint
	unknown   []Unknown
	seen      map[Endpoint]bool

	isTemplate bool // the elements are those of a template
}

// A Document is what a probe needs of an AMP document.
type Document struct {
	Endpoints []Endpoint // that need CORS if the document is on an AMP Cache
	Unknown   []Unknown  // URLs that are invalid or that only the browser knows
	IsAMP     bool       // the html element is marked as that of an AMP document
	IsEmail   bool       // the html element is marked as that of an AMP email
	IsRun     bool       // it has a script that is the AMP runtime, by its name
}

// ReadDocument reads an AMP document that was fetched from base. Relative URLs are resolved, and
// variables are replaced by a sample value.
//
// Source: the components in github.com/ampproject/amphtml as of March 2021, and later
// versions of amp-render and of the components of amp-story.
func ReadDocument(document io.Reader, base *url.URL) (Document, error) {
	root, err := html.Parse(document)
	if err != nil {
		return Document{}, fmt.Errorf("the document cannot be parsed: %w", err)
	}
	f := &finder{base: base, seen: make(map[Endpoint]bool)}
	f.elements(root)
	return Document{f.endpoints, f.unknown, isMarked(root, "amp", "⚡", "⚡\ufe0f"),
		isMarked(root, "amp4email", "⚡4email", "⚡\ufe0f4email"), hasRuntime(root)}, nil
}

// isMarked reports whether the html element of a document has one of the attributes, which say that it is AMP.
// https://amp.dev/documentation/guides-and-tutorials/learn/spec/amphtml#required-markup and
// https://amp.dev/documentation/guides-and-tutorials/learn/email-spec/amp-email-format#required-markup
func isMarked(root *html.Node, attributes ...string) bool {
	for n := range root.ChildNodes() {
		if n.Type == html.ElementNode && n.Data == "html" {
			return slices.ContainsFunc(attributes, func(key string) bool { return hasAttr(n, key) })
		}
	}
	return false
}

// hasRuntime reports whether a document has a script whose name is that of the AMP runtime, from the project's host or another one.
// https://amp.dev/documentation/guides-and-tutorials/learn/spec/amphtml#required-markup
func hasRuntime(root *html.Node) bool {
	for n := range root.Descendants() {
		if src := attr(n, "src"); n.Type == html.ElementNode && n.Data == "script" && (strings.HasSuffix(src, "/v0.js") || strings.HasSuffix(src, "/v0.mjs")) {
			return true
		}
	}
	return false
}

// elements adds the endpoints of all elements below a node.
func (f *finder) elements(root *html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			f.element(n)
		}
	}
}

// element adds the endpoints of one element.
func (f *finder) element(n *html.Node) {
	answer := AnswerJSON
	if hasAttr(n, "xssi-prefix") {
		answer = AnswerAny // what the prefix hides is not JSON as a whole
	}
	get := func(component, value string, credentials bool) {
		f.add(component, value, Endpoint{Method: http.MethodGet, Credentials: credentials, Answer: answer})
	}
	for _, a := range n.Attr {
		switch a.Key {
		case "[src]", "data-amp-bind-src", "[action-xhr]", "data-amp-bind-action-xhr":
			f.addUnknown(n.Data, "the value of "+a.Key+", "+short(a.Val))
		}
	}
	switch n.Data {
	case "amp-list", "amp-state", "amp-bodymovin-animation", "amp-next-page", "amp-render", "amp-date-picker":
		get(n.Data, attr(n, "src"), attr(n, "credentials") == "include")
	case "amp-autocomplete":
		src := attr(n, "src")
		if query := attr(n, "query"); src != "" && query != "" {
			src = withQuery(src, query+"=a")
		}
		get(n.Data, src, attr(n, "credentials") == "include")
	case "form":
		f.form(n)
	case "script":
		f.script(n)
	case "amp-user-notification":
		get(n.Data, attr(n, "data-show-if-href"), true)
		f.add(n.Data, attr(n, "data-dismiss-href"), Endpoint{Method: http.MethodPost, ContentType: typeJSON, Body: "{}",
			Credentials: true, Answer: AnswerAny})
	case "amp-story-auto-ads":
		get(n.Data, attr(n, "src"), false)
	case "amp-story-bookend", "amp-story-shopping-config", "amp-story-social-share":
		get(n.Data, attr(n, "src"), attr(n, "data-credentials") == "include")
	case "amp-story":
		get(n.Data, attr(n, "bookend-config-src"), attr(n, "data-credentials") == "include")
	case "amp-analytics":
		get(n.Data, attr(n, "config"), attr(n, "data-credentials") == "include")
	case "amp-call-tracking":
		get(n.Data, attr(n, "config"), true)
	case "amp-ad":
		f.ad(n)
	case "amp-viz-vega":
		get(n.Data, attr(n, "src"), false)
	case "amp-script":
		f.add(n.Data, attr(n, "src"), Endpoint{Method: http.MethodGet, Answer: AnswerScript, NoSourceOrigin: true})
	case "link":
		if attr(n, "rel") == "manifest" || attr(n, "rel") == "amp-manifest" {
			get("amp-app-banner", attr(n, "href"), false)
		}
	case "track":
		f.add("track", attr(n, "src"), Endpoint{Method: http.MethodGet, Answer: AnswerAny})
	case "style":
		if hasAttr(n, "amp-custom") {
			for _, m := range fontURL.FindAllStringSubmatch(text(n), -1) {
				f.add("@font-face", m[1], Endpoint{Method: http.MethodGet, Answer: AnswerAny, NoSourceOrigin: true})
			}
		}
	default:
		if strings.HasPrefix(n.Data, "amp-story-interactive-") {
			if endpoint := strings.TrimSuffix(attr(n, "endpoint"), "/"); endpoint != "" {
				id := url.PathEscape(attr(n, "id"))
				get(n.Data, endpoint+"/"+id, false)
				f.add(n.Data, endpoint+"/"+id+":vote", Endpoint{Method: http.MethodPost, ContentType: typeJSON, Body: `{"option_selected":0}`,
					Answer: AnswerAny})
			}
		}
	}
}

// fontURL finds the URLs of @font-face rules.
var fontURL = regexp.MustCompile(`@font-face\s*\{[^}]*?url\(\s*["']?([^"')]+)`)

func (f *finder) form(n *html.Node) {
	method := strings.ToUpper(attr(n, "method"))
	if method != http.MethodPost {
		method = http.MethodGet
	}
	e := Endpoint{Method: method, Credentials: true, Answer: AnswerForm}
	if method == http.MethodPost {
		e.ContentType = typeMultipart
		e.Body = "--" + multipartBoundary + "--\r\n"
		if attr(n, "enctype") == typeURLEncoded {
			e.ContentType, e.Body = typeURLEncoded, ""
		}
	}
	f.add("amp-form", attr(n, "action-xhr"), e)
	if verify := attr(n, "verify-xhr"); verify != "" {
		f.add("amp-form", withQuery(verify, "__amp_form_verify=true"), e)
	}
}

// script reads the JSON configuration of a component.
func (f *finder) script(n *html.Node) {
	if attr(n, "type") == "text/plain" && attr(n, "template") == "amp-mustache" {
		if root, err := html.Parse(strings.NewReader(text(n))); err == nil && !f.isTemplate {
			f.isTemplate = true // which has no templates
			f.elements(root)
			f.isTemplate = false
		}
		return
	}
	if attr(n, "type") != typeJSON {
		return
	}
	parent := ""
	if n.Parent != nil {
		parent = n.Parent.Data
	}
	var config any
	switch {
	case attr(n, "id") == "amp-access", attr(n, "id") == "amp-subscriptions", parent == "amp-consent":
		if err := json.Unmarshal([]byte(text(n)), &config); err != nil {
			f.addUnknown(cmp.Or(attr(n, "id"), parent), "the configuration, which is not JSON: "+err.Error())
			return
		}
	default:
		return
	}
	switch {
	case attr(n, "id") == "amp-access":
		f.access(config)
	case attr(n, "id") == "amp-subscriptions":
		object, _ := config.(map[string]any)
		services, _ := object["services"].([]any)
		for _, s := range services {
			service, _ := s.(map[string]any)
			f.add("amp-subscriptions", str(service, "authorizationUrl"), Endpoint{Method: http.MethodGet, Credentials: true, Answer: AnswerJSON})
			f.add("amp-subscriptions", str(service, "pingbackUrl"),
				Endpoint{Method: http.MethodPost, ContentType: typeText, Credentials: true, Answer: AnswerAny})
		}
	default:
		f.consent(config)
	}
}

// access reads the configuration of amp-access: one service or a list of them.
func (f *finder) access(config any) {
	services, isList := config.([]any)
	if !isList {
		services = []any{config}
	}
	for _, s := range services {
		service, _ := s.(map[string]any)
		answer := AnswerJSON
		if service["jwt"] == true {
			answer = AnswerAny
		}
		f.add("amp-access", str(service, "authorization"), Endpoint{Method: http.MethodGet, Credentials: true, Answer: answer})
		f.add("amp-access", str(service, "pingback"), Endpoint{Method: http.MethodPost, ContentType: typeURLEncoded, Credentials: true,
			Answer: AnswerAny})
	}
}

// consent reads the configuration of amp-consent. It has an object for each group of countries and, in
// older documents, for each consent.
func (f *finder) consent(config any) {
	object, _ := config.(map[string]any)
	all := []map[string]any{object}
	for _, member := range []string{"consents", "geoOverride"} {
		objects, _ := object[member].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			if c, ok := objects[key].(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		f.add("amp-consent", str(c, "checkConsentHref"), Endpoint{Method: http.MethodPost, ContentType: typeText, Body: "{}",
			Credentials: true, Answer: AnswerJSON})
		f.add("amp-consent", str(c, "onUpdateHref"), Endpoint{Method: http.MethodPost, ContentType: typeText, Body: "{}",
			Credentials: true, Answer: AnswerAny, NoSourceOrigin: true})
	}
}

func (f *finder) ad(n *html.Node) {
	if attr(n, "type") == "custom" {
		f.add(n.Data, attr(n, "data-url"), Endpoint{Method: http.MethodGet, Answer: AnswerJSON})
	}
	var rtc struct {
		URLs []any `json:"urls"`
	}
	if err := json.Unmarshal([]byte(attr(n, "rtc-config")), &rtc); err != nil {
		return
	}
	for _, u := range rtc.URLs {
		if object, ok := u.(map[string]any); ok {
			u = object["url"]
		}
		if value, ok := u.(string); ok {
			f.add(n.Data, value, Endpoint{Method: http.MethodGet, Credentials: true, Answer: AnswerJSON})
		}
	}
}

// add adds an endpoint, unless it was added before. It ignores empty values, data URLs, and
// references to a state or a function of the document.
func (f *finder) add(component, value string, e Endpoint) {
	value = strings.TrimSpace(value)
	if value == "" || strings.HasPrefix(value, "amp-state:") || strings.HasPrefix(value, "amp-script:") || strings.HasPrefix(value, "data:") {
		return
	}
	if len(value) > maxURL {
		f.addUnknown(component, "the URL "+short(value)+fmt.Sprintf(", which is longer than %d bytes", maxURL))
		return
	}
	if strings.Contains(value, "{{") {
		f.addUnknown(component, "the URL "+short(value)+", which a template makes")
		return
	}
	u, err := f.base.Parse(asBrowsers.Replace(strayPercent.ReplaceAllString(expand(value), "%25$1")))
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		f.addUnknown(component, "the URL "+short(value)+", which is not the URL of a web server")
		return
	case u.User != nil:
		f.addUnknown(component, "the URL "+short(u.Redacted())+", which has user information")
		return
	case u.Query().Has("__amp_source_origin"):
		f.addUnknown(component, "the URL "+short(value)+", which has __amp_source_origin: the runtime throws an error")
		return
	}
	u.Fragment = ""
	e.Component, e.URL = component, u.String()
	if f.seen[e] {
		return
	}
	f.seen[e] = true
	f.endpoints = append(f.endpoints, e)
}

// Browsers remove line breaks and tabs from URLs, and send a space as %20 and a percent sign that encodes
// nothing as it is. For Go, the latter must be encoded.
var (
	asBrowsers   = strings.NewReplacer("\t", "", "\n", "", "\r", "", " ", "%20")
	strayPercent = regexp.MustCompile(`%($|[^0-9A-Fa-f]|[0-9A-Fa-f]($|[^0-9A-Fa-f]))`)
)

// addUnknown adds what only the browser knows.
func (f *finder) addUnknown(component, what string) {
	f.unknown = append(f.unknown, Unknown{component, what})
}

// variable matches a variable of AMP's URL replacement: a name in variables, with or without "$", braces
// and arguments.
var variable = regexp.MustCompile(`\$?\{?\b(?:` + strings.Join(variables, "|") + `)\b(\([^)]{0,200}\))?\}?`)

// variables are names from spec/amp-var-substitutions.md that occur in the URLs of
// endpoints.
var variables = []string{
	"ACCESS_READER_ID", "AMPDOC_HOST", "AMPDOC_HOSTNAME", "AMPDOC_URL", "AMP_VERSION", "AUTHDATA", "BROWSER_LANGUAGE", "CANONICAL_HOST",
	"CANONICAL_HOSTNAME", "CANONICAL_PATH", "CANONICAL_URL", "CLIENT_ID", "CONSENT_STATE", "COUNTER", "DOCUMENT_CHARSET", "DOCUMENT_REFERRER",
	"EXTERNAL_REFERRER", "GEO", "HREF", "PAGE_VIEW_ID", "PAGE_VIEW_ID_64", "QUERY_PARAM", "RANDOM", "READER_ID", "RETURN_URL", "SCREEN_HEIGHT",
	"SCREEN_WIDTH", "SOURCE_HOST", "SOURCE_HOSTNAME", "SOURCE_PATH", "SOURCE_URL", "TIMESTAMP", "TIMEZONE", "TITLE", "TOTAL_ENGAGED_TIME",
	"USER_AGENT", "VARIANT", "VIEWER", "VIEWPORT_HEIGHT", "VIEWPORT_WIDTH",
}

// expand replaces each variable by the sample value 0.
func expand(value string) string { return variable.ReplaceAllString(value, "0") }

func withQuery(u, query string) string {
	u, _, _ = strings.Cut(u, "#") // browsers send no fragment
	if strings.Contains(u, "?") {
		return u + "&" + query
	}
	return u + "?" + query
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func hasAttr(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Key == key {
			return true
		}
	}
	return false
}

func text(n *html.Node) string {
	var b strings.Builder
	for c := range n.ChildNodes() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

func str(object map[string]any, key string) string {
	s, _ := object[key].(string)
	return s
}

// short quotes a text from the document, and truncates it to 100 characters.
func short(s string) string { return fmt.Sprintf("%.100q", s) }
