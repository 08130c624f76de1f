package redisq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestDeadLettersAreReadNewestFirstAndDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	book, err := NewDeadLetters(q.client, r.cfg)
	require.NoError(t, err)
	n, err := book.Length(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "there is no stream yet")

	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for i := range 5 {
		require.NoError(t, q.DeadLetters(t.Context(), []ingestq.DeadLetter{{
			TaskID: fmt.Sprint("t", i), Fence: int64(i), SourceRecordID: "7-0", LastError: "refused", AttemptCount: 3, FailedAt: at,
		}}))
	}
	page, err := book.List(t.Context(), ingestq.DeadLetterPlace{}, 2)
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.Equal(t, ingestq.StoredDeadLetter{
		ID: page[0].ID, SourceStream: r.cfg.StreamKey, SourceGroup: r.cfg.Group,
		DeadLetter: ingestq.DeadLetter{TaskID: "t4", Fence: 4, SourceRecordID: "7-0", LastError: "refused", AttemptCount: 3, FailedAt: at},
	}, page[0])
	rest, err := book.List(t.Context(), ingestq.DeadLetterPlace{ID: page[1].ID}, 9)
	require.NoError(t, err)
	require.Len(t, rest, 3)
	require.Equal(t, "t2", rest[0].TaskID)
	one, found, err := book.DeadLetter(t.Context(), rest[0].ID)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, rest[0], one)

	n, err = book.Drop(t.Context(), rest[0].ID, "no id", "1-1")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	for _, id := range []string{rest[0].ID, "no id"} {
		_, found, err = book.DeadLetter(t.Context(), id)
		require.NoError(t, err)
		require.False(t, found)
	}
	n, err = book.Length(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
}

// What Quarantine wrote is shown as it came, also where its fields bear names of ours.
func TestRawDeadLettersAreShownAsTheyCame(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	book, err := NewDeadLetters(q.client, r.cfg)
	require.NoError(t, err)
	many := map[string]string{}
	for i := range maxRawFields + 1 {
		many[fmt.Sprint("f", i)] = "v"
	}
	for _, raw := range []map[string]string{
		{"what": "this is no envelope"}, {"taskId": "t", "fence": "7", "lastError": "mine", "failedAt": "never"}, many, {},
	} {
		r.do(t, "XADD", r.cfg.StreamKey, "*", "x", "y")
		got := read(t, q, 1)
		require.NoError(t, q.Quarantine(t.Context(), ingestq.Delivery{ID: got[0], Raw: raw, Err: errors.New("no envelope")}))
		page, err := book.List(t.Context(), ingestq.DeadLetterPlace{}, 1)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, raw, page[0].Raw)
		require.Equal(t, "no envelope", page[0].LastError)
		require.Equal(t, got[0], page[0].SourceRecordID)
		require.Empty(t, page[0].TaskID)
	}
}

func TestWithoutADeadLetterStreamThereIsNoBook(t *testing.T) {
	t.Parallel()
	_, err := NewDeadLetters(nil, Config{})
	require.ErrorIs(t, err, ErrNoDeadLetters)
}
