package probe

import (
	"cmp"
	"encoding/base64"
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

	// Tested is set by [Run] if an answer to a publisher's page or to a sender's email was judged.
	Tested bool `json:"tested"`
}

// An Answer is the kind of answers that a component accepts.
type Answer string

const (
	AnswerAny    Answer = "any"    // a status of 2xx
	AnswerJSON   Answer = "json"   // JSON, with any Content-Type
	AnswerForm   Answer = "form"   // JSON; reads AMP-Redirect-To
	AnswerVerify Answer = "verify" // a status of 2xx, or of 4xx with JSON
	AnswerScript Answer = "script" // JavaScript
)

// Call says how pages call the endpoint, such as "amp-list, with cookies": it tells most endpoints with the same URL
// and method apart.
func (e *Endpoint) Call() string {
	call := e.Component + ", without cookies"
	if e.Credentials {
		call = e.Component + ", with cookies"
	}
	if e.ContentType != "" {
		call += ", " + e.ContentType
	}
	return call
}

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
	canonical string     // the first URL of rel=canonical, or base; in base64
	manifest  *html.Node // the first link to one

	isTemplate bool // the elements are those of a template
}

// A Document is what a probe needs of an AMP document.
type Document struct {
	Endpoints []Endpoint // that need CORS if the document is on an AMP Cache
	Unknown   []Unknown  // URLs that are invalid or that only the browser knows
	IsAMP     bool       // the html element is marked as an AMP document
	IsEmail   bool       // the html element is marked as an AMP email
	IsAd      bool       // the html element is marked as an AMPHTML ad
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
	for n := range root.Descendants() {
		switch rel := strings.ToLower(attr(n, "rel")); {
		case n.Data == "base" && n.Namespace == "" && hasAttr(n, "href") && f.base == base && !isInside(n, "template"):
			if u, err := parseURL(base, attr(n, "href")); err == nil && len(attr(n, "href")) <= maxURL {
				f.base = u
			}
		case n.Data != "link" || n.Namespace != "":
		case rel == "canonical" && f.canonical == "":
			if u, err := parseURL(f.base, attr(n, "href")); err == nil && len(attr(n, "href")) <= maxURL {
				f.canonical = u.String()
			}
		case f.manifest == nil && (rel == "manifest" || rel == "origin-manifest"):
			f.manifest = n
		}
	}
	f.canonical = strings.ReplaceAll(base64.URLEncoding.EncodeToString([]byte(cmp.Or(f.canonical, base.String()))), "=",
		".")
	f.elements(root)
	return Document{f.endpoints, f.unknown, isMarked(root, "amp", "⚡", "⚡\ufe0f"),
		isMarked(root, "amp4email", "⚡4email", "⚡\ufe0f4email"), isMarked(root, "amp4ads", "⚡4ads", "⚡\ufe0f4ads"),
		hasRuntime(root)}, nil
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

// hasRuntime reports whether a document has a script whose name is that of the AMP runtime, from the project's host
// or another one. https://amp.dev/documentation/guides-and-tutorials/learn/spec/amphtml#required-markup
func hasRuntime(root *html.Node) bool {
	for n := range root.Descendants() {
		if src := attr(n, "src"); n.Type == html.ElementNode && n.Data == "script" &&
			(strings.HasSuffix(src, "/v0.js") || strings.HasSuffix(src, "/v0.mjs")) {
			return true
		}
	}
	return false
}

// elements adds the endpoints of all elements below a node. In <svg> and <math>, an element of the same name is no
// component.
func (f *finder) elements(root *html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Namespace == "" {
			f.element(n)
		}
	}
}

