package work

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
)

func TestAWatcherIsHeldAgainstTheLog(t *testing.T) {
	t.Parallel()
	log := []taskstate.Transition{
		{ID: 3, To: taskstate.StatusQueued}, {ID: 5, To: taskstate.StatusRunning}, {ID: 9, To: taskstate.StatusRetrying, AttemptCount: 1},
		{ID: 12, To: taskstate.StatusRunning, AttemptCount: 1}, {ID: 13, To: taskstate.StatusSucceeded, AttemptCount: 1},
	}
	event := func(id int64, status taskstate.Status, attempt int) apiclient.Event {
		return apiclient.Event{ID: id, TaskID: "t", Status: status, AttemptCount: attempt}
	}
	running, retrying, again, done := event(5, taskstate.StatusRunning, 0), event(9, taskstate.StatusRetrying, 1),
		event(12, taskstate.StatusRunning, 1), event(13, taskstate.StatusSucceeded, 1)
	for name, c := range map[string]struct {
		saw  []apiclient.Event
		err  error
		Want string // empty: nothing is wrong
	}{
		"from the middle on, progress repeated": {[]apiclient.Event{running, running, retrying, again, done}, nil, ""},
		"only the end":                          {[]apiclient.Event{done}, nil, ""},
		"one is missing":                        {[]apiclient.Event{running, again, done}, nil, "event 12, which does not come next"},
		"one comes again later":                 {[]apiclient.Event{running, retrying, running, again, done}, nil, "event 5, which does not come next"},
		"never happened":                        {[]apiclient.Event{event(4, taskstate.StatusRunning, 0), done}, nil, "event 4, which does not come next"},
		"other content the second time":         {[]apiclient.Event{running, event(5, taskstate.StatusRunning, 1), done}, nil, "twice with different content"},
		"not what the log says":                 {[]apiclient.Event{event(5, taskstate.StatusQueued, 0), done}, nil, "event 5 as QUEUED"},
		"no end":                                {[]apiclient.Event{running, retrying}, nil, "did not see its end"},
		"nothing":                               {nil, nil, "did not see its end"},
		"gave up":                               {[]apiclient.Event{running}, errors.New("too long"), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := viewing{Task: "t", events: c.saw, err: c.err}.Judge(log)
			if c.Want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.Want)
			require.ErrorContains(t, err, "I35")
		})
	}
}
