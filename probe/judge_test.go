package probe

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

// recorded returns an answer with a status, a body and headers: "name: value".
func recorded(status int, body string, headers ...string) *answer {
	h := make(http.Header)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &answer{fetch: &fetch{response: &response{status, h, []byte(body)}}}
}

// judgedCell returns the outcomes of a cell whose trials were answered as recorded, by their words. What is
// not in answers is denied with status 403.
func judgedCell(t *testing.T, e Endpoint, answers map[string][]*answer, change func(*cell)) map[string]*trial {
	t.Helper()
	p := &prober{cfg: Config{Caches: cacheurl.DefaultCaches(), Unsafe: true}, report: &Report{}}
	p.client = newClient(p.cfg)
	c, err := p.plan(&e, subject{publisher: publisher})
	if err != nil {
		t.Fatal(err)
	}
	c.control = c.trials[slices.IndexFunc(c.trials, func(t *trial) bool { return t.Kind == KindPage })]
	outcomes := make(map[string]*trial)
	for _, trial := range c.trials {
		outcomes[trial.What] = trial
		if trial.Kind == KindTogether {
			trial.skip("its requests are not recorded", true)
			continue
		}
		given := answers[trial.What]
		trial.shape.ask(t.Context(), trial, func(r role, s step) *answer {
			a := recorded(403, "Forbidden", "Vary: Origin")
			switch {
			case len(given) > 0 && (trial.Kind == KindPage || len(trial.turns) < len(given)): // each time, to a page
				a = given[min(len(trial.turns), len(given)-1)]
			case trial.Kind == KindPage, trial.shape.isCompared, s.as != nil:
				a = recorded(200, `{"ok": true}`, "Access-Control-Allow-Origin: "+trial.origin, "Access-Control-Allow-Credentials: true",
					"Vary: Origin")
			}
			if a.fetch != nil && trial.Kind != KindForged {
				a.fetch.blocked = checkCORS(trial.origin, true, a.fetch.response.Header)
			}
			trial.turns = append(trial.turns, turn{r, s, a})
			return a
		})
	}
	if change != nil {
		change(c)
	}
	c.judge()
	for _, trial := range c.trials {
		if trial.Outcome == "" || trial.Outcome == Problem && len(trial.Causes) == 0 || trial.Outcome == NotTested && trial.Reason == "" {
			t.Errorf("%s: %+v", trial.What, trial.Trial)
		}
	}
	return outcomes
}

