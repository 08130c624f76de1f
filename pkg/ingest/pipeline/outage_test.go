package pipeline_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// absentStore is a Store whose database is away for one chosen call of a run.
type absentStore struct {
	taskstate.Database
	away  taskstate.Database // of a server that does not run
	at    int64
	calls atomic.Int64
}

func (s *absentStore) now() taskstate.Database {
	if s.calls.Add(1) == s.at {
		return s.away
	}
	return s.Database
}

func (s *absentStore) Read(ctx context.Context, f taskstate.ReadFunc) error {
	return s.now().Read(ctx, f)
}

func (s *absentStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	return s.now().InTx(ctx, f)
}

func (s *absentStore) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	return s.now().WithClaims(ctx, claims, f)
}

// Found by the drill main-db-restart: "read the visible version: invalid connection" counted an attempt.
func TestARunSaysThatTheDatabaseIsAwayWhereverItMeetsThat(t *testing.T) {
	t.Parallel()
	away, err := taskstore.Open(t.Context(), taskstore.Config{MySQLDSN: "nobody@tcp(127.0.0.1:1)/nowhere"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, away.Close()) })
	store := &absentStore{away: away}
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		store.Database, d.Store = d.Store, store
	}})
	first := w.Upload("one\ntwo\n")
	require.Equal(t, taskstate.StatusSucceeded, w.Process(first.Task.ID).Status)

	failed := 0
	for at := int64(1); ; at++ {
		a := w.Accept(ingest.Upload{DocumentID: first.Document.ID, File: w.Receive("a.txt", fmt.Sprintf("one\ntwo\nthird %d\n", at))})
		job, _ := w.Claim(a.Task.ID)
		store.at = at
		store.calls.Store(0)
		res := w.Handler.Handle(t.Context(), job)
		if store.calls.Load() < at {
			break
		}
		if res.Err != nil {
			require.ErrorIs(t, res.Err, taskstate.ErrUnavailable, "call %d", at)
			failed++
		}
		store.at = 0
		_, err = w.Finish(t.Context(), job, w.Handler.Handle(t.Context(), job)) // begins anew
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.Task(a.Task.ID).Status)
	}
	require.GreaterOrEqual(t, failed, 6, "a run uses the database in so many places")
}
