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

	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/client"
)

const (
	// lookEvery is the time between two looks at a folder unless --interval says else, at least leastInterval.
	lookEvery, leastInterval = 5 * time.Second, 100 * time.Millisecond
)

// change is what a mirror did, or could not do.
type change struct {
	Action   string `json:"action"` // added, edited, deleted, kept, failed
	File     string `json:"file"`
	TaskID   string `json:"taskId,omitempty"`
	Document string `json:"documentId,omitempty"`
	Error    string `json:"error,omitempty"`
}

// stamp is by what a change of a file is seen.
type stamp struct{ size, mtime int64 }

func stampOf(info fs.FileInfo) stamp { return stamp{info.Size(), info.ModTime().UnixNano()} }

// mirrored is a folder that is kept in a knowledge base. It is looked at from time to time: notices of the system are lost on
// network drives and when there are many.
type mirrored struct {
	*sender
	app         *cli.App
	dir         string // absolute
	interval    time.Duration
	parallel    int
	delete, now bool              // now: a file is not waited for until it rests
	seen        map[string]stamp  // of files that changed a moment ago
	refused     map[string]stamp  // of files that the gateway will never take as they are
	warned      map[string]string // the last warning about a path, which is not repeated
	out         *cli.Rows[change]
	mu          sync.Mutex // guards what follows, and out
	failures    int
	end         error
}

// mirror keeps a folder in a knowledge base: what is added and edited is sent, and what is deleted is deleted when --delete is said.
func mirror(a *cli.App) *cobra.Command {
	var kb, journalFile string
	var once, deletes bool
	var interval time.Duration
	var parallel int
	c := cli.Verb("watch DIR [--kb NAME] [--delete] [--once]", "keep a folder in a knowledge base: adds, edits and, with --delete, deletes", cli.Needs("a folder"),
		func(ctx context.Context, args []string) error {
			if interval < leastInterval {
				return cli.Usage(fmt.Sprintf("--interval %s: at least %s", interval, leastInterval))
			}
			if err := checkParallel(parallel); err != nil {
				return err
			}
			if a.Output == "json" && !once {
				return cli.Usage("-o json goes with --once; without it there is no end: use -o jsonl")
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			info, err := os.Stat(dir)
			if err == nil && !info.IsDir() {
				err = fmt.Errorf("%s is no folder", dir)
			}
			if err != nil {
				return cli.BadInput(err)
			}
			base := cmp.Or(kb, "default")
			file := cmp.Or(journalFile, journalPath(a, "watch", base))
			if file == "" {
				return cli.Usage("there is no cache folder for the journal: name one with --journal FILE")
			}
			book, err := openJournal(file, a.Server, base, true)
			if err != nil {
				return err
			}
			m := &mirrored{
				sender: &sender{api: a.Gateway(), journal: book, form: map[string]string{"knowledgeBase": kb}}, app: a, dir: dir, interval: interval,
				parallel: parallel, delete: deletes, now: once, seen: map[string]stamp{}, refused: map[string]stamp{}, warned: map[string]string{},
				out: cli.NewRows(a, "ACTION\tFILE\tTASK\tERROR", changeRow),
			}
			if !once {
				m.out.Block = 1
			}
			err = m.run(ctx, once)
			return errors.Join(err, m.out.End(), book.close())
		})
	f := c.Flags()
	f.StringVar(&kb, "kb", "", "knowledge base (made when missing for the name default)")
	f.BoolVar(&deletes, "delete", false, "delete documents whose files are deleted")
	f.BoolVar(&once, "once", false, "look once and end; exit 1 when something failed")
	f.DurationVar(&interval, "interval", lookEvery, "time between two looks; a file that changed within it is sent once it rests")
	f.IntVar(&parallel, "parallel", submitAtOnce, "files that are sent at a time, 1 to 64")
	f.StringVar(&journalFile, "journal", "", "file that remembers what was accepted; by default in the user's cache folder, by server and base")
	return c
}

// changeRow is a change for people.
func changeRow(c change) []any {
	return []any{c.Action, cli.Clean(c.File), cmp.Or(cli.Clean(c.TaskID), "-"), cli.Long(c.Error, 200)}
}

// run looks until the person goes, or once.
func (m *mirrored) run(ctx context.Context, once bool) error {
	for {
		m.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case m.end != nil:
			return m.end
		case once && m.failures > 0:
			return cli.Failed(fmt.Errorf("%d changes failed", m.failures))
		case once:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(m.interval):
		}
	}
}

// look compares the folder with the journal once, and sends what differs: first what is there, then deletions, so that a renamed
// file keeps its document.
func (m *mirrored) look(ctx context.Context) {
	there := map[string]bool{}
	var unread []string // folders that cannot be read: nobody knows what is in them
	var wg sync.WaitGroup
	var late []entry // of documents that were there: whose they are is known when all are sent
	slots := make(chan struct{}, m.parallel)
	walk(m.dir, map[string]int{}, func(src source) bool {
		if src.err != nil {
			unread = append(unread, src.path)
			m.warn(src.path, src.err)
			return ctx.Err() == nil
		}
		there[src.path] = true
		info, err := os.Stat(src.path)
		if err != nil || !m.due(src.path, info) {
			return ctx.Err() == nil
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if e, was := m.send(ctx, src.path, info); was {
				m.mu.Lock()
				defer m.mu.Unlock()
				late = append(late, e)
			}
		})
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.end == nil
	})
	wg.Wait()
	for _, e := range late {
		e.Foreign = !m.ours(e.Document, e.Path)
		m.journal.accept(e, true)
	}
	if m.delete && ctx.Err() == nil && m.end == nil {
		m.deleteGone(ctx, there, unread)
	}
}

