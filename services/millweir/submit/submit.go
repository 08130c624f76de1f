// Package submit has the verbs that send files: submit and watch.
package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/client"
)

const (
	// submitAtOnce is how many files are sent and watched at a time unless --parallel says else, at most mostAtOnce.
	submitAtOnce, mostAtOnce = 4, 64
	// submitWindow is how many results may wait for that of a file before them, whose order they are shown in.
	submitWindow = 1024
	// submitBlock is after how many files their lines of the table are written.
	submitBlock = 500
)

// submitted is one file with what became of it.
type submitted struct {
	File    string             `json:"file"`
	Task    *wire.AcceptedTask `json:"task,omitempty"`
	Resumed string             `json:"earlierTaskId,omitempty"` // the task, of an earlier run; the file was not sent again
	Error   string             `json:"error,omitempty"`
	err     error
}

// submission is one run of submit.
type submission struct {
	*cli.App
	*sender
	wait      bool
	parallel  int
	maxErrors int
	one       bool // a single file was asked for
	named     bool // all files were named one by one: the first error is the command's
	show      progress
	skips     map[string]int

	mu       sync.Mutex
	window   chan struct{}
	pending  map[int]submitted // by number, behind one that still runs
	next     int               // the number whose result is shown next
	rows     *cli.Rows[submitted]
	tally    tally
	accepted int // so far, in any order
	failed   int
	cut      bool // the person went, or the time was over, before all was done
	writeErr error
	end      error // why no more files are sent
}

// Commands are the verbs.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{submit(a), mirror(a)} }

// submit sends files, folders, addresses and standard input; with --wait it follows them to their end.
func submit(a *cli.App) *cobra.Command {
	var kb, title, name, journalFile string
	var meta cli.MetadataFlag
	var wait, force, resume bool
	var timeout time.Duration
	var parallel, maxErrors int
	c := cli.Verb("submit PATH… [--kb NAME] [--title TEXT] [--meta KEY=TEXT] [--wait] [--force] [--resume]",
		"take documents in: files, folders, patterns, addresses, - for standard input", cli.NeedsSome("file"),
		func(ctx context.Context, args []string) error {
			if err := checkParallel(parallel); err != nil {
				return err
			}
			if maxErrors < 0 {
				return cli.Usage(fmt.Sprintf("--max-errors %d: at least 0, which is no end", maxErrors))
			}
			one, named, err := shapeOf(args)
			switch {
			case err != nil:
				return err
			case title != "" && !one:
				return cli.Usage("--title goes with one file")
			case (name != "") != (args[0] == "-"):
				return cli.Usage("standard input (-) needs --name FILE, as which it is sent; nothing else has it")
			}
			ctx, stop := cli.WithTimeout(ctx, timeout)
			defer stop()
			form := map[string]string{"knowledgeBase": kb, "title": title}
			if force {
				form["force"] = "true"
			}
			if meta != nil {
				form["metadata"] = meta.String()
			}
			base := cmp.Or(kb, "default")
			book, err := openJournal(cmp.Or(journalFile, journalPath(a, "submit", base)), a.Server, base, resume)
			if err != nil {
				return err
			}
			s := &submission{
				App: a, sender: &sender{api: a.Gateway(), journal: book, form: form}, wait: wait, parallel: parallel, maxErrors: maxErrors, one: one, named: named,
				skips: map[string]int{}, pending: map[int]submitted{}, window: make(chan struct{}, submitWindow),
			}
			err = s.run(ctx, args, name)
			if lost := book.close(); lost != nil {
				_, _ = fmt.Fprintf(a.Err, "journal %s: %v; --resume will send some files again\n", cli.Clean(book.file), lost)
			}
			return err
		})
	f := c.Flags()
	f.StringVar(&kb, "kb", "", "knowledge base (made when missing for the name default)")
	f.StringVar(&title, "title", "", "title; only with one file")
	f.StringVar(&name, "name", "", "file name of standard input")
	f.Var(&meta, "meta", "what the documents are found by, KEY=TEXT or KEY:=JSON; may be repeated")
	f.BoolVar(&wait, "wait", false, "wait until the documents are searchable")
	f.BoolVar(&force, "force", false, "take the same bytes in again")
	f.DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	f.IntVar(&parallel, "parallel", submitAtOnce, "files that are sent at a time, 1 to 64")
	f.IntVar(&maxErrors, "max-errors", 0, "end after so many failed files; 0: never")
	f.BoolVar(&resume, "resume", false, "leave out what an earlier run sent and what has not changed since")
	f.StringVar(&journalFile, "journal", "", "file that remembers what was accepted; by default in the user's cache folder, by server and base")
	return c
}

