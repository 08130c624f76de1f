package submit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/submit"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestKeyIsHeldWhileARequestIsReceived(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		release, err := w.App.BeginKey(t.Context(), w.Caller, "k")
		require.NoError(t, err)
		_, err = w.App.BeginKey(t.Context(), w.Caller, "k")
		require.ErrorIs(t, err, ingest.ErrKeyInUse)
		bob := w.Caller
		bob.Scope.UserID = "bob"
		other, err := w.App.BeginKey(t.Context(), bob, "k")
		require.NoError(t, err, "keys belong to users")
		other()
		release()
		release, err = w.App.BeginKey(t.Context(), w.Caller, "k")
		require.NoError(t, err)
		release()
		require.Zero(t, w.Number("SELECT COUNT(*) FROM upload_request"))
	})
}

func TestKeysThatComeTogetherShareATransaction(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		of := func(user, key string, claim bool) *submit.KeyChange {
			return w.App.Keys.Change(user, key, ingest.NewID(), claim)
		}
		held, old := of("anna", "held", true), of("anna", "old", true)
		require.Equal(t, []error{nil, nil}, w.App.Keys.Together(t.Context(), held, old))
		require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE upload_request SET expires_at = ? WHERE request_key = 'old'", m.Now)
			return err
		}))
		end := held.Released()
		stranger := of("anna", "taken", false) // of a request that holds nothing
		changes := []*submit.KeyChange{
			of("anna", "new", true), of("anna", "new", true), of("bob", "new", true),
			of("anna", "held", true), of("anna", "old", true), end, stranger,
		}
		for _, err := range w.App.Keys.Together(t.Context(), changes...) {
			require.NoError(t, err)
		}
		var got []error
		for _, c := range changes {
			got = append(got, c.Err())
		}
		require.Equal(t, []error{nil, ingest.ErrKeyInUse, nil, nil, nil, nil, nil}, got)
		require.Equal(t, 4, w.Number("SELECT COUNT(*) FROM upload_request"))
		require.ErrorIs(t, of("anna", "held", true).Claim(t.Context()), ingest.ErrKeyInUse, "the release let the next one in, and no third")
	})
}

// A key whose claim or release got no answer must not stay held: the client's repeat would be told 409 until the lease ends.
func TestKeyOfAnUnknownCommitIsNotLeftHeld(t *testing.T) {
	t.Parallel()
	mute := &ingesttest.MuteStore{}
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) { mute.Database = d.Store; d.Store = mute }})
	mute.Left.Store(1)
	release, err := w.App.BeginKey(t.Context(), w.Caller, "k")
	require.NoError(t, err, "the claim names its request: it can be done twice")
	_, err = w.App.BeginKey(t.Context(), w.Caller, "k")
	require.ErrorIs(t, err, ingest.ErrKeyInUse)
	release()

	mute.Left.Store(100)
	_, err = w.App.BeginKey(t.Context(), w.Caller, "k")
	require.ErrorIs(t, err, taskstate.ErrOutcomeUnknown)
	mute.Left.Store(0)
	release, err = w.App.BeginKey(t.Context(), w.Caller, "k")
	require.NoError(t, err, "what may have been claimed in vain was released")
	release()
	require.Zero(t, w.Number("SELECT COUNT(*) FROM upload_request"))
}

func TestKeyOfADeadRequestIsTaken(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	k := w.App.Keys.Change("anna", "k", ingest.NewID(), true)
	require.NoError(t, k.Claim(t.Context()))
	w.Clock.Advance(submit.KeyLease + time.Second)
	other := w.App.Keys.Change("anna", "k", ingest.NewID(), true)
	require.NoError(t, other.Claim(t.Context()))
	require.ErrorIs(t, k.Claim(t.Context()), ingest.ErrKeyInUse)
	w.Clock.Advance(submit.KeyLease + time.Second)
	require.NoError(t, w.App.Keys.SweepKeys(t.Context()))
	require.Zero(t, w.Number("SELECT COUNT(*) FROM upload_request"))
}
