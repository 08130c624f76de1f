package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
	"github.com/millweir/millweir/services/millweir/cli"
)

// databases say where a test runs, as settings.
var databases = map[string]func(t *testing.T) (name, value string){
	"sqlite": func(t *testing.T) (string, string) {
		return "DATABASE_URL", "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	},
	"mariadb":  func(t *testing.T) (string, string) { return "MYSQL_DSN", labserver.MySQLDatabase(t) },
	"postgres": func(t *testing.T) (string, string) { return "DATABASE_URL", labserver.PostgresDatabase(t) },
}

// emptied puts an empty database in place of the one before.
func emptied(t *testing.T, in func(t *testing.T) (string, string)) {
	t.Helper()
	name, value := in(t)
	installed(t, map[string]string{"MYSQL_DSN": "", "DATABASE_URL": "", name: value})
}

// pendingSite sets what a gateway would be told.
func pendingSite(t *testing.T, in func(t *testing.T) (string, string)) {
	t.Helper()
	url, stop, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(stop)
	for name, value := range map[string]string{
		"REDIS_URL": url, "VECTOR_STORE": "embedded", "VECTOR_DIR": t.TempDir(), "UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "INGEST_QUEUE": "redis",
	} {
		t.Setenv(name, value)
	}
	emptied(t, in)
}

// opened are the parts of an installation for as long as f runs.
func opened(t *testing.T, f func(p *documents.Parts, a *gateway.Application)) {
	t.Helper()
	settings, err := process.Load[documents.Shared]()
	require.NoError(t, err)
	p, err := documents.Open(t.Context(), &process.Env{Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}, settings)
	require.NoError(t, err)
	defer p.Close()
	a, err := gateway.New(p, settings, gateway.Search{}, 1<<20)
	require.NoError(t, err)
	f(p, a)
}

var anna = ingest.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "http"}

// accepted makes tasks: two documents, one of them ended, and one of another kind.
func accepted(t *testing.T) (ids []string) {
	t.Helper()
	opened(t, func(p *documents.Parts, a *gateway.Application) {
		_, err := a.CreateBase(t.Context(), anna, "letters", ingest.BaseSettings{})
		require.NoError(t, err)
		for _, text := range []string{"one <& two", "two", "ended"} {
			f, err := a.Receive(t.Context(), strings.NewReader(text), "a.txt")
			require.NoError(t, err)
			got, err := a.Accept(t.Context(), anna, ingest.Upload{File: f, Base: "letters", IdempotencyKey: "key of " + text})
			require.NoError(t, err)
			ids = append(ids, got.Task.ID)
		}
		_, err = a.Cancel(t.Context(), ingest.Caller{Scope: taskstate.System()}, ids[2])
		require.NoError(t, err)
		ids[2] = uuid.Must(uuid.NewV7()).String()
		_, err = p.Store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
			return []taskstate.NewTask{{
				Task:  taskstate.Task{ID: ids[2], UserID: "anna", Type: "other", Channel: "bench", MaxAttempts: 3, Payload: []byte(`{"sha256":"x","n":1}`)},
				Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "anna"},
			}}, nil
		})
		require.NoError(t, err)
	})
	return ids
}

// shown are the tasks of ids that have a row.
func shown(t *testing.T, ids []string) (out []taskstate.Task) {
	t.Helper()
	opened(t, func(p *documents.Parts, _ *gateway.Application) {
		var err error
		out, err = p.Store.GetMany(t.Context(), taskstate.System(), ids)
		require.NoError(t, err)
	})
	return out
}

