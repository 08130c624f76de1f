package rehydrator

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
	"github.com/millweir/millweir/pkg/wiring/redis"
)

const (
	waitLimit = 3 * time.Minute // only keeps a broken test from hanging
	maxFile   = 1 << 20
)

// databases are where a test runs.
var databases = map[string]func(t testing.TB) database.Settings{
	"sqlite": func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(taskstoretest.SQLite(t))}
	},
	"mariadb": func(t testing.TB) database.Settings {
		return database.Settings{MySQLDSN: process.NewDSN(labserver.MySQLDatabase(t))}
	},
	"postgres": func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(labserver.PostgresDatabase(t))}
	},
}

// site is an installation without workers: a gateway's application, a mirror, and names in RabbitMQ that no other test has.
type site struct {
	t        testing.TB
	settings Settings
	parts    *documents.Parts
	app      *gateway.Application
	redis    rueidis.Client
}

// newSite makes one; redisURL empty: a Redis in the process.
func newSite(t testing.TB, in func(t testing.TB) database.Settings, redisURL string) *site {
	t.Helper()
	if redisURL == "" {
		url, stop, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(stop)
		redisURL = url
	}
	s := &site{t: t}
	s.settings, _ = process.Load[Settings]() // the defaults; what it complains of is set below
	shared, dir := &s.settings.Worker.Shared, t.TempDir()
	shared.Store, shared.Queue.RedisURL, shared.Vectors.Kind, shared.Embedding = in(t), process.NewDSN(redisURL), "embedded", documents.Embedding{}
	shared.Uploads.Dir = filepath.Join(dir, "uploads")
	s.settings.Worker.Content.Extract.CacheDir = t.TempDir()
	own := "t" + strings.ToLower(rand.Text()[:8]) + "."
	rabbit := &s.settings.Rabbit
	rabbit.URL = process.NewDSN(labserver.RabbitMQ(t).URL(""))
	rabbit.Exchange, rabbit.Queue, rabbit.RoutingKey, rabbit.DLX = own+"durable", own+"quorum", own+"key", own+"dlx"
	s.open()
	return s
}

func (s *site) env() *process.Env {
	return &process.Env{
		Name: "rehydrator", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
}

// open opens the installation's parts, and makes its tables.
func (s *site) open() {
	s.t.Helper()
	var err error
	s.parts, err = documents.Open(context.Background(), s.env(), s.own().Worker.Shared)
	require.NoError(s.t, err)
	s.t.Cleanup(s.parts.Close)
	_, err = s.parts.Store.Migrate(s.t.Context())
	require.NoError(s.t, err)
	s.app, err = gateway.New(s.parts, s.settings.Worker.Shared, gateway.Search{}, maxFile)
	require.NoError(s.t, err)
	s.redis = redis.Of(s.parts.Transports).Client
}

// upload accepts documents of anna and returns their tasks' ids.
func (s *site) upload(base string, texts ...string) (ids []string) {
	s.t.Helper()
	anna := ingest.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "http"}
	for _, text := range texts {
		f, err := s.app.Receive(s.t.Context(), strings.NewReader(text), "a.txt")
		require.NoError(s.t, err)
		a, err := s.app.Accept(s.t.Context(), anna, ingest.Upload{File: f, Base: base, IdempotencyKey: "key of " + text})
		require.NoError(s.t, err)
		ids = append(ids, a.Task.ID)
	}
	return ids
}

// running runs something until the test, or the function it returns, ends it.
func (s *site) running(run func(ctx context.Context) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-done)
	})
	s.t.Cleanup(stop)
	return stop
}

