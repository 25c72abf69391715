package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/badvalue"
)

// options are the names of values, by their paths in Go, and what the command has to add.
var options = map[string]struct{ name, hint string }{
	"Key": {"INDEXNOW_KEY", "ampcors key indexnow makes one"}, "Endpoint": {name: "--endpoint"},
	"Signer":     {name: "the key of --key"},
	"ConnString": {name: "the database's address"}, "Condition": {name: "--condition"}, "Table": {name: "--table"},
	"DomainColumn": {name: "--domain-column"}, "PrefixColumn": {name: "--prefix-column"},
	"Type": {name: "--type"}, "ImageParams": {"--image-params", "--type i or ii is an image"},
	"CacheQuery": {name: "--cache-query"},
	"Prefix":     {"--prefix", "ampcors prefix --all prints them"}, "Publisher": {name: "the URL"},
	"cacheURL": {name: "the URL"},
	"page":     {"the URL", "--type i, ii or r is not a document"},
}

// inOurWords returns an error with the names that the command's users know: flags, and not fields of Go.
func inOurWords(err error) error {
	for v := range badvalue.All(err) {
		v.Reason, v.Want = strings.ReplaceAll(v.Reason, "NoPrefixes", "--no-prefixes"),
			strings.ReplaceAll(v.Want, "NoPrefixes", "--no-prefixes")
		switch o, isKnown := options[strings.TrimPrefix(v.Path, "Table.")]; {
		case strings.HasPrefix(v.Path, "KeyLocations["):
			v.Path = "--key-location"
		case strings.HasPrefix(v.Path, "KeysOf["):
			v.Path = strings.Replace(v.Path, "KeysOf", "--keys", 1)
		case isKnown:
			if v.Path = o.name; o.hint != "" && (o.name != "the URL" || v.Code == badvalue.Conflict) {
				v.Want += " (" + o.hint + ")"
			}
		}
	}
	return err
}

// packages are the beginnings of errors that name a package of Go.
var packages = strings.NewReplacer("pgsource: ", "", "sqlsource: ", "", "redissource: ", "", "sitemap: ", "",
	"ampurl: ", "")

// complain writes an error, with the name of the program at its beginning. Errors of this module's packages already
// have a name, at the beginning of a line or after a file or a setting; it is removed there.
func complain(w io.Writer, text string) {
	lines := strings.Split(packages.Replace(text), "\n")
	for i, line := range lines {
		line = strings.TrimPrefix(line, "ampcors: ")
		lines[i] = strings.Replace(line, ": ampcors: ", ": ", 1)
	}
	fmt.Fprintln(w, "ampcors:", strings.Join(lines, "\n"))
}

// failure returns the exit code for errors: 3 if mayPass holds for all of them, otherwise 1.
func failure(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return exitError{code: codeOf(errs)}
}

// codeOf is failure for at least one error.
func codeOf(errs []error) int {
	if slices.ContainsFunc(errs, func(err error) bool { return !mayPass(err) }) {
		return exitFindings
	}
	return exitLater
}

// mayPass reports whether the same command may succeed later.
func mayPass(err error) bool {
	return !slices.ContainsFunc(slices.Collect(unjoined(err)), func(err error) bool {
		if errors.Is(err, errInterrupted) {
			return false
		}
		again, network := interface{ Retryable() bool }(nil), net.Error(nil)
		if errors.As(err, &again) {
			return !again.Retryable()
		}
		return !errors.As(err, &network)
	})
}

var joined = reflect.TypeOf(errors.Join(io.EOF))

// unjoined returns the errors that errors.Join has joined.
func unjoined(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		if reflect.TypeOf(err) != joined { // an error of fmt.Errorf with several %w is one error
			yield(err)
			return
		}
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			for inner := range unjoined(err) {
				if !yield(inner) {
					return
				}
			}
		}
	}
}

// retryAfter returns how many seconds the other side wants to have no request, or 0.
func retryAfter(err error) int {
	engine, cache := (*indexnow.Error)(nil), (*updatecache.Error)(nil)
	var wait time.Duration
	if errors.As(err, &engine) {
		wait = engine.RetryAfter
	} else if errors.As(err, &cache) {
		wait = cache.RetryAfter
	}
	return int((wait + time.Second - 1) / time.Second)
}
