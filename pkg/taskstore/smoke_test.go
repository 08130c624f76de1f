package taskstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

func smoke(t *testing.T, cfg taskstore.Config) {
	t.Helper()
	ctx := t.Context()
	s, err := taskstore.Open(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	done, err := s.Migrate(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, done)
	require.NoError(t, s.CheckSchema(ctx))
	require.NoError(t, s.Ping(ctx))
	id := "0190a6e0-0000-7000-8000-000000000001"
	out, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.Moment) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{{Task: taskstate.Task{ID: id, UserID: "u", Type: "document", Channel: "http", MaxAttempts: 3}}}, nil
	})
	require.NoError(t, err)
	require.Len(t, out, 1)
	p := taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Lease: time.Minute, MaxCrashes: 3, Slack: time.Second, DLQ: true}
	claimed, err := s.Apply(ctx, taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.Moment, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(p, m, t, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Actor: taskstate.Actor{Kind: "worker", Name: "p"}})
	})})
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerClaimed, claimed[0].Answer)
	got, err := s.Get(ctx, taskstate.System(), id)
	require.NoError(t, err)
	require.Equal(t, got, claimed[0].After)
	lost, err := s.Heartbeat(ctx, time.Minute, []taskstate.Beat{{TaskID: id, Status: "RUNNING", Token: taskstate.Token{Fence: got.Fence, Timeline: 1}, Owner: "p/1"}})
	require.NoError(t, err)
	require.Len(t, lost, 1)
	log, err := s.Transitions(ctx, taskstate.System(), id, 0, 10)
	require.NoError(t, err)
	require.Len(t, log, 2)
	swept, err := s.Sweep(ctx, taskstate.Sweep{Status: taskstate.StatusRunning, WakeBefore: taskstate.In(time.Hour), Limit: 5, Decide: taskstate.Each(func(_ taskstate.Moment, t taskstate.Task) taskstate.Decision {
		return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
	})})
	require.NoError(t, err)
	require.Len(t, swept, 1)
	_, err = s.List(ctx, taskstate.System(), taskstate.Query{Limit: 3, Text: "x", Statuses: []taskstate.Status{"RUNNING"}, After: &taskstate.Cursor{}})
	require.NoError(t, err)
	_, _, err = s.Due(ctx, 4)
	require.NoError(t, err)
	_, err = s.NextWake(ctx, "RUNNING", time.Hour)
	require.NoError(t, err)
	_, err = s.Counts(ctx, taskstate.System(), "")
	require.NoError(t, err)
	_, err = s.TransitionsOf(ctx, map[string]int64{id: 0}, 10)
	require.NoError(t, err)
}