// checkParallel refuses a number of files at a time that is not allowed.
func checkParallel(n int) error {
	if n < 1 || n > mostAtOnce {
		return cli.Usage(fmt.Sprintf("--parallel %d: allowed are 1 to %d", n, mostAtOnce))
	}
	return nil
}

// shapeOf reports whether the arguments name a single document, and whether they name each of them.
func shapeOf(args []string) (one, named bool, err error) {
	named = true
	for _, arg := range args {
		if arg == "-" && len(args) > 1 {
			return false, false, cli.Usage("standard input (-) goes alone")
		}
		info, err := os.Stat(arg)
		folder, pattern := err == nil && info.IsDir(), err != nil && strings.ContainsAny(arg, "*?[")
		named = named && (isURL(arg) || !folder && !pattern)
	}
	return named && len(args) == 1, named, nil
}

// run sends everything and says what became of it.
func (s *submission) run(ctx context.Context, args []string, name string) error {
	todo := sources(args, s.skips)
	if args[0] == "-" {
		path, err := spool(s.In)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(path) }()
		todo = func(yield func(source) bool) { yield(source{name: name, path: path, as: name}) }
	}
	s.show = s.newProgress(ctx, args)
	s.rows = cli.NewRows(s.App, "FILE\tTASK\tSTATUS\tERROR", submittedRow)
	s.rows.Block = submitBlock
	if above := s.show.above(); above != nil && s.Width > 0 {
		s.rows.W = above // else the lines of the table and those that are redrawn would be mixed
	}
	s.sendAll(ctx, todo)
	s.show.close()
	s.rows.W = s.Out
	if err := cmp.Or(s.writeErr, s.rows.End()); err != nil {
		return err
	}
	if !s.one {
		s.tally.write(s.Err, s.skips)
	}
	if ctx.Err() != nil || s.end != nil {
		s.sayHowToResume()
	}
	return s.verdict(ctx)
}

// sendAll sends the files, some at a time, until there are no more, the person goes or all further ones would fail too.
func (s *submission) sendAll(ctx context.Context, todo func(yield func(source) bool)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, s.parallel)
	n := 0
	todo(func(src source) bool {
		for _, free := range []chan struct{}{s.window, slots} {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return false
			}
		}
		if ctx.Err() != nil || s.ended() {
			return false
		}
		i := n
		n++
		wg.Go(func() {
			defer func() { <-slots }()
			s.show.begin(i, src.name)
			r := s.submitOne(ctx, src, func(t wire.Task) { s.show.set(i, t) }, func(note string, percent int) { s.show.note(i, note, percent) })
			s.show.end(i, r)
			s.took(ctx, i, r)
		})
		return true
	})
	wg.Wait()
}

// ended reports whether no more files are to be sent.
func (s *submission) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil || s.writeErr != nil
}

// took keeps a result until those before it are shown.
func (s *submission) took(ctx context.Context, i int, r submitted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[i] = r
	cut := r.err != nil && ctx.Err() != nil // nobody knows whether it would have failed
	if !cut {
		s.judge(r)
	}
	s.cut = s.cut || cut
	for {
		r, there := s.pending[s.next]
		if !there {
			return
		}
		delete(s.pending, s.next)
		s.next++
		<-s.window
		s.tally.add(r, errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded))
		s.writeErr = cmp.Or(s.writeErr, s.rows.Add(r))
	}
}

// judge ends the run when the other files would fail in the same way.
func (s *submission) judge(r submitted) {
	if r.err == nil {
		s.accepted++
		return
	}
	s.failed++
	switch hopeless := s.hopeless(r.err); {
	case s.end != nil:
	case hopeless != nil:
		s.end = hopeless
	case errors.Is(r.err, client.ErrAddress), errors.Is(r.err, client.ErrNoAnswer) && s.accepted == 0:
		s.end = r.err
	case s.maxErrors > 0 && s.failed >= s.maxErrors:
		s.end = cli.Failed(fmt.Errorf("ended after %d failed files (--max-errors)", s.failed))
	}
}