// TestWhatAnswersProve judges recorded answers: what they prove, and what they do not.
func TestWhatAnswersProve(t *testing.T) {
	const (
		null   = "a sandboxed frame of any website"
		forged = "a form of another website, with the publisher's claim"
		own    = "the publisher's own page"
	)
	get := Endpoint{URL: "https://api.example.org/", Component: "endpoint", Method: "GET", Credentials: true, Answer: AnswerJSON}
	post := Endpoint{URL: "https://api.example.org/", Component: "endpoint", Method: "POST", ContentType: typeURLEncoded, Credentials: true,
		Answer: AnswerJSON}
	ok := recorded(200, `{"ok": true, "id": 1}`)
	for _, test := range []struct {
		name    string
		e       Endpoint
		what    string
		answers []*answer
		change  func(*cell)
		outcome Outcome
		cause   string // or in the reason
	}{
		{name: "denied", e: get, what: null, outcome: Fine},
		{name: "allowed", e: get, what: null, answers: []*answer{
			recorded(200, "{}", "Access-Control-Allow-Origin: null", "Access-Control-Allow-Credentials: true")},
			outcome: Problem, cause: "null-allowed"},
		{name: "allowed with an error status", e: get, what: null,
			answers: []*answer{recorded(500, "{}", "Access-Control-Allow-Origin: null",
				"Access-Control-Allow-Credentials: true")}, outcome: Problem, cause: "null-allowed"},
		{name: "answered without CORS", e: get, what: null, answers: []*answer{recorded(200, "{}")}, outcome: Fine},
		{name: "not answered", e: get, what: null, answers: []*answer{{err: http.ErrHandlerTimeout}}, outcome: NotTested, cause: "timeout"},
		{name: "too many requests", e: get, what: null, answers: []*answer{recorded(429, "")}, outcome: NotTested, cause: "limits requests"},
		{name: "the status of a control that failed", e: get, what: null, answers: []*answer{recorded(444, "")},
			change: func(c *cell) { c.limits = []int{444} }, outcome: NotTested, cause: "also got when it was repeated"},
		{name: "a status that the control never had", e: get, what: null, answers: []*answer{recorded(404, "")},
			change: func(c *cell) { c.limits = []int{444} }, outcome: Fine},
		{name: "from a cache", e: get, what: null, answers: []*answer{recorded(200, "{}", "Age: 5")}, outcome: NotTested, cause: "Age: 5"},
		{name: "revalidated by a cache", e: get, what: null, answers: []*answer{recorded(200, "{}", "Age: 0")}, outcome: Fine},
		{name: "the publisher's own page fails as well", e: get, what: null, answers: []*answer{recorded(403, "")}, change: func(c *cell) {
			failed := recorded(500, "")
			failed.fetch.blocked = errors.New("no CORS")
			c.control = &trial{turns: []turn{{answer: failed}}}
		}, outcome: NotTested, cause: "says nothing about other pages"},

		{name: "a page that works", e: get, what: own, outcome: Fine},
		{name: "a page and an overloaded backend", e: get, what: own, answers: []*answer{recorded(503, "")}, outcome: NotTested,
			cause: "is down"},
		{name: "a page that gets an error", e: get, what: own,
			answers: []*answer{recorded(500, "{}", "Access-Control-Allow-Origin: "+ownOrigin, "Access-Control-Allow-Credentials: true",
				"Vary: Origin")}, outcome: Problem, cause: "http-error"},

		{name: "a forged POST, and a cache has the publisher's own", e: post, what: forged,
			answers: []*answer{recorded(200, `{"ok": true}`, "Age: 5"), recorded(403, "Forbidden")}, outcome: Fine},
		{name: "a forged POST that is denied", e: post, what: forged, answers: []*answer{ok, recorded(403, "Forbidden")}, outcome: Fine},
		{name: "a forged POST that is redirected elsewhere", e: post, what: forged,
			answers: []*answer{ok, recorded(303, "", "Location: /denied")}, outcome: NotTested, cause: "only the backend knows"},
		{name: "a forged POST after which the handler fails", e: post, what: forged, answers: []*answer{ok, recorded(500, "")},
			outcome: NotTested, cause: "only the backend knows"},
		{name: "a forged POST with the handler's text and another number", e: post, what: forged,
			answers: []*answer{ok, recorded(403, `Forbidden{"ok": true, "id": 2}`)}, outcome: Problem, cause: "unsafe-reaches-handler"},
		{name: "a forged POST with another word", e: post, what: forged,
			answers: []*answer{recorded(200, `{"status": "saved"}`), recorded(200, `{"status": "denied"}`)}, outcome: NotTested,
			cause: "only the backend knows"},
		{name: "a forged POST that is answered the same", e: post, what: forged, answers: []*answer{ok, recorded(200, `{"ok": true, "id": 2}`)},
			outcome: Problem, cause: "unsafe-reaches-handler"},
		{name: "a forged POST that is answered with the same list", e: post, what: forged, answers: []*answer{
			recorded(200, `{"items": [{"ok": true, "id": 1}, {"ok": true, "id": 2}]}`), recorded(200, `{"items": [{"ok": true, "id": 3}]}`)},
			outcome: Problem, cause: "unsafe-reaches-handler"},
		{name: "a forged POST that is answered with an empty list", e: post, what: forged, answers: []*answer{
			recorded(200, `{"items": [{"ok": true}]}`), recorded(200, `{"items": []}`)}, outcome: NotTested, cause: "only the backend knows"},
		{name: "a forged POST that is answered with another list", e: post, what: forged, answers: []*answer{
			recorded(200, `{"items": [{"ok": true}]}`), recorded(200, `{"items": [{"ok": false}]}`)}, outcome: NotTested,
			cause: "only the backend knows"},
		{name: "a forged POST that is answered otherwise", e: post, what: forged, answers: []*answer{ok, recorded(200, `{"ok": false, "id": 2}`)},
			outcome: NotTested, cause: "only the backend knows"},
		{name: "a forged POST that is answered with other members", e: post, what: forged,
			answers: []*answer{ok, recorded(200, `{"error": "no"}`)}, outcome: NotTested, cause: "only the backend knows"},
		{name: "a forged POST with the handler's text", e: post, what: forged,
			answers: []*answer{ok, recorded(403, `Forbidden{"ok": true, "id": 1}`)}, outcome: Problem, cause: "unsafe-reaches-handler"},
		{name: "a forged POST, and the publisher's own fails", e: post, what: forged, answers: []*answer{recorded(500, ""), recorded(403, "")},
			outcome: NotTested, cause: "status 500"},
		{name: "a forged POST, and too many requests", e: post, what: forged, answers: []*answer{ok, recorded(429, "")}, outcome: NotTested,
			cause: "limits requests"},
		{name: "the publisher's own POST gets too many requests", e: post, what: forged, answers: []*answer{recorded(429, ""), recorded(403, "")},
			outcome: NotTested, cause: "limits requests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := map[string][]*answer{}
			if test.answers != nil {
				answers[test.what] = test.answers
			}
			got := judgedCell(t, test.e, answers, test.change)[test.what]
			if got.Outcome != test.outcome || test.outcome == Problem && !slices.Equal(got.Causes, []ID{ID(test.cause)}) ||
				test.outcome == NotTested && !strings.Contains(got.Reason, test.cause) {
				t.Errorf("%s %q %q; want %s %q", got.Outcome, got.Causes, got.Reason, test.outcome, test.cause)
			}
		})
	}
}

