package proof

import (
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// TestPrefixVectors: each form that an implementation gives a domain is accepted for that publisher
// alone, unless the vector denies it. What each of them gives is tested in package cacheurl.
func TestPrefixVectors(t *testing.T) {
	f := mwtest.Vectors(t, "../conformance/prefixes.json")
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
		text := plainText(ascii)
		var own string
		var official []string
		for i, form := range v.Prefixes {
			if isHash := form.Prefix == plainHash(ascii); isHash != (i == len(v.Prefixes)-1) ||
				!isHash && (plainReverse(t, form.Prefix) == ascii) == form.Denied {
				t.Errorf("%q: %+v is not what the oracle says", v.Domain, form)
			}
			if document := formDocument(text); slices.Contains(form.By, "the AMP document") && form.Prefix != document && len(document) <= 63 &&
				form.Note == "" {
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
	for _, name := range []string{"prefixes.json", "domains.json", "origins.json", "requests.json", "cacheurls.json", "updatecache.json",
		"indexnow.json"} {
		f := mwtest.Vectors(t, "../conformance/"+name)
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
				if form.Denied != (form.Note != "" && form.Note != "before 2020") && v.Problem == "" || v.Problem != "" &&
					len(form.By)+len(form.Published) > 0 && v.Note == "" {
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

// TestDomainVectors: the oracle and the code read each prefix as the vector says. Package conformance also compares the problems.
func TestDomainVectors(t *testing.T) {
	for _, v := range mwtest.Vectors(t, "../conformance/domains.json").Domains {
		if got, err := cacheurl.PublisherDomain(v.Prefix); got != v.Domain || plainReverse(t, v.Prefix) != v.Domain {
			t.Errorf("%q is read as %q, %v; want %q, and the oracle %q", v.Prefix, got, err, v.Domain, plainReverse(t, v.Prefix))
		}
	}
}

// TestHostsThatShareAPrefix shows what the documentation of the package says about them.
func TestHostsThatShareAPrefix(t *testing.T) {
	for _, test := range []struct{ host, decoded, prefix, domain string }{
		{host: "abcd.-.evil.com", decoded: "abcd.-.evil.com", prefix: "abcd----evil-com", domain: "abcd--evil.com"},
		{host: "foo.xn--.evil.com", decoded: "foo..evil.com", prefix: "foo--evil-com", domain: "foo-evil.com"},
		{host: "xn--alice-.platform.com", decoded: "alice.platform.com", prefix: "alice-platform-com", domain: "alice.platform.com"},
	} {
		t.Run(test.host, func(t *testing.T) {
			if got := formDocument(test.decoded); got != test.prefix {
				t.Errorf("the document's prefix of the host is %q; want %q", got, test.prefix)
			}
			if got := formDocument(test.domain); got != test.prefix {
				t.Errorf("the document's prefix of the domain is %q; want %q", got, test.prefix)
			}
			if got, err := cacheurl.PublisherDomain(test.prefix); got != test.domain || err != nil {
				t.Errorf("the prefix is read as %q, %v; want %q", got, err, test.domain)
			}
			if got, err := cacheurl.DomainPrefix(test.host); err == nil {
				t.Errorf("the host gets the prefix %q", got)
			}
		})
	}
	// By amppackager, and by toolbox-cache-url, as package e2e shows.
	for _, test := range []struct{ host, own, prefix, domain string }{
		{host: "straße.de", own: "xn--strae-de-tya", prefix: "strasse-de", domain: "strasse.de"},
		{host: "xn-é.shop.pub", own: "xn--0-xn---shop-pub-0-gtb", prefix: "xn---shop-9ra81j", domain: "xn--9ca85a.shop"}, // éƕ.shop
		{host: "xn---bbb.example", prefix: "xn---example-6ojj", domain: "xn--xbbb.example"},
	} {
		t.Run(test.host, func(t *testing.T) {
			if got, err := cacheurl.DomainPrefix(test.host); got != test.own || (err == nil) != (test.own != "") {
				t.Errorf("the prefix is %q, %v", got, err)
			}
			if got, err := cacheurl.PublisherDomain(test.prefix); got != test.domain || err != nil {
				t.Errorf("%s is read as %q, %v", test.prefix, got, err)
			}
		})
	}
}

// TestOriginVectors: the decision is the vector's and the oracle's, both for publishers that are listed
// and for those of a Source. A denied POST does not reach the handler.
func TestOriginVectors(t *testing.T) {
	f := mwtest.Vectors(t, "../conformance/origins.json")
	type middlewares struct {
		oracle        oracleConfig
		listed, asked *ampcors.Middleware
	}
	made := make(map[string]middlewares)
	policies := mwtest.Policies(t, f)
	for name, cfg := range policies {
		fromSource, _ := mwtest.WithSource(t, cfg)
		made[name] = middlewares{oracleConfigOf(cfg), mwtest.New(t, cfg), mwtest.New(t, fromSource)}
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
			reason := mwtest.Reason(t, f, v.Reason)
			want := ampcors.Decision{Allowed: reason.Allowed(), Reason: reason, Origin: v.Origin, Publisher: v.Publisher,
				ClaimedPublisher: v.Claimed, CacheID: v.Cache}
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
	for reason := ampcors.Reason(1); reason.String() != ampcors.Reason(0).String(); reason++ {
		if r := f.Reasons[reason.String()]; mwtest.Reason(t, f, reason.String()) != reason || r.Rule == "" || r.Section == "" {
			t.Errorf("%s has no rule", reason.String())
		}
	}
}
