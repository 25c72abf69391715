// Conformance completes the vectors: people write what goes in, and it adds the answers that are missing. It
// does not change an answer. To recompute one, remove it first. The tests of the packages compare all
// answers with the code, and with what others publish.
//
//	go run ./conformance # in the root of the repository
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/jsonlines"
	"github.com/ampcors/ampcors/internal/jsonschema"
	"github.com/ampcors/ampcors/internal/vectors"
)

func main() {
	log.SetFlags(0)
	if err := completeAll("conformance", "internal/vectors/vectors.go"); err != nil {
		log.Fatal(err)
	}
}

// completeAll completes each file of a folder, and writes the schema of the types in a Go file.
func completeAll(folder, types string) error {
	names, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	if len(names) == 0 {
		return fmt.Errorf("there are no vectors in %s; run this in the root of the repository", folder)
	}
	for _, name := range names {
		if filepath.Base(name) == "schema.json" {
			continue
		}
		f, err := vectors.Read(name)
		if err != nil {
			return err
		}
		if err := complete(&f, folder); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(name, f); err != nil {
			return err
		}
	}
	maker := jsonschema.Maker{Sources: []string{types}, Requires: true,
		Known: func(_ *jsonschema.Maker, typ reflect.Type) map[string]any {
			if typ == reflect.TypeFor[json.RawMessage]() {
				return map[string]any{"type": "object"}
			}
			return nil
		}}
	schema, err := maker.Make("Vectors of ampcors", reflect.TypeFor[vectors.File]())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "schema.json"), schema, 0o644)
}

func write(name string, value any) error {
	data, err := jsonlines.Format(value, 2)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// complete adds the answers that are missing in a file of the folder.
func complete(f *vectors.File, folder string) error {
	for i := range f.Prefixes {
		completeDomain(&f.Prefixes[i])
	}
	for i := range f.Domains {
		v := &f.Domains[i]
		if v.Domain == "" && v.Problem == "" {
			domain, err := ampcors.PublisherDomain(v.Prefix)
			v.Domain, v.Problem = domain, problemOf(err)
			if errors.Is(err, ampcors.ErrHashPrefix) {
				v.Problem = "has no dash, so that it can only be a hash prefix"
			}
		}
	}
	policies := make(map[string]*ampcors.Middleware)
	for name, data := range f.Policies {
		cfg, err := configfile.Read(name, bytes.NewReader(data))
		if err != nil {
			return err
		}
		if policies[name], err = ampcors.New(cfg); err != nil {
			return err
		}
	}
	for _, v := range f.Origins {
		if policies[v.Policy] == nil {
			return fmt.Errorf("origin %q: there is no policy %q", v.Origin, v.Policy)
		}
	}
	for _, v := range f.Requests {
		if policies[v.Policy] == nil {
			return fmt.Errorf("request %q: there is no policy %q", v.Name, v.Policy)
		}
	}
	for i := range f.Origins {
		if v := &f.Origins[i]; v.Reason == "" {
			d := policies[v.Policy].CheckOrigin(v.Origin)
			v.Reason, v.Publisher, v.Claimed, v.Cache = d.Reason.Label(), d.Publisher, d.ClaimedPublisher, d.CacheID
		}
	}
	for i := range f.Requests {
		if v := &f.Requests[i]; v.Reason == "" {
			completeRequest(v, policies[v.Policy])
		}
	}
	for i := range f.CacheURLs {
		completeCacheURL(&f.CacheURLs[i])
	}
	if len(f.UpdateCache) > 0 {
		data, err := os.ReadFile(filepath.Join(folder, f.Key))
		if err != nil {
			return err
		}
		key, err := updatecache.ParseKey(data)
		if err != nil {
			return err
		}
		for i := range f.UpdateCache {
			if err := completeUpdateCache(&f.UpdateCache[i], key); err != nil {
				return err
			}
		}
	}
	for i := range f.IndexNow {
		if err := completeIndexNow(&f.IndexNow[i]); err != nil {
			return err
		}
	}
	return nil
}

// problemOf returns what is wrong with a value, or "".
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	var texts []string
	for v := range ampcors.ValueErrors(err) {
		texts = append(texts, v.Reason)
	}
	if texts == nil {
		return err.Error()
	}
	return strings.Join(texts, "; ")
}

