package fsck

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// recordPrefix begins the id of a delivery that came over Kafka.
const recordPrefix = "k:"

// event is what the rules need of one event of the outbox.
type event struct {
	seq                int64
	key, status, lease string
	wake, created      time.Time
	sent, retry        time.Time // zero: none
	lastError          string
}

// judgeOutbox is I16 and L3, as far as the table tells: it cannot ask the broker.
func (c *checker) judgeOutbox(ctx context.Context) error {
	empty := true
	err := pages(ctx, c, "Events", scanEvent, func(e event) int64 { return e.seq }, func(_ context.Context, page []event) error {
		empty = false
		for _, e := range page {
			c.judgeEvent(e)
		}
		return nil
	})
	if empty {
		c.notJudged("the outbox is empty", "I16", "L3")
	}
	return err
}

// scanEvent reads the columns of Events.
func scanEvent(rows *sql.Rows) (e event, err error) {
	var lastError sql.NullString
	var wake, created, sent, retry taskstate.DBTime
	err = rows.Scan(&e.seq, &e.key, &e.status, &e.lease, &retry, &lastError, &wake, &created, &sent)
	e.lastError, e.wake, e.created, e.sent, e.retry = lastError.String, wake.Time, created.Time, sent.Time, retry.Time
	return e, err
}

// judgeEvent judges one event.
func (c *checker) judgeEvent(e event) {
	about := "event " + strconv.FormatInt(e.seq, 10) + " of task " + e.key
	c.judgeText("last error of "+about, e.lastError)
	switch e.status {
	case "SENT":
		whole := !e.sent.IsZero() && !e.sent.Before(e.created) && e.lease == "" && e.retry.IsZero() && e.lastError == ""
		c.verdict(whole, "I16", about, "it is SENT at %s, made at %s, with lease %q, next retry %s, last error %q",
			stamp(e.sent), stamp(e.created), e.lease, stamp(e.retry), e.lastError)
		c.judged("L3")
	case "NEW", "RETRYING":
		c.verdict(e.sent.IsZero() && (e.status == "RETRYING") == !e.retry.IsZero(), "I16", about,
			"it is %s with next retry %s, and sent at %s", e.status, stamp(e.retry), stamp(e.sent))
		overdue := c.now.Sub(e.wake) - c.o.Patience
		c.verdict(overdue <= 0 && !c.o.Rest, "L3", about, "it is %s since %s and was to be looked at at %s", e.status, stamp(e.created), stamp(e.wake))
	case "DEAD":
		c.verdict(e.lease == "" && e.retry.IsZero() && e.sent.IsZero(), "I16", about, "it is DEAD with lease %q, next retry %s, sent at %s", e.lease, stamp(e.retry), stamp(e.sent))
		c.judged("L3")
	}
}

// transport is what the outbox says of one task.
type transport struct {
	deadLetters map[int64]string // the states of its dead letters there, by fence
	any         bool             // it has had a delivery there
	dead        bool             // the last delivery is DEAD
	waiting     bool             // a delivery is NEW or RETRYING
	sent        time.Time        // when the last SENT one was acknowledged; zero: none
}

// transportOf reads the events of a task.
func (c *checker) transportOf(ctx context.Context, taskID string) (transport, error) {
	r := transport{deadLetters: map[int64]string{}}
	err := c.each(ctx, func(rows *sql.Rows) error {
		var status string
		var payload []byte
		var sent taskstate.DBTime
		if err := rows.Scan(&status, &payload, &sent); err != nil {
			return err
		}
		var deadLetter struct {
			SourceStream string `json:"sourceStream"` // only dead letters have it
			Fence        int64  `json:"fence"`
		}
		if json.Unmarshal(payload, &deadLetter) == nil && deadLetter.SourceStream != "" {
			r.deadLetters[deadLetter.Fence] = status
			return nil
		}
		r.any, r.dead = true, status == "DEAD"
		r.waiting = r.waiting || status == "NEW" || status == "RETRYING"
		if status == "SENT" {
			r.sent = sent.Time
		}
		return nil
	}, c.q.Get("EventsOf"), taskID)
	return r, err
}
