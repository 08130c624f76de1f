package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

const (
	outboxPath = "/internal/outbox"
	// requeuePage is the most that one request makes NEW again.
	requeuePage = 10_000
	eventHeader = "EVENT\tTASK\tTOPIC\tSTATUS\tCAUSE\tATTEMPTS\tNEXT RETRY\tERROR"
)

// outbox shows and mends the events of Kafka.
func outbox(a *App) *cobra.Command {
	return Group("outbox", "events of Kafka", outboxList(a), outboxRequeue(a), outboxStats(a))
}

// eventRow is an event in a table.
func eventRow(e wire.OutboxEvent) []any {
	return []any{
		Clean(e.ID), Clean(e.TaskID), Clean(e.Topic), Clean(e.Status), Clean(e.Cause), e.AttemptCount, day(e.NextRetryAt), Long(e.LastError, 60),
	}
}

func outboxList(a *App) *cobra.Command {
	var l *listing
	c := Verb("list [--state DEAD] [--cause REFUSED] [--topic T] [--task ID] [--limit N]", "list events of Kafka, newest first", Needs(),
		func(ctx context.Context, _ []string) error {
			return listed(ctx, a, outboxPath+"/events", l, nil, eventHeader, eventRow)
		})
	l = newListing(c, 50, "events")
	l.filter(c, "state", "state", "NEW, RETRYING, SENT or DEAD; DEAD unless --task is given")
	l.filter(c, "cause", "cause", "BROKER_UNAVAILABLE or REFUSED")
	l.filter(c, "topic", "topic", "topic")
	l.filter(c, "task", "taskId", "task id")
	return c
}

// outboxRequeue makes DEAD events NEW again: those named, or with --all those that the filter selects.
func outboxRequeue(a *App) *cobra.Command {
	var all bool
	wish := wire.RequeueEvents{Limit: requeuePage}
	c := Verb("requeue ID… | --all [--cause REFUSED] [--topic T] [--yes]", "send DEAD events again", cobra.ArbitraryArgs,
		func(ctx context.Context, ids []string) error {
			switch {
			case all == (len(ids) > 0):
				return Usage("needs event ids, or --all")
			case !all && wish.Cause+wish.Topic != "":
				return Usage("--cause and --topic go with --all")
			case all:
				return requeueAll(ctx, a, wish)
			}
			done, failed := postEach[wire.OutboxEvent](ctx, a, ids, "requeue", func(id string) string {
				return outboxPath + "/events/" + url.PathEscape(id) + "/requeue"
			})
			return cmp.Or(failed, Table(a, done, eventHeader, eventRow))
		})
	c.Flags().BoolVar(&all, "all", false, "every DEAD event that the filter selects")
	c.Flags().StringVar(&wish.Cause, "cause", "", "with --all: BROKER_UNAVAILABLE or REFUSED")
	c.Flags().StringVar(&wish.Topic, "topic", "", "with --all: topic")
	return c
}

// requeueAll asks until nothing is left that the filter selects, and no longer than there were DEAD events at the start: what
// is refused again at once would keep it here for ever.
func requeueAll(ctx context.Context, a *App, wish wire.RequeueEvents) error {
	if err := a.confirm("Requeue every DEAD event that the filter selects?"); err != nil {
		return err
	}
	var before wire.OutboxStats
	if err := a.Gateway().Get(ctx, outboxPath, &before); err != nil {
		return err
	}
	total := 0
	for more := true; more && int64(total) < before.Counts["DEAD"]; {
		var done wire.RequeuedEvents
		if err := a.Gateway().Post(ctx, outboxPath+"/requeue", wish, &done); err != nil {
			return err
		}
		total, more = total+done.Requeued, done.More
	}
	return One(a, map[string]int{"requeued": total}, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%d requeued\n", total) })
}

func outboxStats(a *App) *cobra.Command {
	return Verb("stats", "count the events of Kafka", Needs(), func(ctx context.Context, _ []string) error {
		return shown(ctx, a, outboxPath, func(w fields, stats wire.OutboxStats) {
			for _, state := range []string{"NEW", "RETRYING", "SENT", "DEAD"} {
				_, _ = fmt.Fprintf(w, "%-9s %d\n", state, stats.Counts[state])
			}
			_, _ = fmt.Fprintf(w, "oldest    %.1f s\n", stats.OldestAgeSeconds)
		})
	})
}