// mirror runs a mirror.
func (s *site) mirror() (stop func()) {
	s.t.Helper()
	m, err := mirror.New(s.settings.Rabbit.Config(), mirror.Deps{DB: s.parts.Store, Name: "mirror", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(s.t, err)
	return s.running(m.Run)
}

// copied makes a copy of n tasks and ends the mirror.
func (s *site) copied(n int) {
	s.t.Helper()
	stop := s.mirror()
	look, err := mirror.New(s.settings.Rabbit.Config(), mirror.Deps{DB: s.parts.Store, Name: "look", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(s.t, err)
	s.eventually("every task has a copy", func() bool {
		met := map[string]bool{}
		err := look.Visit(s.t.Context(), mirror.Visit{Look: true, Each: func(_ context.Context, copies []mirror.Copy) error {
			for _, c := range copies {
				met[c.Task.ID] = true
			}
			return nil
		}})
		return err == nil && len(met) == n // a queue that the mirror has just declared says 541 until it has a leader
	})
	stop()
}

func (s *site) eventually(what string, cond func() bool) {
	s.t.Helper()
	require.Eventually(s.t, cond, waitLimit, 10*time.Millisecond, what)
}

// wish does what a command line asks for, and returns what it printed.
func (s *site) wish(w Wish) (string, error) {
	s.t.Helper()
	env, out := s.env(), &bytes.Buffer{}
	env.Stdout = out
	err := w.Run(s.t.Context(), env, s.own())
	return out.String(), err
}

// own are the settings of another process: embedded vectors serve one.
func (s *site) own() *Settings {
	other := s.settings
	other.Worker.Shared.Vectors.Dir = s.t.TempDir()
	return &other
}

func (s *site) status(id string) taskstate.Status {
	s.t.Helper()
	task, err := s.parts.Store.Get(s.t.Context(), taskstate.System(), id)
	require.NoError(s.t, err)
	return task.Status
}

func (s *site) number(query string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.parts.Store.Reader().QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}

func (s *site) entries() int64 {
	s.t.Helper()
	n, err := s.redis.Do(s.t.Context(), s.redis.B().Xlen().Key(s.settings.Worker.Shared.Queue.StreamKey).Build()).AsInt64()
	require.NoError(s.t, err)
	return n
}

// Redis has lost everything: each QUEUED task gets one delivery, and no other.
func TestAFlushedRedisGetsItsDeliveriesBack(t *testing.T) {
	t.Parallel()
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, in, "")
			ids := s.upload("", "one", "two", "three", "four")
			s.copied(4)
			op := ingest.Caller{Scope: taskstate.System()}
			_, err := s.app.Suspend(t.Context(), op, ids[1], "")
			require.NoError(t, err)
			_, err = s.app.Cancel(t.Context(), op, ids[2])
			require.NoError(t, err)
			require.NoError(t, s.redis.Do(t.Context(), s.redis.B().Flushdb().Build()).Error())
			out, err := s.wish(Wish{Mode: Rehydrate, DryRun: true})
			require.NoError(t, err)
			require.Equal(t, "to do: 2 deliveries, 0 rows restored, 1 copies of ended tasks removed; of 4 tasks; 0 without a row, 0 refused\n", out)
			require.Zero(t, s.entries())
			for range 2 { // a dry run has removed nothing
				out, err = s.wish(Wish{Mode: Rehydrate, Once: true})
				require.NoError(t, err)
			}
			require.Equal(t, "done: 2 deliveries, 0 rows restored, 0 copies of ended tasks removed; of 3 tasks; 0 without a row, 0 refused\n", out)
			require.EqualValues(t, 4, s.entries())
			require.Equal(t, []taskstate.Status{taskstate.StatusQueued, taskstate.StatusSuspended, taskstate.StatusCancelled, taskstate.StatusQueued},
				[]taskstate.Status{s.status(ids[0]), s.status(ids[1]), s.status(ids[2]), s.status(ids[3])})
		})
	}
}

// The database is lost: every task with a copy is back with its id and its key, in its base, and can run. One whose file is lost too is
// named, and its copy stays.
func TestALostDatabaseComesBack(t *testing.T) {
	t.Parallel()
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, in, "")
			anna := ingest.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}}
			_, err := s.app.CreateBase(t.Context(), anna, "letters", ingest.BaseSettings{})
			require.NoError(t, err)
			ids := append(s.upload("letters", "one", "two"), s.upload("", "three")...)
			s.copied(3)
			s.settings.Worker.Shared.Store = in(t) // a new, empty one
			s.open()
			require.NoError(t, s.parts.Files.Remove(s.filePath(ids[2])))
			out, err := s.wish(Wish{Mode: Rehydrate, Restore: true, DryRun: true})
			require.NoError(t, err)
			require.Contains(t, out, "to do: 0 deliveries, 3 rows restored")
			require.Zero(t, s.number("SELECT COUNT(*) FROM ingest_task"))
			for range 2 {
				out, err = s.wish(Wish{Mode: Rehydrate, Restore: true, Once: true})
				require.ErrorContains(t, err, "1 tasks could not be restored")
				require.ErrorIs(t, err, ingest.ErrUploadExpired)
			}
			require.Contains(t, out, "done: 2 deliveries, 0 rows restored", "the second time they are there")
			for i, id := range ids[:2] {
				task, err := s.parts.Store.Get(t.Context(), taskstate.System(), id)
				require.NoError(t, err)
				require.Equal(t, taskstate.StatusQueued, task.Status)
				require.Equal(t, "key of "+[]string{"one", "two"}[i], task.IdempotencyKey)
			}
			require.Equal(t, 2, s.number("SELECT COUNT(*) FROM knowledge_document d JOIN knowledge_base b ON b.id = d.base_id WHERE b.name = 'letters'"))
			require.Equal(t, ids[:2], s.upload("letters", "one", "two"), "the client's own repeat finds them")
		})
	}
}

