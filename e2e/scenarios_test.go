package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
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
	{name: "a cache page reads", page: cached, script: `call('/api/read')`, want: `200 {"cookie":false}`, runs: "read"},
	{name: "a cache page reads with cookies", page: cached, script: `call('/api/read', withCookies)`, want: `200 {"cookie":true}`,
		runs: "read as reader"},
	{name: "a cache page posts a form", page: cached, script: `call('/api/write', post('a=1'))`, want: "200 written",
		runs: "POST a=1 as reader"},
	{name: "a cache page posts JSON, after a preflight", page: cached, script: `call('/api/write', json('POST'))`, want: "200 written",
		runs: "POST {} as reader"},
	{name: "a cache page puts JSON with a header, after a preflight", page: cached,
		script: `call('/api/write', json('PUT', {'X-Requested-With': 'page'}))`, want: "200 written", runs: "PUT {} as reader"},
	{name: "a cache page submits an HTML form", page: cached, script: `form()`, want: "sent", runs: "POST a=form as reader"},
	{name: "a method that preflights do not allow", page: cached, script: `call('/api/write', json('DELETE'))`, want: blocked, runs: ""},
	{name: "a header that preflights do not allow", page: cached, script: `call('/api/write', json('POST', {'X-Other': '1'}))`, want: blocked,
		runs: ""},
	{name: "a cache page claims to be same-origin", page: cached, script: `call('/api/write', json('POST', {'AMP-Same-Origin': 'true'}))`,
		want: blocked, runs: ""},
	{name: "a cache page sends an AMP for Email request", page: cached,
		script: `call('/api/write', json('POST', {'AMP-Email-Sender': 'news@example.com'}))`, want: blocked, runs: ""},
	{name: "AMP-Redirect-To can be read", page: cached, script: `header('/api/read', 'AMP-Redirect-To')`,
		want: "https://www.example.com/thanks", runs: "read"},
	{name: "another header cannot be read", page: cached, script: `header('/api/read', 'X-Internal')`, want: "null", runs: "read"},

	{name: "another publisher's page reads", page: evil, script: `call('/api/read')`, want: blocked, runs: ""},
	{name: "another publisher's page reads with cookies", page: evil, script: `call('/api/read', withCookies)`, want: blocked, runs: ""},
	{name: "another publisher's page posts a form", page: evil, script: `call('/api/write', post('a=1'))`, want: blocked, runs: ""},
	{name: "another publisher's page posts with no-cors", page: evil, script: `call('/api/write', {...post('a=1'), mode: 'no-cors'})`,
		want: "opaque", runs: ""},
	{name: "another publisher's page posts JSON", page: evil, script: `call('/api/write', json('POST'))`, want: blocked, runs: ""},
	{name: "another publisher's page sends a form", page: evil, script: `form()`, want: "sent", runs: ""},
	{name: "another publisher's page sends a form and no referrer", page: evil, script: `form('no-referrer')`, want: "sent", runs: ""},
	{name: "another publisher's page claims a source origin", page: evil,
		script: `call('/api/read?__amp_source_origin=' + encodeURIComponent('https://www.example.com'), withCookies)`, want: blocked, runs: ""},
	{name: "another publisher's page claims to be same-origin", page: evil,
		script: `call('/api/write', json('POST', {'AMP-Same-Origin': 'true'}))`, want: blocked, runs: ""},
	{name: "another publisher's page sends an AMP for Email request", page: evil,
		script: `call('/api/read?__amp_source_origin=news@example.com', withCookies)`, want: blocked, runs: ""},
	{name: "a look-alike host", page: "https://www-example-com.cdn.ampproject.org.evil.example", script: `call('/api/read', withCookies)`,
		want: blocked, runs: ""},
	{name: "a look-alike prefix", page: "https://wwwexample-com.cdn.ampproject.org", script: `call('/api/read', withCookies)`, want: blocked,
		runs: ""},
	{name: "a third-party frame's host", page: "https://d-1.ampproject.net", script: `call('/api/read', withCookies)`, want: blocked,
		runs: ""},

	{name: "internationalized", page: "https://xn--bcher-example-wob.cdn.ampproject.org", script: `call('/api/write', post('a=1'))`,
		want: "200 written", runs: "POST a=1 as reader"},
	{name: "internationalized, typed in Unicode, own origin", page: "https://bücher.example", script: `call('/api/write', post('a=1'))`,
		want: "200 written", runs: "POST a=1 as reader"},
	{name: "wrapped in 0- and -0", page: "https://0-en--us-example-com-0.cdn.ampproject.org", script: `call('/api/write', post('a=1'))`,
		want: "200 written", runs: "POST a=1 as reader"},
	{name: "below a pattern", page: "https://blog-news-example.cdn.ampproject.org", script: `call('/api/write', post('a=1'))`,
		want: "200 written", runs: "POST a=1 as reader"},
	{name: "the hash prefix of a name that is too long", page: "", script: `call('/api/write', post('a=1'))`, want: "200 written",
		runs: "POST a=1 as reader"},
	{name: "the hash prefix of no publisher", page: byHash, script: `call('/api/read', withCookies)`, want: blocked, runs: ""},
	{name: "Bing's cache", page: bing, script: `call('/api/write', post('a=1'))`, want: "200 written", runs: "POST a=1 as reader"},
	{name: "another publisher's page on Bing's cache", page: "https://evil-example.www.bing-amp.com",
		script: `call('/api/write', {...post('a=1'), mode: 'no-cors'})`, want: "opaque", runs: ""},

	{name: "own origin reads", page: own, script: `call('/api/read', withCookies)`, want: `200 {"cookie":true}`, runs: "read as reader"},
	{name: "own origin posts", page: own, script: `call('/api/write', post('a=1'))`, want: "200 written", runs: "POST a=1 as reader"},
	{name: "own origin posts to an API at its own host", page: own, script: `call('https://www.example.com/api/write', post('a=1'))`,
		want: "200 written", runs: "POST a=1"},
	{name: "the apex, redirected to www, as AMP's runtime marks it", page: "https://example.com",
		script: `call('https://example.com/api/write', {...post('a=1'), headers: {'AMP-Same-Origin': 'true'}})`, want: "200 written",
		runs: "POST a=1"},
	{name: "the apex, redirected to www, reading", page: "https://example.com",
		script: `call('https://example.com/api/read', {headers: {'AMP-Same-Origin': 'true'}})`, want: `200 {"cookie":false}`, runs: "read"},
	{name: "own origin over http", page: "http://www.example.com", script: `call('/api/write', {...post('a=1'), mode: 'no-cors'})`,
		want: "opaque", runs: ""},
	{name: "own origin over http reads", page: "http://www.example.com", script: `call('/api/read')`, want: blocked, runs: ""},
	{name: "a sandboxed frame in an allowed page", page: cached, script: `frame({sandbox: 'allow-scripts'}, "fetch('` + apiOrigin +
		`/api/read').then(() => 'read', () => 'blocked')")`, want: blocked, runs: ""},
	{name: "a sandboxed frame posts with no-cors", page: cached, script: `frame({sandbox: 'allow-scripts'}, "fetch('` + apiOrigin +
		`/api/write', {method: 'POST', mode: 'no-cors', credentials: 'include'}).then(() => 'sent', () => 'blocked')")`, want: "sent", runs: ""},
	{name: "a frame that is not sandboxed", page: cached, script: `frame({}, "fetch('` + apiOrigin +
		`/api/read').then(r => r.text(), () => 'blocked')")`, want: "{\"cookie\":false}\n", runs: "read"},

	{name: "the API host's own page reads", page: apiOrigin + "/page", script: `call('/api/read', withCookies)`, want: `200 {"cookie":true}`,
		runs: "read as reader"},
	{name: "the API host's own page posts", page: apiOrigin + "/page", script: `call('/api/write', post('a=1'))`, want: "200 written",
		runs: "POST a=1 as reader"},
	{name: "the API host's own page puts", page: apiOrigin + "/page", script: `call('/api/write', json('PUT'))`, want: "200 written",
		runs: "PUT {} as reader"},
	{name: "the API host's own page sends a form", page: apiOrigin + "/page", script: `form()`, want: "sent", runs: "POST a=form as reader"},
	{name: "the API host's own page sends a form and no referrer", page: apiOrigin + "/page", script: `form('no-referrer')`, want: "sent",
		runs: "POST a=form as reader"},

	{name: "a font", page: cached, script: `font('` + apiOrigin + `/api/font.ttf')`, want: "loaded", runs: ""},
	{name: "a font for another publisher's page", page: evil, script: `font('` + apiOrigin + `/api/font.ttf')`, want: blocked, runs: ""},
	{name: "a font from the AMP Cache, which keeps the API's answer", page: own,
		script: `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, want: "loaded", runs: ""},
	{name: "that font for another publisher's page", page: evil,
		script: `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, want: blocked, runs: ""},
	{name: "that font for another allowed publisher: each needs a URL of its own", page: "https://bücher.example",
		script: `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/api/font.ttf')`, want: blocked, runs: ""},
	{name: "a font from the publisher's own host, from the AMP Cache", page: "https://bücher.example",
		script: `font('https://xn--bcher-example-wob.cdn.ampproject.org/r/s/xn--bcher-kva.example/api/font.ttf')`, want: "loaded", runs: ""},

	{name: "a public font", page: evil, script: `font('` + apiOrigin + `/public/font.ttf')`, want: "loaded", runs: ""},
	{name: "a public font from the AMP Cache", page: evil,
		script: `font('https://api-example-org.cdn.ampproject.org/r/s/api.example.org/public/font.ttf')`, want: "loaded", runs: ""},

	{name: "a mail client, version 1", page: "https://mail.google.com", script: `call('/api/read?__amp_source_origin=news@example.com')`,
		want: `200 {"cookie":false}`, runs: "read"},
	{name: "a mail client reads the header that it needs", page: "https://mail.google.com",
		script: `header('/api/read?__amp_source_origin=news%40example.com', 'AMP-Access-Control-Allow-Source-Origin')`, want: "news@example.com",
		runs: "read"},
	{name: "a mail client cannot read with cookies", page: "https://mail.google.com",
		script: `call('/api/read?__amp_source_origin=news@example.com', withCookies)`, want: blocked, runs: "read as reader"},
	{name: "a mail client, another sender", page: "https://mail.google.com", script: `call('/api/read?__amp_source_origin=evil@evil.example')`,
		want: blocked, runs: ""},
}

// at returns the URL of the page. The origin of longName is computed.
func (sc scenario) at(t testing.TB) string {
	if sc.page != "" {
		return sc.page
	}
	origins, err := cacheurl.Origins(longName)
	if err != nil || strings.Contains(origins[0], "-") {
		t.Fatalf("%q, %v; want a hash prefix", origins, err)
	}
	return origins[0]
}

func TestWhatEachPageCanReadAndDo(t *testing.T) {
	s := newSite(t)
	chromium := browser(t, s)
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	s.use(mw.Wrap(s.handler()))
	runScenarios(t, s, chromium)
	t.Log(mw.Stats())
}

// runScenarios runs all scenarios with the site's API.
func runScenarios(t *testing.T, s *site, chromium context.Context) {
	t.Helper()
	page := tab(t, chromium)
	visit(t, page, apiOrigin+"/login", "''")
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			s.takeRuns()
			got := visit(t, page, sc.at(t), "{"+library+sc.script+"}")
			if runs := s.takeRuns(); got != sc.want || runs != sc.runs {
				t.Errorf("the script has %q, want %q; the handler did %q, want %q", got, sc.want, runs, sc.runs)
			}
		})
	}
}
