package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	auditEvery = time.Second
	auditCalls = 100  // read at once
	auditSpans = 100  // of one statement
	auditBatch = 1000 // messages whose confirms are waited for together

	fromHeader   = "from" // of a change: what calls with lower numbers wrote was in the stream before it
	offsetHeader = "x-stream-offset"
	changeType   = "task.transition"
	markType     = "audit.resumed"
)

// gapTime is for how long a call may be missing that got its number before one that is there: a transaction takes at most 30 s, and 15 s
// more where its process is silent (package sqldb), and the one that is there may have got its number as late.
const gapTime = 2 * time.Minute

// overlap is how long before the last change of the stream a database's calls are appended again that does not have this change.
const overlap = time.Minute

// change is a message of the audit stream (contract §5).
type change struct {
	TaskID string `json:"taskId"`
	wire.Transition
}

// auditor appends every change of every task to a stream of RabbitMQ: each at least once, and those of one task in their order. It
// writes nothing down: where to go on is read from the last message of the stream, so a crash repeats some. It has a connection of its
// own, and what fails of it is a warning: copies do not wait for it.
type auditor struct {
	*Mirror
	link    *link
	publish *channel
	since   time.Time // where next is 0: the time of the first call to be appended
	next    int64     // what calls from here on wrote is to be appended; 0: there is none yet
	gaps    []gap     // numbers below next of calls that may still appear, in their order
}

// gap is numbers without a call below that of a call.
type gap struct {
	taskstate.Span
	at time.Time // when that call was written; zero: not known yet
}

// run appends until ctx ends.
func (a *auditor) run(ctx context.Context) error {
	defer a.setAudit("")
	wait := pause.Backoff{First: firstRedial, Most: mostRedial}
	for {
		err := a.connected(ctx, wait.Reset)
		a.metrics.gauges.audited(time.Time{})
		if ctx.Err() != nil {
			return nil // the end of ctx ends what is under way
		}
		a.setAudit(fmt.Sprintf("changes are not appended to the stream %s: %s", a.cfg.AuditStream, telemetry.Redact(err.Error())))
		a.log.Log(ctx, slog.LevelWarn, "audit", "mirror: changes are not appended to the audit stream; tasks run and are copied without it",
			slog.String("event", "rabbit.audit_failed"), slog.String("error", telemetry.Redact(err.Error())))
		if !pause.For(ctx, wait.Next()) {
			return nil
		}
	}
}

// connected appends on one connection until that or ctx ends; works is called when it does.
func (a *auditor) connected(ctx context.Context, works func()) (err error) {
	if a.link, err = dial(ctx, a.cfg, a.d.Name+" audit"); err != nil {
		return err
	}
	defer a.link.close()
	warning, err := a.link.ensure(queueStep("stream", a.cfg.AuditStream, amqp.Table{
		"x-queue-type": "stream", "x-max-age": fmt.Sprintf("%dD", a.cfg.AuditDays),
	}), "")
	if err != nil {
		return err
	}
	if a.publish, err = a.link.channel("", a.cfg.AuditStream); err != nil {
		return err
	}
	if err := a.resume(ctx); err != nil {
		return err
	}
	a.setAudit(warning)
	for {
		began := a.d.Clock()
		if err := a.look(ctx); err != nil {
			return err
		}
		works()
		a.log.Reset("audit")
		a.metrics.gauges.audited(began)
		if !pause.For(ctx, auditEvery) {
			return ctx.Err()
		}
	}
}

// resume finds where to go on: where the last message of the stream says, if the database has its change. Else the database was
// restored from a backup, or is another one: with what was written a minute before that change, or later.
func (a *auditor) resume(ctx context.Context) error {
	a.gaps, a.next, a.since = nil, 0, time.Time{}
	from, last, err := a.last(ctx)
	if err != nil || last == nil {
		return err
	}
	no, err := strconv.ParseInt(last.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("the last message has no number of a call: %q", last.ID)
	}
	written, err := a.d.DB.Changes(ctx, []int64{no})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(written, func(t taskstate.Transition) bool {
		return t.TaskID == last.TaskID && t.CreatedAt.Equal(last.CreatedAt.Time)
	}) {
		a.next = from
		return nil
	}
	a.since = last.CreatedAt.Add(-overlap)
	a.d.Log.Warn("mirror: the database does not have the last change of the audit stream: it was restored, or is another one",
		slog.String("task_id", last.TaskID), slog.Int64("call", no), slog.Time("appended_from", a.since))
	return nil
}

// look appends what was written since the last look.
func (a *auditor) look(ctx context.Context) error {
	if a.next == 0 {
		first, err := a.d.DB.FirstCall(ctx, a.since)
		if err != nil || first == 0 {
			return err
		}
		a.next = first
	}
	for more := true; more; {
		from := a.from()
		calls, err := a.d.DB.CallNumbers(ctx, []taskstate.Span{{First: a.next, Last: math.MaxInt64}}, auditCalls)
		if err != nil {
			return err
		}
		more = len(calls) == auditCalls
		for _, no := range calls {
			a.saw(no)
		}
		late, looked, err := a.late(ctx)
		if err != nil {
			return err
		}
		changes, err := a.d.DB.Changes(ctx, append(late, calls...))
		if err != nil {
			return err
		}
		if err := a.append(ctx, from, changes); err != nil {
			return err
		}
		a.age(changes, looked)
	}
	return nil
}

// from is the number below which all is in the stream.
func (a *auditor) from() int64 {
	if len(a.gaps) > 0 {
		return a.gaps[0].First
	}
	return a.next
}

