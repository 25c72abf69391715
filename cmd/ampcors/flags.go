package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noCommand returns the error for a command that does not exist.
func noCommand(root *cobra.Command, name string) error {
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	return fmt.Errorf("there is no command %q%s", name, suggest("", nearest(name, names)))
}

// suggest returns a text about what may have been meant.
func suggest(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + before + strings.Join(names, " or "+before) + "?"
}

// nearest returns the names that a word may have meant, as cobra suggests commands.
func nearest(word string, names []string) []string {
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	if word == "" {
		return nil
	}
	return known.SuggestionsFor(word)
}

// flagError returns the error for a wrong flag, in place of the library's.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); !cmd.HasParent() && len(words) > 0 {
		return noCommand(cmd, words[0]) // its flags are not known
	}
	unknown, invalid, missing := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil),
		(*pflag.ValueRequiredError)(nil)
	switch {
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("%s has no flag -%s", cmd.CommandPath(), name)
		}
		found := nearest(name, names)
		if other := map[string]string{"address": "listen", "addr": "listen", "port": "listen",
			"bind": "listen"}[name]; other != "" &&
			cmd.Flags().Lookup(other) != nil {
			found = []string{other}
		}
		if name == "config" && cmd.Name() == "check" {
			return errors.New("ampcors check has no flag --config; want the file alone: ampcors check config.json")
		}
		return fmt.Errorf("%s has no flag --%s%s", cmd.CommandPath(), name, suggest("--", found))
	case errors.As(err, &invalid):
		want := map[string]string{"bool": "true or false", "int": "a whole number", "int64": "a whole number",
			"float64":  "a number",
			"duration": "a duration such as 10s"}[invalid.GetFlag().Value.Type()]
		if want == "" { // a type of ours
			return fmt.Errorf("--%s %q is wrong: %w", invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(err))
		}
		return fmt.Errorf("--%s %q is wrong; want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value", missing.GetFlag().Name)
	}
	return err
}

// noArgs is for commands that take no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, and got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneArg returns what checks that there is one argument, such as a file.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s, and got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// require returns an error if flags are not set.
func require(cmd *cobra.Command, flags ...string) error {
	var missing []string
	for _, name := range flags {
		if !cmd.Flags().Changed(name) {
			missing = append(missing, "--"+name)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(missing, " and "))
	}
	return nil
}

// A flagRule says that a flag has no effect without others (one of needs), or beside others.
type flagRule struct {
	commands, flags, needs, excludes string // separated by spaces
}

var flagRules = []flagRule{
	{"prefix", "all", "", "hash"},
	{"flush submit", "state max-state allow-host", "sitemap", ""},
	{"flush submit", "all gone", "state", ""},
	{"flush submit", "max-gone", "gone", ""},
	{"flush", "dry-run", "", "sign"},
	{"submit", "show-key", "dry-run", ""},
	{"verify", "copies", "key", ""},
	{"verify", "caches", "copies", ""},
	{"verify", "key", "", "keys key-location"},
	{"serve-proxy", "tls-cert", "tls-key", ""},
	{"serve-proxy", "tls-key", "tls-cert", ""},
	{"check", "with-database", "", "database"}, // the former asks none
	{"check", "schema", "", "output with-database database table domain-column prefix-column no-prefixes condition"},
	{"probe", "method content-type body credentials", "endpoint list", ""},
	{"probe", "plan", "", "advice baseline fail-on ignore require-all"},
}

// checkRules returns an error if a flag would have no effect.
func checkRules(cmd *cobra.Command) error {
	for _, rule := range flagRules {
		if !slices.Contains(strings.Fields(rule.commands), cmd.Name()) {
			continue
		}
		for _, flag := range strings.Fields(rule.flags) {
			if !cmd.Flags().Changed(flag) {
				continue
			}
			if needs := strings.Fields(rule.needs); len(needs) > 0 && !slices.ContainsFunc(needs, cmd.Flags().Changed) {
				return fmt.Errorf("--%s needs --%s", flag, strings.Join(needs, " or --"))
			}
			for _, other := range strings.Fields(rule.excludes) {
				if cmd.Flags().Changed(other) {
					return fmt.Errorf("--%s and --%s exclude each other", flag, other)
				}
			}
		}
	}
	return nil
}

// complete says with which values a shell completes a flag.
func complete(cmd *cobra.Command, name string, values []string) {
	// fails only for unknown names
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
