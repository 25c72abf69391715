package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

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
