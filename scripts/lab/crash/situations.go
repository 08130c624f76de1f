package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
)

// step is a part of a scene.
type step = func(ctx context.Context, t *trial) error

// steps are several, one after the other.
func steps(all ...step) step {
	return func(ctx context.Context, t *trial) error {
		for _, s := range all {
			if err := s(ctx, t); err != nil {
				return err
			}
		}
		return nil
	}
}

// uploads sends n documents of a size that must be accepted.
func uploads(n, bytes int) step {
	return func(ctx context.Context, t *trial) error {
		for range n {
			d, err := t.upload(ctx, t.doc(bytes))
			if err != nil {
				return err
			}
			t.docs, t.clean = append(t.docs, d), append(t.clean, d.Doc)
		}
		return nil
	}
}

// uploadBlank sends a document without text, whose task ends DEAD.
func uploadBlank(ctx context.Context, t *trial) error {
	d, err := t.upload(ctx, t.blank())
	if err == nil {
		t.docs, t.want[d.task] = append(t.docs, d), taskstate.StatusDead
	}
	return err
}

// finished runs what was uploaded, undisturbed.
func finished(ctx context.Context, t *trial) error { return t.undisturbed(ctx) }

// faulty makes the embedding service go wrong until the point is reached.
func faulty(f embedtest.Fault) step {
	return func(_ context.Context, t *trial) error { t.Embed.Set(f); return nil }
}

// hangs waits until the armed process, or the one that begins with it, hangs in the embedding service.
func (t *trial) hangs(ctx context.Context, start func() error) error {
	t.Embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	hung := t.Embed.Wait(len(t.Embed.Effects()) + 1)
	if err := start(); err != nil {
		return err
	}
	select {
	case <-hung:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settleLimit):
		return errors.New("nobody asks the embedding service" + t.audit().Unfinished(ctx))
	}
}

// left is a claim whose holder was killed in the middle of its work; without a document it is of the one that waits.
func left(document bool, env ...string) step {
	return func(ctx context.Context, t *trial) error {
		worker, err := t.Start("stream-worker", env...)
		if err != nil {
			return err
		}
		defer t.Embed.Clear()
		defer worker.Kill()
		return t.hangs(ctx, func() error {
			if !document {
				return nil
			}
			return uploads(1, smallDoc)(ctx, t)
		})
	}
}

// victim runs a worker that dies at another point while does goes on.
func victim(name string, does step, env ...string) step {
	return func(ctx context.Context, t *trial) error {
		dir := filepath.Join(t.dir(), "victim")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		p, err := t.Start("stream-worker", append(arm(dir, name, "kill", 1), env...)...)
		if err != nil {
			return err
		}
		defer p.Kill()
		if err := does(ctx, t); err != nil {
			return err
		}
		return killed(ctx, p)
	}
}

// stopped tells the armed worker to stop while it hangs with what was uploaded.
func stopped(ctx context.Context, t *trial) error {
	if err := t.hangs(ctx, func() error { return uploads(2, smallDoc)(ctx, t) }); err != nil {
		return err
	}
	return t.terminate()
}

// status waits until the trial's last document has a status.
func (t *trial) status(ctx context.Context, want taskstate.Status) error {
	_, err := t.client.Await(ctx, t.docs[len(t.docs)-1].task, want, settleLimit, lookEvery)
	return err
}

// redis sends one command to the lane's Redis.
func redis(words ...string) step {
	return func(ctx context.Context, t *trial) error { return t.Stream.Do(ctx, words...) }
}

// unless takes a refusal with one of the statuses for no error.
func unless(err error, statuses ...int) error {
	var refused *apiclient.StatusError
	if errors.As(err, &refused) && slices.Contains(statuses, refused.Status) {
		return nil
	}
	return err
}

// passing lets the sweeper's waiting times be over for the trial's base and document: what it will look at some time is due now.
func (t *trial) passing(ctx context.Context) error {
	return t.DB.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for _, due := range []struct{ statement, of string }{
			{"UPDATE knowledge_document SET sweep_at = ? WHERE sweep_at < '9999-01-01' AND id = ?", t.docs[0].document},
			{"UPDATE vector_garbage SET sweep_at = ? WHERE sweep_at < '9999-01-01' AND document_id = ?", t.docs[0].document},
			{"UPDATE knowledge_base SET sweep_at = ? WHERE sweep_at < '9999-01-01' AND name = ?", t.base()},
		} {
			if _, err := tx.ExecContext(ctx, due.statement, m.Now, due.of); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostSteps bounds the passages of one point in a migration.
const mostSteps = 200

// migrateBroken breaks `millweir migrate up` off at the first passage of the point, at the second one, and so on, each time
// on the schema that the run before has left, until one run is through. The schema is then that of a run in one go.
func migrateBroken(ctx context.Context, t *trial) error {
	name := brokenDatabase(t.at.name)
	if err := t.SQL.SQL(ctx, "", "CREATE DATABASE "+name); err != nil {
		return err
	}
	dsn := "MYSQL_DSN=" + t.SQL.DSN(name)
	for n := 1; n < mostSteps; n++ {
		if err := os.RemoveAll(t.dir()); err != nil {
			return err
		}
		p, err := t.Command([]string{"migrate", "up"}, append(arm(t.dir(), t.at.name, t.kind, n), dsn)...)
		if err != nil {
			return err
		}
		code, err := t.through(ctx, p)
		if err != nil {
			return err
		}
		if !t.acted() {
			if code != 0 {
				return fmt.Errorf("after %d broken runs migrate exits with %d:\n%s", n-1, code, p.Tail(12))
			}
			return t.sameSchema(ctx, name)
		}
		t.hit = true
	}
	return errors.New("the migration does not end")
}

// brokenDatabase names the database of a point's broken migrations: by the point, since lanes share a server and each counts its
// documents from the same number.
func brokenDatabase(at string) string { return "broken_" + strings.ReplaceAll(at, ".", "_") }

// through waits for the end of one run and wakes it if it was stopped.
func (t *trial) through(ctx context.Context, p *proc.Proc) (int, error) {
	defer p.Kill()
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, await.ErrTimeout)
	defer cancel()
	for t.kind == "stop" && !p.Exited() {
		if await.Pause(ctx, 5*lookEvery); t.acted() && !p.Exited() {
			if err := p.Signal(syscall.SIGCONT); err != nil {
				return 0, err
			}
		}
	}
	return p.Wait(ctx)
}

// sameSchema compares tables, columns and indexes with those of the lane, which was migrated in one go.
func (t *trial) sameSchema(ctx context.Context, name string) error {
	for _, statement := range []string{
		"SELECT table_name, column_name, column_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = ",
		"SELECT table_name, index_name, seq_in_index, column_name, non_unique FROM information_schema.statistics WHERE table_schema = ",
	} {
		whole, broken := statement+"DATABASE()", statement+"'"+name+"'"
		for _, pair := range [][2]string{{whole, broken}, {broken, whole}} {
			n, err := t.count(ctx, "SELECT COUNT(*) FROM ("+pair[0]+" EXCEPT "+pair[1]+") AS difference")
			if err != nil || n > 0 {
				return errors.Join(err, fmt.Errorf("the schema differs in %d rows from one migrated in one go: %s", n, statement))
			}
		}
	}
	n, err := t.count(ctx, "SELECT COUNT(*) FROM "+name+".timeline")
	if err == nil && n != 1 {
		err = fmt.Errorf("%d timelines were made", n)
	}
	return err
}