// saw notes the next call.
func (a *auditor) saw(no int64) {
	if no > a.next {
		a.gaps = append(a.gaps, gap{Span: taskstate.Span{First: a.next, Last: no - 1}})
	}
	a.next = no + 1
}

// late returns the calls that have appeared in gaps, which these leave. It is asked after the last calls were read and before they are
// appended: what precedes one of them in the log of a task is there by then. Where there are many gaps, as with servers that give
// every second number, one span has several. looked is the database's time before the gaps were looked at.
func (a *auditor) late(ctx context.Context) (out []int64, looked time.Time, err error) {
	if len(a.gaps) == 0 {
		return nil, looked, nil
	}
	moment, err := a.d.DB.Moment(ctx)
	if err != nil {
		return nil, looked, err
	}
	var spans []taskstate.Span
	for some := range slices.Chunk(a.gaps, len(a.gaps)/auditSpans+1) {
		spans = append(spans, taskstate.Span{First: some[0].First, Last: some[len(some)-1].Last})
	}
	calls, err := a.d.DB.CallNumbers(ctx, spans, math.MaxInt32)
	if err != nil {
		return nil, looked, err
	}
	var left []gap
	i := 0
	for _, g := range a.gaps {
		for ; i < len(calls) && calls[i] <= g.Last; i++ {
			if no := calls[i]; no >= g.First {
				out = append(out, no)
				if no > g.First {
					left = append(left, gap{taskstate.Span{First: g.First, Last: no - 1}, g.at})
				}
				g.First = no + 1
			}
		}
		if g.First <= g.Last {
			left = append(left, g)
		}
	}
	a.gaps = left
	return out, moment.Now, nil
}

// age notes when the calls behind new gaps were written, and forgets gaps that were old before they were looked at last.
func (a *auditor) age(changes []taskstate.Transition, looked time.Time) {
	written := map[int64]time.Time{}
	for _, c := range changes {
		written[c.ID] = c.CreatedAt
	}
	for i := range a.gaps {
		if g := &a.gaps[i]; g.at.IsZero() {
			g.at = looked
			if at, known := written[g.Last+1]; known {
				g.at = at
			}
		}
	}
	a.gaps = slices.DeleteFunc(a.gaps, func(g gap) bool { return looked.Sub(g.at) > gapTime })
}

// append appends changes.
func (a *auditor) append(ctx context.Context, from int64, changes []taskstate.Transition) error {
	for some := range slices.Chunk(changes, auditBatch) {
		messages := make([]amqp.Publishing, len(some))
		for i, t := range some {
			body, err := json.Marshal(change{t.TaskID, wire.TransitionOf(t)})
			if err != nil {
				return err
			}
			messages[i] = amqp.Publishing{
				MessageId: fmt.Sprintf("%d.%s", t.ID, t.TaskID), Type: changeType, Timestamp: t.CreatedAt, ContentType: contentType,
				DeliveryMode: amqp.Persistent, Headers: amqp.Table{"taskId": t.TaskID, fromHeader: from}, Body: body,
			}
		}
		if err := a.put(ctx, messages); err != nil {
			return err
		}
		crash.Point("mirror.after_append")
	}
	return nil
}

// put appends messages and waits for their confirms.
func (a *auditor) put(ctx context.Context, messages []amqp.Publishing) error {
	if reason := a.link.refuses(); reason != "" {
		return errors.New("RabbitMQ takes no messages: " + reason)
	}
	for _, one := range a.publish.send(ctx, messages) {
		if one.result != confirmed {
			return fmt.Errorf("%s: %s", one.result, one.reason)
		}
	}
	return nil
}

// last finds the last change in the audit stream, and what it says of those before it; nil: there is none. A mark is appended first: its
// offset says where the stream ends, which RabbitMQ does not say of a stream (measured on 3.10). Messages of others are passed over.
func (a *auditor) last(ctx context.Context) (from int64, last *change, err error) {
	mark := amqp.Publishing{MessageId: uuid.NewString(), Type: markType, Timestamp: a.d.Clock(), DeliveryMode: amqp.Persistent}
	if err := a.put(ctx, []amqp.Publishing{mark}); err != nil {
		return 0, nil, err
	}
	var end int64
	err = a.link.stream("last", func(d amqp.Delivery) bool {
		end, _ = d.Headers[offsetHeader].(int64)
		return d.MessageId == mark.MessageId
	})
	for back := int64(auditBatch); err == nil && last == nil && end > 0; back *= 10 {
		begin := max(0, end-back)
		err = a.link.stream(begin, func(d amqp.Delivery) bool {
			one := &change{}
			if no, ours := d.Headers[fromHeader].(int64); ours && d.Type == changeType && json.Unmarshal(d.Body, one) == nil {
				from, last = no, one
			}
			return d.MessageId == mark.MessageId
		})
		end = begin
	}
	return from, last, wrap("look for the end of the stream", err)
}

// stream reads the audit stream from an offset on until f returns true.
func (l *link) stream(offset any, f func(amqp.Delivery) bool) error {
	return l.once(func(ch *amqp.Channel) error {
		if err := ch.Qos(auditBatch, 0, false); err != nil {
			return err
		}
		in, err := ch.Consume(l.cfg.AuditStream, "", false, false, false, false, amqp.Table{offsetHeader: offset})
		if err != nil {
			return err
		}
		for d := range in {
			if f(d) {
				return nil
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		}
		return errors.New("the consumer was cancelled: the stream was removed, or the connection ended")
	})
}
