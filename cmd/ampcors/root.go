package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/badvalue"
)

func init() { cobra.EnableCommandSorting = false } // the help has the commands in the order of newRoot

// newRoot returns the command with all its subcommands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "ampcors",
		Short:         "Test backends that AMP pages call, and answer questions about AMP Caches",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SuggestionsMinimumDistance = 2 // edits of the name
	root.Args = cobra.ArbitraryArgs     // so that RunE names what is wrong
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return noCommand(root, args[0])
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkRules(cmd) }
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Test a backend:", []*cobra.Command{newProbe(), newAdvice()}},
		{"Decide, and see why:", []*cobra.Command{newExplain(), newCheck(), newServeAuthz(), newHealth(), newSource()}},
		{"Names and URLs on AMP Caches:", []*cobra.Command{newPrefix(), newOrigins(), newReverse(), newCacheURL()}},
		{"Announce changed pages:", []*cobra.Command{newKey(), newVerify(), newFlush(), newSubmit()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  ampcors version",
		Args:    noArgs,
		Run:     func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "ampcors", version()) },
	}
}

// noCommand returns the error for a command that does not exist.
func noCommand(root *cobra.Command, name string) error {
	return fmt.Errorf("there is no command %q%s", name, suggest("", root.SuggestionsFor(name)))
}

// suggest returns a text about what may have been meant.
func suggest(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + before + strings.Join(names, " or "+before) + "?"
}

// flagError returns the error for a wrong flag, in place of the library's.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); !cmd.HasParent() && len(words) > 0 {
		return noCommand(cmd, words[0]) // its flags are not known
	}
	unknown, invalid, missing := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil), (*pflag.ValueRequiredError)(nil)
	switch {
	case errors.As(err, &unknown):
		names := &cobra.Command{SuggestionsMinimumDistance: 2} // it knows how to compare names
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		})
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("%s has no flag -%s", cmd.CommandPath(), name)
		}
		found := names.SuggestionsFor(name)
		if other := map[string]string{"address": "listen", "addr": "listen", "port": "listen", "bind": "listen"}[name]; other != "" && cmd.Flags().Lookup(other) != nil {
			found = []string{other}
		}
		return fmt.Errorf("%s has no flag --%s%s", cmd.CommandPath(), name, suggest("--", found))
	case errors.As(err, &invalid):
		want := map[string]string{"bool": "true or false", "int": "a whole number", "int64": "a whole number", "float64": "a number",
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
	{"flush submit", "state max-state", "sitemap", ""},
	{"flush submit", "all gone", "state", ""},
	{"flush submit", "max-gone", "gone", ""},
	{"flush", "dry-run", "", "sign"},
	{"verify", "copies", "key", ""},
	{"verify", "caches", "copies", ""},
	{"verify", "key", "", "keys key-location"},
	{"submit verify", "keys", "", "key-location"}, // its files are at the root
	{"check", "with-database", "", "database"},    // the former asks none
	{"check", "schema", "", "output with-database database table domain-column prefix-column condition"},
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

// release is the version of a release. The linker sets it.
var release string

// version returns the version of the release, or else that of the module or the commit.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// newHelp returns the command help. Unlike cobra's own, it ends with an error for an unknown command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(root, strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}

// execute runs the command, and returns the exit code. An error that is not an exitError
// counts as wrong usage.
func execute(ctx context.Context, root *cobra.Command) int {
	out, errs := printer{root.OutOrStdout()}, printer{root.ErrOrStderr()}
	root.SetOut(out)
	root.SetErr(errs)
	root.InitDefaultCompletionCmd() // it keeps the writer that is set now
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
		completion.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return noCommand(cmd, args[0])
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitClean
	}
	err = inOurWords(err)
	code := exitUsage
	if exit := (exitError{}); errors.As(err, &exit) {
		if code = exit.code; exit.err == nil {
			return code
		}
	}
	complain(root.ErrOrStderr(), err.Error())
	return code
}

// inOurWords returns an error with the names that the command's users know: flags, and not fields of Go.
func inOurWords(err error) error {
	names := map[string]string{"Key": "INDEXNOW_KEY", "KeyLocation": "--key-location", "Endpoint": "--endpoint",
		"Signer": "the key of --key", "Type": "--type", "ImageParams": "--image-params", "CacheQuery": "--cache-query", "Prefix": "--prefix"}
	for v := range badvalue.All(err) {
		v.Path = cmp.Or(names[v.Path], v.Path)
		v.Want = strings.NewReplacer("NewKey makes one", "ampcors key indexnow makes one", "in CacheQuery", "in --cache-query", "with Image or SizedImage", "with --type i or ii").Replace(v.Want)
	}
	return err
}

// ourWords are the same in errors that are texts alone.
var ourWords = strings.NewReplacer("pgsource: ConnString", "the database's address", "pgsource: ", "", `sqlsource: Table "`, `--table "`,
	`sqlsource: DomainColumn "`, `--domain-column "`, `sqlsource: PrefixColumn "`, `--prefix-column "`, "sqlsource: ", "")

