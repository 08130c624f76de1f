package apiclient

import (
	"context"
	"net/http"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Record is a call as a line of a client log.
func (c Call) Record() fsck.ClientRecord {
	r := fsck.ClientRecord{
		Op: opOf(c.Op), User: c.User, Key: c.Key, BodyHash: c.BodyHash, Began: c.Began, Ended: c.Ended, Status: c.Status, Code: c.Code,
		Task: c.Task, Document: c.Document, Duplicate: c.Duplicate, Replayed: c.Replayed, Outcome: fsck.OutcomeRefused,
	}
	switch {
	case c.Code == "BACKLOG_FULL", c.Code == "SHUTTING_DOWN": // said before anything was done
	case c.Err != nil, c.Status >= http.StatusInternalServerError:
		r.Outcome = fsck.OutcomeMaybe // nobody knows how far it came
	case c.Status/100 == 2:
		r.Outcome = fsck.OutcomeOK
	}
	for _, h := range c.Hits {
		r.Hits = append(r.Hits, fsck.Hit{Document: h.DocumentID, Version: h.Version})
	}
	return r
}

// opOf is the record's word for an operation.
func opOf(op string) string {
	switch op {
	case fsck.OpUpload, fsck.OpReplace, fsck.OpDelete, fsck.OpCancel, fsck.OpRetry, fsck.OpSuspend, fsck.OpResume, fsck.OpSearch:
		return op
	}
	return fsck.OpRead
}

// Record is an event as a line of a client log.
func (e Event) Record(watcher, user string) fsck.ClientRecord {
	return fsck.ClientRecord{
		Op: fsck.OpEvent, User: user, Began: e.At, Ended: e.At, Outcome: fsck.OutcomeOK, Watcher: watcher,
		Task: e.TaskID, Transition: e.ID, State: string(e.Status), Attempt: e.AttemptCount, Crashes: e.CrashCount,
	}
}

// Counts asks for the tasks by status.
func (c *Client) Counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	var stats struct {
		Counts map[taskstate.Status]int64 `json:"counts"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/internal/tasks/stats", said: Call{Op: "stats"}}, &stats, nil)
	return stats.Counts, err
}
