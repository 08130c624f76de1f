package upload_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// racedStore is a Store in which others took a unique key first, for so many runs of prepare.
type racedStore struct {
	taskstate.Database
	races int
	last  error // what the database said of it
}

func (s *racedStore) Submit(ctx context.Context, prepare taskstate.PrepareFunc) ([]taskstate.Task, error) {
	return s.Database.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		if s.races--; s.races >= 0 {
			_, s.last = tx.ExecContext(ctx, "INSERT INTO timeline (id, value) VALUES (1, 1)")
			return nil, fmt.Errorf("insert documents: %w", s.last)
		}
		return prepare(ctx, tx, m)
	})
}

// A server's messages are in its own language: a unique key is known by the error's code.
func TestAnUploadThatLostARaceIsTriedAgainInEveryLanguage(t *testing.T) {
	t.Parallel()
	server, err := labserver.Start(t.Context(), labserver.KindPostgres, labserver.Options{Database: "german", Env: []string{"LANGUAGE=de"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Kill(context.WithoutCancel(t.Context()))) })
	for name, database := range map[string]string{
		"postgres in German": server.URL("german"), "postgres": labserver.PostgresDatabase(t), "mariadb": labserver.MySQLDatabase(t), "sqlite": "",
	} {
		t.Run(name, func(t *testing.T) {
			store := &racedStore{}
			w := newWorld(t, ingesttest.Options{Database: database, Deps: func(d *ingest.Deps) { store.Database, d.Store = d.Store, store }})
			store.races = 5 // the store itself tries four times
			require.NotEmpty(t, w.Upload("one\ntwo\n").Task.ID)
			require.Error(t, store.last)
			require.Equal(t, strings.Contains(name, "German"), strings.Contains(store.last.Error(), "doppelter Schlüsselwert"), store.last)
		})
	}
}