// complain writes an error with the name of the program once, which errors of package ampcors have already: at the
// beginning of a line, or behind a file or a setting.
func complain(w io.Writer, text string) {
	lines := strings.Split(ourWords.Replace(text), "\n")
	for i, line := range lines {
		line = strings.TrimPrefix(line, "ampcors: ")
		lines[i] = strings.Replace(line, ": ampcors: ", ": ", 1)
	}
	fmt.Fprintln(w, "ampcors:", strings.Join(lines, "\n"))
}

// A format is a way to write results.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

// Set makes format a pflag.Value, so that an unknown format is an error before anything is done.
func (f *format) Set(value string) error {
	if value != string(formatText) && value != string(formatJSON) {
		return errors.New("want text or json")
	}
	*f = format(value)
	return nil
}

func (f *format) String() string { return string(*f) }

func (f *format) Type() string { return "format" }

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command) *format {
	f := formatText
	cmd.Flags().VarP(&f, "output", "o", "how results are written: text or json")
	return &f
}

// A result is the answer to one argument.
type result struct {
	Input      string `json:"input"`
	Output     any    `json:"output,omitempty"`
	Error      string `json:"error,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds, if the other side said so
}

// answer calls f for each argument or, if there are none, for each line of standard input.
// It writes the results as text, or as one JSON list. If f returns an error, answer writes
// the error, goes on with the next argument, and returns an exitError with code 1.
func answer(cmd *cobra.Command, args []string, output format, f func(arg string) (any, error)) error {
	inputs, err := inputs(cmd, args)
	if err != nil {
		return err
	}
	return answerAll(cmd, inputs, output, f)
}

// answerAll does the same for inputs, of which there may be none.
func answerAll(cmd *cobra.Command, inputs []string, output format, f func(input string) (any, error)) error {
	results, failed := []result{}, []error{}
	for _, input := range inputs {
		if cmd.Context().Err() != nil {
			return errInterrupted
		}
		r := result{Input: input}
		out, err := f(input)
		if err != nil {
			r.Error, r.RetryAfter, failed = ourWords.Replace(inOurWords(err).Error()), retryAfter(err), append(failed, err)
		} else {
			r.Output = out
		}
		results = append(results, r)
		if output == formatText {
			printResult(cmd, r)
		}
	}
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	}
	return failure(failed)
}

// failure returns the exit code for errors: 3 if all of them may pass, otherwise 1.
func failure(errs []error) error {
	switch {
	case len(errs) == 0:
		return nil
	case slices.ContainsFunc(errs, func(err error) bool { return !mayPass(err) }):
		return exitError{code: exitFindings}
	}
	return exitError{code: exitLater}
}

// mayPass reports whether the same command may succeed later.
func mayPass(err error) bool {
	return !slices.ContainsFunc(slices.Collect(unjoined(err)), func(err error) bool {
		again, network := interface{ Retryable() bool }(nil), net.Error(nil)
		if errors.As(err, &again) {
			return !again.Retryable() || errors.Is(err, indexnow.ErrAllRejected)
		}
		return !errors.As(err, &network)
	})
}

var joined = reflect.TypeOf(errors.Join(io.EOF))

// unjoined returns the errors that errors.Join has joined.
func unjoined(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		if reflect.TypeOf(err) != joined { // an error of fmt.Errorf with several %w is one error
			yield(err)
			return
		}
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			for inner := range unjoined(err) {
				if !yield(inner) {
					return
				}
			}
		}
	}
}

// retryAfter returns how many seconds the other side wants to have no request, or 0.
func retryAfter(err error) int {
	engine, cache := (*indexnow.Error)(nil), (*updatecache.Error)(nil)
	var wait time.Duration
	if errors.As(err, &engine) {
		wait = engine.RetryAfter
	} else if errors.As(err, &cache) {
		wait = cache.RetryAfter
	}
	return int((wait + time.Second - 1) / time.Second)
}

// printResult writes a result as text.
func printResult(cmd *cobra.Command, r result) {
	if r.Error != "" {
		complain(cmd.ErrOrStderr(), r.Error)
	} else {
		fmt.Fprintln(cmd.OutOrStdout(), text(r.Output))
	}
}

// text returns an output as text. A list has one line for each element.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []string:
		return strings.Join(v, "\n")
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}

// inputs returns the arguments or, if there are none, the lines of standard input that are not
// empty.
func inputs(cmd *cobra.Command, args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	args, err := stdinLines(cmd)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errors.New("there is no argument, and nothing on standard input")
	}
	return args, nil
}

// stdinLines returns the lines of standard input that are not empty.
func stdinLines(cmd *cobra.Command) ([]string, error) {
	found, err := interruptible(cmd.Context(), func() ([]string, error) { return lines(cmd.InOrStdin()) })
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return found, nil
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = exitError{exitUntested, errors.New("interrupted")}

// interruptible returns what read returns, or errInterrupted once ctx is done. A read cannot be
// interrupted: it goes on until the program ends.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	case r := <-done:
		return r.value, r.err
	}
}

// lines returns the lines of r that are not empty, without the space around them.
func lines(r io.Reader) (found []string, err error) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		if line := strings.TrimSpace(strings.TrimPrefix(scanner.Text(), "\ufeff")); line != "" {
			found = append(found, line)
		}
	}
	return found, scanner.Err()
}

// count returns a number with its noun.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
