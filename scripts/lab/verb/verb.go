// Package verb is what all verbs of the laboratory share: their flags, the choice by name and the line of a result.
package verb

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/process"
)

// Run is a verb; it returns the exit code.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) int

// Flags are those of every verb.
type Flags struct {
	Names string // prefixes, comma separated; empty: all
	List  bool
	Seed  uint64 // of all that is random
}

// Parse reads the flags of a verb; more adds its own and may set other defaults first. ok is false when the program is over.
func Parse(name string, args []string, stderr io.Writer, f *Flags, more func(*flag.FlagSet)) (code int, ok bool) {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.Names, "name", f.Names, "only those whose names begin with one of these, comma separated")
	set.BoolVar(&f.List, "list", false, "list them")
	set.Uint64Var(&f.Seed, "seed", uint64(time.Now().UnixNano()), "of all that is random; printed with a failure")
	if more != nil {
		more(set)
	}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return process.ExitOK, false
	case err != nil:
		return process.ExitUsage, false
	}
	return process.ExitOK, true
}

// Choose returns those that the names ask for: the one whose name is given, else all that begin with it.
// Errors: a name that asks for nothing.
func Choose[T any](names string, all []T, nameOf func(T) string) ([]T, error) {
	wanted := map[int]bool{}
	for prefix := range strings.SplitSeq(names, ",") {
		n := len(wanted)
		for _, whole := range []bool{true, false} {
			for i, one := range all {
				if name := nameOf(one); name == prefix || !whole && strings.HasPrefix(name, prefix) {
					wanted[i], n = true, -1
				}
			}
			if n < 0 {
				break
			}
		}
		if n >= 0 {
			return nil, fmt.Errorf("nothing begins with %q; -list shows the names", prefix)
		}
	}
	var out []T
	for i, one := range all {
		if wanted[i] {
			out = append(out, one)
		}
	}
	return out, nil
}

// List prints names with a few words on each.
func List[T any](w io.Writer, all []T, row func(T) (name, what string)) int {
	for _, one := range all {
		name, what := row(one)
		_, _ = fmt.Fprintf(w, "%-33s %s\n", name, what)
	}
	return process.ExitOK
}

// Fail prints why a verb could not do its work.
func Fail(w io.Writer, verb string, code int, err error) int {
	_, _ = fmt.Fprintf(w, "%s: %v\n", verb, err)
	return code
}

// Result is what came of one drill, point, bug or soak.
type Result struct {
	Name string
	Took time.Duration
	Seed uint64 // 0: nothing was random
	At   string // more words in the parentheses of a failure
	Saw  string // of a success
	Err  error
	Logs string // folder; told with a failure
}

// Print writes the line of a result, and after a failure where the logs are; it returns whether it was a success.
func (r Result) Print(w io.Writer) bool {
	if r.Err == nil {
		_, _ = fmt.Fprintf(w, "%s\n", strings.TrimSuffix(fmt.Sprintf("PASS %s (%.1f s): %s", r.Name, r.Took.Seconds(), r.Saw), ": "))
		return true
	}
	words := []string{fmt.Sprintf("%.1f s", r.Took.Seconds())}
	if r.Seed > 0 {
		words = append(words, fmt.Sprintf("seed %d", r.Seed))
	}
	if r.At != "" {
		words = append(words, r.At)
	}
	text := fmt.Sprintf("FAIL %s (%s): %v\n", r.Name, strings.Join(words, ", "), r.Err)
	if r.Logs != "" {
		text += "  logs: " + r.Logs + "\n"
	}
	_, _ = io.WriteString(w, text)
	return false
}

// Lines keeps the words of what ends at the same time apart.
type Lines struct {
	mu sync.Mutex
	To io.Writer
}

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.To.Write(b)
}
