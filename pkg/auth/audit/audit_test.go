package audit_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

func TestMain(m *testing.M) { labserver.Main(m) }

func open(t *testing.T, cfg taskstore.Config) *taskstore.Store {
	t.Helper()
	s, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	return s
}

// everyDialect runs a test on each database.
func everyDialect(t *testing.T, test func(t *testing.T, s *taskstore.Store)) {
	t.Helper()
	for name, config := range map[string]func(t *testing.T) taskstore.Config{
		"sqlite": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}
		},
		"mariadb": func(t *testing.T) taskstore.Config {
			return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t), MaxOpen: 4}
		},
		"postgres": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t), MaxOpen: 4}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, config(t)))
		})
	}
}

func TestNotesAndPages(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, s *taskstore.Store) {
		ctx, l := t.Context(), audit.New(s, slog.New(slog.DiscardHandler))
		source := audit.Source{Actor: "röot", Role: taskstate.RoleOperator, KeyID: "k1", IP: "192.0.2.7", RequestID: "r-1"}
		for i, action := range audit.Actions() {
			require.NoError(t, s.InTx(ctx, l.Note(audit.Event{
				Action: action, Source: source, Target: strings.Repeat("ä", 300), Detail: "line\r\nend\x1b[31m\xff" + strings.Repeat("x", 600), Times: i,
			})))
		}
		var got []audit.Event
		q := audit.Query{Limit: 4}
		for {
			page, err := l.List(ctx, q)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			q.Before = page[len(page)-1].ID
		}
		require.Len(t, got, len(audit.Actions()))
		for i, e := range got {
			require.Equal(t, audit.Actions()[len(got)-1-i], e.Action, "the newest first, none twice")
			require.Equal(t, source, e.Source)
			require.Equal(t, strings.Repeat("ä", 190), e.Target)
			require.True(t, strings.HasPrefix(e.Detail, "line  end [31m\uFFFDxxx"), e.Detail)
			require.False(t, e.At.IsZero())
			require.Equal(t, max(len(got)-1-i, 1), e.Times)
		}
		one, err := l.List(ctx, audit.Query{Action: audit.TaskDrop, Actor: "röot", Limit: 9})
		require.NoError(t, err)
		require.Len(t, one, 1)
		none, err := l.List(ctx, audit.Query{Actor: "' OR 1=1 --", Limit: 9})
		require.NoError(t, err)
		require.Empty(t, none)

		boom := errors.New("the change failed")
		note := l.Note(audit.Event{Action: audit.TaskDrop, Source: source})
		require.ErrorIs(t, s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			return errors.Join(note(ctx, tx, m), boom)
		}), boom)
		after, err := l.List(ctx, audit.Query{Limit: 99})
		require.NoError(t, err)
		require.Len(t, after, len(got), "no change, no note")
		require.NoError(t, l.Write(ctx, audit.Event{Action: audit.QueueTrim, Source: source, Target: "orders"}))
		wrote, err := l.List(ctx, audit.Query{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "orders", wrote[0].Target, "at once")
	})
}

// A flood of attempts costs a bounded number of rows, and none is forgotten while the database is away.
func TestAttemptsAreCountedTogether(t *testing.T) {
	t.Parallel()
	s := open(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)})
	l := audit.New(s, slog.New(slog.DiscardHandler))
	for i := range 1000 {
		l.Tried(audit.Event{Action: audit.LoginFailed, Source: audit.Source{IP: "192.0.2.1", RequestID: string(rune('a' + i%26))}})
	}
	for i := range 1000 {
		l.Tried(audit.Event{Action: audit.AccessDenied, Source: audit.Source{Actor: "eve", IP: "192.0.2." + string(rune('a'+i%26)) + strings.Repeat("1", i/26)}})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l.Flush(ended) // cannot be written
	require.NoError(t, l.Run(ended), "a stop writes what is left")
	got, err := l.List(t.Context(), audit.Query{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, got, 257)
	sum := map[audit.Action]int{}
	for _, e := range got {
		sum[e.Action] += e.Times
	}
	require.Equal(t, map[audit.Action]int{audit.LoginFailed: 1000, audit.AccessDenied: 1000}, sum)
	logins, err := l.List(t.Context(), audit.Query{Action: audit.LoginFailed, Limit: 9})
	require.NoError(t, err)
	require.Len(t, logins, 1)
	require.Equal(t, "a", logins[0].Source.RequestID, "the first one's")
	l.Flush(t.Context())
	again, err := l.List(t.Context(), audit.Query{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, again, 257)
}

// The log is append-only: no statement of ours changes or deletes a row.
func TestNoStatementChangesARow(t *testing.T) {
	t.Parallel()
	touch := regexp.MustCompile(`(?is)\b(UPDATE|DELETE\s+FROM|REPLACE\s+INTO|TRUNCATE(\s+TABLE)?)\s+audit_event`)
	files := 0
	for _, root := range []string{"../..", "../../../services"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".sql") && !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.False(t, touch.Match(text), path)
			files++
			return nil
		}))
	}
	require.Greater(t, files, 100)
}
