// Command bom writes what a Go program is made of, from what the linker has written into it: a bill of
// materials in the JSON of CycloneDX (https://cyclonedx.org/specification/overview/), and the licenses of
// all modules as a text. The modules are read from the module cache.
//
//	go -C e2e run ./bom PROGRAM VERSION BILL LICENSES
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 5 {
		return fmt.Errorf("want a program, its version, and the files to write: the bill and the licenses")
	}
	version := os.Args[2]
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return err
	}
	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")

	modules := []*debug.Module{{Path: info.Path, Version: version}, {Path: "std", Version: info.GoVersion[len("go"):]}}
	for _, dep := range info.Deps {
		if dep.Replace != nil || dep.Version == "(devel)" { // of this repository
			dep.Version = version
		}
		modules = append(modules, dep)
	}
	var components []cyclonedx.Component
	var texts bytes.Buffer
	for _, m := range modules {
		dir := ".."
		switch {
		case m.Path == "std":
			dir = goroot
		case m.Version != version:
			escaped, err := module.EscapePath(m.Path)
			if err != nil {
				return err
			}
			dir = filepath.Join(cache, escaped+"@"+m.Version)
		}
		id, text, err := license(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		if dir != ".." || len(components) == 0 { // that of this repository once
			fmt.Fprintf(&texts, "==== %s %s (%s)\n\n%s\n\n", m.Path, m.Version, id, bytes.TrimSpace(text))
		}
		c, err := component(m, id)
		if err != nil {
			return err
		}
		components = append(components, c)
	}
	bom := cyclonedx.NewBOM()
	program := components[0]
	program.Type = cyclonedx.ComponentTypeApplication
	components = components[1:]
	bom.Metadata, bom.Components = &cyclonedx.Metadata{Component: &program}, &components
	var bill bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&bill, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	if err := os.WriteFile(os.Args[3], bill.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(os.Args[4], texts.Bytes(), 0o644)
}

// component has as its hash the checksum of go.sum: the SHA-256 of the list of the module's files and their
// SHA-256 (golang.org/x/mod/sumdb/dirhash, Hash1).
func component(m *debug.Module, license string) (cyclonedx.Component, error) {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
		PackageURL: url,
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: license}}}}
	if encoded, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return c, err
		}
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c, nil
}

// licenses has words of licenses, by SPDX identifier. The first match counts: BSD-3-Clause also has the words of
// BSD-2-Clause.
var licenses = []struct {
	id    string
	words *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License,? Version 2\.0`)},
	{"MPL-2.0", regexp.MustCompile(`Mozilla Public License,? (Version|version|v\.) ?2\.0`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge, to any person obtaining a copy`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software for any purpose`)},
	{"BSD-3-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms.*(Neither the name|names of ` +
		`its contributors)`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
	{"CC0-1.0", regexp.MustCompile(`CC0 1\.0 Universal`)},
	{"Unlicense", regexp.MustCompile(`This is free and unencumbered software released into the public domain`)},
}

// license returns the license of a module: its identifier, and the text with that of NOTICE. A license that is
// not known is an error, because nobody has read whether it allows to distribute the program.
func license(dir string) (id string, text []byte, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, err
	}
	var notices []byte
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		isLicense := strings.HasPrefix(name, "license") || strings.HasPrefix(name, "licence") ||
			strings.HasPrefix(name, "copying")
		if e.IsDir() || !isLicense && !strings.HasPrefix(name, "notice") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", nil, err
		}
		if !isLicense {
			notices = append(notices, data...)
			continue
		}
		text = append(append(text, data...), '\n')
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, l := range licenses {
		if l.words.MatchString(words) {
			return l.id, append(text, notices...), nil
		}
	}
	return "", nil, fmt.Errorf("no known license in %s", dir)
}
