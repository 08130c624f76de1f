package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/workflow"
)

// door is a tasks' door without a queue behind it.
type door struct{ *taskstore.Store }

func (d door) Insert(ctx context.Context, prepare func(context.Context, taskstate.Tx, taskstate.DBClock, error) ([]taskstate.NewTask, error)) ([]taskstate.Task, error) {
	return d.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		return prepare(ctx, tx, m, nil)
	})
}

func (door) Announce(context.Context, []taskstate.Task) bool { return false }

// A check names a task that nobody would look at and a wrong count; a dry run lists them and leaves them, a repair mends them.
func TestACheckFindsListsAndMends(t *testing.T) {
	t.Parallel()
	s := taskstoretest.Open(t)
	asked, _, err := checks.New(s, door{s}).Ask(t.Context(), tasks.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}, checks.Request{})
	require.NoError(t, err)
	require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM ingest_task_call")
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO document_count (base_id, status, documents, segments) VALUES ('b', 'READY', 1, 1)")
		}
		return err
	}))
	work := Tools{Store: s}.Workflow()
	require.Equal(t, checks.Workflow, work.ID)
	check := func(payload string) (out checks.Result) {
		var last taskstate.Progress
		text, err := work.Run(t.Context(), workflow.Run{Task: asked.Task, Payload: json.RawMessage(payload), Report: func(p taskstate.Progress) { last = p }})
		require.NoError(t, err)
		require.Positive(t, last.Total, "it says how far it is")
		require.NoError(t, json.Unmarshal(text, &out))
		return out
	}
	named := func(r checks.Result) (about []string) {
		for _, rule := range r.Rules {
			for _, e := range rule.Examples {
				if rule.Rule == "I38" {
					require.Equal(t, "task", e.Kind)
					about = append(about, e.About)
				}
			}
		}
		return about
	}
	found := check(`{"history": true}`)
	require.Equal(t, []string{asked.Task.ID}, named(found))
	require.Nil(t, found.Repair)

	dry := check(`{"history": true, "repair": true, "dryRun": true}`)
	require.True(t, dry.Repair.DryRun)
	require.Equal(t, []checks.Mend{{What: checks.WakeTasks, Rule: "I38", Count: 1, Items: []string{"task " + asked.Task.ID}},
		{What: checks.CountDocuments, Rule: "I42", Count: 1, Items: []string{"knowledge base b, READY"}}}, dry.Repair.Mends)
	require.NotEmpty(t, named(check(`{"history": true}`)), "a dry run mends nothing")

	done := check(`{"history": true, "repair": true, "reason": "a lost call"}`)
	require.Equal(t, []checks.Mend{{What: checks.WakeTasks, Rule: "I38", Count: 1, Items: []string{}}, {What: checks.CountDocuments, Rule: "I42", Count: 1, Items: []string{}}}, done.Repair.Mends)
	require.Empty(t, named(check(`{"history": true}`)))

	stranger := asked.Task
	stranger.UserID = "ada"
	_, err = work.Run(t.Context(), workflow.Run{Task: stranger, Payload: json.RawMessage(`{}`)})
	require.ErrorContains(t, err, "past the operators' door")
	_, err = work.Run(t.Context(), workflow.Run{Task: asked.Task, Payload: json.RawMessage(`{"deep": 7}`)})
	require.ErrorAs(t, err, new(*workflow.PayloadError))
}

// Of two checks that run, the one that was claimed last waits, be it the older one: it was retried by hand.
func TestTheCheckThatBeganLastWaits(t *testing.T) {
	t.Parallel()
	s := taskstoretest.Open(t)
	root := tasks.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}
	operator := root.Scope.Actor()
	ask := func() string {
		one, again, err := checks.New(s, door{s}).Ask(t.Context(), root, checks.Request{})
		require.NoError(t, err)
		require.False(t, again)
		return one.Task.ID
	}
	change := func(id string, decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) {
		out, err := s.Apply(t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
		require.NoError(t, err)
		require.NotNil(t, out[0].Decision.Change, "%+v", out[0])
	}
	calls := 0
	claim := func(id string) {
		calls++
		worker := taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}
		change(id, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Claim(taskstate.Policy{Lease: time.Minute, MaxCrashes: 9}, m, task, taskstate.ClaimRequest{Owner: fmt.Sprint("w/", calls), Process: "w", Actor: worker})
		})
	}
	run := func(id string) error {
		task, err := s.Get(t.Context(), taskstate.System(), id)
		require.NoError(t, err)
		_, err = Tools{Store: s}.Workflow().Run(t.Context(), workflow.Run{Task: task, Payload: json.RawMessage(`{}`), Report: func(taskstate.Progress) {}})
		return err
	}
	older := ask()
	change(older, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, task, operator, taskstate.ReasonCancelled, "")
	})
	newer := ask()
	claim(newer)
	change(older, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, task, operator)
	})
	claim(older)
	var waits *workflow.Failure
	require.ErrorAs(t, run(older), &waits)
	require.True(t, waits.Throttled)
	require.Contains(t, waits.Cause, newer)
	require.NoError(t, run(newer))
}
