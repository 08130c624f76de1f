package history

import (
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

// edge is one row of contract §2's table: who may move a task between two states, and why.
type edge struct {
	reason taskstate.Reason
	from   []taskstate.Status
	to     taskstate.Status
	kinds  []taskstate.ActorKind
}

const (
	none      = taskstate.StatusNone
	queued    = taskstate.StatusQueued
	running   = taskstate.StatusRunning
	retrying  = taskstate.StatusRetrying
	succeeded = taskstate.StatusSucceeded
	dead      = taskstate.StatusDead
	suspended = taskstate.StatusSuspended
	cancelled = taskstate.StatusCancelled
)

// Who acts.
var (
	workers   = []taskstate.ActorKind{taskstate.ActorWorker}
	people    = []taskstate.ActorKind{taskstate.ActorUser, taskstate.ActorOperator}
	operators = []taskstate.ActorKind{taskstate.ActorOperator}
	accepting = []taskstate.ActorKind{taskstate.ActorUser, taskstate.ActorOperator, taskstate.ActorSystem}
	anybody   = []taskstate.ActorKind{taskstate.ActorWorker, taskstate.ActorUser, taskstate.ActorOperator, taskstate.ActorSystem}
	tidying   = []taskstate.ActorKind{taskstate.ActorWorker, taskstate.ActorSystem}
)

// held are the states from which only a holder moves a task on; open those in which anybody may withdraw it.
var (
	held = []taskstate.Status{running}
	open = []taskstate.Status{queued, retrying, running, suspended}
)

// edges are all legal moves. A reason may stand in several rows.
var edges = []edge{
	{taskstate.ReasonAccepted, []taskstate.Status{none}, queued, accepting},
	{taskstate.ReasonClaimed, []taskstate.Status{queued, retrying}, running, workers},
	{taskstate.ReasonTakeover, held, running, workers},
	{taskstate.ReasonDone, held, succeeded, workers},
	{taskstate.ReasonFailed, held, retrying, workers},
	{taskstate.ReasonStalled, held, retrying, workers},
	{taskstate.ReasonThrottled, held, retrying, workers},
	{taskstate.ReasonExhausted, held, dead, workers},
	{taskstate.ReasonPermanent, held, dead, workers},
	{taskstate.ReasonCrashLimit, held, dead, workers},
	{taskstate.ReasonHandedBack, held, queued, workers},
	{taskstate.ReasonRetryNow, []taskstate.Status{retrying}, retrying, people},
	{taskstate.ReasonSuspended, []taskstate.Status{queued, retrying}, suspended, operators},
	{taskstate.ReasonSuspended, held, suspended, []taskstate.ActorKind{taskstate.ActorWorker, taskstate.ActorOperator}},
	{taskstate.ReasonResumed, []taskstate.Status{suspended}, queued, operators},
	{taskstate.ReasonReplayed, []taskstate.Status{dead, cancelled}, queued, people},
	{taskstate.ReasonCancelled, open, cancelled, people},
	{taskstate.ReasonDeleted, open, cancelled, anybody},
	{taskstate.ReasonSuperseded, open, cancelled, tidying},
}

// legal reports whether a party may move a task so.
func legal(tr taskstate.Transition) bool {
	kind := kindOf(tr.Actor)
	return slices.ContainsFunc(edges, func(e edge) bool {
		return e.reason == tr.Reason && e.to == tr.To && slices.Contains(e.from, tr.From) && slices.Contains(e.kinds, kind)
	})
}

// kindOf is the part of an actor's text that names the sort of party.
func kindOf(actor string) taskstate.ActorKind {
	kind, _, _ := strings.Cut(actor, ":")
	return taskstate.ActorKind(kind)
}