// What was exported comes back into an empty database: the same ids and keys, once, however often it is imported and wherever it was cut.
// Not parallel: it sets variables.
func TestUnfinishedTasksGoThroughAFile(t *testing.T) {
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			pendingSite(t, in)
			ids := accepted(t)
			file := filepath.Join(t.TempDir(), "pending.jsonl")
			code, out, errs := run(t, "export-pending", file)
			require.Equal(t, cli.ExitOK, code, errs)
			require.Contains(t, out, "3 unfinished tasks are in")
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			code, _, errs = run(t, "export-pending", file)
			require.Equal(t, cli.ExitBadInput, code)
			require.Contains(t, errs, "name a new file")

			emptied(t, in)
			whole, err := os.ReadFile(file)
			require.NoError(t, err)
			lines := bytes.SplitAfter(whole, []byte("\n"))
			cut := filepath.Join(t.TempDir(), "cut.jsonl")
			require.NoError(t, os.WriteFile(cut, bytes.Join(lines[:2], nil), 0o600))
			code, out, errs = run(t, "import-pending", cut)
			require.Equal(t, cli.ExitBadInput, code)
			require.Contains(t, errs, "the file was cut off after line 2. The 2 tasks before it are imported")
			require.Contains(t, out, "2 tasks restored, 0 were there, 0 refused")
			require.Len(t, shown(t, ids), 2)

			code, out, errs = run(t, "import-pending", file)
			require.Equal(t, cli.ExitOK, code, errs)
			require.Contains(t, out, "1 tasks restored, 2 were there, 0 refused")
			code, out, _ = run(t, "import-pending", file, "-o", "jsonl")
			require.Equal(t, cli.ExitOK, code)
			require.JSONEq(t, `{"restored":0,"there":3,"refused":0}`, out)
			tasks := shown(t, ids)
			require.Len(t, tasks, 3)
			for _, task := range tasks {
				require.Equal(t, taskstate.StatusQueued, task.Status)
				require.Equal(t, map[string]string{ids[0]: "key of one <& two", ids[1]: "key of two"}[task.ID], task.IdempotencyKey)
			}
			opened(t, func(p *documents.Parts, a *gateway.Application) {
				log, err := p.Store.Transitions(t.Context(), taskstate.System(), ids[2], 0, 0)
				require.NoError(t, err)
				require.Len(t, log, 1)
				require.Equal(t, "system:restore", log[0].Actor)
				f, err := a.Receive(t.Context(), strings.NewReader("two"), "a.txt")
				require.NoError(t, err)
				again, err := a.Accept(t.Context(), anna, ingest.Upload{File: f, Base: "letters", IdempotencyKey: "key of two"})
				require.NoError(t, err)
				require.Equal(t, ids[1], again.Task.ID, "the client's own repeat finds it")
			})
		})
	}
}

// A task whose file is lost too is named and the others are restored. Nothing of a bad line is imported, nor what comes after it.
// Not parallel: it sets variables.
func TestWhatCannotBeImportedIsNamed(t *testing.T) {
	pendingSite(t, databases["sqlite"])
	ids := accepted(t)
	file := filepath.Join(t.TempDir(), "pending.jsonl")
	code, _, errs := run(t, "export-pending", file)
	require.Equal(t, cli.ExitOK, code, errs)
	emptied(t, databases["sqlite"])
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := filepath.Join(t.TempDir(), "changed.jsonl")
	require.NoError(t, os.WriteFile(changed, bytes.Replace(whole, []byte(`"key of two"`), []byte(`"key of six"`), 1), 0o600))
	code, out, errs := run(t, "import-pending", changed)
	require.Equal(t, cli.ExitBadInput, code)
	require.Contains(t, errs, "line 2: its checksum is not that of its text")
	require.Contains(t, errs, "take the bad line out")
	require.Contains(t, out, "1 tasks restored, 0 were there, 0 refused")
	found := shown(t, ids)
	require.Len(t, found, 1)
	require.Equal(t, ids[0], found[0].ID)

	emptied(t, databases["sqlite"])
	entries, err := os.ReadDir(os.Getenv("UPLOAD_DIR"))
	require.NoError(t, err)
	for _, e := range entries {
		if body, err := os.ReadFile(filepath.Join(os.Getenv("UPLOAD_DIR"), e.Name())); err == nil && string(body) == "two" {
			require.NoError(t, os.Remove(filepath.Join(os.Getenv("UPLOAD_DIR"), e.Name())))
		}
	}
	code, out, errs = run(t, "import-pending", file)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, out, "2 tasks restored, 0 were there, 1 refused")
	require.Contains(t, errs, "line 2: ")
	require.Contains(t, errs, ingest.ErrUploadExpired.Error())
	for _, bad := range [][]string{{"import-pending"}, {"export-pending", "a", "b"}} {
		code, _, _ = run(t, bad...)
		require.Equal(t, cli.ExitUsage, code)
	}
	code, _, _ = run(t, "import-pending", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.ExitBadInput, code)
	code, _, _ = run(t, "export-pending", filepath.Join(t.TempDir(), "none", "file"))
	require.Equal(t, cli.ExitBadInput, code)
}