// due reports whether a file differs from what was sent, and rests.
func (m *mirrored) due(path string, info fs.FileInfo) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := stampOf(info)
	if e, known := m.journal.of(path); known && is == (stamp{e.Size, e.MTime}) {
		delete(m.seen, path)
		return false
	}
	if was, known := m.refused[path]; known && was == is {
		return false
	}
	rests := m.now || time.Since(info.ModTime()) > m.interval || m.seen[path] == is
	m.seen[path] = is
	return rests
}

// send sends a file; was says that its document was there, and the entry is not in the journal yet.
func (m *mirrored) send(ctx context.Context, path string, info fs.FileInfo) (e entry, was bool) {
	before, known := m.journal.of(path)
	f := file{path: path, info: info, after: before.Task}
	c := change{Action: "added", File: path}
	if known {
		same, err := before.unchanged(info)
		if err == nil && same { // only its time is another one
			before.MTime = info.ModTime().UnixNano()
			m.journal.accept(before, true)
			return e, false
		}
		c.Action = "edited"
		if !before.Foreign && !m.shared(before) {
			f.document = before.Document
		}
	}
	t, e, err := m.sendFile(ctx, f, func(string, int) {})
	if cli.IsNotFound(err) && f.document != "" {
		f.document = "" // somebody deleted it
		t, e, err = m.sendFile(ctx, f, func(string, int) {})
	}
	if err != nil {
		m.fail(ctx, c, info, err)
		return e, false
	}
	c.TaskID, c.Document = t.TaskID, string(t.DocumentID)
	m.say(c)
	if t.Duplicate {
		return e, true
	}
	m.journal.accept(e, true)
	return e, false
}

// shared reports whether another file has the same document, because it has the same content.
func (m *mirrored) shared(e entry) bool {
	return m.journal.any(func(other entry) bool { return other.Path != e.Path && other.Document == e.Document })
}

// ours reports whether a document was made of another file of the journal.
func (m *mirrored) ours(document, path string) bool {
	return m.journal.any(func(other entry) bool { return other.Document == document && !other.Foreign && other.Path != path })
}

// deleteGone deletes the documents of files that are gone.
func (m *mirrored) deleteGone(ctx context.Context, there map[string]bool, unread []string) {
	known := m.journal.all()
	within := 0
	for path := range known {
		if !beneath(path, []string{m.dir}) {
			delete(known, path)
			continue
		}
		within++
	}
	if len(there) == 0 && within > 0 {
		m.warn(m.dir, errors.New("the folder is empty: nothing is deleted, for its drive may not be mounted"))
		return
	}
	for path, e := range known {
		if there[path] || beneath(path, unread) || ctx.Err() != nil {
			continue
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			continue // hidden by a rule of ours, say, or not to be judged
		}
		c := change{Action: "deleted", File: path, TaskID: e.Task, Document: e.Document}
		if e.Foreign || e.Document == "" || m.shared(e) {
			c.Action = "kept" // another file's, or somebody else's
		} else if err := m.api.Delete(ctx, client.DocumentPath(e.Document)); err != nil && !cli.IsNotFound(err) {
			m.fail(ctx, c, nil, err)
			continue
		}
		e.Gone = true
		m.journal.accept(e, true)
		m.say(c)
	}
}

// beneath reports whether a path lies in one of the folders.
func beneath(path string, folders []string) bool {
	for _, folder := range folders {
		if path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, string(filepath.Separator))+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// fail notes what could not be done. What the gateway will never take is not sent again until the file changes.
func (m *mirrored) fail(ctx context.Context, c change, info fs.FileInfo, err error) {
	if ctx.Err() != nil || errors.Is(err, fs.ErrNotExist) { // gone meanwhile: the next look sees it
		return
	}
	var refused *client.Error
	m.mu.Lock()
	m.failures++
	if hopeless := m.hopeless(err); hopeless != nil {
		m.end = hopeless
	} else if errors.As(err, &refused) && cli.RefusalCode(refused) == cli.ExitBadInput && info != nil {
		m.refused[c.File] = stampOf(info)
	}
	m.mu.Unlock()
	if c.Action, c.Error = "failed", err.Error(); m.news(c.File, c.Error) {
		m.say(c)
	}
}

// warn shows what is wrong with the folder itself.
func (m *mirrored) warn(path string, err error) {
	m.mu.Lock()
	m.failures++
	m.mu.Unlock()
	if m.news(path, err.Error()) {
		m.say(change{Action: "failed", File: path, Error: err.Error()})
	}
}

// news reports whether something about a path was not said just before.
func (m *mirrored) news(path, text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.warned[path] == text
	m.warned[path] = text
	return !said
}

// say shows a change.
func (m *mirrored) say(c change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Action != "failed" {
		delete(m.warned, c.File)
	}
	if err := m.out.Add(c); err != nil && m.end == nil {
		m.end = err
	}
}