// The versions of a document come back in their order, whatever that of their copies, also when what a round may keep is not enough for
// one of them.
func TestVersionsComeBackInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, room := range map[string]int{"in one round": 0, "some in further rounds": 700, "all in further rounds": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, databases["mariadb"], "")
			anna := ingest.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "http"}
			var ids []string
			document := ""
			for i := range 4 {
				f, err := s.app.Receive(t.Context(), strings.NewReader(strings.Repeat("text ", i+1)), "a.txt")
				require.NoError(t, err)
				a, err := s.app.Accept(t.Context(), anna, ingest.Upload{File: f, DocumentID: document})
				require.NoError(t, err)
				ids, document = append(ids, a.Task.ID), a.Task.DocumentID
			}
			open := s.number("SELECT COUNT(*) FROM ingest_task WHERE status = 'QUEUED'")
			require.Equal(t, 4, open)
			others := s.upload("", "one", "two")
			s.copied(open + 2)
			s.settings.Worker.Shared.Store = databases["mariadb"](t)
			s.open()
			out, err := s.wish(Wish{Mode: Rehydrate, Restore: true, Once: true, room: room})
			require.NoError(t, err)
			require.Contains(t, out, fmt.Sprintf("%d rows restored", open+2))
			require.Equal(t, taskstate.StatusQueued, s.status(others[1]))
			rows, err := s.parts.Store.Reader().QueryContext(t.Context(), "SELECT task_id FROM document_version WHERE document_id = ? ORDER BY no", document)
			require.NoError(t, err)
			defer rows.Close() //nolint:errcheck // read to its end
			var got []string
			for rows.Next() {
				var id string
				require.NoError(t, rows.Scan(&id))
				got = append(got, id)
			}
			require.NoError(t, rows.Err())
			require.Equal(t, ids[len(ids)-open:], got)
		})
	}
}

// filePath is the stored file of a task, as its copy says.
func (s *site) filePath(id string) (path string) {
	s.t.Helper()
	m, err := mirror.New(s.settings.Rabbit.Config(), mirror.Deps{DB: s.parts.Store, Name: "look", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(s.t, err)
	require.NoError(s.t, m.Visit(s.t.Context(), mirror.Visit{Look: true, Each: func(_ context.Context, copies []mirror.Copy) error {
		for _, c := range copies {
			if c.Task.ID == id {
				path = c.Task.FilePath
			}
		}
		return nil
	}}))
	require.NotEmpty(s.t, path)
	return path
}

// There is no Redis at all: what is uploaded runs, each task once, out of its copy.
func TestTasksRunWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, in, "redis://127.0.0.1:1")
			s.mirror()
			w := Wish{Mode: Execute}
			s.running(func(ctx context.Context) error { return w.Run(ctx, s.env(), s.own()) })
			ids := s.upload("", "one", "two", "three")
			s.ended(ids)
		})
	}
}

// ended waits for the end of tasks, and checks that each ran once.
func (s *site) ended(ids []string) {
	s.t.Helper()
	s.eventually("they succeed", func() bool {
		for _, id := range ids {
			if s.status(id) != taskstate.StatusSucceeded {
				return false
			}
		}
		return true
	})
	for _, id := range ids {
		task, err := s.parts.Store.Get(s.t.Context(), taskstate.System(), id)
		require.NoError(s.t, err)
		require.EqualValues(s.t, 1, task.Fence, "it ran once")
	}
}

// Redis goes away and comes back: what is uploaded meanwhile succeeds before its return, and what waits then has its delivery.
func TestAutoRunsTasksWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	s := newSite(t, databases["mariadb"], server.URL(""))
	s.mirror()
	waiting := s.upload("", "before") // no worker runs
	w := Wish{Mode: Auto}
	s.running(func(ctx context.Context) error { return w.Run(ctx, s.env(), s.own()) })
	s.eventually("its round has promised it anew", func() bool { return s.entries() == 2 })
	require.Equal(t, taskstate.StatusQueued, s.status(waiting[0]), "nothing is executed while Redis is there")
	require.NoError(t, server.Kill(t.Context()))
	ids := append(s.upload("", "one", "two"), waiting...)
	s.ended(ids)
	require.NoError(t, server.Restart(t.Context()))
	later := s.upload("", "later")
	s.eventually("the next one waits for a worker", func() bool { return s.entries() > 0 })
	require.NotEqual(t, taskstate.StatusDead, s.status(later[0]))
}

func TestFlagsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "--mode", "--mode nonsense": "--mode", "--mode execute --once": "--once", "--mode auto --restore": "--restore", "--mode execute --dry-run": "--dry-run",
	} {
		var w Wish
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		w.Flags(flags)
		require.NoError(t, flags.Parse(strings.Fields(args)))
		err := w.Run(t.Context(), nil, nil)
		require.ErrorIs(t, err, process.ErrBadSetting, args)
		require.ErrorContains(t, err, want, args)
	}
}

// A look that fails or succeeds once says nothing.
func TestOneLookIsNotEnough(t *testing.T) {
	t.Parallel()
	l := &look{changed: make(chan struct{})}
	back := l.returns()
	for _, there := range []bool{false, true, false, true} {
		l.note(there)
		require.False(t, l.away())
	}
	l.note(false)
	l.note(false)
	require.True(t, l.away())
	l.note(true)
	require.True(t, l.away())
	l.note(false)
	l.note(true)
	l.note(true)
	require.False(t, l.away())
	<-back
}
