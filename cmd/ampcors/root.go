package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
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
	root.Args = cobra.ArbitraryArgs // so that RunE names what is wrong
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
		{"Decide, and see why:", []*cobra.Command{newExplain(), newCheck(), newServeProxy(), newServeAuthz(), newHealth(),
			newSource()}},
		{"Names and URLs on AMP Caches:", []*cobra.Command{newPrefix(), newOrigins(), newReverse(), newCacheURL(),
			newCaches(), newLookup()}},
		{"Announce changed pages:", []*cobra.Command{newKey(), newVerify(), newFlush(), newCached(), newSubmit()}},
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
		completion.Args = cobra.ArbitraryArgs
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
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO) { // the command was right
		code = exitUntested
	}
	if exit := (exitError{}); errors.As(err, &exit) {
		if code = exit.code; exit.err == nil {
			return code
		}
	}
	complain(root.ErrOrStderr(), err.Error())
	return code
}