// A percent-encoding of the same text is another URL for a cache, and the same for the backend.
func TestASpellingDecodesToTheSame(t *testing.T) {
	const value = "https%3A%2F%2Fwww.example.com"
	seen := make(map[string]bool)
	for range 100 {
		spelled := respell(value)
		seen[spelled] = true
		r, err := http.NewRequest("GET", "https://api.example.org/?a="+spelled, nil)
		if err != nil || r.URL.Query().Get("a") != ownOrigin {
			t.Fatalf("%q: %v", spelled, err)
		}
	}
	if len(seen) < 90 {
		t.Errorf("100 spellings have only %d forms", len(seen))
	}
}

// One answer that another page should have got may be chance. Two are not.
func TestWhatOnePageGetsOnceInAnothersPlaceIsNotTested(t *testing.T) {
	const a, b = "https://a.example", "https://b.example"
	answers := func(second, fourth string) (answers []*answer) {
		for i, allowed := range []string{a, second, a, fourth} {
			origin := []string{a, b}[i%2]
			got := recorded(200, "{}", "Access-Control-Allow-Origin: "+allowed)
			got.fetch.request.origin, got.fetch.blocked = origin, checkCORS(origin, false, got.fetch.response.Header)
			answers = append(answers, got)
		}
		return answers
	}
	for _, test := range []struct {
		answers []*answer
		want    Outcome
		cause   string
	}{
		{answers(b, b), Fine, ""},
		{answers(a, b), NotTested, ""},
		{answers(a, a), Problem, "shared-wrong-origin"},
		{answers(b, "https://c.example"), NotTested, ""},
	} {
		trial := &trial{Trial: Trial{Kind: KindTogether}, rule: &rule{id: SharedWrongOrigin, breaks: (*cell).getsItsOwnAnswer}}
		for _, a := range test.answers {
			trial.turns = append(trial.turns, turn{answer: a})
		}
		(&cell{}).judgeTrial(trial)
		if trial.Outcome != test.want || test.cause != "" && (!slices.Equal(trial.Causes, []ID{ID(test.cause)}) || trial.Origin != b) {
			t.Errorf("%+v; want %s %s", trial.Trial, test.want, test.cause)
		}
	}
}

