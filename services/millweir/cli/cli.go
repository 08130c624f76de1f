// Package cli is the millweir command: it submits documents, watches and mends tasks, searches, and migrates databases.
//
// It talks to the gateway by HTTP alone; only migrate, keys and dev open a database themselves.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

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

// IO is the outside of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Err is a terminal: progress may be redrawn
	Getenv   func(string) string
}

// Command is one verb; Run gets the arguments after it.
type Command struct {
	Name    string // with its group: "tasks list"
	Args    string // for the usage line
	Summary string
	Run     func(ctx context.Context, io IO, args []string) error
}

// usageError is a wrong call: exit 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// codedError ends the command with a code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// Usage is exit 2. It and the next three serve verbs of other packages.
func Usage(text string) error { return &usageError{text} }

// BadInput is exit 5.
func BadInput(err error) error { return &codedError{ExitBadInput, err} }

// NotFound is exit 4.
func NotFound(err error) error { return &codedError{ExitNotFound, err} }

// Failed is exit 1.
func Failed(err error) error { return &codedError{ExitFailed, err} }

// Unconfirmed is exit 10.
func Unconfirmed(err error) error { return &codedError{ExitConfirm, err} }

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Commands lists the verbs that need nothing but a gateway.
func Commands() []Command {
	return append([]Command{
		{"submit", "FILE… [--kb NAME] [--title TEXT] [--wait] [--force]", "take documents in", submit},
		{"tasks list", "[--status DEAD,RETRYING] [--kb NAME] [--limit N]", "list tasks, newest first", tasksList},
		{"tasks get", "ID", "show a task", tasksGet},
		{"tasks watch", "ID", "follow a task to its end", tasksWatch},
		{"tasks retry", "ID…", "run tasks again now", tasksRetry},
		{"tasks cancel", "ID… [--yes]", "withdraw tasks", tasksCancel},
		{"tasks explain", "ID", "say where a task is and what happens next", tasksExplain},
		{"outbox list", "[--state DEAD] [--cause REFUSED] [--topic T] [--task ID] [--limit N]", "list events of the Kafka transport, newest first", outboxList},
		{"outbox requeue", "ID… | --all [--cause REFUSED] [--topic T] [--yes]", "send DEAD events again", outboxRequeue},
		{"outbox stats", "", "count the events of the Kafka transport", outboxStats},
		{"dlq list", "[--topic T | --stream KEY] [--task ID] [--error TEXT] [--failed-after T] [--failed-before T] [--source S] [--limit N]", "list dead letters with what their tasks are now, newest first; of a topic oldest first", dlqList},
		{"dlq get", "LETTER [--topic T | --stream KEY]", "show a dead letter", dlqGet},
		{"dlq replay", "LETTER… | --all [--task ID] [--error TEXT] … [--topic T | --stream KEY] [--per-second N] [--dry-run] [--yes]", "run dead tasks, or messages of a topic, again, each once", dlqReplay},
		{"dlq drop", "LETTER… | --all [--task ID] [--error TEXT] … [--topic T | --stream KEY] [--dry-run] [--yes]", "remove dead letters; the tasks stay DEAD", dlqDrop},
		{"search", "QUERY [--kb NAME] [--top N]", "find segments", search},
	}, mqCommands()...)
}

// Run finds the verb in args, runs it and returns the exit code.
func Run(ctx context.Context, std IO, args []string, commands []Command) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		usage(std.Out, commands)
		return ExitOK
	}
	for _, c := range commands {
		words := strings.Fields(c.Name)
		if len(args) < len(words) || strings.Join(args[:len(words)], " ") != c.Name {
			continue
		}
		return finish(ctx, std, c, c.Run(ctx, std, args[len(words):]))
	}
	_, _ = fmt.Fprintf(std.Err, "millweir: unknown command %q; see millweir help\n", clean(strings.Join(args, " ")))
	return ExitUsage
}

// finish turns a command's error into its exit code, with one line that says why.
func finish(ctx context.Context, std IO, c Command, err error) int {
	var usage *usageError
	var coded *codedError
	var api *apiError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return ExitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(std.Err, "millweir %s: %s\nusage: millweir %s %s\n", c.Name, clean(err.Error()), c.Name, c.Args)
		return ExitUsage
	}
	_, _ = fmt.Fprintf(std.Err, "millweir %s: %s\n", c.Name, clean(err.Error()))
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ExitInterrupted
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &api):
		return api.exitCode()
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return ExitBadInput
	}
	return ExitServer
}

// usage prints every verb.
func usage(w io.Writer, commands []Command) {
	_, _ = fmt.Fprint(w, "millweir takes documents in, durably and exactly once, and finds them again.\n\n")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, c := range commands {
		_, _ = fmt.Fprintf(t, "  millweir %s %s\t%s\n", c.Name, c.Args, c.Summary)
	}
	_ = t.Flush()
	_, _ = fmt.Fprint(w, "\nEverywhere but in dev: -o table|json|jsonl · --server URL (MILLWEIR_SERVER) · MILLWEIR_API_KEY · --yes · NO_COLOR\n"+
		"Exit codes: 0 ok, 1 failed, 2 usage, 3 auth, 4 not found, 5 bad input, 6 rate limited, 7 server or network, 10 needs confirmation, 124 timed out, 130 interrupted\n")
}
