package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestListenersAreCalledUntilTheyStop(t *testing.T) {
	t.Parallel()
	var l Listeners
	var got []string
	stop := l.Notify(func(domains ...string) { got = append(got, domains...) })
	l.Notify(func(domains ...string) { got = append(got, "other") })
	l.Call("a.example", "b.example")
	stop()
	l.Call("c.example")
	if want := []string{"a.example", "b.example", "other", "other"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// A foreign is an error of another package.
type foreign struct {
	text  string
	cause error
}

func (e *foreign) Error() string { return e.text }
func (e *foreign) Unwrap() error { return e.cause }

func TestUnescapedPasswords(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://u:p%40%2F%23%3F@host/db?sslmode=disable": false, "redis://host:6379/0?addr=b:1": false, "mysql://u@host/db": false,
		"host=h password='://a b' dbname=d": false, "postgres://u:p@q@host/db": true, "postgres://u:p/q@host/db": true,
		"postgres://u:p?q@host/db": true,
		"postgres://u:p#q@host/db": true, "postgres://u:p@host/db?application_name=a#b": false, "postgres://host/db?password=a@b": true,
	} {
		if got := IsUnescaped(url); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}

// Our own words end with what to do. They are never cut; what a database says is.
func TestLogTextKeepsOurOwnWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 150)
	advice := strings.Repeat("what is wrong, ", 30) + "and what to do"
	refused := errors.New("connection refused")
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("a\n\tb "), "a b"},
		{errors.New(advice), advice},
		{&foreign{text: long}, strings.Repeat("ä", 98) + "..."},
		{fmt.Errorf("a: %w; %s", &foreign{text: long}, advice), "a: " + strings.Repeat("ä", 98) + "...; " + advice},
		{fmt.Errorf("%w: %w", errors.New(advice), &foreign{text: long + ": connection refused", cause: refused}),
			advice + ": " + strings.Repeat("ä", 89) + "... connection refused"},
		{&foreign{text: "dial: connection refused", cause: refused}, "dial: connection refused"},
		{errors.Join(errors.New("one"), &foreign{text: long}), "one " + strings.Repeat("ä", 98) + "..."},
		{errors.New(strings.Repeat("b", 2000)), strings.Repeat("b", 997) + "..."},
	} {
		if got := LogText(test.err); got != test.want {
			t.Errorf("%q; want %q", got, test.want)
		}
	}
}

func TestAKindHasNoTime(t *testing.T) {
	t.Parallel()
	one := Kind(errors.New("dial tcp 127.0.0.1:5432->[::1]:40112: current time 2026-11-28T08:10:11Z is after 2026-11-27T00:00:00Z"))
	other := Kind(errors.New("dial tcp 127.0.0.1:5432->[::1]:40113: current time 2026-11-28T08:10:12Z is after 2026-11-27T00:00:00Z"))
	if one != other || one == Kind(errors.New("dial tcp: connection refused")) {
		t.Errorf("%q and %q", one, other)
	}
}