// element adds the endpoints of one element, as amphtml's code makes the requests. Its files, below extensions/ if
// no other folder is named:
//
//	[src]                  amp-bind/0.1/bind-validator.js
//	    only these components make a CORS request of it; [action-xhr] is not allowed
//	xssi-prefix            src/service/xhr-impl.js
//	    read by amp-form, amp-list, amp-next-page, amp-render; xssiPrefix by amp-consent
//	variables              src/service/url-replacements-impl.js
//	    expanded in some attributes, and in a form only in its fields
//	amp-autocomplete       amp-autocomplete/0.1/amp-autocomplete.js
//	    the parameter's name is encoded, too
//	amp-user-notification  amp-user-notification/0.1/amp-user-notification.js
//	    enctype is the Content-Type, src/utils/xhr-utils.js
//	link                   amp-app-banner/0.1/amp-app-banner.js
//	    the first manifest or origin-manifest, if there is a banner
//	amp-story-auto-ads     amp-story-auto-ads/0.1/story-ad-config.js
//	    src, or ad-attributes, which become those of an amp-ad
//	amp-story-interactive  amp-story-interactive/0.1/amp-story-interactive-abstract.js
//	    the path has the canonical URL in base64
func (f *finder) element(n *html.Node) {
	answer, src := AnswerJSON, expand(attr(n, "src"))
	if hasAttr(n, "xssi-prefix") {
		answer = AnswerAny // what the prefix hides is not JSON as a whole
	}
	get := func(component, value string, credentials bool, answer Answer) {
		f.add(component, value, Endpoint{Method: http.MethodGet, Credentials: credentials, Answer: answer})
	}
	includes := func(key string) bool { return attr(n, key) == "include" }
	switch n.Data {
	case "amp-autocomplete", "amp-date-picker", "amp-list", "amp-render", "amp-state":
		for _, key := range []string{"[src]", "data-amp-bind-src"} {
			if hasAttr(n, key) {
				f.addUnknown(n.Data, "the value of "+key+", "+short(attr(n, key)))
			}
		}
	}
	switch n.Data {
	case "amp-list", "amp-next-page", "amp-render":
		get(n.Data, src, includes("credentials"), answer)
	case "amp-state", "amp-bodymovin-animation":
		get(n.Data, src, includes("credentials"), AnswerJSON)
	case "amp-viz-vega":
		get(n.Data, src, false, AnswerJSON)
	case "amp-date-picker":
		get(n.Data, attr(n, "src"), includes("credentials"), AnswerJSON)
	case "amp-autocomplete":
		if query := attr(n, "query"); src != "" && query != "" {
			src = withQuery(src, encode(query)+"=a")
		}
		get(n.Data, src, includes("credentials"), AnswerJSON)
	case "form":
		f.form(n)
	case "script":
		f.script(n)
	case "amp-user-notification":
		id := attr(n, "id")
		if show := expand(attr(n, "data-show-if-href")); show != "" {
			get(n.Data, withQuery(show, "elementId="+encode(id)+"&ampUserId=0"), true, AnswerJSON)
		}
		e := Endpoint{Method: http.MethodPost, ContentType: cmp.Or(attr(n, "enctype"), "application/json;charset=utf-8"),
			Body: asJSON(map[string]string{"elementId": id}), Credentials: true, Answer: AnswerAny}
		if e.ContentType == typeURLEncoded {
			e.Body = "elementId=" + encode(id)
		}
		f.add(n.Data, attr(n, "data-dismiss-href"), e)
	case "amp-story-auto-ads":
		get(n.Data, attr(n, "src"), false, AnswerJSON)
	case "amp-story-bookend", "amp-story-shopping-config", "amp-story-social-share":
		get(n.Data, src, includes("data-credentials"), AnswerJSON)
	case "amp-story":
		get(n.Data, expand(attr(n, "bookend-config-src")), includes("data-credentials"), AnswerJSON)
	case "amp-analytics", "amp-call-tracking":
		get(n.Data, expand(attr(n, "config")), includes("data-credentials") || n.Data == "amp-call-tracking", AnswerJSON)
	case "amp-ad", "amp-embed":
		f.ad(attr(n, "type"), attr(n, "data-url"), attr(n, "rtc-config"))
	case "amp-script":
		f.add(n.Data, attr(n, "src"), Endpoint{Method: http.MethodGet, Answer: AnswerScript, NoSourceOrigin: true})
	case "amp-app-banner":
		if f.manifest != nil {
			get(n.Data, attr(f.manifest, "href"), false, AnswerJSON)
		}
	case "track": // only a story's script fetches it; elsewhere the browser does, and with CORS if crossorigin says so
		if isInside(n, "amp-story") {
			get(n.Data, attr(n, "src"), false, AnswerAny)
		} else if n.Parent != nil && hasAttr(n.Parent, "crossorigin") {
			f.add(n.Data, attr(n, "src"), Endpoint{Method: http.MethodGet,
				Credentials: attr(n.Parent, "crossorigin") == "use-credentials",
				Answer:      AnswerAny, NoSourceOrigin: true})
		}
	case "style":
		if hasAttr(n, "amp-custom") {
			for _, src := range fontsOf(text(n)) {
				f.add("@font-face", src, Endpoint{Method: http.MethodGet, Answer: AnswerAny, NoSourceOrigin: true})
			}
		}
	default:
		if strings.HasPrefix(n.Data, "amp-story-interactive-") && n.Data != "amp-story-interactive-results" {
			f.interactive(n)
		}
	}
}

