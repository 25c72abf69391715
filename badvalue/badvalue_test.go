package badvalue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
)

func ExampleAll() {
	_, err := ampcors.New(ampcors.Config{
		Publishers: []string{"www.example.com", "https://example.com/", "www-mynews-example.cdn.ampproject.org", "localhost:8080"},
	})
	for problem := range badvalue.All(err) {
		fmt.Printf("%s: want %s\n", problem.Path, problem.Want)
	}
	// Output:
	// publishers[1]: want "example.com"
	// publishers[2]: want "www.mynews.example"
	// publishers[3]: want "http://localhost:8080" in origins, for local development
}

func TestAllFindsWrappedErrors(t *testing.T) {
	a, b, c := &badvalue.Error{Path: "a"}, &badvalue.Error{Path: "b"}, &badvalue.Error{Path: "c"}
	err := errors.Join(a, errors.New("another"), fmt.Errorf("wrapped: %w", errors.Join(b, fmt.Errorf("%w and %w", c, a))))
	if got := slices.Collect(badvalue.All(err)); !slices.Equal(got, []*badvalue.Error{a, b, c, a}) {
		t.Errorf("%v", got)
	}
	for first := range badvalue.All(err) {
		if first != a {
			t.Error(first)
		}
		break
	}
	if got := slices.Collect(badvalue.All(nil)); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestAnErrorNamesThePlaceAndCutsALongValue(t *testing.T) {
	for _, test := range []struct {
		err  badvalue.Error
		want string
	}{
		{err: badvalue.Error{Path: "publishers[3]", Value: "a", Reason: "is bad", Want: "b"}, want: `ampcors: publishers[3] "a" is bad; want b`},
		{err: badvalue.Error{Path: "caches[0].id", Reason: "is empty", Want: "b"}, want: `ampcors: caches[0].id "" is empty; want b`},
		{err: badvalue.Error{Path: "methods[0]", Value: "TRACE", Reason: "is bad", Want: "remove it"},
			want: `ampcors: methods[0] "TRACE" is bad; remove it`},
	} {
		t.Run(test.want, func(t *testing.T) {
			if got := test.err.Error(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	long := badvalue.Error{Path: "publishers[0]", Value: strings.Repeat("x", 1<<20), Reason: "is bad", Want: "b"}
	if n := len(long.Error()); n > 200 {
		t.Errorf("the message for a value of 1 MiB has %d bytes", n)
	}
}
