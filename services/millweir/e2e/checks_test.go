package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/wire"
)

// checked is an installation whose database a test can damage and hold.
type checked struct {
	t      *testing.T
	c      *client
	store  *taskstore.Store
	worker *program
	launch func() // starts what runs tasks
}

// newChecked starts one on a database: "sqlite" is everything in one process.
func newChecked(t *testing.T, database string) *checked {
	t.Helper()
	folder := t.TempDir()
	x := &checked{t: t}
	env := []string{"INGEST_LEASE_MS=1000", "INGEST_SWEEP_INTERVAL_MS=200", "UPLOAD_DIR=" + filepath.Join(folder, "uploads")}
	var cfg taskstore.Config
	switch database {
	case "sqlite":
		cfg.DatabaseURL = "sqlite:" + filepath.Join(folder, "millweir.db")
		x.launch = func() {
			x.worker = start(t, "dev", env, "--data", folder, "--addr", "127.0.0.1:0")
			x.c = newClient(t, x.worker.printed(`ready (http://\S+)`))
		}
	case "mariadb":
		cfg.MySQLDSN = labserver.MySQLDatabase(t)
		env = append(env, "MYSQL_DSN="+cfg.MySQLDSN)
	case "postgres":
		cfg.DatabaseURL = labserver.PostgresDatabase(t)
		env = append(env, "DATABASE_URL="+cfg.DatabaseURL)
	}
	if x.launch == nil {
		env = append(env, "REDIS_URL="+labserver.RedisURL(t), "CHROMA_BASE_URL="+labserver.Chroma(t).URL(""), "AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0")
		migrate(t, env...)
		x.c = newClient(t, "http://"+start(t, "ingest-api", env).printed(`"gateway: listening".*?"addr":"([^"]+)"`))
		x.launch = func() { x.worker = start(t, "stream-worker", env) }
	}
	x.launch()
	x.c.ready()
	var err error
	x.store, err = taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.store.Close()) })
	return x
}

// exec changes rows past every check.
func (x *checked) exec(query string, args ...any) {
	x.t.Helper()
	require.NoError(x.t, x.store.InTx(x.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

// ask asks for a check and returns its id.
func (x *checked) ask(body string) string {
	x.t.Helper()
	var made wire.CheckReport
	x.c.json(http.MethodPost, "/internal/fsck", body).into(x.t, http.StatusAccepted, &made)
	return made.CheckID
}

// look reads a check.
func (x *checked) look(id string) (v wire.CheckReport) {
	x.t.Helper()
	x.c.get("/internal/fsck/"+id).into(x.t, http.StatusOK, &v)
	return v
}

// done asks for a check and waits for its end.
func (x *checked) done(body string) (v wire.CheckReport) {
	x.t.Helper()
	id := x.ask(body)
	eventually(x.t, "the check ends", func() bool { v = x.look(id); return v.Status.Terminal() })
	require.Equal(x.t, taskstate.StatusSucceeded, v.Status, "%+v", v.Check)
	return v
}

// rule finds a rule's word.
func rule(t *testing.T, v wire.CheckReport, id string) wire.CheckRule {
	t.Helper()
	for _, r := range v.Rules {
		if r.Rule == id {
			return r
		}
	}
	require.Fail(t, "no such rule", id)
	return wire.CheckRule{}
}

// onEachInstallation runs a test on every database.
func onEachInstallation(t *testing.T, test func(t *testing.T, x *checked, database string)) {
	t.Helper()
	t.Parallel()
	for _, database := range []string{"sqlite", "mariadb", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			test(t, newChecked(t, database), database)
		})
	}
}

// A damage by SQL is named by its rule with the document, a dry run lists it and changes nothing, the repair mends it; what no repair can
// make again stays.
func TestACheckFindsAndMends(t *testing.T) {
	onEachInstallation(t, func(t *testing.T, x *checked, _ string) {
		good := x.c.ingested("good.txt", []byte("the otter sleeps"))
		lost := x.c.ingested("lost.txt", []byte("the heron waits"))
		sound := x.done(`{"history":true,"deep":true}`)
		require.Zero(t, *sound.Violations, "%+v", sound.Rules)
		require.Nil(t, sound.RepairReport)
		require.Nil(t, sound.Left)
		for _, id := range []string{"I1", "I2", "I12", "I25", "I37"} {
			require.Positive(t, rule(t, sound, id).Judged, id)
			require.Empty(t, rule(t, sound, id).NotJudged, id)
		}
		require.NotEmpty(t, rule(t, sound, "I34").NotJudged)

		x.exec("UPDATE knowledge_document SET user_id = 'eve' WHERE id = ?", good.DocumentID)
		x.exec("UPDATE knowledge_segment SET content = 'something else' WHERE document_id = ?", lost.DocumentID)
		dry := x.done(`{"repair":true}`)
		require.Positive(t, *dry.Violations)
		owner := rule(t, dry, "I30")
		require.EqualValues(t, 3, owner.Violations, "its base, its task and its file are of another user: %+v", owner)
		require.Equal(t, good.DocumentID, owner.Examples[0].About)
		require.Equal(t, "document", owner.Examples[0].Kind)
		require.NotNil(t, dry.RepairReport)
		require.True(t, dry.RepairReport.DryRun)
		items := ""
		for _, m := range dry.RepairReport.Mends {
			items += m.What + " " + strings.Join(m.Items, ",") + "\n"
		}
		require.Contains(t, items, "mend_rows document "+good.DocumentID)
		require.Len(t, dry.RepairReport.Left, 1)
		require.Contains(t, dry.RepairReport.Left[0], lost.DocumentID)
		require.Equal(t, owner, rule(t, x.done(`{}`), "I30"), "a dry run changes nothing")

		real := x.done(`{"repair":true,"dryRun":false,"reason":"eve took it"}`)
		require.False(t, real.RepairReport.DryRun)
		require.Contains(t, real.RepairReport.Mends, wire.CheckMend{What: "mend_rows", Count: 1, Items: []string{}})
		require.Equal(t, *real.Violations-3, *real.Left)
		after := x.done(`{}`)
		require.Zero(t, rule(t, after, "I30").Violations)
		require.Equal(t, *real.Left, *after.Violations)
		broken := 0
		for _, r := range after.Rules {
			for _, e := range r.Examples {
				broken++
				require.Equal(t, lost.DocumentID, e.About, "%s: %+v", r.Rule, e)
			}
		}
		require.Positive(t, broken)
		var page wire.List[wire.Check]
		x.c.get("/internal/fsck").into(t, http.StatusOK, &page)
		require.Len(t, page.Items, 5)
		require.Equal(t, after.Check, page.Items[0])

		// Nobody gets a check by asking for the workflow.
		var asked struct {
			Data struct {
				TaskID, Status string
			}
		}
		x.c.json(http.MethodPost, "/api/workflows/apply", `{"workflowId":"installation.check","chatId":"1","payload":{"repair":true,"dryRun":false,"reason":"x"}}`).into(t, http.StatusOK, &asked)
		require.Equal(t, "DEAD", x.c.task(asked.Data.TaskID).Status)
		require.Contains(t, x.c.task(asked.Data.TaskID).ErrorMessage, "for operators")
		x.c.get("/internal/fsck/"+asked.Data.TaskID).refused(t, http.StatusNotFound, "CHECK_NOT_FOUND")
	})
}

// hold keeps a check from going beyond the counts of failures: nobody else reads that table here. The result ends that.
func (x *checked) hold(database string) (release func()) {
	held, end, gone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		gone <- x.store.InTx(context.WithoutCancel(x.t.Context()), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			lock, unlock := "LOCK TABLE failure_group IN ACCESS EXCLUSIVE MODE", "SELECT 1"
			if database == "mariadb" {
				lock, unlock = "LOCK TABLES failure_group WRITE", "UNLOCK TABLES"
			}
			if _, err := tx.ExecContext(ctx, lock); err != nil {
				return err
			}
			close(held)
			<-end
			_, err := tx.ExecContext(ctx, unlock)
			return err
		})
	}()
	select {
	case <-held:
	case err := <-gone:
		require.NoError(x.t, err)
		require.Fail(x.t, "the lock was not held")
	}
	return func() { close(end); require.NoError(x.t, <-gone) }
}