// interactive adds the requests of a poll or quiz of a story.
func (f *finder) interactive(n *html.Node) {
	endpoint := attr(n, "endpoint")
	u, err := parseURL(nil, endpoint)
	if err != nil {
		if endpoint != "" {
			f.addUnknown(n.Data, "endpoint, "+short(endpoint)+", which is not an absolute URL")
		}
		return
	}
	u = u.JoinPath(f.canonical + "+" + url.PathEscape(attr(n, "id")))
	kind := "type=0&client=0"
	if strings.Contains(n.Data, "poll") {
		kind = "type=1&client=0"
	}
	for _, e := range []Endpoint{{Method: http.MethodGet, Answer: AnswerJSON},
		{Method: http.MethodPost, ContentType: typeJSON, Body: `{"option_selected":0}`, Answer: AnswerAny}} {
		if e.Method == http.MethodPost {
			u = u.JoinPath(":vote")
		}
		f.add(n.Data, withQuery(u.String(), kind), e)
	}
}

// fontsOf returns the URL of each @font-face rule that browsers load: in its last src, the first in a format that
// they know.
func fontsOf(css string) (urls []string) {
	for _, rule := range fontFace.FindAllStringSubmatch(cssComment.ReplaceAllString(css, ""), -1) {
		sources := fontSource.Split(rule[1], -1)
		for _, m := range fontURL.FindAllStringSubmatch(sources[len(sources)-1], -1) {
			if format := strings.ToLower(m[4]); format == "" || strings.HasPrefix(format, "woff") || format == "truetype" ||
				format == "opentype" {
				urls = append(urls, m[1]+m[2]+m[3])
				break
			}
		}
	}
	return urls
}

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	fontFace   = regexp.MustCompile(`(?i)@font-face\s*\{([^}]*)`)
	fontSource = regexp.MustCompile(`(?i)(?:^|[;\s])src\s*:`)
	fontURL    = regexp.MustCompile(`(?i)url\(\s*(?:"([^"]*)"|'([^']*)'|([^"')\s]+))\s*\)` +
		`(?:\s*format\(\s*["']?([^"')]+))?`)
)

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
	if !strings.EqualFold(attr(n, "type"), typeJSON) { // src/core/dom/index.js
		return
	}
	parent := ""
	if n.Parent != nil {
		parent = n.Parent.Data
	}
	var config any
	switch {
	case attr(n, "id") == "amp-access", attr(n, "id") == "amp-subscriptions", parent == "amp-consent",
		parent == "amp-story-auto-ads" && !hasAttr(n.Parent, "src"):
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
			if cmp.Or(str(service, "serviceId"), "local") != "local" || str(service, "type") == "iframe" {
				continue // amp-subscriptions/0.1/amp-subscriptions.js: others make no request to the publisher
			}
			f.add("amp-subscriptions", expand(str(service, "authorizationUrl")),
				Endpoint{Method: http.MethodGet, Credentials: true, Answer: AnswerJSON})
			f.add("amp-subscriptions", expand(str(service, "pingbackUrl")),
				Endpoint{Method: http.MethodPost, ContentType: typeText, Credentials: true, Answer: AnswerAny})
		}
	case parent == "amp-story-auto-ads":
		object, _ := config.(map[string]any)
		attributes, _ := object["ad-attributes"].(map[string]any)
		rtc, _ := json.Marshal(attributes["rtc-config"]) // it was decoded from JSON
		f.ad(str(attributes, "type"), str(attributes, "data-url"), cmp.Or(str(attributes, "rtc-config"), string(rtc)))
	default:
		f.consent(config)
	}
}

// access reads the configuration of amp-access: one service or a list of them
// (amp-access/0.1/amp-access-source.js). A vendor makes its own requests, and with the type other, none is made.
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
		kind := cmp.Or(str(service, "type"), "client")
		if isOfVendor := str(service, "type") == "" && str(service, "vendor") != ""; isOfVendor ||
			kind != "client" && kind != "server" {
			continue
		}
		f.add("amp-access", expand(str(service, "authorization")),
			Endpoint{Method: http.MethodGet, Credentials: true, Answer: answer})
		if isOff := service["noPingback"]; isOff == nil || isOff == false {
			f.add("amp-access", expand(str(service, "pingback")),
				Endpoint{Method: http.MethodPost, ContentType: typeURLEncoded, Credentials: true,
					Answer: AnswerAny})
		}
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
	answer := AnswerJSON
	if str(object, "xssiPrefix") != "" {
		answer = AnswerAny
	}
	for _, c := range all {
		e := Endpoint{Method: http.MethodPost, ContentType: typeText, Credentials: true, Answer: answer,
			Body: asJSON(map[string]string{"consentInstanceId": str(object, "consentInstanceId"),
				"consentStateValue": "unknown"})}
		f.add("amp-consent", expand(str(c, "checkConsentHref")), e)
		e.Answer, e.NoSourceOrigin = AnswerAny, true
		f.add("amp-consent", expand(str(c, "onUpdateHref")), e)
	}
}

