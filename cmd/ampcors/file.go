package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/configfile"
)

// A configuration is what a file says: a configfile.File, or a configfile.Inline that names a list.
type configuration interface {
	Config() (ampcors.Config, error)
	Watch(configfile.WatcherConfig) (*ampcors.Middleware, *configfile.Watcher, error)
}

// configurationIn returns the configuration in a file. It may also be a list of publishers, with one on each line.
func configurationIn(path, cachesFile string, set func(*ampcors.Config)) (configuration, error) {
	file := configfile.File{Path: path, CachesFile: cachesFile, Set: set}
	switch isList, err := isList(path); {
	case err != nil:
		return nil, err
	case !isList:
		return file, nil
	}
	members := map[string]string{"publishersFile": filepath.Base(path)}
	if cachesFile != "" {
		absolute, err := filepath.Abs(cachesFile)
		if err != nil {
			return nil, err
		}
		members["cachesFile"] = absolute
	}
	data, err := json.Marshal(members)
	return configfile.Inline{Name: path + " (a list)", Dir: filepath.Dir(path), JSON: data, Set: set}, err
}

var caddyfile = regexp.MustCompile(`(?m)^\s*(order\s+)?ampcors\b`)

// isList reports whether a file is a list of publishers, and not JSON. A Caddyfile is an error. A file that cannot
// be read is left to package configfile.
func isList(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	begin, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return false, nil
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(begin, []byte("\uFEFF")))
	if caddyfile.Match(text) || filepath.Base(path) == "Caddyfile" {
		return false, fmt.Errorf("%s is a Caddyfile; caddy adapt --config %[1]s | ampcors check - says what each ampcors "+
			"in it allows, and caddy validate checks all of it", path)
	}
	// What begins with a letter, a digit, a * or a comment, and is not JSON.
	isName := len(text) == 0 || (text[0] == '*' || text[0] == '#' || text[0] >= 'a' && text[0] <= 'z' ||
		text[0] >= 'A' && text[0] <= 'Z' ||
		text[0] >= '0' && text[0] <= '9' || text[0] >= 0x80)
	return isName && !json.Valid(text) && !strings.EqualFold(filepath.Ext(path), ".json"), nil
}

// isInEntries reports whether the errors of a file are in what it allows, and not in how the program was started.
func isInEntries(err error) bool {
	for err := range unjoined(err) {
		problem := (*configfile.Error)(nil)
		if !errors.As(err, &problem) || problem.Path == "" && problem.Line == 0 ||
			slices.Contains([]string{"caches", "cachesFile", "source"}, problem.Path) {
			return false
		}
	}
	return true
}

// withoutWrongEntries returns a Middleware of what is right in a configuration that has errors, or nil.
func withoutWrongEntries(cfg ampcors.Config) (*ampcors.Middleware, ampcors.Config) {
	err := cfg.Validate()
	wrong := make(map[string]map[int]bool) // indices, by list
	for problem := range badvalue.All(err) {
		var list string
		var i int
		if name, rest, ok := strings.Cut(problem.Path, "["); ok {
			if _, err := fmt.Sscanf(rest, "%d]", &i); err == nil {
				list = name
			}
		}
		if list == "" {
			return nil, cfg
		}
		if wrong[list] == nil {
			wrong[list] = make(map[int]bool)
		}
		wrong[list][i] = true
	}
	for list, values := range map[string]*[]string{"publishers": &cfg.Publishers, "origins": &cfg.Origins,
		"methods":         &cfg.Methods,
		"requestHeaders":  &cfg.RequestHeaders,
		"responseHeaders": &cfg.ResponseHeaders, "email.senders": &cfg.Email.Senders, "email.clients": &cfg.Email.Clients} {
		i := -1
		*values = slices.DeleteFunc(slices.Clone(*values), func(string) bool {
			i++
			return wrong[list][i]
		})
	}
	mw, err := ampcors.New(cfg)
	if err != nil {
		return nil, cfg
	}
	return mw, cfg
}

// errPartly is wrapped by the error about a file with errors, if what is right in it can be explained.
var errPartly = errors.New("a server keeps its last good configuration, which this command does not know. What " +
	"follows is explained by the entries of the file that have no error")
