package ampcors_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/domains"
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
		cfg, err := configfile.Inline{Name: name, JSON: data}.Config()
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
	for reason = 1; reason.String() != label; reason++ {
		if reason == ampcors.NumReasons {
			t.Fatalf("there is no reason %q", label)
		}
	}
	if r, ok := f.Reasons[label]; f.Reasons != nil && (!ok || r.Allowed != reason.Allowed()) {
		t.Errorf("the file says of %s: %+v, %t", label, r, ok)
	}
	return reason
}

// TestPrefixVectors: each form that an implementation gives a domain is accepted for that publisher
// alone, unless the vector denies it. What each of them gives is tested in package cacheurl.
func TestPrefixVectors(t *testing.T) {
	f := readVectors(t, "prefixes.json")
	for _, v := range f.Prefixes {
		m, err := ampcors.New(ampcors.Config{Publishers: []string{v.Domain}})
		if v.Problem != "" {
			if err == nil || !strings.Contains(err.Error(), v.Problem) {
				t.Errorf("%q: %v; want the problem %q", v.Domain, err, v.Problem)
			}
			continue
		}
		ascii, _ := cacheurl.CanonicalDomain(v.Domain)
		if err != nil || ascii != v.ASCII && (ascii != v.Domain || v.ASCII != "") || plainParse(ascii) != ascii {
			t.Errorf("%q is %q in ASCII, %v; want %q", v.Domain, ascii, err, v.ASCII)
			continue
		}
		text, _ := domains.Decode(ascii)
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
			if slices.Contains(form.By, "toolbox-cache-url") && slices.Contains(form.By, "amppackager") && form.Note != "Unicode" {
				official = append(official, form.Prefix)
			}
			for _, c := range cacheurl.DefaultCaches() {
				d := m.CheckOrigin("https://" + form.Prefix + "." + c.CacheDomain)
				if d.Allowed == form.Denied || d.Allowed && (d.Publisher != ascii || d.CacheID != c.ID) {
					t.Errorf("%q as %+v is decided as %+v", v.Domain, form, d)
				}
			}
		}
		if prefix, err := cacheurl.DomainPrefix(v.Domain); err != nil || prefix != own {
			t.Errorf("DomainPrefix(%q) = %q, %v; want %q", v.Domain, prefix, err, own)
		}
		// The prefix is the one that both official implementations agree on, except for names that
		// begin with xn-, which they may leave unwrapped.
		if len(official) == 1 && own != official[0] && !isLeftAsXN(v.Domain, official[0]) {
			t.Errorf("DomainPrefix(%q) = %q; both official implementations give %q", v.Domain, own, official[0])
		}
	}
}

// TestNotesAndSourcesAreThere: each vector that differs from others' says why, and each note and source
// that it names exists and is used.
func TestNotesAndSourcesAreThere(t *testing.T) {
	for _, name := range []string{"prefixes.json", "domains.json", "origins.json", "requests.json", "cacheurls.json", "updatecache.json", "indexnow.json"} {
		f := readVectors(t, name)
		if f.About == "" {
			t.Errorf("%s does not say what it is about", name)
		}
		notes, sources := make(map[string]bool), make(map[string]bool)
		for _, v := range f.Prefixes {
			notes[v.Note] = true
			for _, form := range v.Prefixes {
				notes[form.Note] = true
				for _, source := range form.Published {
					sources[source] = true
				}
				if form.Denied != (form.Note != "" && form.Note != "before 2020") && v.Problem == "" || v.Problem != "" && len(form.By)+len(form.Published) > 0 && v.Note == "" {
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
		got, err := cacheurl.PublisherDomain(v.Prefix)
		if got != v.Domain || got != plainReverse(t, v.Prefix) || (err == nil) != (v.Domain != "") {
			t.Errorf("PublisherDomain(%q) = %q, %v; want %q", v.Prefix, got, err, v.Domain)
		}
		if err == nil {
			read++
			continue
		}
		var problem *badvalue.Error
		if isHash := !strings.Contains(v.Prefix, "-") && v.Prefix != "" && !strings.Contains(v.Prefix, "."); errors.Is(err, cacheurl.ErrHashPrefix) != isHash {
			t.Errorf("PublisherDomain(%q): %v", v.Prefix, err)
		} else if !isHash && (!errors.As(err, &problem) || v.Problem == "" || problem.Reason != v.Problem) {
			t.Errorf("PublisherDomain(%q): %v; want the problem %q", v.Prefix, err, v.Problem)
		}
	}
	if read < 20 {
		t.Errorf("only %d prefixes have a domain", read)
	}
}

// TestOriginVectors: the decision is the vector's and the oracle's, both for publishers that are listed
// and for those of a Source. A denied POST does not reach the handler.
func TestOriginVectors(t *testing.T) {
	f := readVectors(t, "origins.json")
	type middlewares struct {
		oracle        oracleConfig
		listed, asked *ampcors.Middleware
	}
	made := make(map[string]middlewares)
	policies := policiesOf(t, f)
	for name, cfg := range policies {
		fromSource, _ := withSource(t, cfg)
		made[name] = middlewares{oracleConfigOf(cfg), newMiddleware(t, cfg), newMiddleware(t, fromSource)}
	}
	if len(f.Origins) < 140 {
		t.Errorf("only %d origins", len(f.Origins))
	}
	for _, v := range f.Origins {
		m, ok := made[v.Policy]
		if !ok {
			t.Fatalf("there is no policy %q", v.Policy)
		}
		t.Run(v.Name+" "+v.Origin, func(t *testing.T) {
			reason := reasonOf(t, f, v.Reason)
			want := ampcors.Decision{Allowed: reason.Allowed(), Reason: reason, Origin: v.Origin, Publisher: v.Publisher, ClaimedPublisher: v.Claimed, CacheID: v.Cache}
			for _, m := range []*ampcors.Middleware{m.listed, m.asked} {
				if got := m.CheckOrigin(v.Origin); got != want {
					t.Errorf("%q: got  %+v\nwant %+v", v.Origin, got, want)
				}
				if !want.Allowed {
					wantDenied(t, m, v.Origin, reason)
				}
			}
			if policies[v.Policy].DangerouslyAllowAmbiguousPrefixes {
				return // the oracle does not have this
			}
			allowed, publisher, cache := plainCheckOrigin(t, m.oracle, v.Origin)
			if allowed != want.Allowed || allowed && (publisher != v.Publisher || cache != v.Cache) {
				t.Errorf("%q: the oracle says %t, %q, %q", v.Origin, allowed, publisher, cache)
			}
		})
	}
	for reason := ampcors.Reason(1); reason < ampcors.NumReasons; reason++ {
		if r := f.Reasons[reason.String()]; reasonOf(t, f, reason.String()) != reason || r.Rule == "" || r.Section == "" {
			t.Errorf("%s has no rule", reason.String())
		}
	}
}