// The process that checks is killed in the middle, where a lock holds it: another one begins the check anew and ends it. On SQLite, where
// no reader can be held, it is killed right after it was asked.
func TestACheckSurvivesAKill(t *testing.T) {
	onEachInstallation(t, func(t *testing.T, x *checked, database string) {
		x.c.ingested("good.txt", []byte("the otter sleeps"))
		release := func() {}
		if database != "sqlite" {
			release = x.hold(database)
		}
		id := x.ask(`{"history":true}`)
		if database != "sqlite" {
			eventually(t, "it is in the middle", func() bool { v := x.look(id); return v.Status == taskstate.StatusRunning && v.StepsDone > 0 })
		}
		x.worker.kill()
		release()
		x.launch()
		x.c.ready()
		eventually(t, "the check ends", func() bool { return x.look(id).Status.Terminal() })
		v := x.look(id)
		require.Equal(t, taskstate.StatusSucceeded, v.Status, "%+v", v.Check)
		require.Zero(t, *v.Violations, "%+v", v.Rules)
		if database != "sqlite" {
			var task struct{ CrashCount int }
			x.c.get("/internal/tasks/"+id).into(t, http.StatusOK, &task)
			require.Equal(t, 1, task.CrashCount)
		}
	})
}

// A check that runs is withdrawn as any task is, and another one may be asked for at once.
func TestACheckIsWithdrawn(t *testing.T) {
	t.Parallel()
	x := newChecked(t, "postgres")
	release := x.hold("postgres")
	id := x.ask(`{}`)
	eventually(t, "it is in the middle", func() bool { return x.look(id).StepsDone > 0 })
	x.c.json(http.MethodPost, "/internal/fsck", `{"deep":true}`).refused(t, http.StatusConflict, "CHECK_RUNNING")
	require.Equal(t, id, x.ask(`{}`))
	x.c.do(http.MethodDelete, "/internal/tasks/"+id, nil).into(t, http.StatusOK, nil)
	require.Equal(t, taskstate.StatusCancelled, x.look(id).Status)
	release()
	require.Zero(t, *x.done(`{"deep":true}`).Violations)
}
