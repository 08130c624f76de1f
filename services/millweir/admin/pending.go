package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/services/millweir/cli"
)

// importedAtOnce is how many tasks are restored in one call.
const importedAtOnce = 200

// exportPending writes every unfinished task to a new file, or makes none.
func exportPending(a *cli.App) *cobra.Command {
	return storeVerb("export-pending FILE [--env-file FILE]", "write all unfinished tasks to a file, as their copies in RabbitMQ have them", cli.Needs("a file"),
		func(ctx context.Context, s *taskstore.Store, rest []string) error {
			out := struct {
				Tasks   int `json:"tasks"`
				Refused int `json:"refused"` // tasks that have no envelope
			}{}
			err := writeWhole(rest[0], func(w io.Writer) error {
				p := newPendingWriter(w)
				err := mirror.Unfinished(ctx, s, func(all []taskstate.Task) error {
					for _, t := range all {
						before := p.n
						err := p.add(t)
						if err != nil && p.n > before { // it is the file's
							return err
						}
						if err != nil {
							out.Refused++
							_, _ = fmt.Fprintf(a.Err, "not in the file: task %s: %v\n", t.ID, err)
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				out.Tasks = p.n
				return p.end()
			})
			if err != nil {
				return err
			}
			err = cli.One(a, out, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%d unfinished tasks are in %s\n", out.Tasks, rest[0]) })
			if err == nil && out.Refused > 0 {
				err = cli.Failed(fmt.Errorf("%d tasks are not in the file", out.Refused))
			}
			return err
		})
}

// writeWhole makes a file that only its owner reads, for what it has is users' own; after an error there is none.
func writeWhole(path string, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return cli.BadInput(fmt.Errorf("%s exists: name a new file", path))
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".export-*")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path) // unlike a rename, it never takes another file's place
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// imported is what an import did.
type imported struct {
	Restored int `json:"restored"`
	There    int `json:"there"`   // had their rows already
	Refused  int `json:"refused"` // could not be restored
}

// importPending makes the rows again that the tasks of a file have lost.
func importPending(a *cli.App) *cobra.Command {
	return envVerb("import-pending FILE [--env-file FILE]", "give the tasks of an exported file their rows again, where these are lost", cli.Needs("a file"),
		func(ctx context.Context, rest []string) error {
			settings, err := process.Load[documents.Shared]()
			if err != nil {
				return cli.BadInput(err)
			}
			f, err := os.Open(rest[0])
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // only read
			quiet := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
			p, err := documents.Open(ctx, &process.Env{Name: "import", Log: quiet, Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}, settings)
			if err != nil {
				return err
			}
			defer p.Close()
			publisher, _, err := p.Transports[settings.Queue.Kind].Publisher()
			if err != nil {
				return err
			}
			settings.Tasks.MaxBacklog = 0 // what was accepted is not refused now
			to, err := p.Application(settings, ingest.Deps{Publisher: publisher, Policy: settings.Policy()}, 0)
			if err != nil {
				return err
			}
			var out imported
			err = out.from(ctx, newPendingReader(f), to, a.Err)
			shown := cli.One(a, out, func(w io.Writer) {
				_, _ = fmt.Fprintf(w, "%d tasks restored, %d were there, %d refused\n", out.Restored, out.There, out.Refused)
			})
			if err == nil && out.Refused > 0 {
				err = cli.Failed(fmt.Errorf("%d tasks could not be restored", out.Refused))
			}
			return errors.Join(err, shown)
		})
}

// from restores the tasks of a file up to its end, or up to what is wrong with it: a later version of a document must not come before
// one that stands there.
func (i *imported) from(ctx context.Context, r *pendingReader, to *app.App, said io.Writer) error {
	for {
		var batch []taskstate.Task
		var lines []int
		var bad error
		for bad == nil && len(batch) < importedAtOnce {
			var t taskstate.Task
			if t, bad = r.next(); bad == nil {
				batch, lines = append(batch, t), append(lines, r.number)
			}
		}
		if err := i.restore(ctx, batch, lines, to, said); err != nil {
			return fmt.Errorf("%w; import the file again: what is restored stays, and is not made twice", err)
		}
		switch {
		case errors.Is(bad, io.EOF):
			return nil
		case bad != nil:
			return cli.BadInput(fmt.Errorf("%w. The %d tasks before it are imported, nothing from there on. Import a whole export; or, "+
				"if there is none, take the bad line out: its task is lost then, and the last line is not believed", bad, r.n))
		}
	}
}

// restore makes the missing rows of some tasks and names those that are refused.
func (i *imported) restore(ctx context.Context, batch []taskstate.Task, lines []int, to *app.App, said io.Writer) error {
	missing, err := to.Missing(ctx, batch)
	if err != nil {
		return err
	}
	refused := 0
	for n, err := range to.Restore(ctx, batch) {
		switch {
		case err == nil:
		case errors.Is(err, app.ErrNoCopy), errors.Is(err, ingest.ErrUploadExpired), errors.Is(err, tasks.ErrKeyReused):
			refused++
			_, _ = fmt.Fprintf(said, "line %d: %v\n", lines[n], err)
		default:
			return err
		}
	}
	i.There += len(batch) - len(missing)
	i.Restored += len(missing) - refused
	i.Refused += refused
	return nil
}
