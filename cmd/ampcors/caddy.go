package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
)

// checkCaddys checks each ampcors in the configuration of Caddy that is on standard input, and shows what it allows.
func checkCaddys(cmd *cobra.Command, output format) error {
	text, err := interruptible(cmd.Context(), func() ([]byte, error) { return io.ReadAll(cmd.InOrStdin()) })
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if !isCaddys(text) {
		return errors.New("standard input is not the configuration of Caddy in JSON; want caddy adapt --config Caddyfile | " +
			"ampcors check -")
	}
	handlers := caddyHandlers(text)
	if len(handlers) == 0 {
		return exitError{exitFindings, errors.New("the configuration of Caddy has no ampcors")}
	}
	var problems []error
	shown := make(map[string]json.RawMessage)
	for _, handler := range handlers {
		cfg, err := handler.Config()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		warn(cmd.ErrOrStderr(), cfg)
		if output == formatText {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\t%s\n", handler.Name, strings.ReplaceAll(summary(cfg, ""), "\n", "\n\t"))
		} else if shown[handler.Name], err = configfile.Marshal(cfg); err != nil {
			problems = append(problems, err)
		}
	}
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), shown); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return exitError{exitFindings, errors.Join(problems...)}
	}
	return nil
}

// isCaddys reports whether a text is a configuration of Caddy in JSON.
func isCaddys(text []byte) bool {
	var config struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	return json.Unmarshal(text, &config) == nil && config.Apps != nil
}

// caddyHandlers returns the ampcors in the JSON of Caddy, which caddy adapt makes of a Caddyfile. The name of each
// is its number, with the matchers on the way to it. Files are relative to the working directory, as they are for
// Caddy.
func caddyHandlers(text []byte) (handlers []configfile.Inline) {
	var config any
	_ = json.Unmarshal(text, &config) // isCaddys has read it
	var find func(value any, way []string)
	find = func(value any, way []string) {
		switch v := value.(type) {
		case []any:
			for _, value := range v {
				find(value, way)
			}
		case map[string]any:
			if sets, ok := v["match"].([]any); ok && v["handle"] != nil {
				for _, set := range sets {
					if set, err := json.Marshal(set); err == nil {
						way = append(slices.Clip(way), string(set))
					}
				}
			}
			if v["handler"] == "ampcors" {
				handlers = append(handlers, newCaddyHandler(len(handlers)+1, v, way))
				return
			}
			for _, name := range slices.Sorted(maps.Keys(v)) {
				find(v[name], way)
			}
		}
	}
	find(config, nil)
	return handlers
}

func newCaddyHandler(number int, handler map[string]any, way []string) configfile.Inline {
	name := fmt.Sprintf("ampcors %d", number)
	asked, hasSource := handler["source"].(map[string]any)
	if hasSource {
		name += fmt.Sprintf(", and publishers in %v", asked["module"])
	}
	if len(way) > 0 {
		name += " (" + strings.Join(way, " ") + ")"
	}
	text := []byte("{}")
	if config, ok := handler["config"]; ok {
		text, _ = json.Marshal(config) // it was JSON
	}
	return configfile.Inline{Name: name, Dir: ".", JSON: text, Set: func(cfg *ampcors.Config) {
		if hasSource {
			cfg.Source = new(source.Source) // it is never asked
		}
	}}
}
