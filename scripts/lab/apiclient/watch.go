package apiclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// silence is how long an event stream may send nothing: four heartbeats.
const silence = time.Minute

// maxEvent bounds one line of an event stream.
const maxEvent = 64 << 10

// Event is one status that a watcher was shown.
type Event struct {
	ID           int64 // of the transition
	TaskID       string
	Status       taskstate.Status
	AttemptCount int
	CrashCount   int
	At           time.Time // when it arrived
}

// SameAs tells whether two events with one id say the same; progress may differ.
func (e Event) SameAs(o Event) bool {
	return e.TaskID == o.TaskID && e.Status == o.Status && e.AttemptCount == o.AttemptCount && e.CrashCount == o.CrashCount
}

// watchTransport has no limit on connections: each stream holds one.
var watchTransport = &http.Transport{IdleConnTimeout: time.Second}

// Watch follows a task by server-sent events, after the transition `after` (0: from its present state), until the stream ends,
// ctx ends or seen returns false. over says that the server answered that there is nothing more to come (204).
// Errors: *StatusError; whatever broke the stream. The end of the stream and of ctx are none.
func (c *Client) Watch(ctx context.Context, task string, after int64, seen func(Event) bool) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/knowledge/tasks/"+task+"/events", http.NoBody)
	if err != nil {
		return false, err
	}
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	c.authorize(req)
	idle := time.AfterFunc(silence, cancel)
	defer idle.Stop()
	res, err := watchTransport.RoundTrip(req)
	if err != nil {
		return false, quiet(ctx, err)
	}
	defer res.Body.Close() //nolint:errcheck // only read
	switch res.StatusCode {
	case http.StatusNoContent:
		return true, nil
	case http.StatusOK:
	default:
		e := &StatusError{}
		_ = json.NewDecoder(io.LimitReader(res.Body, maxEvent)).Decode(e) // not JSON: the status says enough
		e.Status = res.StatusCode
		return false, e
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	var e Event
	for lines.Scan() {
		idle.Reset(silence)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "id":
			if e.ID, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return false, fmt.Errorf("watch %s: id of an event: %w", task, err)
			}
		case "data":
			var t Task
			if err := json.Unmarshal(value, &t); err != nil {
				return false, fmt.Errorf("watch %s: %w", task, err)
			}
			e.TaskID, e.Status, e.AttemptCount, e.CrashCount, e.At = t.TaskID, t.Status, t.AttemptCount, t.CrashCount, time.Now()
			if !seen(e) {
				return false, nil
			}
		}
	}
	return false, quiet(ctx, lines.Err())
}

// quiet drops the error of a stream that its own reader ended.
func quiet(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}
