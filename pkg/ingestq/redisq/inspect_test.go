package redisq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

func TestInspectorSeesBordersPendingAndDeadLettersAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	i := NewInspector(q.client, r.cfg)
	state, err := i.Look(t.Context())
	require.NoError(t, err)
	require.Zero(t, state, "there is no stream yet, and a look makes none")

	ids := publish(t, q, 5)
	read(t, q, 3)
	require.NoError(t, q.Ack(t.Context(), ids[0]))
	r.do(t, "XDEL", r.cfg.StreamKey, ids[1])
	state, err = i.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, ids[0], state.First)
	require.Equal(t, ids[1], state.Deleted)
	require.EqualValues(t, 4, state.Length)
	require.Equal(t, []ingestq.Group{{Name: r.cfg.Group, Given: ids[2]}}, state.Groups)
	next, _ := stream.ParseID(ids[3])
	require.Equal(t, next.Time(), state.Watermark)
	require.Len(t, state.Pending, 2)
	require.True(t, state.Pending[0].Gone)
	require.Equal(t, ids[1], state.Pending[0].ID)
	require.False(t, state.Pending[1].Gone)
	require.NotEmpty(t, state.Pending[1].TaskID)

	require.NoError(t, q.DeadLetters(t.Context(), []ingestq.DeadLetter{{TaskID: "t", Fence: 4}}))
	r.do(t, "XADD", r.cfg.DLQKey, "*", "raw", "bytes")
	var deadLetters []ingestq.WrittenDeadLetter
	require.NoError(t, i.DeadLetters(t.Context(), func(l ingestq.WrittenDeadLetter) error {
		l.ID = ""
		deadLetters = append(deadLetters, l)
		return nil
	}))
	require.Equal(t, []ingestq.WrittenDeadLetter{{TaskID: "t", Fence: 4}, {}}, deadLetters)

	read(t, q, 2)
	after, err := i.Look(t.Context())
	require.NoError(t, err)
	require.True(t, after.Watermark.IsZero(), "all were given")
	require.Len(t, after.Pending, 4, "a look acknowledges nothing")
}
