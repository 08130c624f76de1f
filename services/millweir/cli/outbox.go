package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// outboxEvent is an event of the Kafka transport as the gateway shows it.
type outboxEvent struct {
	ID           string     `json:"id"`
	Topic        string     `json:"topic"`
	TaskID       string     `json:"taskId"`
	Status       string     `json:"status"`
	Cause        string     `json:"cause"`
	AttemptCount int        `json:"attemptCount"`
	NextRetryAt  *time.Time `json:"nextRetryAt"`
	LastError    string     `json:"lastError"`
	CreatedAt    time.Time  `json:"createdAt"`
	SentAt       *time.Time `json:"sentAt"`
}

// requeuePage is the most that one request makes NEW again.
const requeuePage = 10_000

// eventRow is an event in a table.
func eventRow(e outboxEvent) string {
	next := ""
	if e.NextRetryAt != nil {
		next = e.NextRetryAt.Local().Format(time.DateTime)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s", clean(e.ID), clean(e.TaskID), clean(e.Topic), clean(e.Status), clean(e.Cause),
		e.AttemptCount, next, short(e.LastError, 60))
}

const eventHeader = "EVENT\tTASK\tTOPIC\tSTATUS\tCAUSE\tATTEMPTS\tNEXT RETRY\tERROR"

// outboxList lists events of one state or task.
func outboxList(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "outbox list")
	filters := map[string]*string{
		"state":  f.String("state", "", "NEW, RETRYING, SENT or DEAD; DEAD unless --task is given"),
		"cause":  f.String("cause", "", "BROKER_UNAVAILABLE or REFUSED"),
		"topic":  f.String("topic", "", "topic"),
		"taskId": f.String("task", "", "task id"),
	}
	limit := f.Int("limit", 50, "most events")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	all, err := listAll[outboxEvent](ctx, f, "/internal/outbox/events", given(filters), *limit)
	if err != nil {
		return err
	}
	return emit(f, all, eventHeader, eventRow)
}

// outboxRequeue makes DEAD events NEW again: those named, or with --all those that the filter selects.
func outboxRequeue(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "outbox requeue")
	all := f.Bool("all", false, "every DEAD event that the filter selects")
	cause := f.String("cause", "", "with --all: BROKER_UNAVAILABLE or REFUSED")
	topic := f.String("topic", "", "with --all: topic")
	ids, err := f.parse(args)
	if err != nil {
		return err
	}
	switch {
	case *all == (len(ids) > 0):
		return &usageError{"needs event ids, or --all"}
	case !*all && *cause+*topic != "":
		return &usageError{"--cause and --topic go with --all"}
	case *all:
		return requeueAll(ctx, f, *cause, *topic)
	}
	done, failed := postEach[outboxEvent](ctx, f, ids, "requeue", func(id string) string {
		return "/internal/outbox/events/" + url.PathEscape(id) + "/requeue"
	})
	if err := emit(f, done, eventHeader, eventRow); err != nil {
		return err
	}
	return failed
}

// requeueAll asks until nothing is left that the filter selects, and no longer than there were DEAD events at the start: what is
// refused again at once would keep it here for ever.
func requeueAll(ctx context.Context, f *common, cause, topic string) error {
	if err := confirm(f, "Requeue every DEAD event that the filter selects?"); err != nil {
		return err
	}
	filter := map[string]any{"limit": requeuePage}
	for name, v := range map[string]string{"cause": cause, "topic": topic} {
		if v != "" {
			filter[name] = v
		}
	}
	body, err := json.Marshal(filter)
	if err != nil {
		return fmt.Errorf("encode the filter: %w", err)
	}
	var before outboxFigures
	if err := f.client().do(ctx, http.MethodGet, "/internal/outbox", "", nil, &before); err != nil {
		return err
	}
	total := 0
	for more := true; more && int64(total) < before.Counts["DEAD"]; {
		var answer struct {
			Requeued int  `json:"requeued"`
			More     bool `json:"more"`
		}
		if err := f.client().do(ctx, http.MethodPost, "/internal/outbox/requeue", "application/json", bytes.NewReader(body), &answer); err != nil {
			return err
		}
		total, more = total+answer.Requeued, answer.More
	}
	return emitOne(f, map[string]int{"requeued": total}, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%d requeued\n", total) })
}

// outboxFigures are the gateway's counts.
type outboxFigures struct {
	Counts           map[string]int64 `json:"counts"`
	Backlog          int64            `json:"backlog"`
	OldestAgeSeconds float64          `json:"oldestAgeSeconds"`
}

// outboxStats counts events.
func outboxStats(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "outbox stats")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	var stats outboxFigures
	if err := f.client().do(ctx, http.MethodGet, "/internal/outbox", "", nil, &stats); err != nil {
		return err
	}
	return emitOne(f, stats, func(w io.Writer) {
		for _, state := range []string{"NEW", "RETRYING", "SENT", "DEAD"} {
			_, _ = fmt.Fprintf(w, "%-9s %d\n", state, stats.Counts[state])
		}
		_, _ = fmt.Fprintf(w, "oldest    %.1f s\n", stats.OldestAgeSeconds)
	})
}
