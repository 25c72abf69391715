package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
)

const (
	longName = "the-weekly-gazette-of-a-town-with-a-rather-long-name.example.org"

	cached  = "https://www-example-com.cdn.ampproject.org"
	bing    = "https://www-example-com.www.bing-amp.com"
	evil    = "https://evil-example.cdn.ampproject.org"
	own     = "https://www.example.com"
	byHash  = "https://v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq.cdn.ampproject.org" // of no publisher here
	blocked = "blocked"                                                                         // fetch failed; a script learns no more
)

func config() ampcors.Config {
	return ampcors.Config{
		Publishers:     []string{"www.example.com", "example.com", "bücher.example", "en-us.example.com", "*.news.example", longName},
		Credentialed:   true,
		Methods:        []string{"PUT"},
		RequestHeaders: []string{"X-Requested-With"},
		MaxAge:         time.Minute,
		Email:          ampcors.Email{Senders: []string{"news@example.com"}},
	}
}

// library is the script of all pages. call fetches from the API and returns what the script
// can read of the response. form submits an HTML form into a frame that it cannot read.
const library = `
	const call = (path, options = {}) => fetch(path.startsWith('/') ? '` + apiOrigin + `' + path : path, options)
		.then(async r => r.type == 'opaque' ? 'opaque' : r.status + ' ' + (await r.text()).trim(), () => 'blocked');
	const header = (path, name) => fetch('` + apiOrigin + `' + path).then(r => String(r.headers.get(name)), () => 'blocked');
	const withCookies = {credentials: 'include'};
	const post = body => ({method: 'POST', body: new URLSearchParams(body), ...withCookies});
	const json = (method, headers = {}) => ({method, body: '{}', headers: {'Content-Type': 'application/json', ...headers}, ...withCookies});
	const font = url => new FontFace('f', 'url(' + url + ')').load().then(() => 'loaded', () => 'blocked');
	const frame = (attributes, script) => new Promise(done => {
		addEventListener('message', e => done(e.data));
		const f = document.createElement('iframe');
		for (const [key, value] of Object.entries(attributes)) f.setAttribute(key, value);
		f.srcdoc = '<script>' + script + '.then(s => parent.postMessage(s, "*"))<' + '/script>';
		document.body.append(f);
	});
	const form = (policy = '') => new Promise(done => {
		const f = document.createElement('iframe'), g = document.createElement('form');
		f.name = 'target'; g.target = 'target'; g.method = 'POST'; g.action = '` + apiOrigin + `/api/write';
		g.innerHTML = '<input name=a value=form>';
		if (policy) { const m = document.createElement('meta'); m.name = 'referrer'; m.content = policy; document.head.append(m); }
		document.body.append(f, g);
		f.onload = () => done('sent');
		g.submit();
	});
`

// A scenario is what a page does. The browser has visited the API's host before and has its
// cookie.
type scenario struct {
	name   string
	page   string // where the script runs
	script string // a promise of a string
	want   string
	runs   string // what the API's handler did
}