// sayHowToResume names what goes on where this run ended.
func (s *submission) sayHowToResume() {
	if s.one {
		return
	}
	if s.journal.file == "" {
		_, _ = fmt.Fprintln(s.Err, "To go on: the same command again. What is there already is not taken in twice.")
		return
	}
	_, _ = fmt.Fprintf(s.Err, "To go on: the same command with --resume (journal %s)\n", cli.Clean(s.journal.file))
}

// verdict is the command's error: that of the first file when each was named, else that some failed.
func (s *submission) verdict(ctx context.Context) error {
	switch {
	case s.cut, ctx.Err() != nil && !s.one:
		return cmp.Or(s.tally.cut, ctx.Err())
	case s.named && s.tally.first != nil:
		return s.tally.first
	case s.end != nil:
		return s.end
	case s.tally.failed > 0:
		return cli.Failed(fmt.Errorf("%d of %d files failed", s.tally.failed, s.tally.files()))
	}
	return nil
}

// submittedRow is a result for people.
func submittedRow(s submitted) []any {
	switch {
	case s.Task == nil && s.Resumed != "":
		return []any{cli.Clean(s.File), cli.Clean(s.Resumed), "accepted before", cli.Long(s.Error, 120)}
	case s.Task == nil:
		return []any{cli.Clean(s.File), "-", "-", cli.Long(s.Error, 120)}
	}
	text := s.Error
	if ended := (*cli.EndedError)(nil); errors.As(s.err, &ended) { // the row has its task and status
		code, _ := causeOf(s.err)
		text = code + ": " + string(cmp.Or(ended.ErrorMessage, ended.LastError))
	}
	status := cli.Clean(s.Task.Status)
	if s.Task.Duplicate {
		status += " (was there)"
	}
	return []any{cli.Clean(s.File), cli.Clean(s.Task.TaskID), status, cli.Long(text, 120)}
}

// submitOne sends one file, unless the journal knows it, and when asked waits for its end.
func (s *submission) submitOne(ctx context.Context, src source, seen func(wire.Task), note func(string, int)) submitted {
	r := submitted{File: src.name}
	failed := func(err error) submitted {
		if err != nil {
			r.err, r.Error = err, err.Error()
		}
		return r
	}
	if src.err != nil {
		return failed(src.err)
	}
	t, before, err := s.deliver(ctx, src, note)
	switch {
	case err != nil:
		return failed(err)
	case before != "" && !s.wait:
		r.Resumed = before
		return r
	case before != "":
		if t.Task, err = s.api.Task(ctx, before); err != nil {
			return failed(err)
		}
		t.FileName, r.Resumed = filepath.Base(src.path), before
	}
	r.Task = &t
	seen(t.Task)
	if !s.wait {
		return r
	}
	if err := s.follow(ctx, &r.Task.Task, seen); err != nil || src.path != "" {
		return failed(err)
	}
	// The workflow has made a document, whose own task goes on from there.
	if t.TaskID, err = s.fetched(ctx, r.Task.TaskID); err == nil {
		t.Status = taskstate.StatusQueued
		err = s.follow(ctx, &t.Task, seen)
	}
	return failed(err)
}

// follow watches a task to its end; it is an error unless it succeeded.
func (s *submission) follow(ctx context.Context, t *wire.Task, seen func(wire.Task)) error {
	if !t.Status.Terminal() {
		last, err := s.api.Watch(ctx, t.TaskID, seen)
		if err != nil {
			return err
		}
		*t = last
	}
	return cli.Verdict(*t)
}

// fileProblem is the code and remedy of an error of this machine's own, for the summary.
func fileProblem(err error) (code, remedy string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "NO_SUCH_FILE", "Look at the path."
	case errors.Is(err, fs.ErrPermission):
		return "NO_PERMISSION", "Let this user read it."
	case errors.Is(err, client.ErrNoFile):
		return "NOT_A_FILE", "Name a regular file or a folder."
	case errors.Is(err, client.ErrNoAnswer):
		return "NO_ANSWER", "See that the server runs and that --server is right (millweir doctor), then --resume."
	}
	return "FAILED", "See the first file's error."
}
