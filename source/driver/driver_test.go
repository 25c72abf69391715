package driver

import (
	"errors"
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

func TestLogTextIsOneShortLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\n\tb ":                               "a b",
		strings.Repeat("ä", 200) + " the cause": strings.Repeat("ä", 68) + "..." + strings.Repeat("ä", 25) + " the cause",
	} {
		if got := LogText(errors.New(text)); got != want || len(got) > 200 {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