func completeDomain(v *vectors.DomainPrefixes) {
	if v.ASCII == "" && v.Problem == "" {
		ascii, err := ampcors.CanonicalDomain(v.Domain)
		if v.Problem = problemOf(err); ascii != v.Domain {
			v.ASCII = ascii
		}
	}
	if v.Prefixes == nil {
		forms, _ := cacheurl.Prefixes(v.Domain)
		for _, form := range forms {
			v.Prefixes = append(v.Prefixes, vectors.Form{Prefix: form.Prefix, By: form.By, Denied: form.Denied})
		}
	}
	given := 0
	for _, form := range v.Prefixes {
		if len(form.By) > 0 {
			given++
		}
	}
	v.Disagree = given > 1
}

func completeRequest(v *vectors.Request, mw *ampcors.Middleware) {
	r := httptest.NewRequest(v.Method, "https://api.example.org/data?"+v.Query, nil)
	for _, header := range v.Headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	v.Reason = mw.Check(r).Reason.Label()
	answer, passed := httptest.NewRecorder(), false
	mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(answer, r)
	if !passed {
		v.Status = answer.Code
	}
	for name, values := range answer.Header() {
		if name != "Content-Type" && name != "X-Content-Type-Options" {
			v.Response = append(v.Response, strings.Replace(name, "Amp-", "AMP-", 1)+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(v.Response)
}

func completeCacheURL(v *vectors.CacheURL) {
	if v.CacheURL == "" && v.Problem == "" {
		cacheURL, err := cacheurl.URL{
			Publisher: v.URL, Cache: cacheOf(v), Prefix: v.Prefix, Type: cacheurl.ContentType(v.Type), AnyType: v.AnyType,
			ImageParams: v.ImageParams, CacheQuery: v.CacheQuery,
		}.Build()
		v.CacheURL, v.Problem = cacheURL, problemOf(err)
	}
	if v.CacheURL == "" || v.Canonical != "" || v.Problem != "" {
		return
	}
	parse := cacheurl.ParseAny
	if v.Untyped {
		parse = cacheurl.ParseUntyped
	}
	if v.URL == "" && !v.AnyType && v.Prefix == "" && !v.Untyped {
		parse = cacheurl.Parse
	}
	u, err := parse(v.CacheURL, cacheOf(v))
	if v.URL == "" {
		v.Problem = problemOf(err)
		v.Prefix, v.Type, v.CacheQuery, v.ImageParams = u.Prefix, string(u.Type), u.CacheQuery, u.ImageParams
	}
	if u.Publisher != v.URL {
		v.Canonical = u.Publisher
	}
}

func cacheOf(v *vectors.CacheURL) ampcors.Cache {
	if v.Cache == "" {
		return ampcors.DefaultCaches()[0]
	}
	return ampcors.Cache{ID: "other", CacheDomain: v.Cache}
}

func completeUpdateCache(v *vectors.UpdateCache, key *rsa.PrivateKey) error {
	if v.Signature != "" {
		return nil
	}
	if v.URL != "" {
		client, err := updatecache.New(updatecache.Config{Signer: key})
		if err != nil {
			return err
		}
		signed, err := client.SignedURLs(cacheurl.URL{Publisher: v.URL}) // with the time that it is now
		if err != nil {
			return err
		}
		u, err := url.Parse(signed[0])
		if err != nil {
			return err
		}
		before, _, _ := strings.Cut(u.RequestURI(), "&amp_ts=")
		v.Text = before + "&amp_ts=" + strconv.FormatInt(v.Time, 10)
		v.Signed = "https://" + u.Host + v.Text + "&amp_url_signature="
	}
	sum := sha256.Sum256([]byte(v.Text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	v.Signature = base64.RawURLEncoding.EncodeToString(signature)
	if v.Signed != "" {
		v.Signed += v.Signature
	}
	return err
}

func completeIndexNow(v *vectors.IndexNow) error {
	if v.Requests != nil || v.Problems != nil {
		return nil
	}
	client, err := indexnow.New(indexnow.Config{Key: indexnow.Key(v.Key), KeyLocation: v.KeyLocation})
	if err != nil {
		return err
	}
	requests, err := client.Requests(context.Background(), v.URLs...)
	for problem := range ampcors.ValueErrors(err) {
		v.Problems = append(v.Problems, problem.Path+" "+problem.Reason)
	}
	for _, request := range requests {
		var s vectors.Submission
		if err := json.Unmarshal(request.Body, &s); err != nil {
			return err
		}
		v.Requests = append(v.Requests, s)
	}
	if len(v.URLs) == 1 && err == nil {
		v.GET, _ = requests[0].GetURL()
	}
	return nil
}
