package cacheurl_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// The columns of implementations_disagree.tsv are what the implementations themselves returned.
func TestPrefixesAreThoseOfTheImplementations(t *testing.T) {
	data, err := os.ReadFile("../testdata/implementations_disagree.tsv")
	if err != nil {
		t.Fatal(err)
	}
	const keepsCase, tooLong = "it does not fold case, and Prefixes does", "it returns 65 bytes, which is not a DNS label"
	differs := map[string]string{
		"BÜCHER.ch by snowflake":                                         keepsCase,
		"BÜCHER.ch by the AMP document":                                  keepsCase,
		"XN--BCHER-KVA.CH by snowflake":                                  keepsCase,
		"XN--BCHER-KVA.CH by the AMP document":                           keepsCase,
		"en-us." + strings.Repeat("a", 49) + ".com by toolbox-cache-url": tooLong,
	}
	names := []string{"toolbox-cache-url", "amppackager", "snowflake", "the AMP document"}
	compared, different := 0, 0
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		row := strings.Split(line, "\t")
		prefixes, err := cacheurl.Prefixes(row[0])
		if err != nil {
			if _, err := ampcors.DomainPrefix(row[0]); err == nil {
				t.Errorf("%q: %v", row[0], err)
			}
			continue
		}
		for i, name := range names {
			at := slices.IndexFunc(prefixes, func(p cacheurl.Prefix) bool { return slices.Contains(p.By, name) })
			if at < 0 {
				t.Fatalf("%q: nothing by %s", row[0], name)
			}
			compared++
			reason, isListed := differs[row[0]+" by "+name]
			if isListed {
				different++
			}
			if got, want := prefixes[at].Prefix, strings.ToLower(row[1+i]); (got == want) == isListed {
				t.Errorf("%q by %s: %q; want %q, and listed as different: %t %s", row[0], name, got, want, isListed, reason)
			}
		}
	}
	if compared < 300 || different != len(differs) {
		t.Errorf("%d compared, %d different", compared, different)
	}
}

func TestPrefixes(t *testing.T) {
	for publisher, want := range map[string]string{
		"www.example.com": `[{"prefix":"www-example-com","by":["ampcors","toolbox-cache-url","amppackager","snowflake","the AMP document"]},{"prefix":"qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca","by":[]}]`,
		"é-x.com":         `[{"prefix":"xn----x-com-9xa","by":["ampcors","toolbox-cache-url","the AMP document"]},{"prefix":"xn--0---x-com-0-cbb","by":["amppackager","snowflake"]},{"prefix":"6vyz5odpwzi24rhvlctdle6yqvr66pgdogi67dpqegncwquf5ava","by":[]}]`,
		"in--trouble.com": `[{"prefix":"0-in----trouble-com-0","by":["snowflake","the AMP document"]},{"prefix":"r5s7rxu53tjelpr7ngbxkxpirbrylvbwcuueckh7gmn5mim5cjna","by":["ampcors","toolbox-cache-url","amppackager"]}]`,
		"faß.de":          `[{"prefix":"xn--fa-de-mqa","by":["ampcors","toolbox-cache-url","snowflake","the AMP document"]},{"prefix":"fass-de","by":["amppackager"],"denied":true},{"prefix":"hr7lkydfj2a3j3xjh5qfs5sicrjlowpcmuj46imgsymx3wcysi4q","by":[]}]`,
		"xn-foo.ru.com":   `[{"prefix":"0-xn--foo-ru-com-0","by":["ampcors","snowflake","the AMP document"]},{"prefix":"xn--foo-ru-com","by":["toolbox-cache-url","amppackager"],"denied":true},{"prefix":"qh6guyldo7qpgrwdcjty6r3cfs5b3otncqmvrij2jummk3n2v3qq","by":[]}]`,
	} {
		prefixes, err := cacheurl.Prefixes(publisher)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(prefixes)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want\n%s", publisher, got, err, want)
		}
		mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range prefixes {
			if d := mw.CheckOrigin("https://" + p.Prefix + ".cdn.ampproject.org"); d.Allowed == p.Denied {
				t.Errorf("%s as %+v: %s", publisher, p, d.Reason)
			}
		}
	}
	if _, err := cacheurl.Prefixes("localhost"); err == nil {
		t.Error("localhost has prefixes")
	}
}

func TestPublisherURL(t *testing.T) {
	for cacheURL, want := range map[string]string{
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a": "https://www.example.com/a",
		"https://www-example-com.cdn.ampproject.org/s/www.example.com/a":   "https://www.example.com/a",
		"https://www.google.com/amp/s/www.example.com/a":                   "https://www.example.com/a",
	} {
		if got, err := cacheurl.PublisherURL(cacheURL); got != want || err != nil {
			t.Errorf("%s: %q, %v", cacheURL, got, err)
		}
	}
	const unknown = "https://www-example-com.cdn.ampproject.org/x/s/www.example.com/a"
	_, want := cacheurl.Parse(unknown)
	if got, err := cacheurl.PublisherURL(unknown); got != "" || want == nil || err == nil || err.Error() != want.Error() {
		t.Errorf("%q, %v; want %v", got, err, want)
	}
}