// asJSON returns a JSON object of names and values.
func asJSON(members map[string]string) string {
	text, _ := json.Marshal(members) // strings always can be
	return string(text)
}

// ad adds the requests of an amp-ad, by its attributes. The answer of real-time config may be empty
// (src/service/real-time-config/real-time-config-impl.js).
func (f *finder) ad(kind, dataURL, rtcConfig string) {
	if kind == "custom" {
		f.add("amp-ad", dataURL, Endpoint{Method: http.MethodGet, Answer: AnswerJSON})
		return // only ads of networks use it
	}
	var rtc struct {
		URLs []any `json:"urls"`
	}
	if err := json.Unmarshal([]byte(rtcConfig), &rtc); err != nil {
		return
	}
	for _, u := range rtc.URLs {
		if object, ok := u.(map[string]any); ok {
			u = object["url"]
		}
		if value, ok := u.(string); ok {
			f.add("amp-ad", expand(value), Endpoint{Method: http.MethodGet, Credentials: true, Answer: AnswerAny})
		}
	}
}

// add adds an endpoint, unless it was added before. It ignores empty values, data URLs, and
// references to a state or a function of the document.
func (f *finder) add(component, value string, e Endpoint) {
	value = strings.TrimSpace(value)
	if value == "" || strings.HasPrefix(value, "amp-state:") || strings.HasPrefix(value, "amp-script:") ||
		strings.HasPrefix(value, "data:") {
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
	u, err := parseURL(f.base, value)
	switch {
	case err != nil:
		f.addUnknown(component, "the URL "+short(value)+", which is not the URL of a web server")
		return
	case u.User != nil:
		f.addUnknown(component, "the URL "+short(u.Redacted())+", which has user information")
		return
	case u.Query().Has("__amp_source_origin"):
		f.addUnknown(component, "the URL "+short(value)+", which has __amp_source_origin: the runtime throws an error")
		return
	}
	if e.Component, e.URL = component, u.String(); len(e.URL) > 2*maxURL { // with a long base
		f.addUnknown(component, "the URL "+short(value)+fmt.Sprintf(", which is longer than %d bytes", 2*maxURL))
		return
	}
	if f.seen[e] {
		return
	}
	f.seen[e] = true
	f.endpoints = append(f.endpoints, e)
}

// addUnknown adds what only the browser knows.
func (f *finder) addUnknown(component, what string) {
	f.unknown = append(f.unknown, Unknown{component, what})
}

// variable matches a variable of AMP's URL replacement, with or without "$" and arguments, also within a word: AMP
// looks for the longest name, and for no end of it (src/service/url-expander/expander.js).
var variable = func() *regexp.Regexp {
	slices.SortFunc(variables, func(a, b string) int { return len(b) - len(a) })
	return regexp.MustCompile(`\$?(?:` + strings.Join(variables, "|") + `)(\([^)]{0,200}\))?`)
}()

// variables are names from spec/amp-var-substitutions.md that occur in the URLs of endpoints.
var variables = strings.Fields(`
	ACCESS_READER_ID ACCESS_TOKEN AMPDOC_HOST AMPDOC_HOSTNAME AMPDOC_URL AMP_GEO AMP_STATE AMP_VERSION AUTHDATA
	AVAILABLE_SCREEN_HEIGHT AVAILABLE_SCREEN_WIDTH BROWSER_LANGUAGE CANONICAL_HOST CANONICAL_HOSTNAME CANONICAL_PATH
	CANONICAL_URL CLIENT_ID
	CONSENT_METADATA CONSENT_STATE CONSENT_STRING COUNTER DOCUMENT_CHARSET DOCUMENT_REFERRER EXTERNAL_REFERRER
	FRAGMENT_PARAM HREF PAGE_VIEW_ID
	PAGE_VIEW_ID_64 QUERY_PARAM RANDOM READER_ID SCREEN_COLOR_DEPTH SCREEN_HEIGHT SCREEN_WIDTH SCROLL_HEIGHT
	SCROLL_WIDTH SOURCE_HOST
	SOURCE_HOSTNAME SOURCE_PATH SOURCE_URL TIMESTAMP TIMESTAMP_ISO TIMEZONE TIMEZONE_CODE TITLE TOTAL_ENGAGED_TIME
	UACH USER_AGENT VARIANT
	VARIANTS VIEWER VIEWPORT_HEIGHT VIEWPORT_WIDTH`)

// expand replaces each variable by the sample value 0.
func expand(value string) string {
	if len(value) > maxURL {
		return value // add reports it
	}
	return variable.ReplaceAllString(value, "0")
}

// encode encodes a part of a query as encodeURIComponent does, which the AMP runtime uses (src/url.js).
func encode(part string) string { return asComponent.Replace(url.QueryEscape(part)) }

var asComponent = strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")

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
