package probe

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestReadDocument tests the elements of each component.
func TestReadDocument(t *testing.T) {
	base, err := url.Parse("https://www.example.com/articles/1?a=b")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		document string
		want     []string // method, URL, answer, and the fields that are set
		unknown  string   // in the only Unknown; "" for none
		body     string   // of the last
	}{
		{name: "amp-list", document: `<amp-list src="/list?id=CLIENT_ID(x)&r=RANDOM"></amp-list>`,
			want: []string{"GET https://www.example.com/list?id=0&r=0 json"}},
		{name: "amp-list with credentials", document: `<amp-list src="//api.example.com/list" credentials="include"></amp-list>`,
			want: []string{"GET https://api.example.com/list json credentials"}},
		{name: "a state", document: `<amp-list src="amp-state:a.b"></amp-list><amp-list src="amp-script:f.g"></amp-list>`},
		{name: "a binding", document: `<amp-list [src]="'/list?' + a"></amp-list>`, unknown: `the value of [src]`},
		{name: "amp-state", document: `<amp-state src="state.json"></amp-state>`,
			want: []string{"GET https://www.example.com/articles/state.json json"}},
		{name: "amp-autocomplete", document: `<amp-autocomplete src="/find" query="q"></amp-autocomplete>`,
			want: []string{"GET https://www.example.com/find?q=a json"}},
		{name: "others that read JSON", document: `<amp-date-picker src="/1"></amp-date-picker><amp-bodymovin-animation ` +
			`src="/2"></amp-bodymovin-animation><amp-next-page src="/3"></amp-next-page><amp-render src="/4"></amp-render><amp-viz-vega ` +
			`src="/5"></amp-viz-vega>`,
			want: []string{"GET https://www.example.com/1 json", "GET https://www.example.com/2 json", "GET https://www.example.com/3 json",
				"GET https://www.example.com/4 json", "GET https://www.example.com/5 json"}},
		{name: "a form", document: `<form method="post" action-xhr="/form" verify-xhr="/verify"></form>`, want: []string{
			"POST https://www.example.com/form form credentials multipart/form-data; boundary=----ampcors-probe",
			"POST https://www.example.com/verify verify credentials multipart/form-data; boundary=----ampcors-probe"},
			body: "------ampcors-probe\r\nContent-Disposition: form-data; name=\"__amp_form_verify\"\r\n\r\ntrue\r\n------ampcors-probe--\r\n"},
		{name: "the fields of a form with GET", document: `<form action-xhr="/search?a=1" verify-xhr="/verify"><input type="hidden" name="a b" ` +
			`value="é &amp;"><input name="q"><input type="checkbox" name="c"><input type="radio" name="r" checked><input type="submit" ` +
			`name="s"><input name="d" disabled><textarea name="t">RANDOM</textarea><fieldset disabled><input name="f"></fieldset><template><input ` +
			`name="m"></template><input type="password" name="token" value="1" no-verify><select name="o"><option>one<option selected ` +
			`value="2">two</select><select name="p"><option>first</select><select multiple name="n"><option>none</select><button name="go" ` +
			`value="x">Go</button></form>`,
			want: []string{"GET https://www.example.com/search?a=1&a%20b=%C3%A9%20%26&q=&r=on&t=RANDOM&token=1&o=2&p=first&s= form credentials",
				"GET https://www.example.com/verify?a%20b=%C3%A9%20%26&q=&r=on&t=RANDOM&o=2&p=first&s=&__amp_form_verify=true verify credentials"}},
		{name: "a verification that the runtime cannot send",
			document: `<form method="post" enctype="application/x-www-form-urlencoded" verify-xhr="/verify"></form>`,
			unknown:  "the runtime throws an error"},
		{name: "the fields of a form, urlencoded", document: `<form method="Post" enctype="application/x-www-form-urlencoded" ` +
			`action-xhr="/form?RANDOM"><input type="hidden" name="a" value="it's (1)"></form>`,
			want: []string{"POST https://www.example.com/form?RANDOM form credentials application/x-www-form-urlencoded"}, body: "a=it's%20(1)"},
		{name: "the fields of a form, multipart", document: `<form method="post" action-xhr="/form"><input type="hidden" name="a" ` +
			`value="b"></form>`,
			want: []string{"POST https://www.example.com/form form credentials multipart/form-data; boundary=----ampcors-probe"},
			body: "------ampcors-probe\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n------ampcors-probe--\r\n"},
		{name: "a form, urlencoded", document: `<form method="POST" enctype="application/x-www-form-urlencoded" action-xhr="/form"></form>`,
			want: []string{"POST https://www.example.com/form form credentials application/x-www-form-urlencoded"}},
		{name: "a form with GET", document: `<form action-xhr="/search"></form>`,
			want: []string{"GET https://www.example.com/search form credentials"}},
		{name: "amp-access", document: `<script id="amp-access" type="application/json">{"authorization": ` +
			`"https://api.example.com/a?rid=READER_ID", "pingback": "https://api.example.com/p", "login": "https://www.example.com/login"}</script>`,
			want: []string{"GET https://api.example.com/a?rid=0 json credentials",
				"POST https://api.example.com/p any credentials application/x-www-form-urlencoded"}},
		{name: "amp-access, several", document: `<script id="amp-access" type="application/json">[{"authorization": "/1"}, {"authorization": ` +
			`"/2", "jwt": true}]</script>`,
			want: []string{"GET https://www.example.com/1 json credentials", "GET https://www.example.com/2 any credentials"}},
		{name: "amp-subscriptions", document: `<script id="amp-subscriptions" type="application/json">{"services": [{"serviceId": ` +
			`"subscribe.google.com"}, {"authorizationUrl": "/a", "pingbackUrl": "/p"}]}</script>`,
			want: []string{"GET https://www.example.com/a json credentials",
				"POST https://www.example.com/p any credentials text/plain;charset=utf-8"}},
		{name: "amp-consent", document: `<amp-consent><script type="application/json">{"checkConsentHref": "/check", "onUpdateHref": ` +
			`"/update"}</script></amp-consent>`,
			want: []string{"POST https://www.example.com/check json credentials text/plain;charset=utf-8",
				"POST https://www.example.com/update any credentials text/plain;charset=utf-8 no-source-origin"}},
		{name: "amp-consent, older", document: `<amp-consent><script type="application/json">{"consents": {"a": {"checkConsentHref": ` +
			`"/check"}}}</script></amp-consent>`,
			want: []string{"POST https://www.example.com/check json credentials text/plain;charset=utf-8"}},
		{name: "amp-consent, by country", document: `<amp-consent><script type="application/json">{"geoOverride": {"us": {"checkConsentHref": ` +
			`"/us"}, "eea": {"checkConsentHref": "/eea"}, "x": 1}}</script></amp-consent>`,
			want: []string{"POST https://www.example.com/eea json credentials text/plain;charset=utf-8",
				"POST https://www.example.com/us json credentials text/plain;charset=utf-8"}},
		{name: "components of amp-story", document: `<amp-story-shopping-config src="/1"></amp-story-shopping-config><amp-story-social-share ` +
			`src="/2" data-credentials="include"></amp-story-social-share><amp-story-auto-ads src="/3" ` +
			`data-credentials="include"></amp-story-auto-ads>`,
			want: []string{"GET https://www.example.com/1 json", "GET https://www.example.com/2 json credentials",
				"GET https://www.example.com/3 json"}},
		{name: "a form in a template", document: `<script type="text/plain" template="amp-mustache"><p>{{a}}</p><form method="post" ` +
			`enctype="application/x-www-form-urlencoded" action-xhr="/form"></form></script><template type="amp-mustache"><form ` +
			`action-xhr="/search"></form></template>`,
			want: []string{"POST https://www.example.com/form form credentials application/x-www-form-urlencoded",
				"GET https://www.example.com/search form credentials"}},
		{name: "a space in a URL", document: `<amp-list src="/a b?c=d e"></amp-list>`,
			want: []string{"GET https://www.example.com/a%20b?c=d%20e json"}},
		{name: "URLs that only browsers take", document: "<amp-list src='/bad/%zz'></amp-list><amp-list src='/bad\n/x'></amp-list><amp-list " +
			"src='/100%'></amp-list>",
			want: []string{"GET https://www.example.com/bad/%25zz json", "GET https://www.example.com/bad/x json",
				"GET https://www.example.com/100%25 json"}},
		{name: "a URL of many variables", document: `<amp-list src="/` + strings.Repeat("CLIENT_ID(", 300_000) + `"></amp-list>`,
			unknown: "longer than 8192 bytes"},
		{name: "invalid JSON", document: `<amp-consent><script type="application/json">{</script></amp-consent>`, unknown: "not JSON"},
		{name: "amp-user-notification", document: `<amp-user-notification id="n 1" data-show-if-href="/show" ` +
			`data-dismiss-href="/dismiss"></amp-user-notification>`,
			want: []string{"GET https://www.example.com/show?elementId=n%201&ampUserId=0 json credentials",
				"POST https://www.example.com/dismiss any credentials application/json;charset=utf-8"}, body: `{"elementId":"n 1"}`},
		{name: "amp-user-notification, urlencoded", document: `<amp-user-notification enctype="application/x-www-form-urlencoded" ` +
			`data-dismiss-href="/dismiss?RANDOM"></amp-user-notification>`,
			want: []string{"POST https://www.example.com/dismiss?RANDOM any credentials application/x-www-form-urlencoded"}},
		{name: "amp-story-interactive", document: `<amp-story-interactive-poll id="poll 1" ` +
			`endpoint="https://api.example.com/polls/"></amp-story-interactive-poll>`,
			want: []string{"GET https://api.example.com/polls/aHR0cHM6Ly93d3cuZXhhbXBsZS5jb20vYXJ0aWNsZXMvMT9hPWI.+poll%201?type=1&client=0 json",
				"POST https://api.example.com/polls/aHR0cHM6Ly93d3cuZXhhbXBsZS5jb20vYXJ0aWNsZXMvMT9hPWI.+poll%201/:vote?type=1&client=0 any " +
					"application/json"}},
		{name: "amp-story-interactive, of a canonical URL",
			document: `<link rel="Canonical" href="/1"><link rel="canonical" href="/2"><amp-story-interactive-quiz id="q" ` +
				`endpoint="https://api.example.com/?a"></amp-story-interactive-quiz>`,
			want: []string{"GET https://api.example.com/aHR0cHM6Ly93d3cuZXhhbXBsZS5jb20vMQ..+q?a&type=0&client=0 json",
				"POST https://api.example.com/aHR0cHM6Ly93d3cuZXhhbXBsZS5jb20vMQ..+q/:vote?a&type=0&client=0 any application/json"}},
		{name: "amp-story", document: `<amp-story bookend-config-src="/1" data-credentials="include"><amp-story-bookend ` +
			`src="/2"></amp-story-bookend></amp-story>`,
			want: []string{"GET https://www.example.com/1 json credentials", "GET https://www.example.com/2 json"}},
		{name: "amp-analytics", document: `<amp-analytics config="/config" data-credentials="include"></amp-analytics><amp-call-tracking ` +
			`config="/calls"></amp-call-tracking>`,
			want: []string{"GET https://www.example.com/config json credentials", "GET https://www.example.com/calls json credentials"}},
		{name: "amp-ad", document: `<amp-ad type="custom" data-url="/ad"></amp-ad><amp-ad type="network" rtc-config='{"urls": ` +
			`["https://rtc.example/1", {"url": "https://rtc.example/2"}]}'></amp-ad>`,
			want: []string{"GET https://www.example.com/ad json", "GET https://rtc.example/1 any credentials",
				"GET https://rtc.example/2 any credentials"}},
		{name: "amp-story-auto-ads with attributes", document: `<amp-story-auto-ads><script type="application/JSON">{"ad-attributes": {"type": ` +
			`"network", "data-url": "/ad?RANDOM", "rtc-config": {"urls": ` +
			`["https://rtc.example/?AMP_GEO(ISOCountry)"]}}}</script></amp-story-auto-ads>`,
			want: []string{"GET https://rtc.example/?0 any credentials"}},
		{name: "amp-script", document: `<amp-script src="/script.js"></amp-script>`,
			want: []string{"GET https://www.example.com/script.js script no-source-origin"}},
		{name: "a manifest", document: `<link rel="origin-manifest" href="/1.json"><link rel="manifest" ` +
			`href="/2.json"><amp-app-banner></amp-app-banner>`,
			want: []string{"GET https://www.example.com/1.json json"}},
		{name: "a manifest that nothing reads", document: `<link rel="manifest" href="/manifest.json"><link rel="amp-manifest" href="/1">`},
		{name: "JSON in another case", document: `<script id="amp-access" type="Application/JSON">{"authorization": "/a", "noPingback": true, ` +
			`"pingback": "/p"}</script>`, want: []string{"GET https://www.example.com/a json credentials"}},
		{name: "amp-access of a vendor", document: `<script id="amp-access" type="application/json">[{"vendor": "laterpay", "authorization": ` +
			`"/a"}, {"type": "other", "authorization": "/b"}]</script>`},
		{name: "a prefix in the configuration", document: `<amp-consent><script type="application/json">{"checkConsentHref": "/check", ` +
			`"xssiPrefix": ")]}"}</script></amp-consent>`, want: []string{
			"POST https://www.example.com/check any credentials text/plain;charset=utf-8"}},
		{name: "a prefix that is ignored", document: `<amp-state src="/state" xssi-prefix=")]}"></amp-state>`,
			want: []string{"GET https://www.example.com/state json"}},
		{name: "in a drawing", document: `<svg><amp-list src="/list"></amp-list><script id="amp-access" ` +
			`type="application/json">{"authorization": "/a"}</script></svg>`},
		{name: "bindings without CORS", document: `<amp-img [src]="a"></amp-img><amp-video [src]="b"></amp-video><form [action-xhr]="c"></form>`},
		{name: "variables within words", document: `<amp-list src="/SUBTITLES/$RANDOM/${RANDOM}?g=AMP_GEO"></amp-list>`,
			want: []string{"GET https://www.example.com/SUB0S/0/$%7B0%7D?g=0 json"}},
		{name: "a name that must be encoded", document: `<amp-autocomplete src="/find" query="a b"></amp-autocomplete>`,
			want: []string{"GET https://www.example.com/find?a%20b=a json"}},
		{name: "URLs as the URL standard has them", document: `<amp-list src="HTTPS:\\API.Example.com\b?q=é&quot;#f"></amp-list><amp-list ` +
			`src="//bücher.example/ä%2F|"></amp-list>`, want: []string{"GET https://api.example.com/b?q=%C3%A9%22 json",
			"GET https://xn--bcher-kva.example/%C3%A4%2F%7C json"}},
		{name: "a track", document: `<amp-story><amp-video><track src="/captions.vtt"></amp-video></amp-story><amp-video><track ` +
			`src="/2.vtt"></amp-video><amp-video crossorigin="use-credentials"><track src="/3.vtt"></amp-video>`,
			want: []string{"GET https://www.example.com/captions.vtt any", "GET https://www.example.com/3.vtt any credentials no-source-origin"}},
		{name: "the base of a page", document: `<base href="/"><amp-list src="list.json"></amp-list>`,
			want: []string{"GET https://www.example.com/list.json json"}},
		{name: "a default port", document: `<amp-list src="https://API.example.com:443/a"></amp-list>`,
			want: []string{"GET https://api.example.com/a json"}},
		{name: "an amp-embed", document: `<amp-embed type="network" rtc-config='{"urls": ["https://rtc.example/1"]}'></amp-embed>`,
			want: []string{"GET https://rtc.example/1 any credentials"}},
		{name: "subscriptions of others", document: `<script id="amp-subscriptions" type="application/json">{"services": [{"serviceId": ` +
			`"other.example", "authorizationUrl": "/a"}, {"type": "iframe", "authorizationUrl": "/b"}]}</script>`},
		{name: "results of a story", document: `<amp-story-interactive-results ` +
			`endpoint="https://api.example.com/"></amp-story-interactive-results>`},
		{name: "a font", document: `<style amp-custom>p { color: red } @font-face { font-family: a; src: url("/a.woff2") format("woff2") } q { ` +
			`background: url(/b.png) }</style>`,
			want: []string{"GET https://www.example.com/a.woff2 any no-source-origin"}},
		{name: "a font in a folder src", document: `<style amp-custom>@font-face{src:url(/src/a.woff2?src=1)}</style>`,
			want: []string{"GET https://www.example.com/src/a.woff2?src=1 any no-source-origin"}},
		{name: "a poll without an absolute URL", document: `<amp-story-interactive-poll endpoint="/polls"></amp-story-interactive-poll>`,
			unknown: "which is not an absolute URL"},
		{name: "a form of too many fields", document: `<form action-xhr="/form">` + strings.Repeat("<input name=a>", 1001) + "</form>",
			unknown: "more than 1000 fields"},
		{name: "a form of too many bytes", document: `<form action-xhr="/form"><input name=a value="` + strings.Repeat("x", 65<<10) + `"></form>`,
			unknown: "more than 65536 bytes"},
		{name: "a base that is too long", document: `<base href="/` + strings.Repeat("a", 8200) + `/"><amp-list src="list"></amp-list>`,
			want: []string{"GET https://www.example.com/articles/list json"}},
		{name: "a base in a drawing", document: `<svg><base href="/a/"></svg><amp-list src="list"></amp-list>`,
			want: []string{"GET https://www.example.com/articles/list json"}},
		{name: "buttons that submit nothing", document: `<form action-xhr="/form"><button type="reset" name="a">a</button><button disabled ` +
			`name="b">b</button><button type="submit" name="c" value="1">c</button><select name="d"><option disabled ` +
			`value="0">none<option>2</select></form>`,
			want: []string{"GET https://www.example.com/form?d=2&c=1 form credentials"}},
		{name: "forms in forms", document: strings.Repeat("<form action-xhr=/form><div></form>", 300) + strings.Repeat("<input>", 10_000),
			want: []string{"GET https://www.example.com/form form credentials"}},
		{name: "percent signs", document: `<amp-list src="/100%%/%41?q=50%"></amp-list>`,
			want: []string{"GET https://www.example.com/100%25%25/%41?q=50% json"}},
		{name: "the source of a font that browsers load",
			document: `<style amp-custom>/* @font-face { src: url(/0) } */ @FONT-FACE { font-family: a; src: url(/a.eot); src: ` +
				`url("/a.eot?#iefix") format("embedded-opentype"), URL('/b (1).woff2') format('woff2'), url(/a.svg) format("svg") }</style>`,
			want: []string{"GET https://www.example.com/b%20(1).woff2 any no-source-origin"}},
		{name: "the same URL twice", document: `<amp-list src="/list"></amp-list><amp-list src="/list#2"></amp-list>`,
			want: []string{"GET https://www.example.com/list json"}},
		{name: "a fragment", document: `<amp-autocomplete src="/names#all" query="q"></amp-autocomplete>`,
			want: []string{"GET https://www.example.com/names?q=a json"}},
		{name: "a template", document: `<amp-list src="/cart/{{id}}"></amp-list>`, unknown: "which a template makes"},
		{name: "user information", document: `<amp-list src="https://u:p4ssword@a.example/"></amp-list>`, unknown: "https://u:xxxxx@a.example/"},
		{name: "a source origin of its own", document: `<amp-list src="/list?__amp_source_origin=x"></amp-list>`,
			unknown: "the runtime throws an error"},
		{name: "parameters that only look like variables", document: `<amp-list src="/odata?$top=5&$format=json"></amp-list>`,
			want: []string{"GET https://www.example.com/odata?$top=5&$format=json json"}},
		{name: "a prefix against inclusion", document: `<amp-list src="/list" xssi-prefix=")]}'"></amp-list>`,
			want: []string{"GET https://www.example.com/list any"}},
		{name: "not the URL of a web server", document: `<amp-list src="ftp://a.example/"></amp-list>`, unknown: `"ftp://a.example/"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			document, err := ReadDocument(strings.NewReader("<!doctype html><html amp><body>"+test.document), base)
			if err != nil || !document.IsAMP {
				t.Fatal(err, document.IsAMP)
			}
			unknown := document.Unknown
			var got []string
			for _, e := range document.Endpoints {
				words := []string{e.Method, e.URL, string(e.Answer)}
				if e.Credentials {
					words = append(words, "credentials")
				}
				if e.ContentType != "" {
					words = append(words, e.ContentType)
				}
				if e.NoSourceOrigin {
					words = append(words, "no-source-origin")
				}
				got = append(got, strings.Join(words, " "))
			}
			if last := len(document.Endpoints) - 1; test.body != "" && (last < 0 || document.Endpoints[last].Body != test.body) {
				t.Errorf("%+v; want the body %q", document.Endpoints, test.body)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if test.unknown == "" && len(unknown) > 0 || test.unknown != "" &&
				(len(unknown) != 1 || !strings.Contains(unknown[0].What, test.unknown)) {
				t.Errorf("unknown: %+v; want %q", unknown, test.unknown)
			}
		})
	}
}

func TestWhatNeedsAPreflight(t *testing.T) {
	for e, want := range map[Endpoint]bool{
		{Method: "GET"}:  false,
		{Method: "POST"}: false,
		{Method: "PUT"}:  true,
		{Method: "POST", ContentType: "Text/Plain; charset=utf-8"}: false,
		{Method: "POST", ContentType: typeJSON}:                    true,
	} {
		if got := e.NeedsPreflight(); got != want {
			t.Errorf("%+v: %t", e, got)
		}
	}
}

// Of a document with many endpoints, those that are not tested are named, each.
func TestManyEndpointsAreNamed(t *testing.T) {
	const all = 10_000
	var document strings.Builder
	for i := range all {
		fmt.Fprintf(&document, `<amp-list src="/%d"></amp-list>`, i)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, document.String()) }))
	defer server.Close()
	report, err := Plan(t.Context(), Config{Documents: []string{server.URL + "/article"}, Publishers: []string{publisher}})
	if err != nil || len(report.Endpoints) != 200 || len(report.Untested) != all-200 {
		t.Fatalf("%v, %d endpoints, %d not tested", err, len(report.Endpoints), len(report.Untested))
	}
	if u := report.Untested[all-201]; u.Endpoint != server.URL+"/9999" || !u.Failed || !strings.Contains(u.Reason, "--max-endpoints 10000") {
		t.Errorf("%+v", u)
	}
}

// FuzzReadDocument: whatever a document holds, its endpoints are bounded and are URLs of web
// servers.
func FuzzReadDocument(f *testing.F) {
	f.Add(`<amp-list src="/list?id=CLIENT_ID(x)"></amp-list>`)
	f.Add(`<form method=post action-xhr="//a.example/form" enctype=x></form>`)
	f.Add(`<script id="amp-access" type="application/json">[{"authorization": 7}, null, {"pingback": "/p"}]</script>`)
	f.Add(`<amp-consent><script type="application/json">{"consents": {"a": null}}</script></amp-consent>`)
	f.Add(`<amp-ad rtc-config='{"urls": [{"url": []}, "https://a.example"]}'></amp-ad>`)
	f.Add(`<style amp-custom>@font-face { src: url(data:a) }</style>`)
	base := &url.URL{Scheme: "https", Host: "www.example.com", Path: "/a"}
	f.Fuzz(func(t *testing.T, document string) {
		read, err := ReadDocument(strings.NewReader(document), base)
		if err != nil {
			return
		}
		for _, e := range read.Endpoints {
			u, err := url.Parse(e.URL)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || e.Method != "GET" && e.Method != "POST" {
				t.Fatalf("%+v, %v", e, err)
			}
		}
	})
}
