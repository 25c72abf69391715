package sitemap

import (
	"slices"
	"strings"
	"time"
)

// A precision is how exact a date is.
type precision int

const (
	year precision = iota
	month
	day
	clock
)

// lastModLayouts are the forms that real sitemaps have, the likely ones first. The protocol wants W3C's dates
// (https://www.w3.org/TR/NOTE-datetime). A time without a zone is compared as UTC.
var lastModLayouts = []struct {
	layout string
	precision
}{
	{time.RFC3339, clock}, {"2006-01-02", day}, {"2006-01-02T15:04Z07:00", clock},
	{"2006-01-02T15:04:05Z0700", clock}, {"2006-01-02T15:04Z0700", clock}, {"2006-01-02T15:04:05", clock},
	{"2006-01-02T15:04", clock},
	{"2006-01-02T15:04:05 Z07:00", clock}, {"2006-01-02T15:04:05 Z0700", clock},
	{"2006-01-02 15:04:05", clock}, {"2006-01-02 15:04", clock}, {"2006-01-02 15:04:05Z07:00", clock},
	{"2006-01-02 15:04:05Z0700", clock},
	{"2006-01-02 15:04:05 Z07:00", clock}, {"2006-01-02 15:04:05 Z0700", clock}, {"2006-01-02 15:04:05 MST", clock},
	{"2006-01-02 15:04Z07:00", clock},
	{time.RFC1123Z, clock}, {time.RFC1123, clock}, {"Mon, 2 Jan 2006 15:04:05 -0700", clock},
	{"Mon, 2 Jan 2006 15:04:05 MST",
		clock}, {time.RFC850, clock}, {time.ANSIC, clock},
	{"2006-01", month}, {"2006", year}, {"2006/01/02", day}, {"20060102", day},
}

// parseLastMod returns the time that a lastmod names; of two stamps, the later one. Without ok, it is none of the
// known forms.
func parseLastMod(text string) (at time.Time, p precision, ok bool) {
	if at, p, ok = parseStamp(text); ok {
		return at, p, ok
	}
	one, other, _ := strings.Cut(strings.Replace(text, ",", " ", 1), " ")
	at1, p1, ok1 := parseStamp(one)
	at2, p2, ok2 := parseStamp(strings.TrimSpace(other))
	switch {
	case !ok1 || !ok2 || p1 != p2:
		return time.Time{}, 0, false
	case at2.After(at1):
		return at2, p2, true
	}
	return at1, p1, true
}

func parseStamp(text string) (at time.Time, p precision, ok bool) {
	for _, form := range lastModLayouts {
		if at, err := time.Parse(form.layout, text); err == nil {
			return at.UTC(), form.precision, true
		}
	}
	return time.Time{}, 0, false
}

// normalize returns a lastmod in UTC if it has a time and a zone, in one form. Anything else is returned as it is.
func normalize(lastMod string) string {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if at, err := time.Parse(layout, lastMod); err == nil {
			return at.UTC().Format(time.RFC3339Nano)
		}
	}
	return lastMod
}

// hasTime reports whether a lastmod is a date with a time.
func hasTime(lastMod string) bool {
	_, p, ok := parseLastMod(lastMod)
	return ok && p == clock
}

// maxTexts is how many lastmods of a page are kept, if not all of them can be read as dates. A page that is in more
// files, each with another text that is no date, is announced in each run.
const maxTexts = 32

// isChange reports whether a lastmod is a change from what is known of the page: one lastmod, or several on lines
// of their own. Two files may have different texts for a page, of which nobody can say which one is later, and each
// run sees both.
func isChange(lastMod, known string) bool {
	texts := strings.Split(known, "\n")
	if len(texts) == 1 {
		return isLater(lastMod, known)
	}
	if lastMod == "" || slices.Contains(texts, lastMod) {
		return false
	}
	if _, _, isDate := parseLastMod(lastMod); isDate {
		for _, text := range texts {
			if _, _, ok := parseLastMod(text); ok && !isLater(lastMod, text) {
				return false
			}
		}
	}
	return true
}

// withText returns what is known of a page after a change: the lastmod, and what was known before if not both are
// dates.
func withText(known, lastMod string) string {
	_, _, ok1 := parseLastMod(known)
	_, _, ok2 := parseLastMod(lastMod)
	if known == "" || ok1 && ok2 {
		return lastMod
	}
	texts := append(strings.Split(known, "\n"), lastMod)
	return strings.Join(texts[max(0, len(texts)-maxTexts):], "\n")
}

// isLater reports whether a lastmod is a change from another one. If not both are dates, any other text
// is a change. If both are, only a later date is, as exactly as the less exact one says: a time is not
// later than its own day.
func isLater(lastMod, than string) bool {
	if lastMod == "" || lastMod == than {
		return false
	}
	at1, p1, ok1 := parseLastMod(lastMod)
	at2, p2, ok2 := parseLastMod(than)
	if !ok1 || !ok2 {
		return true
	}
	switch min(p1, p2) {
	case year:
		return at1.Year() > at2.Year()
	case month:
		return at1.Format("2006-01") > at2.Format("2006-01")
	case day:
		return at1.Format("2006-01-02") > at2.Format("2006-01-02")
	}
	return at1.After(at2)
}
