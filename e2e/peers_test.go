package e2e

import (
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	jub0bs "github.com/jub0bs/cors"
	rs "github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/readme"
	"github.com/ampcors/ampcors/internal/servertest"
)

// peerScenarios are the requests by which the libraries are compared. As in AMP's runtime, each page
// sends its source origin, or a wrong one, in __amp_source_origin, unless claim is "". The
// same-origin request has AMP-Same-Origin.
var peerScenarios = []struct {
	name   string
	page   string
	before string // a page that reads before, if any: the API sets a Partitioned cookie
	claim  string
	call   string
	want   string // "reads"; "runs" if it cannot, but the handler processed a POST; or "blocked"
}{
	{name: "cache page reads with cookies", page: cached, claim: own, call: `call('/api/read', withCookies)`, want: "reads"},
	{name: "cache page posts JSON", page: cached, claim: own, call: `call('/api/write', json('POST'))`, want: "reads"},
	{name: "page of a publisher with an international name reads", page: "https://xn--bcher-example-wob.cdn.ampproject.org",
		claim: "https://xn--bcher-kva.example", call: `call('/api/read')`, want: "reads"},
	{name: "page with a prefix such as 0-en--us-example-com-0 reads", page: "https://0-en--us-example-com-0.cdn.ampproject.org",
		claim: "https://en-us.example.com", call: `call('/api/read')`, want: "reads"},
	{name: "page of a publisher below *.news.example reads", page: "https://blog-news-example.cdn.ampproject.org",
		claim: "https://blog.news.example", call: `call('/api/read')`, want: "reads"},
	{name: "publisher's own origin posts", page: own, claim: own, call: `call('/api/write', post('a=1'))`, want: "reads"},
	{name: "API host's own page posts", page: apiOrigin + "/page", claim: apiOrigin,
		call: `call('/api/write', {...post('a=1'), headers: {'AMP-Same-Origin': 'true'}})`, want: "reads"},
	{name: "page of another publisher, x-news.example, reads with cookies", page: "https://x--news-example.cdn.ampproject.org",
		claim: "https://x-news.example", call: `call('/api/read', withCookies)`, want: "blocked"},
	{name: "another publisher's cache page reads with cookies", page: evil, claim: "https://evil.example",
		call: `call('/api/read', withCookies)`, want: "blocked"},
	{name: "… and claims to be an allowed one", page: evil, claim: own, call: `call('/api/read', withCookies)`, want: "blocked"},
	{name: "… and claims to be both at once", page: evil, claim: "https://evil.example/" + own, call: `call('/api/read', withCookies)`,
		want: "blocked"},
	{name: "… and posts a form, with the reader's cookies", page: evil, claim: "https://evil.example",
		call: `call('/api/write', {...post('a=1'), mode: 'no-cors'})`, want: "blocked"},
	{name: "… and posts a form without __amp_source_origin", page: evil, claim: "",
		call: `call('/api/write', {...post('a=1'), mode: 'no-cors'})`,
		want: "blocked"},
	{name: "… and reads with a Partitioned cookie that the allowed page got", page: evil, before: cached, claim: "https://evil.example",
		call: `call('/api/read', withCookies)`, want: "blocked"},
	{name: "any website reads with cookies", page: "https://evil.example", claim: own, call: `call('/api/read', withCookies)`,
		want: "blocked"},
	{name: "sandboxed frame reads", page: cached, claim: own, call: `frame({sandbox: 'allow-scripts'}, "fetch('` + apiOrigin +
		`" + claimed('/api/read') + "', {credentials: 'include'}).then(() => '200', () => 'blocked')")`, want: "blocked"},
	{name: "publisher's pages on two caches read through a shared HTTP cache", page: "", claim: own, call: "", want: "reads"},
}

type contender struct {
	name string
	api  func(*testing.T, *site) http.Handler
}

