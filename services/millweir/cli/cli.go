// Package cli is the millweir command: it submits documents, watches and mends tasks, searches, and shows queues.
//
// Its verbs talk to the gateway by HTTP alone; those that open a database themselves are in package admin.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/services/millweir/client"
)

// defaultServer is where `make run` listens.
const defaultServer = "http://127.0.0.1:8081"

// IO is the outside of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Err is a terminal: progress may be redrawn
	Getenv   func(string) string
}

// App is one command line: its outside and the flags of every verb.
type App struct {
	IO
	Yes            bool // --yes: do not ask
	server, output string
	command        *cobra.Command // the verb that runs
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Commands are the verbs that need nothing but a gateway.
func Commands(a *App) []*cobra.Command {
	return []*cobra.Command{submit(a), apply(a), documents(a), tasks(a), outbox(a), deadLetters(a), search(a), topics(a)}
}

// Run runs the verb that args name and returns the exit code. verbs add theirs to the command line.
func Run(ctx context.Context, std IO, args []string, verbs ...func(*App) []*cobra.Command) int {
	out := &stdout{Writer: std.Out}
	std.Out = out
	a := &App{IO: std}
	root := newRoot(a)
	for _, add := range verbs {
		root.AddCommand(add(a)...)
	}
	root.SetArgs(append([]string{}, args...)) // never os.Args, which nil stands for
	c, err := root.ExecuteContextC(ctx)
	if out.err != nil {
		err = Failed(fmt.Errorf("write output: %w", out.err))
	}
	if err == nil {
		return ExitOK
	}
	code := exitCode(ctx, err)
	_, _ = fmt.Fprintf(std.Err, "%s: %s\n", c.CommandPath(), clean(err.Error()))
	if code == ExitUsage {
		_, _ = fmt.Fprintf(std.Err, "usage: %s\n", c.UseLine())
	}
	return code
}

// newRoot is the command without verbs.
func newRoot(a *App) *cobra.Command {
	root := &cobra.Command{
		Use: "millweir", Short: "millweir takes documents in, durably and exactly once, and finds them again.",
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage(fmt.Sprintf("unknown command %q; see millweir help", strings.Join(args, " ")))
			}
			return c.Help()
		},
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			a.command, a.server = c, strings.TrimRight(a.server, "/")
			if a.output != "table" && a.output != "json" && a.output != "jsonl" {
				return Usage(fmt.Sprintf("-o %s: allowed are table, json, jsonl", a.output))
			}
			return nil
		},
	}
	server := cmp.Or(a.Getenv("MILLWEIR_SERVER"), defaultServer)
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", server, "base URL of the gateway (MILLWEIR_SERVER)")
	flags.StringVarP(&a.output, "output", "o", "table", "table, json or jsonl")
	flags.BoolVar(&a.Yes, "yes", false, "do not ask")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err.Error()) })
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c == root {
			overview(a.Out, root)
			return
		}
		help(c, args)
	})
	return root
}

// overview prints every verb.
func overview(w io.Writer, root *cobra.Command) {
	_, _ = fmt.Fprintf(w, "%s\n\n", root.Short)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for _, verb := range c.Commands() {
			switch {
			case verb.Name() == "completion":
				_, _ = fmt.Fprintln(t, "  millweir completion bash|fish|powershell|zsh\twrite what a shell needs to complete commands")
			case verb.HasSubCommands():
				each(verb)
			case verb.Name() != "help":
				_, _ = fmt.Fprintf(t, "  %s\t%s\n", verb.UseLine(), verb.Short)
			}
		}
	}
	each(root)
	_ = t.Flush()
	_, _ = fmt.Fprint(w, "\nEverywhere but in dev: -o table|json|jsonl · --server URL (MILLWEIR_SERVER) · MILLWEIR_API_KEY · --yes · NO_COLOR\n"+
		"Exit codes: 0 ok, 1 failed, 2 usage, 3 auth, 4 not found, 5 bad input, 6 rate limited, 7 server or network, "+
		"10 needs confirmation, 124 timed out, 130 interrupted\n")
}

// Group is a verb that has verbs below it and does nothing by itself.
func Group(name, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: name, Short: short, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			return Usage(fmt.Sprintf("unknown command %q; see millweir help", strings.Join(append([]string{c.Name()}, args...), " ")))
		},
	}
	g.AddCommand(verbs...)
	return g
}

// Verb is a command; use is its name with its arguments and flags as people write them.
func Verb(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args, DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error { return run(c.Context(), args) },
	}
}

// Needs demands exactly the arguments that the words name; without words there are none.
func Needs(words ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == len(words):
			return nil
		case len(words) == 0:
			return Usage(fmt.Sprintf("unexpected argument %q", args[0]))
		}
		return Usage(fmt.Sprintf("needs exactly %s, got %d arguments", strings.Join(words, " and "), len(args)))
	}
}

// NeedsSome demands at least one argument.
func NeedsSome(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage("needs at least one " + what)
		}
		return nil
	}
}

// Said reports whether a flag was given.
func (a *App) Said(flag string) bool { return a.command.Flags().Changed(flag) }

// gateway is the client of the verb.
func (a *App) gateway() *client.Client { return client.New(a.server, a.Getenv("MILLWEIR_API_KEY")) }

// Exit codes (contract §9).
const (
	ExitOK          = 0
	ExitFailed      = 1 // the work itself failed: a document is DEAD, say
	ExitUsage       = 2
	ExitAuth        = 3
	ExitNotFound    = 4
	ExitBadInput    = 5
	ExitRateLimited = 6
	ExitServer      = 7 // the server's fault, or no way to it
	ExitConfirm     = 10
	ExitTimeout     = 124
	ExitInterrupted = 130
)

// codedError ends the command with a code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// Usage is a wrong call: exit 2.
func Usage(text string) error { return &codedError{ExitUsage, errors.New(text)} }

// BadInput is exit 5.
func BadInput(err error) error { return &codedError{ExitBadInput, err} }

// NotFound is exit 4.
func NotFound(err error) error { return &codedError{ExitNotFound, err} }

// Failed is exit 1.
func Failed(err error) error { return &codedError{ExitFailed, err} }

// Unconfirmed is exit 10.
func Unconfirmed(err error) error { return &codedError{ExitConfirm, err} }

// exitCode is contract §9's for an error.
func exitCode(ctx context.Context, err error) int {
	var coded *codedError
	var refused *client.Error
	switch {
	case errors.As(err, &coded) && coded.code == ExitUsage, errors.Is(err, client.ErrAddress):
		return ExitUsage
	case errors.Is(ctx.Err(), context.Canceled):
		return ExitInterrupted
	case coded != nil:
		return coded.code
	case errors.As(err, &refused):
		return refusalCode(refused.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, client.ErrNoFile):
		return ExitBadInput
	}
	return ExitServer
}

// refusalCode is the exit code for a status of the gateway.
func refusalCode(status int) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ExitAuth
	case status == http.StatusNotFound:
		return ExitNotFound
	case status == http.StatusTooManyRequests:
		return ExitRateLimited
	case status >= http.StatusInternalServerError:
		return ExitServer
	}
	return ExitBadInput
}
