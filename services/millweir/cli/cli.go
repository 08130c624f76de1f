// Package cli is the millweir command: it watches and mends tasks, searches, and shows queues.
//
// Its verbs talk to the gateway by HTTP alone; those that send files are in package submit, those that open a database
// themselves in package admin.
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

	"github.com/itchyny/gojq"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millweir/millweir/services/millweir/client"
)

// defaultServer is where `make run` listens.
const defaultServer = "http://127.0.0.1:8081"

// IO is the outside of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Err is a terminal: progress may be redrawn
	Width    int  // columns of Out when it is a terminal; 0: it is none
	Getenv   func(string) string
	// CacheDir and ConfigDir are the user's folders, in which those of millweir lie; empty: there are none.
	CacheDir, ConfigDir string
}

// App is one command line: its outside and the flags of every verb.
type App struct {
	IO
	Yes            bool   // --yes: do not ask
	Server, Output string // --server, and -o: table, wide, json, jsonl or name
	profile, key   string // --profile; the API key that is used, empty: none
	jq             string
	filter         *gojq.Code     // what --jq says; nil: nothing
	command        *cobra.Command // the verb that runs
}

// Process is the outside of this process.
func Process() IO {
	std := IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd())) && ansi(os.Stderr), Getenv: os.Getenv}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && ansi(os.Stdout) {
		std.Width = width
	}
	// Without a home there is no journal and no profile.
	std.CacheDir, _ = os.UserCacheDir()
	std.ConfigDir, _ = os.UserConfigDir()
	return std
}

// Commands are the verbs that need nothing but a gateway.
func Commands(a *App) []*cobra.Command {
	return []*cobra.Command{apply(a), documents(a), tasks(a), outbox(a), deadLetters(a), search(a), bases(a), operations(a), savedViews(a), groups(a), errorCodes(a), top(a), topics(a), checks(a), workers(a), config(a)}
}

// Run runs the verb that args name and returns the exit code. verbs add theirs to the command line.
func Run(ctx context.Context, std IO, args []string, verbs ...func(*App) []*cobra.Command) int {
	out := &stdout{Writer: std.Out}
	std.Out = out
	a := &App{IO: std}
	root := Root(a, verbs...)
	root.SetArgs(append([]string{}, args...)) // never os.Args, which nil stands for
	c, err := root.ExecuteContextC(ctx)
	if out.err != nil {
		err = Failed(fmt.Errorf("write output: %w", out.err))
	}
	if err == nil {
		return ExitOK
	}
	code := exitCode(ctx, err)
	text := Clean(err.Error())
	if code == ExitInterrupted && errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	_, _ = fmt.Fprintf(std.Err, "%s: %s\n", c.CommandPath(), text)
	if errors.Is(err, client.ErrNoAnswer) && code == ExitServer {
		_, _ = fmt.Fprintln(std.Err, "Start the server (make run), or say where it is: --server, MILLWEIR_SERVER or a profile. millweir doctor says more.")
	}
	if code == ExitUsage {
		_, _ = fmt.Fprintf(std.Err, "usage: %s\n", c.UseLine())
	}
	return code
}

// Root is the whole command line, which Run runs, and of which its pages are made.
func Root(a *App, verbs ...func(*App) []*cobra.Command) *cobra.Command {
	root := newRoot(a)
	for _, add := range verbs {
		root.AddCommand(add(a)...)
	}
	return root
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
			a.command, a.Server = c, strings.TrimRight(a.Server, "/")
			if err := a.setOutput(); err != nil || c.Annotations[noProfile] != "" || strings.HasPrefix(c.CommandPath(), c.Root().Name()+" completion") {
				return err
			}
			return a.useProfile()
		},
	}
	server := cmp.Or(a.Getenv("MILLWEIR_SERVER"), defaultServer)
	flags := root.PersistentFlags()
	flags.StringVar(&a.Server, "server", server, "base URL of the gateway (MILLWEIR_SERVER)")
	flags.StringVarP(&a.Output, "output", "o", "table", "table, wide (nothing is cut), json, jsonl or name (ids only)")
	flags.StringVar(&a.jq, "jq", "", "write what this expression of jq makes of the JSON; of each line with -o jsonl")
	flags.StringVar(&a.profile, "profile", "", "profile that says server and key, where neither a flag nor the environment does (millweir config)")
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

// setOutput judges -o and --jq.
func (a *App) setOutput() error {
	switch a.Output {
	case "json", "jsonl":
	case "table", "wide", "name":
		if a.jq != "" && a.Said("output") {
			return Usage(fmt.Sprintf("--jq goes with -o json or jsonl, not with %s", a.Output))
		}
	default:
		return Usage(fmt.Sprintf("-o %s: allowed are table, wide, json, jsonl, name", a.Output))
	}
	if a.jq == "" {
		return nil
	}
	if a.Output == "table" {
		a.Output = "json"
	}
	query, err := gojq.Parse(a.jq)
	if err == nil {
		a.filter, err = gojq.Compile(query)
	}
	if err != nil {
		return Usage(fmt.Sprintf("--jq %s: %v", a.jq, err))
	}
	return nil
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
	_, _ = fmt.Fprint(w, "\nEverywhere but in dev: -o table|wide|json|jsonl|name · --jq EXPR · --server URL (MILLWEIR_SERVER) · --profile NAME · MILLWEIR_API_KEY · --yes · NO_COLOR\n"+
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

// Gateway is the client of the verb.
func (a *App) Gateway() *client.Client { return client.New(a.Server, a.key) }

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
		return RefusalCode(refused)
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, client.ErrNoFile):
		return ExitBadInput
	}
	return ExitServer
}

// IsNotFound reports whether the gateway has said that what was named is not there.
func IsNotFound(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && RefusalCode(refused) == ExitNotFound
}

// RefusalCode is the exit code for a refusal. A stranger's says nothing about what was asked for, or only who may ask.
func RefusalCode(refused *client.Error) int {
	switch status := refused.Status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ExitAuth
	case status == http.StatusTooManyRequests:
		return ExitRateLimited
	case refused.Stranger, status >= http.StatusInternalServerError:
		return ExitServer
	case status == http.StatusNotFound:
		return ExitNotFound
	}
	return ExitBadInput
}