var contenders = []contender{
	{name: "ampcors", api: func(t *testing.T, s *site) http.Handler {
		mw, err := ampcors.New(config())
		if err != nil {
			t.Fatal(err)
		}
		return mw.Wrap(s.handler())
	}},
	{name: "toolbox-cors", api: toolbox(`{}`)},
	{name: "toolbox-cors, sourceOriginPattern", api: toolbox(`{"sourceOriginPattern": ` +
		`"https:\\/\\/(www\\.example\\.com|xn--bcher-kva\\.example|en-us\\.example\\.com|.*\\.news\\.example|api\\.example\\.org)$"}`)},
	{name: "toolbox-cors, email: true", api: toolbox(`{"email": true}`)},
	{name: "jub0bs/cors", api: func(t *testing.T, s *site) http.Handler {
		mw, err := jub0bs.NewMiddleware(jub0bs.Config{
			Origins: listedOrigins(t), Credentialed: true, Methods: []string{"GET", "POST", "PUT"},
			RequestHeaders: []string{"Content-Type", "X-Requested-With"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return mw.Wrap(s.handler())
	}},
	{name: "rs/cors", api: func(t *testing.T, s *site) http.Handler {
		return rs.New(rs.Options{
			// Only a wildcard can match a pattern's hosts on a cache.
			AllowedOrigins: append(listedOrigins(t), "https://*-news-example.cdn.ampproject.org"), AllowCredentials: true,
			AllowedMethods: []string{"GET", "POST",
				"PUT"}, AllowedHeaders: []string{"Content-Type", "X-Requested-With"},
		}).Handler(s.handler())
	}},
}

// listedOrigins returns each origin of each publisher, for libraries that compare whole origins.
// A pattern in Publishers is also a pattern for own origins. For cache origins, these
// libraries have no such pattern.
func listedOrigins(t *testing.T) (origins []string) {
	t.Helper()
	for _, publisher := range config().Publishers {
		if strings.HasPrefix(publisher, "*.") {
			origins = append(origins, "https://"+publisher)
			continue
		}
		onCaches, err := cacheurl.Origins(publisher)
		if err != nil {
			t.Fatal(err)
		}
		origins = append(origins, onCaches...)
		if publisher == "bücher.example" {
			publisher = "xn--bcher-kva.example"
		}
		origins = append(origins, "https://"+publisher)
	}
	return origins
}

// toolbox runs AMP's own middleware for Node with the options, in front of the same API.
func toolbox(options string) func(*testing.T, *site) http.Handler {
	return func(t *testing.T, s *site) http.Handler { return toolboxBefore(t, s.handler(), options) }
}

// toolboxBefore returns toolbox-cors in front of an API.
func toolboxBefore(t *testing.T, api http.Handler, options string) http.Handler {
	t.Helper()
	addr := servertest.FreeAddress(t)
	cmd := exec.Command(nodeJS(t), filepath.Join("peers", "toolbox.js"), addr, serve(t, api), options)
	start(t, addr, cmd)
	return proxy(addr)
}

// peerLibrary returns library with a call that adds the claim to each URL. It also adds the
// contender's number, so that the browser does not reuse preflight results of another one.
func peerLibrary(claim string, contender int) string {
	query := url.Values{"by": {strconv.Itoa(contender)}}
	if claim != "" {
		query.Set("__amp_source_origin", claim)
	}
	return strings.Replace(library, "const call =", "const callWithout =", 1) +
		"const claimed = path => path + '?" + query.Encode() + "'; const call = (path, options) => callWithout(claimed(path), options);"
}

// TestWhatEachLibraryLetsThrough runs the same pages against each library, and compares the
// results with libraries.txt. UPDATE_README=1 writes the file.
func TestWhatEachLibraryLetsThrough(t *testing.T) {
	s := newSite(t)
	chromium := browser(t, s)
	page := tab(t, chromium)
	visit(t, page, apiOrigin+"/login", "''")

	table := [][]string{{"page"}}
	for _, sc := range peerScenarios {
		table = append(table, []string{sc.name})
	}
	for n, c := range contenders {
		table[0] = append(table[0], c.name)
		api := c.api(t, s)
		shared := proxy(startNginx(t, serve(t, api)))
		for i, sc := range peerScenarios {
			script := peerLibrary(sc.claim, n)
			var got string
			if sc.page == "" {
				s.use(shared)
				script += `call('/api/shared', {cache: 'no-store'})`
				if got = visit(t, page, cached, "{"+script+"}"); strings.HasPrefix(got, "200") {
					got = visit(t, page, bing, "{"+script+"}")
				}
			} else {
				s.use(api)
				if sc.before != "" {
					visit(t, page, sc.before, "{"+peerLibrary(own, n)+`call('/api/partitioned', withCookies)}`)
				}
				s.takeRuns()
				got = visit(t, page, sc.page, "{"+script+sc.call+"}")
			}
			outcome := "blocked"
			switch runs := s.takeRuns(); {
			case strings.HasPrefix(got, "200"):
				outcome = "reads"
			case strings.HasPrefix(runs, "POST"):
				outcome = "runs"
			}
			if c.name == "ampcors" && outcome != sc.want {
				t.Errorf("%s: %s; want %s", sc.name, outcome, sc.want)
			}
			if outcome != sc.want {
				outcome += "!"
			}
			table[i+1] = append(table[i+1], outcome)
		}
	}
	readme.Check(t, "libraries.txt", "libraries", readme.Aligned(table))
}