// A browser in which a page does not work each time, and another one in which it does, are a problem. Once is none.
func TestWhatFailsOnceInABrowserIsNoProblem(t *testing.T) {
	const at = "https://www-example-com.cdn.ampproject.org"
	works := func() *answer {
		return recorded(200, "{}", "Access-Control-Allow-Origin: "+at, "Access-Control-Allow-Credentials: true")
	}
	html := func() *answer {
		a := works()
		a.fetch.response.Body = []byte("<!doctype html>")
		return a
	}
	created := func() *answer {
		a := works()
		a.fetch.response.Status = 201
		return a
	}
	blocked := func() *answer { return recorded(200, "{}") }
	for _, test := range []struct {
		name    string
		answers []*answer
		want    Outcome
	}{
		{"each time", []*answer{blocked(), works(), blocked()}, Problem},
		{"once", []*answer{blocked(), works(), works()}, NotTested},
		{"in all browsers", []*answer{blocked()}, NotTested},
		{"without the condition, too", []*answer{blocked(), blocked(), blocked()}, NotTested},
		{"HTML each time", []*answer{html(), works(), html()}, Problem},
		{"HTML in all browsers", []*answer{html()}, Fine}, // which is a finding of the page
		{"another status each time", []*answer{created(), works(), created()}, Fine},
		{"HTML once", []*answer{html(), works(), works()}, NotTested},
		{"HTML, and blocked later", []*answer{html(), works(), blocked()}, NotTested},
		{"HTML in all browsers, and blocked in this one", []*answer{blocked(), html(), blocked()}, Problem},
		{"too many requests", []*answer{recorded(429, ""), works(), recorded(429, "")}, NotTested},
	} {
		for _, a := range test.answers {
			a.fetch.blocked = checkCORS(at, true, a.fetch.response.Header)
		}
		got := &trial{Trial: Trial{Kind: KindBrowsers}, asker: asker{page: page{origin: at}},
			rule: &rule{id: BrowserRefused, breaks: (*cell).worksInABrowser}}
		for i, a := range test.answers {
			got.turns = append(got.turns, turn{role: []role{changed, usual, changedAgain}[i], answer: a})
		}
		e := &Endpoint{URL: "https://api.example.org/", Method: "GET", Credentials: true, Answer: AnswerJSON}
		(&cell{p: &prober{}, e: e}).judgeTrial(got)
		if got.Outcome != test.want || test.want == Problem && !slices.Equal(got.Causes, []ID{BrowserRefused}) {
			t.Errorf("%s: %+v; want %s", test.name, got.Trial, test.want)
		}
	}
}

