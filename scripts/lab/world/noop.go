package world

import (
	"context"
	"strconv"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// NoopType is the type of tasks that do nothing.
const NoopType = "noop"

// Noop is the kind of tasks that do nothing; it tells of each start.
type Noop func(task taskstate.Task)

// Describe implements taskrun.Handler.
func (Noop) Describe() taskrun.Description { return taskrun.Description{Noun: "test"} }

// NewNoop is a task that does nothing; its payload is its number.
func NewNoop(number int) taskstate.NewTask {
	return taskstate.NewTask{
		Task: taskstate.Task{
			ID: uuid.Must(uuid.NewV7()).String(), UserID: Everybody, Type: NoopType, Channel: "bench", MaxAttempts: 10, Payload: []byte(strconv.Itoa(number)),
		},
		Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: Everybody},
	}
}

// Handle implements taskrun.Handler.
func (f Noop) Handle(_ context.Context, job taskrun.Job) taskrun.Result {
	f(job.Task)
	return taskrun.Result{}
}

// Classify implements taskrun.Handler.
func (Noop) Classify(err error) taskstate.Failure {
	return taskstate.Failure{Code: "BENCH", Cause: err.Error()}
}

// OnTransition implements taskrun.Handler.
func (Noop) OnTransition(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision, map[string]any) error {
	return nil
}

// Everybody is the user of a world without keys.
const Everybody = "local"
