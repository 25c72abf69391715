package probe

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

// TestWhichRequestsAShapeSends gives answers to the requests of each shape: + is readable, - is not, 5 is an error of
// the server, and ! is none at all. What is sent
// for them is written as its role or claim.
func TestWhichRequestsAShapeSends(t *testing.T) {
	e := Endpoint{URL: "https://api.example.org/", Method: "GET", Answer: AnswerJSON}
	preflighted := Endpoint{URL: "https://api.example.org/", Method: "POST", ContentType: typeJSON, Credentials: true, Answer: AnswerJSON}
	cellOf := func(e *Endpoint) *cell {
		p := &prober{cfg: Config{Caches: cacheurl.DefaultCaches(), Unsafe: true}}
		control := recorded(200, "{}")
		return &cell{p: p, e: e, own: ownOrigin, subject: subject{publisher: publisher},
			control: &trial{asker: asker{page: page{origin: "https://control"}}, turns: []turn{{answer: control}}}}
	}
	c, post := cellOf(&e), cellOf(&preflighted)
	claims := func(s step) string {
		text := strings.NewReplacer(ownOrigin, "own", evil, "evil").Replace(strings.Join(s.claims, "+"))
		if s.isSimple {
			text += "(simple)"
		}
		return text
	}
	roles := map[role]string{told: "told", fresh: "fresh", repeated: "repeated", freshAgain: "freshAgain", freshLast: "freshLast",
		stored: "stored", revalidated: "revalidated",
		usual: "usual", changed: "changed", usualAgain: "usualAgain", changedAgain: "changedAgain", publishers: "own", forged: "forged"}
	for _, test := range []struct {
		name    string
		c       *cell
		shape   shape
		byClaim bool
		answers string
		want    string
		cost    int
	}{
		{"a page that works", c, c.steady(), false, "+", "told", 1},
		{"a page without an answer", c, c.steady(), false, "!", "told", 1},
		{"a page that is denied", c, c.steady(), false, "--", "told fresh", 1},
		{"a page that recovers", c, c.steady(), false, "-++", "told fresh repeated", 1},
		{"a page behind a cache", c, c.steady(), false, "-+-++", "told fresh repeated freshAgain freshLast", 1},
		{"a page behind a cache that ends", c, c.steady(), false, "-+-!", "told fresh repeated freshAgain", 1},
		{"a page that is not answered later", c, c.steady(), false, "-+!", "told fresh repeated", 1},
		{"a page that claims, and is allowed", c, c.claiming("", evil).shape, true, "++", "own evil", 1},
		{"a page that claims, and is denied", c, c.claiming("", evil).shape, true, "-", "own", 1},
		{"a page that claims more, and is denied", c, c.claimingMore("", "https://a.example").shape, true, "--", "own https://a.example", 2},
		{"a page that claims more, and is allowed by its own claim", c, c.claimingMore("", "https://a.example").shape, true, "++", "own evil", 2},
		{"a page that claims more, and is allowed", c, c.claimingMore("", "https://a.example").shape, true, "+--", "own evil https://a.example",
			2},
		{"null", c, c.claimingMore("", "null").shape, true, "--", "own ", 2},
		{"a page that needs a preflight", post, post.claiming("", evil).shape, true, "--", "own own(simple)", 2},
		{"a header is never simple", post, sending("", sameOrigin)(post)[0].shape, true, "-", "evil", 1},
		{"a revalidation", c, c.revalidating(), false, "++", "stored revalidated", 1},
		{"nothing to revalidate", c, c.revalidating(), false, "-", "stored", 1},
		{"another browser", c, c.under(nil), false, "+", "changed", 1},
		{"another browser that is denied", c, c.under(nil), false, "-+-", "changed usual changedAgain", 1},
		{"another browser that gets HTML", c, c.under(nil), false, "h++", "changed usual changedAgain", 1},
		{"another browser without an answer", c, c.under(nil), false, "!", "changed", 1},
		{"cookies", c, c.withAndWithoutCookies(), false, "+-+-", "usual changed usualAgain changedAgain", 4},
		{"a forged POST", c, c.forging(step{}), false, "++", "own forged", 2},
		{"a forged POST, and no answer to the own one", c, c.forging(step{}), false, "!", "own", 2},
		{"AMP-Same-Origin", c, c.besideSameOrigin(), false, "--", "told own", 2},
	} {
		tr := &trial{}
		var sent []string
		test.shape.ask(t.Context(), tr, func(r role, s step) *answer {
			if len(sent) == len(test.answers) {
				t.Fatalf("%s: one request more than %q", test.name, sent)
			}
			a := recorded(200, "{}", "ETag: 1")
			switch test.answers[len(sent)] {
			case '-':
				a.fetch.blocked = fmt.Errorf("denied")
			case '!':
				a = &answer{err: http.ErrHandlerTimeout}
			case 'h':
				a.fetch.response.Body = []byte("<p>")
			}
			if test.byClaim {
				sent = append(sent, claims(s))
			} else {
				sent = append(sent, roles[r])
			}
			tr.turns = append(tr.turns, turn{r, s, a})
			return a
		})
		if got := strings.Join(sent, " "); got != test.want || len(sent) != len(test.answers) || test.shape.cost != test.cost {
			t.Errorf("%s: sent %q at a cost of %d; want %q at %d", test.name, got, test.shape.cost, test.want, test.cost)
		}
		for _, a := range tr.turns { // how each of them is sent
			isSteady := slices.Contains([]role{told, repeated}, a.role) && !test.byClaim && !test.shape.isDirect
			switch {
			case a.isFresh == isSteady:
				t.Errorf("%s: whether a cache may answer %s: %t", test.name, roles[a.role], !a.isFresh)
			case test.byClaim && !a.cookies:
				t.Errorf("%s: without the reader's cookies", test.name)
			case test.name == "cookies" && a.cookies != (a.role == usual || a.role == usualAgain):
				t.Errorf("%s: %s has cookies: %t", test.name, roles[a.role], a.cookies)
			case a.role == publishers && test.name == "a forged POST" && a.as.origin != "https://control":
				t.Errorf("%s: the publisher's own request is of %v", test.name, a.as)
			case a.role == revalidated && a.validates != tr.turns[0].answer:
				t.Errorf("%s: it revalidates another answer", test.name)
			}
		}
	}
}