// Each id has one rule, and each rule says what a reader needs.
func TestEachRuleIsWhole(t *testing.T) {
	text, err := os.ReadFile("ids.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[ID]bool)
	for _, r := range rules {
		if seen[r.id] {
			t.Errorf("%s has two rules", r.id)
		}
		seen[r.id] = true
		if isFinding := slices.Contains(severities, r.severity); isFinding != (r.title != "") || isFinding != (r.remedy != "") ||
			!isFinding && r.askers == nil {
			t.Errorf("%s: want a severity, a title and a remedy, or askers and a note: %+v", r.id, r)
		}
		if (r.askers != nil) != slices.Contains(Kinds(), r.group) {
			t.Errorf("%s has askers without a group, or a group without askers", r.id)
		}
		if r.askers != nil && r.breaks == nil && !r.group.IsHostile() && r.group != KindPage { // judgePages judges those
			t.Errorf("%s has no ruling", r.id)
		}
	}
	for _, m := range regexp.MustCompile(`\bID = "(.*)"`).FindAllSubmatch(text, -1) {
		if !seen[ID(m[1])] {
			t.Errorf("%s has no rule", m[1])
		}
	}
}

// TestWhatOneAnswerShows has answers to the publisher's page, and the symptom of each.
func TestWhatOneAnswerShows(t *testing.T) {
	const at = "https://www-example-com.cdn.ampproject.org"
	origin, credentials := "Access-Control-Allow-Origin: "+at, "Access-Control-Allow-Credentials: true"
	get := Endpoint{URL: "https://api.example.org/", Method: "GET", Credentials: true, Answer: AnswerJSON}
	form, script, head, command := get, get, get, get
	form.Answer, script.Answer, head.Method, command.Component = AnswerForm, AnswerScript, "HEAD", "endpoint"
	verify := form
	verify.Answer = AnswerVerify
	preflight := func(status int, headers ...string) *answer {
		got := recorded(status, "", headers...).fetch.response
		return &answer{preflight: &exchange{response: got}, blocked: errors.New("blocked")}
	}
	redirected := func(status int, headers ...string) *answer {
		a := recorded(status, "{}", headers...)
		a.fetch.hop = 1
		return a
	}
	endless := redirected(302)
	endless.fetch.isEndless = true
	asGet := recorded(400, "{}", origin, credentials)
	asGet.fetch.last.method = "GET"
	posted := form
	posted.Method = "POST"
	for _, test := range []struct {
		name string
		e    Endpoint
		a    *answer
		want ID
	}{
		{"works", get, recorded(200, "{}", origin, credentials), ""},
		{"a preflight is redirected", get, preflight(301, origin, credentials), PreflightRedirected},
		{"a preflight grants too little", get, preflight(204, origin, credentials), PreflightIncomplete},
		{"a preflight has an error, with headers", get, preflight(405, origin, credentials), PreflightFailed},
		{"a preflight has an error", get, preflight(405), PreflightFailed},
		{"a preflight has an error, with another origin", get, preflight(500, "Access-Control-Allow-Origin: https://a.example"), PreflightFailed},
		{"a preflight has no header", get, preflight(200), PreflightFailed},
		{"a preflight has *", get, preflight(200, "Access-Control-Allow-Origin: *"), WildcardWithCredentials},
		{"a preflight has another origin", get, preflight(200, "Access-Control-Allow-Origin: https://a.example"), ACAOMismatch},
		{"the redirects do not end", get, endless, RedirectEndless},
		{"a redirect", get, recorded(302, "", "Location: /a"), RedirectWithoutCORS},
		{"after a redirect", get, redirected(200), RedirectWithoutCORS},
		{"an error of the client", get, recorded(404, ""), ErrorWithoutCORS},
		{"an error of the server", get, recorded(500, ""), ErrorWithoutCORS},
		{"no header", get, recorded(200, "{}"), ACAOMissing},
		{"two headers", get, recorded(200, "{}", origin, origin, credentials), ACAODuplicate},
		{"*", get, recorded(200, "{}", "Access-Control-Allow-Origin: *", credentials), WildcardWithCredentials},
		{"the cache's domain", get, recorded(200, "{}", "Access-Control-Allow-Origin: https://cdn.ampproject.org"), ACAOBareCache},
		{"the cache's domain with a slash", get, recorded(200, "{}", "Access-Control-Allow-Origin: https://cdn.ampproject.org/"), ACAOBareCache},
		{"a pattern", get, recorded(200, "{}", "Access-Control-Allow-Origin: https://*.cdn.ampproject.org"), ACAOPattern},
		{"a list", get, recorded(200, "{}", "Access-Control-Allow-Origin: https://a.example,https://b.example"), ACAOPattern},
		{"no credentials", get, recorded(200, "{}", origin), ACACMissing},
		{"credentials twice", get, recorded(200, "{}", origin, credentials, credentials), ACACDuplicate},
		{"other credentials", get, recorded(200, "{}", origin, "Access-Control-Allow-Credentials: 1"), ACACInvalid},
		{"the publisher's own origin", get, recorded(200, "{}", "Access-Control-Allow-Origin: "+ownOrigin, credentials), ACAOSourceOrigin},
		{"another origin", get, recorded(200, "{}", "Access-Control-Allow-Origin: https://a.example", credentials), ACAOMismatch},
		{"a readable error", get, recorded(400, "{}", origin, credentials), HTTPError},
		{"a readable redirect", get, recorded(304, "{}", origin, credentials), HTTPError},
		{"an error for the reader of a form", form, asGet, ""},
		{"an error for the reader of a form that is verified", verify, asGet, ""},
		{"an error of the server behind a form", form, recorded(500, "{}", origin, credentials), HTTPError},
		{"an error for the reader that is not JSON", form, recorded(400, "<p>", origin, credentials), HTTPError},
		{"an error after a POST became a GET", posted, asGet, HTTPError},
		{"HTML", get, recorded(200, "<p>", origin, credentials), NotJSON},
		{"HTML for a form", form, recorded(200, "<p>", origin, credentials), NotJSON},
		{"a redirect by amp-form", form, recorded(200, "", origin, credentials, "AMP-Redirect-To: https://a.example/"), ""},
		{"a redirect by amp-form, for a list", get, recorded(200, "", origin, credentials, "AMP-Redirect-To: https://a.example/"), NotJSON},
		{"HEAD", head, recorded(200, "", origin, credentials), ""},
		{"204 to an endpoint of the user", command, recorded(204, "", origin, credentials), ""},
		{"200 without a body", command, recorded(200, "", origin, credentials), NotJSON},
		{"204", get, recorded(204, "", origin, credentials), NotJSON},
		{"a script", script, recorded(200, "x()", origin, credentials, "Content-Type: text/javascript"), ""},
		{"not a script", script, recorded(200, "x()", origin, credentials, "Content-Type: text/typescript"), NotScript},
	} {
		c := &cell{p: &prober{cfg: Config{Caches: cacheurl.DefaultCaches()}}, e: &test.e, own: ownOrigin}
		if test.a.fetch != nil {
			test.a.fetch.blocked = checkCORS(at, true, test.a.fetch.response.Header)
		}
		if got := c.symptom(test.a, at, !test.a.isReadable()); got != test.want {
			t.Errorf("%s: %q; want %q", test.name, got, test.want)
		}
	}
}

// If only the publisher's own page gets another origin, what is wrong with the others is the cause.
func TestOneMismatchHasTheCauseOfTheOthers(t *testing.T) {
	get := Endpoint{URL: "https://api.example.org/", Component: "endpoint", Method: "GET", Credentials: true, Answer: AnswerJSON}
	const own = "the publisher's own page"
	noCredentials := func(origin string) []*answer {
		return []*answer{recorded(200, "{}", "Access-Control-Allow-Origin: "+origin)}
	}
	answers := map[string][]*answer{own: {recorded(200, "{}", "Access-Control-Allow-Origin: https://a.example",
		"Access-Control-Allow-Credentials: true")}}
	origins, err := pagesOf(publisher, cacheurl.DefaultCaches())
	if err != nil {
		t.Fatal(err)
	}
	for _, pg := range origins[1:] {
		answers[pageName(pg)] = noCredentials(pg.origin)
	}
	if got := judgedCell(t, get, answers, nil)[own].Causes; !slices.Equal(got, []ID{ACACMissing}) {
		t.Errorf("the own page has %q", got)
	}
	// If the others work, it is refused.
	for _, pg := range origins[1:] {
		answers[pageName(pg)] = nil
	}
	if got := judgedCell(t, get, answers, nil)[own].Causes; !slices.Equal(got, []ID{OwnOriginRefused}) {
		t.Errorf("the own page has %q", got)
	}
}

// TestWhatScopesExplain has the broken rules of a backend, and the cause of the last.
func TestWhatScopesExplain(t *testing.T) {
	caches := cacheurl.DefaultCaches()
	google, bing := evilOn(caches[0]), evilOn(caches[1])
	own, foreign := []string{ownOrigin}, []string{evil}
	yes, no := recorded(200, "{}"), recorded(403, "")
	no.fetch.blocked = errors.New("denied")
	broken := func(id ID, kind Kind, origin string, turns ...turn) *trial {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.id == id })
		if turns == nil {
			turns = append(turns, with(own, yes))
		}
		tr := &trial{Trial: Trial{Kind: kind, Origin: origin}, asker: asker{page: page{origin: origin}}, rule: &rules[i], turns: turns}
		tr.blame(id, yes, "")
		return tr
	}
	needsClaim := []turn{with(own, yes), with(foreign, no)}
	for _, test := range []struct {
		name   string
		trials []*trial
		want   ID // "" if it is none
	}{
		{"any origin", []*trial{broken(AnyOriginAllowed, KindSites, evil, with(foreign, yes), with(own, yes)),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example")}, AnyOriginAllowed},
		{"any origin that it claims to be", []*trial{broken(AnyOriginAllowed, KindSites, evil, with(foreign, yes), with(own, no)),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example", with(own, no), with([]string{"https://a.example"}, yes))},
			SourceOriginTrusted},
		{"the claim", []*trial{broken(SourceOriginTrusted, KindClaims, evil),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example", needsClaim...)},
			SourceOriginTrusted},
		{"the claim, which another one does not need", []*trial{broken(SourceOriginTrusted, KindClaims, evil),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example")}, LookalikeAllowed},
		{"a claim on a cache where any publisher is allowed",
			[]*trial{broken(AnyPublisherAllowed, KindPublishers, google), broken(SourceOriginTrusted, KindClaims, google),
				broken(LookalikeAllowed, KindLookalikes, "https://a.example", needsClaim...)}, LookalikeAllowed},
		{"any publisher, on the same cache", []*trial{broken(AnyPublisherAllowed, KindPublishers, google),
			broken(SourceOriginTrusted, KindClaims, google)},
			AnyPublisherAllowed},
		{"any publisher, on another cache", []*trial{broken(AnyPublisherAllowed, KindPublishers, google),
			broken(SourceOriginTrusted, KindClaims, bing)},
			SourceOriginTrusted},
		{"any publisher, and another kind", []*trial{broken(AnyPublisherAllowed, KindPublishers, google),
			broken(PortAllowed, KindOwnHosts, google)}, PortAllowed},
		{"any prefix, on the same cache", []*trial{broken(PrefixLookalikeAllowed, KindLookalikes, google),
			broken(NaivePrefixAllowed, KindLookalikes, google)},
			PrefixLookalikeAllowed},
		{"any prefix, on another cache", []*trial{broken(PrefixLookalikeAllowed, KindLookalikes, google),
			broken(NaivePrefixAllowed, KindLookalikes, bing)},
			NaivePrefixAllowed},
		{"no claim", []*trial{broken(NoClaimAllowed, KindSites, evil, with(nil, yes)),
			broken(NullAllowed, KindNull, "null", with(nil, yes), with(own, no))},
			NoClaimAllowed},
		{"no claim on a cache", []*trial{broken(NoClaimAllowed, KindPublishers, google, with(nil, yes)),
			broken(NullAllowed, KindNull, "null", with(nil, yes), with(own, no))}, NullAllowed},
		{"AMP-Same-Origin", []*trial{broken(SameOriginHeaderTrusted, KindSameOrigin, evil),
			broken(SameOriginHeaderPreferred, KindSameOrigin, evil)},
			SameOriginHeaderTrusted},
		{"no Referer", []*trial{broken(NoRefererAllowed, KindReferer, evil), broken(NullAllowed, KindNull, "null")}, NoRefererAllowed},
		{"no Referer, and a look-alike", []*trial{broken(NoRefererAllowed, KindReferer, evil),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example")},
			LookalikeAllowed},
		{"the Referer", []*trial{broken(RefererTrusted, KindReferer, evil), broken(LookalikeAllowed, KindLookalikes, ownOrigin+".a.example")},
			RefererTrusted},
		{"the Referer, and another site", []*trial{broken(RefererTrusted, KindReferer, evil),
			broken(LookalikeAllowed, KindLookalikes, "https://a.example")},
			LookalikeAllowed},
		{"any text behind an origin", []*trial{broken(LookalikeAllowed, KindLookalikes, ownOrigin+"."+evilHost),
			broken(DeadCacheAllowed, KindFormer, ownOrigin+"."+formerCache)}, LookalikeAllowed},
		{"a look-alike of another kind", []*trial{broken(LookalikeAllowed, KindLookalikes, "https://a.example"),
			broken(DeadCacheAllowed, KindFormer, ownOrigin+"."+formerCache)}, DeadCacheAllowed},
		{"AMP-Same-Origin may be sent", []*trial{broken(SameOriginGranted, KindSameOrigin, google)}, ""},
		{"AMP-Same-Origin may be sent, and is trusted", []*trial{broken(SameOriginHeaderTrusted, KindSameOrigin, evil),
			broken(SameOriginGranted, KindSameOrigin, google)}, SameOriginGranted},
		{"AMP-Same-Origin may be sent, to every origin",
			[]*trial{broken(AnyOriginAllowed, KindSites, evil), broken(SameOriginHeaderTrusted, KindSameOrigin, evil),
				broken(SameOriginGranted, KindSameOrigin, google)}, ""},
		{"another host of the publisher", []*trial{broken(ownHostAllowed, KindOwnHosts, "https://b.www.example.com")}, ""},
		{"every host, and another one of the publisher",
			[]*trial{broken(AnyOriginAllowed, KindSites, evil), broken(ownHostAllowed, KindOwnHosts, "https://b.www.example.com")},
			AnyOriginAllowed},
		{"a forged POST, and any origin", []*trial{broken(AnyOriginAllowed, KindSites, evil), broken(UnsafeReachesHandler, KindForged, evil)},
			UnsafeReachesHandler},
	} {
		c := &cell{p: &prober{cfg: Config{Caches: cacheurl.DefaultCaches()}}, own: ownOrigin, trials: test.trials,
			subject: subject{publisher: publisher}}
		c.attribute()
		last := test.trials[len(test.trials)-1]
		var got ID
		if len(last.Causes) > 0 {
			got = last.Causes[0]
		}
		if got != test.want || (last.Outcome == Problem) != (test.want != "") || len(last.Causes) != len(last.blames) {
			t.Errorf("%s: %s %q; want %q", test.name, last.Outcome, last.Causes, test.want)
		}
	}
	// At the target of a redirect, another server decides.
	target := broken(NullAllowed, KindNull, "null")
	target.shape.toRedirect = true
	c := &cell{p: &prober{}, own: ownOrigin, trials: []*trial{broken(AnyOriginAllowed, KindSites, evil), target}}
	if c.attribute(); !slices.Equal(target.Causes, []ID{NullAllowed}) {
		t.Errorf("the target of a redirect has %q", target.Causes)
	}
}

// with is a request with these claims, and its answer.
func with(claims []string, a *answer) turn { return turn{step: step{claims: claims}, answer: a} }

// What is known is not counted in the summary.
func TestKnownFindingsAreNotCounted(t *testing.T) {
	r := &Report{Findings: []Finding{{ID: NullAllowed, Severity: High}, {ID: HTTPAllowed, Severity: Medium}, {ID: PortAllowed, Severity: Low},
		{ID: VaryMissing, Severity: Medium}}}
	r.Know(func(f Finding) bool { return f.ID == NullAllowed || f.ID == VaryMissing })
	if s := r.Summary; s.High != 0 || s.Medium != 1 || s.Low != 1 || !r.Findings[0].Known || r.Findings[1].Known {
		t.Errorf("%+v", r)
	}
}

// Who may read is judged by the answer that a page reads. A preflight that is answered for anybody, and grants too little, shows only
// that the publisher's page is blocked.
func TestAnIncompletePreflightForAnybodyIsNoAnswer(t *testing.T) {
	backend := func(isChecked bool) http.Handler {
		mayRead, err := Origins(publisher, cacheurl.DefaultCaches()...)
		if err != nil {
			t.Fatal(err)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			w.Header().Set("Vary", "Origin")
			if r.Method != http.MethodOptions && isChecked && !slices.Contains(mayRead, origin) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			_, _ = io.WriteString(w, "{}")
		})
	}
	for _, test := range []struct {
		name      string
		isChecked bool
		e         Endpoint
		unsafe    bool
		want      []ID
		notTested string
	}{
		{"reads", true, Endpoint{Method: "GET", Credentials: true}, false, []ID{PreflightIncomplete}, ""},
		{"reads, and requests are answered for anybody", false, Endpoint{Method: "GET", Credentials: true}, false,
			[]ID{PreflightIncomplete, AnyOriginAllowed}, ""},
		{"writes that are not sent", true, jsonPost, false, []ID{PreflightIncomplete}, "grants as little as that of the publisher's page"},
		{"writes", true, jsonPost, true, []ID{PreflightIncomplete}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(backend(test.isChecked))
			defer server.Close()
			test.e.URL = server.URL
			report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{test.e}, Publishers: []string{publisher},
				Unsafe: test.unsafe, PageHeader: http.Header{"X-Token": {"1"}}})
			if err != nil {
				t.Fatal(err)
			}
			var got []ID
			for _, f := range report.Findings {
				got = append(got, f.ID)
			}
			isSaid := slices.ContainsFunc(report.Untested, func(u Untested) bool { return strings.Contains(u.Reason, test.notTested) })
			for _, id := range test.want {
				if !slices.Contains(got, id) {
					t.Errorf("%s is not found", id)
				}
			}
			if slices.Contains(got, AnyOriginAllowed) != slices.Contains(test.want, AnyOriginAllowed) || test.notTested != "" && !isSaid {
				t.Errorf("%q; %+v", got, report.Untested)
			}
		})
	}
}