// Whatever became of a file: the first line that is wrong is named, and no task of it or after it comes.
func TestBadLinesOfAnExportAreNamed(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := newPendingWriter(&b)
	for _, id := range []string{"0190a6e0-0000-7000-8000-000000000001", "0190a6e0-0000-7000-8000-000000000002", "0190a6e0-0000-7000-8000-000000000003"} {
		require.NoError(t, w.add(taskstate.Task{ID: id, UserID: "anna", Type: "other", Channel: "http", MaxAttempts: 3, RequestHash: "ab", Payload: []byte(`{"sha256":"x"}`)}))
	}
	require.NoError(t, w.end())
	whole := b.String()
	l := strings.SplitAfter(whole, "\n")
	foreign := func(text string) string { return l[0] + text + "\n" + l[1] + l[2] + l[3] }
	for name, bad := range map[string]struct {
		text  string
		tasks int
		want  string
	}{
		"whole":               {whole, 3, ""},
		"no line end":         {strings.TrimSuffix(whole, "\n"), 3, ""},
		"nothing":             {"", 0, "cut off after line 0"},
		"cut between lines":   {l[0] + l[1], 2, "cut off after line 2"},
		"cut within a line":   {l[0] + l[1][:80], 1, "line 2: its checksum"},
		"cut within the last": {whole[:len(whole)-9], 3, "line 4: its checksum"},
		"a digit changed":     {strings.Replace(whole, `"max":3`, `"max":4`, 1), 0, "line 1: its checksum"},
		"a hash changed":      {strings.Replace(whole, `"requestHash":"ab"`, `"requestHash":"cd"`, 1), 0, "line 1: its checksum"},
		"a line lost":         {l[0] + l[2] + l[3], 2, "line 3: it counts 3 tasks, the file has 2"},
		"lines swapped":       {l[1] + l[0] + l[2] + l[3], 1, "line 2: task 0190a6e0-0000-7000-8000-000000000001 comes after"},
		"a line twice":        {l[0] + l[0] + l[1] + l[2] + l[3], 1, "line 2: task"},
		"two files":           {whole + whole, 3, "line 5: it comes after the last line"},
		"text":                {foreign("hello"), 1, "line 2: it is no line of an export"},
		"an empty line":       {foreign(""), 1, "line 2: it is no line of an export"},
		"other JSON":          {foreign(`{"taskId":"x"}`), 1, "line 2: it is no line of an export"},
		"a line without end":  {foreign(strings.Repeat("x", longestLine+1)), 1, "line 2: it is no line of an export"},
	} {
		r := newPendingReader(strings.NewReader(bad.text))
		n, err := 0, error(nil)
		for ; err == nil; n++ {
			_, err = r.next()
		}
		require.Equal(t, bad.tasks, n-1, name)
		if bad.want == "" {
			require.ErrorIs(t, err, io.EOF, name)
			continue
		}
		require.False(t, errors.Is(err, io.EOF), name)
		require.ErrorContains(t, err, bad.want, name)
	}
}
