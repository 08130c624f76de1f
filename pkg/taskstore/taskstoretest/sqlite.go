// Package taskstoretest makes databases for tests.
package taskstoretest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/millweir/millweir/pkg/sqldb/sqlite" // the dialect
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// SQLite returns the DATABASE_URL of a new SQLite database that has every migration but no epoch yet: Migrate gives each its own.
// SQLite parses the whole schema again for each statement that changes it, so a copy costs a hundredth of what the migrations do.
func SQLite(t testing.TB) string {
	t.Helper()
	content, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tasks.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// Open returns a store on such a database, ready for use; it is closed after the test.
func Open(t testing.TB) *taskstore.Store {
	t.Helper()
	s, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: SQLite(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// migrated is the file of a database with every migration and nothing else, not even the epoch.
var migrated = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "millweir-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "tasks.db")
	store, err := taskstore.Open(context.Background(), taskstore.Config{DatabaseURL: "sqlite:" + path})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if _, err = store.Migrate(ctx); err == nil {
		err = store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM timeline")
			return err
		})
	}
	if err = errors.Join(err, store.Close()); err != nil { // the last one to close it empties its log into the file
		return nil, err
	}
	return os.ReadFile(path)
})
