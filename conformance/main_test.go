package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ampcors/ampcors/internal/vectors"
)

// copyOf returns a folder with copies of all vectors.
func copyOf(t *testing.T) (folder string, files []string) {
	folder = t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != 8 {
		t.Fatalf("%q, %v", files, err)
	}
	return folder, files
}

// compare completes the vectors of a folder, and compares them with those here.
func compare(t *testing.T, folder string, files []string) {
	if err := completeAll(folder, "../internal/vectors/vectors.go"); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(got, want) {
			continue
		}
		lines, i := bytes.SplitAfter(append(got, '\n'), []byte("\n")), 0
		for len(lines[i]) > 0 && bytes.HasPrefix(want, lines[i]) {
			want, i = want[len(lines[i]):], i+1
		}
		t.Errorf("line %d of %s is not complete, or not formatted; go run ./conformance writes\n%s", i+1, name, lines[i])
	}
}

func TestTheVectorsAreComplete(t *testing.T) {
	folder, files := copyOf(t)
	compare(t, folder, files)
}

// Answers that are removed are computed again, and are the same.
func TestTheProgramMakesTheAnswers(t *testing.T) {
	folder, files := copyOf(t)
	removed := 0
	for _, name := range files {
		if name == "schema.json" {
			continue
		}
		f, err := vectors.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range f.Prefixes {
			recorded := slices.ContainsFunc(v.Prefixes, func(form vectors.Form) bool { return form.Note != "" || form.Published != nil })
			if v.Problem == "" && v.Note == "" && !recorded {
				f.Prefixes[i] = vectors.DomainPrefixes{Domain: v.Domain}
				removed++
			}
		}
		for i, v := range f.Domains {
			f.Domains[i] = vectors.PrefixDomain{Prefix: v.Prefix}
			removed++
		}
		for i, v := range f.Origins {
			f.Origins[i] = vectors.Origin{Policy: v.Policy, Name: v.Name, Origin: v.Origin, Source: v.Source}
			removed++
		}
		for i := range f.Requests {
			v := &f.Requests[i]
			v.Reason, v.Status, v.Response = "", 0, nil
			removed++
		}
		for i := range f.CacheURLs {
			v := &f.CacheURLs[i]
			if v.URL != "" {
				v.CacheURL = ""
			}
			v.Canonical, v.Problem = "", ""
			removed++
		}
		for i := range f.UpdateCache {
			f.UpdateCache[i].Signature, f.UpdateCache[i].Signed = "", ""
			removed++
		}
		for i := range f.IndexNow {
			v := &f.IndexNow[i]
			v.Requests, v.Problems, v.GET = nil, nil, ""
			removed++
		}
		if err := write(filepath.Join(folder, name), f); err != nil {
			t.Fatal(err)
		}
	}
	if removed < 600 {
		t.Errorf("only %d answers were removed", removed)
	}
	compare(t, folder, files)
}
