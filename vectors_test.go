package ampcors_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/dns"
	"github.com/ampcors/ampcors/internal/vectors"
)

func readVectors(t testing.TB, name string) vectors.File {
	t.Helper()
	f, err := vectors.Read("conformance/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// policiesOf returns the configurations of a file.
func policiesOf(t testing.TB, f vectors.File) map[string]ampcors.Config {
	t.Helper()
	policies := make(map[string]ampcors.Config)
	for name, data := range f.Policies {
		cfg, err := configfile.Read(name, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		policies[name] = cfg
	}
	return policies
}

// reasonOf returns the reason that a vector names, and fails if the file does not have it.
func reasonOf(t testing.TB, f vectors.File, label string) (reason ampcors.Reason) {
	t.Helper()
	if err := reason.UnmarshalText([]byte(label)); err != nil {
		t.Fatal(err)
	}
	if r, ok := f.Reasons[label]; f.Reasons != nil && (!ok || r.Allowed != reason.Allowed()) {
		t.Errorf("the file says of %s: %+v, %t", label, r, ok)
	}
	return reason
}

// TestPrefixVectors: each form that an implementation gives a domain is accepted for that publisher
// alone, or listed as denied with the reason. What each of them gives is tested in package cacheurl.
func TestPrefixVectors(t *testing.T) {
	f := readVectors(t, "prefixes.json")
	for _, v := range f.Prefixes {
		m, err := ampcors.New(ampcors.Config{Publishers: []string{v.Domain}})
		if v.Problem != "" {
			if err == nil || !strings.Contains(err.Error(), v.Problem) {
				t.Errorf("%q: %v; want the problem %q", v.Domain, err, v.Problem)
			}
			if prefix, err := ampcors.DomainPrefix(v.Domain); err == nil {
				t.Errorf("%q has the prefix %q", v.Domain, prefix)
			}
			continue
		}
		ascii, _ := ampcors.CanonicalDomain(v.Domain)
		if err != nil || ascii != v.ASCII && (ascii != v.Domain || v.ASCII != "") || plainParse(ascii) != ascii {
			t.Errorf("%q is %q in ASCII, %v; want %q", v.Domain, ascii, err, v.ASCII)
			continue
		}
		text, _ := dns.Decode(ascii)
		var own string
		var official []string
		for i, form := range v.Prefixes {
			if isHash := form.Prefix == plainHash(ascii); isHash != (i == len(v.Prefixes)-1) || !isHash && (plainReverse(t, form.Prefix) == ascii) == form.Denied {
				t.Errorf("%q: %+v is not what the oracle says", v.Domain, form)
			}
			if document := formDocument(text); slices.Contains(form.By, "the AMP document") && form.Prefix != document && len(document) <= 63 && form.Note == "" {
				t.Errorf("%q: the document's prefix is %q, not %q", v.Domain, document, form.Prefix)
			}
			if slices.Contains(form.By, "ampcors") {
				own = form.Prefix
			}
			if slices.Contains(form.By, "toolbox-cache-url") && slices.Contains(form.By, "amppackager") {
				official = append(official, form.Prefix)
			}
			for _, c := range ampcors.DefaultCaches() {
				d := m.CheckOrigin("https://" + form.Prefix + "." + c.CacheDomain)
				if d.Allowed == form.Denied || d.Allowed && (d.Publisher != ascii || d.CacheID != c.ID) {
					t.Errorf("%q as %+v is decided as %+v", v.Domain, form, d)
				}
			}
		}
		if prefix, err := ampcors.DomainPrefix(v.Domain); err != nil || prefix != own {
			t.Errorf("DomainPrefix(%q) = %q, %v; want %q", v.Domain, prefix, err, own)
		}
		// The prefix is the one that both official implementations agree on, except for names that
		// begin with xn-, which they leave unwrapped.
		if len(official) == 1 && own != official[0] && !isLeftAsXN(v.Domain, official[0]) {
			t.Errorf("DomainPrefix(%q) = %q; both official implementations give %q", v.Domain, own, official[0])
		}
	}
}

// TestNotesAndSourcesAreThere: each vector that differs from others' says why, and each note and source
// that it names exists and is used.
func TestNotesAndSourcesAreThere(t *testing.T) {
	for _, name := range []string{"prefixes.json", "origins.json", "cacheurls.json", "updatecache.json"} {
		f := readVectors(t, name)
		notes, sources := make(map[string]bool), make(map[string]bool)
		for _, v := range f.Prefixes {
			notes[v.Note] = true
			for _, form := range v.Prefixes {
				notes[form.Note] = true
				for _, source := range form.Published {
					sources[source] = true
				}
				if form.Denied && form.Note == "" || v.Problem != "" && len(form.By)+len(form.Published) > 0 && v.Note == "" {
					t.Errorf("%s: %q as %q has no note", name, v.Domain, form.Prefix)
				}
			}
		}
		for _, v := range f.CacheURLs {
			notes[v.Note], sources[v.Source] = true, true
		}
		for _, v := range f.Origins {
			sources[v.Source] = true
		}
		for _, v := range f.UpdateCache {
			sources[v.Source] = true
		}
		for _, list := range []struct {
			used map[string]bool
			has  map[string]string
		}{{notes, f.Notes}, {sources, f.Sources}} {
			delete(list.used, "")
			for key := range list.has {
				if !list.used[key] {
					t.Errorf("%s: no vector has %q", name, key)
				}
			}
			for key := range list.used {
				if list.has[key] == "" {
					t.Errorf("%s: a vector has %q, which is not explained", name, key)
				}
			}
		}
	}
}

// TestDomainVectors: a prefix is read as one domain, as the oracle says, or rejected with the reason.
func TestDomainVectors(t *testing.T) {
	read := 0
	for _, v := range readVectors(t, "domains.json").Domains {
		got, err := ampcors.PublisherDomain(v.Prefix)
		if got != v.Domain || got != plainReverse(t, v.Prefix) || (err == nil) != (v.Domain != "") {
			t.Errorf("PublisherDomain(%q) = %q, %v; want %q", v.Prefix, got, err, v.Domain)
		}
		if err == nil {
			read++
			continue
		}
		var problem *ampcors.ValueError
		if isHash := !strings.Contains(v.Prefix, "-") && v.Prefix != "" && !strings.Contains(v.Prefix, "."); errors.Is(err, ampcors.ErrHashPrefix) != isHash {
			t.Errorf("PublisherDomain(%q): %v", v.Prefix, err)
		} else if !isHash && (!errors.As(err, &problem) || v.Problem == "" || !strings.HasSuffix(problem.Reason, v.Problem)) {
			t.Errorf("PublisherDomain(%q): %v; want the problem %q", v.Prefix, err, v.Problem)
		}
	}
	if read < 20 {
		t.Errorf("only %d prefixes have a domain", read)
	}
}

// TestOriginVectors: the decision is the vector's, and the oracle's, whether the publishers are listed
// or known to a Source. A denied POST does not reach the handler.
func TestOriginVectors(t *testing.T) {
	f := readVectors(t, "origins.json")
	for name, cfg := range policiesOf(t, f) {
		oracle := oracleConfigOf(cfg)
		listed := newMiddleware(t, cfg)
		fromSource, _ := withSource(t, cfg)
		asked := newMiddleware(t, fromSource)
		for _, v := range f.Origins {
			if v.Policy != name {
				continue
			}
			t.Run(v.Name, func(t *testing.T) {
				reason := reasonOf(t, f, v.Reason)
				want := ampcors.Decision{Allowed: reason.Allowed(), Reason: reason, Origin: v.Origin, Publisher: v.Publisher, ClaimedPublisher: v.Claimed, CacheID: v.Cache}
				for _, m := range []*ampcors.Middleware{listed, asked} {
					if got := m.CheckOrigin(v.Origin); got != want {
						t.Errorf("%q: got  %+v\nwant %+v", v.Origin, got, want)
					}
					r := &http.Request{Method: "POST", Header: http.Header{"Origin": {v.Origin}}}
					if got := m.Check(r); got != want {
						t.Errorf("Check: got  %+v\nwant %+v", got, want)
					}
					handler, rec := new(spy), httptest.NewRecorder()
					m.Wrap(handler).ServeHTTP(rec, r)
					if handler.ran != want.Allowed || rec.Header().Get("Access-Control-Allow-Origin") != map[bool]string{true: v.Origin}[want.Allowed] {
						t.Errorf("%q: the handler ran: %t, headers %v", v.Origin, handler.ran, rec.Header())
					}
				}
				if cfg.DangerouslyAllowAmbiguousPrefixes {
					return // the oracle does not have this
				}
				allowed, publisher, cache := plainCheckOrigin(t, oracle, v.Origin)
				if allowed != want.Allowed || allowed && (publisher != v.Publisher || cache != v.Cache) {
					t.Errorf("%q: the oracle says %t, %q, %q", v.Origin, allowed, publisher, cache)
				}
			})
		}
	}
	for reason := ampcors.Reason(1); reason < ampcors.NumReasons; reason++ {
		if r := f.Reasons[reason.Label()]; reasonOf(t, f, reason.Label()) != reason || r.Rule == "" || r.Section == "" {
			t.Errorf("%s has no rule", reason.Label())
		}
	}
}