var scenarios = []scenario{
	{"a cache page reads", cached, `call('/api/read')`, `200 {"cookie":false}`, "read"},
	{"a cache page reads with cookies", cached, `call('/api/read', withCookies)`, `200 {"cookie":true}`, "read as reader"},
	{"a cache page posts a form", cached, `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"a cache page posts JSON, after a preflight", cached, `call('/api/write', json('POST'))`, "200 written", "POST {} as reader"},
	{"a cache page puts JSON with a header, after a preflight", cached, `call('/api/write', json('PUT', {'X-Requested-With': 'page'}))`, "200 written", "PUT {} as reader"},
	{"a cache page submits an HTML form", cached, `form()`, "sent", "POST a=form as reader"},
	{"a method that preflights do not allow", cached, `call('/api/write', json('DELETE'))`, blocked, ""},
	{"a header that preflights do not allow", cached, `call('/api/write', json('POST', {'X-Other': '1'}))`, blocked, ""},
	{"a cache page claims to be same-origin", cached, `call('/api/write', json('POST', {'AMP-Same-Origin': 'true'}))`, blocked, ""},
	{"a cache page claims to be an AMP for Email request", cached, `call('/api/write', json('POST', {'AMP-Email-Sender': 'news@example.com'}))`, blocked, ""},
	{"AMP-Redirect-To can be read", cached, `header('/api/read', 'AMP-Redirect-To')`, "https://www.example.com/thanks", "read"},
	{"another header cannot be read", cached, `header('/api/read', 'X-Internal')`, "null", "read"},

	{"another publisher's page reads", evil, `call('/api/read')`, blocked, ""},
	{"another publisher's page reads with cookies", evil, `call('/api/read', withCookies)`, blocked, ""},
	{"another publisher's page posts a form", evil, `call('/api/write', post('a=1'))`, blocked, ""},
	{"another publisher's page posts with no-cors", evil, `call('/api/write', {...post('a=1'), mode: 'no-cors'})`, "opaque", ""},
	{"another publisher's page posts JSON", evil, `call('/api/write', json('POST'))`, blocked, ""},
	{"another publisher's page sends a form", evil, `form()`, "sent", ""},
	{"another publisher's page sends a form and no referrer", evil, `form('no-referrer')`, "sent", ""},
	{"another publisher's page claims a source origin", evil, `call('/api/read?__amp_source_origin=' + encodeURIComponent('https://www.example.com'), withCookies)`, blocked, ""},
	{"another publisher's page claims to be same-origin", evil, `call('/api/write', json('POST', {'AMP-Same-Origin': 'true'}))`, blocked, ""},
	{"another publisher's page claims to be an AMP for Email request", evil, `call('/api/read?__amp_source_origin=news@example.com', withCookies)`, blocked, ""},
	{"a look-alike host", "https://www-example-com.cdn.ampproject.org.evil.example", `call('/api/read', withCookies)`, blocked, ""},
	{"a look-alike prefix", "https://wwwexample-com.cdn.ampproject.org", `call('/api/read', withCookies)`, blocked, ""},
	{"a third-party frame's host", "https://d-1.ampproject.net", `call('/api/read', withCookies)`, blocked, ""},

	{"internationalised", "https://xn--bcher-example-wob.cdn.ampproject.org", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"internationalised, typed in Unicode, own origin", "https://bücher.example", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"wrapped in 0- and -0", "https://0-en--us-example-com-0.cdn.ampproject.org", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"below a pattern", "https://blog-news-example.cdn.ampproject.org", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"the hash prefix of a name that is too long", "", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"the hash prefix of no publisher", byHash, `call('/api/read', withCookies)`, blocked, ""},
	{"Bing's cache", bing, `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"another publisher's page on Bing's cache", "https://evil-example.www.bing-amp.com", `call('/api/write', {...post('a=1'), mode: 'no-cors'})`, "opaque", ""},

	{"own origin reads", own, `call('/api/read', withCookies)`, `200 {"cookie":true}`, "read as reader"},
	{"own origin posts", own, `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"own origin posts to an API at its own host", own, `call('https://www.example.com/api/write', post('a=1'))`, "200 written", "POST a=1"},
	{"the apex, redirected to www, as AMP's runtime marks it", "https://example.com", `call('https://example.com/api/write', {...post('a=1'), headers: {'AMP-Same-Origin': 'true'}})`, "200 written", "POST a=1"},
	{"the apex, redirected to www, reading", "https://example.com", `call('https://example.com/api/read', {headers: {'AMP-Same-Origin': 'true'}})`, `200 {"cookie":false}`, "read"},
	{"own origin over http", "http://www.example.com", `call('/api/write', {...post('a=1'), mode: 'no-cors'})`, "opaque", ""},
	{"own origin over http reads", "http://www.example.com", `call('/api/read')`, blocked, ""},
	{"a sandboxed frame in an allowed page", cached, `frame({sandbox: 'allow-scripts'}, "fetch('` + apiOrigin + `/api/read').then(() => 'read', () => 'blocked')")`, blocked, ""},
	{"a sandboxed frame posts with no-cors", cached, `frame({sandbox: 'allow-scripts'}, "fetch('` + apiOrigin + `/api/write', {method: 'POST', mode: 'no-cors', credentials: 'include'}).then(() => 'sent', () => 'blocked')")`, "sent", ""},
	{"a frame that is not sandboxed", cached, `frame({}, "fetch('` + apiOrigin + `/api/read').then(r => r.text(), () => 'blocked')")`, "{\"cookie\":false}\n", "read"},

	{"the API host's own page reads", apiOrigin + "/page", `call('/api/read', withCookies)`, `200 {"cookie":true}`, "read as reader"},
	{"the API host's own page posts", apiOrigin + "/page", `call('/api/write', post('a=1'))`, "200 written", "POST a=1 as reader"},
	{"the API host's own page puts", apiOrigin + "/page", `call('/api/write', json('PUT'))`, "200 written", "PUT {} as reader"},
	{"the API host's own page sends a form", apiOrigin + "/page", `form()`, "sent", "POST a=form as reader"},
	{"the API host's own page sends a form and no referrer", apiOrigin + "/page", `form('no-referrer')`, "sent", "POST a=form as reader"},

	{"a font", cached, `font('` + apiOrigin + `/api/font.ttf')`, "loaded", ""},
	{"a font for another publisher's page", evil, `font('` + apiOrigin + `/api/font.ttf')`, blocked, ""},
	{"a font from the AMP Cache, which keeps the API's answer", own, `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, "loaded", ""},
	{"that font for another publisher's page", evil, `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, blocked, ""},
	{"that font for another allowed publisher: each needs a URL of its own", "https://bücher.example", `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, blocked, ""},
	{"a font from the publisher's own host, from the AMP Cache", "https://bücher.example", `font('https://xn--bcher-example-wob.cdn.ampproject.org/r/s/xn--bcher-kva.example/api/font.ttf')`, "loaded", ""},

	{"a public font", evil, `font('` + apiOrigin + `/public/font.ttf')`, "loaded", ""},
	{"a public font from the AMP Cache", evil, `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/public/font.ttf')`, "loaded", ""},

	{"a mail client, version 1", "https://mail.google.com", `call('/api/read?__amp_source_origin=news@example.com')`, `200 {"cookie":false}`, "read"},
	{"a mail client reads the header that it needs", "https://mail.google.com", `header('/api/read?__amp_source_origin=news%40example.com', 'AMP-Access-Control-Allow-Source-Origin')`, "news@example.com", "read"},
	{"a mail client cannot read with cookies", "https://mail.google.com", `call('/api/read?__amp_source_origin=news@example.com', withCookies)`, blocked, "read as reader"},
	{"a mail client, another sender", "https://mail.google.com", `call('/api/read?__amp_source_origin=evil@evil.example')`, blocked, ""},
}

// at returns the URL of the page. The origin of longName is computed.
func (sc scenario) at(t testing.TB) string {
	if sc.page != "" {
		return sc.page
	}
	origins, err := ampcors.CacheOrigins(longName)
	if err != nil || strings.Contains(origins[0], "-") {
		t.Fatalf("%q, %v; want a hash prefix", origins, err)
	}
	return origins[0]
}

func TestTheBrowserDecides(t *testing.T) {
	s := newSite(t)
	chromium := browser(t, s)
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	s.use(mw.Wrap(s.handler()))
	page := tab(t, chromium)
	visit(t, page, apiOrigin+"/login", "''")
	for _, sc := range scenarios {
		s.takeRuns()
		got := visit(t, page, sc.at(t), "{"+library+sc.script+"}")
		if runs := s.takeRuns(); got != sc.want || runs != sc.runs {
			t.Errorf("%s: the script has %q, want %q; the handler did %q, want %q", sc.name, got, sc.want, runs, sc.runs)
		}
	}
	t.Log(mw.Stats())
}
