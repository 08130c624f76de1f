package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
)

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
