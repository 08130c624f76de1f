package redisq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

// maxRawFields is the most fields that a dead letter keeps one by one: a Lua call takes some thousand arguments.
const maxRawFields = 1000

// Requeue implements ingestq.Consumer.
func (q *Queue) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	var calls []stream.Call
	var bad []error
	for _, c := range copies {
		fields, err := q.codec.Encode(c.Envelope)
		if err != nil {
			bad = append(bad, fmt.Errorf("copy delivery %s of task %q: %w", c.ID, c.Envelope.GetTaskId(), err))
			continue
		}
		if _, ok := stream.ParseID(c.ID); ok {
			calls = append(calls, q.move(q.cfg.StreamKey, c.ID, fields))
		}
	}
	copied := 0
	err := q.healing(ctx, func() error {
		results := q.runAll(ctx, calls)
		for _, r := range results {
			if moved, err := r.AsBool(); err == nil && moved {
				copied++
			}
		}
		return stream.FirstError(results)
	})
	err = failure(ctx, fmt.Sprintf("copy %d deliveries", len(copies)), err)
	return copied, errors.Join(append(bad, err)...)
}

// Quarantine implements ingestq.Consumer. Without a dead letter stream the delivery is acknowledged, counted and logged.
func (q *Queue) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	if _, ok := stream.ParseID(d.ID); !ok {
		return nil
	}
	if q.cfg.DLQKey == "" {
		q.metrics.dropped.Inc()
		q.log.WarnContext(ctx, "redisq: undecodable delivery dropped, there is no dead letter stream",
			slog.String("delivery", d.ID), slog.Any("error", d.Err))
		return q.Ack(ctx, d.ID)
	}
	err := q.healing(ctx, func() error {
		if isCluster(q.client) {
			return q.quarantineFar(ctx, d)
		}
		return q.quarantineHere(ctx, d)
	})
	return failure(ctx, "quarantine delivery "+d.ID, err)
}

// move is the call that adds an entry to a stream in place of a delivery, whoever has it.
func (q *Queue) move(to, id string, fields []pb.Field) stream.Call {
	return stream.Call{
		Script: stream.Loaded().Move, Keys: []string{q.cfg.StreamKey, to}, Args: appendFields([]string{"", q.cfg.Group, "", id, "", ""}, fields),
	}
}

// quarantineHere moves a delivery in one step.
func (q *Queue) quarantineHere(ctx context.Context, d ingestq.Delivery) error {
	moved, err := q.runAll(ctx, []stream.Call{q.move(q.cfg.DLQKey, d.ID, q.rawDeadLetter(d))})[0].AsBool()
	if moved {
		q.metrics.deadLetters.Inc()
	}
	return err
}

// quarantineFar moves a delivery of a cluster, where the dead letter stream lies in another slot: first the dead letter, once for
// each delivery however often this is repeated, then the acknowledgement. A crash between the two leaves the delivery
// pending, and who settles it quarantines it again. Should somebody else settle it in this very moment, its dead letter stays.
func (q *Queue) quarantineFar(ctx context.Context, d ingestq.Delivery) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held := q.client.B().Xpending().Key(q.cfg.StreamKey).Group(q.cfg.Group).Start(d.ID).End(d.ID).Count(1).Build()
	if pending, err := q.client.Do(call, held).ToArray(); err != nil || len(pending) == 0 {
		return err
	}
	added, err := q.scripts.AddLetter(call, stream.Loaded().LetterAdd, q.cfg.DLQKey, writtenKey(q.cfg.DLQKey),
		stream.EntryName(q.cfg.StreamKey, q.cfg.Group, d.ID), appendFields(nil, q.rawDeadLetter(d)))
	if err != nil {
		return err
	}
	if added {
		q.metrics.deadLetters.Inc()
	}
	return q.Ack(ctx, d.ID)
}

// rawDeadLetter has where the delivery came from, why it is here, and its fields as they came
// (one that has a name of ours gets "raw." in front).
func (q *Queue) rawDeadLetter(d ingestq.Delivery) []pb.Field {
	cause := "undecodable"
	if d.Err != nil {
		cause = d.Err.Error()
	}
	deadLetter := []pb.Field{
		{Name: "sourceStream", Value: q.cfg.StreamKey}, {Name: "sourceGroup", Value: q.cfg.Group},
		{Name: "sourceRecordId", Value: d.ID}, {Name: "lastError", Value: cause},
		{Name: "failedAt", Value: instant(q.now())},
	}
	ours := map[string]bool{"fence": true, "attemptCount": true}
	for _, f := range deadLetter {
		ours[f.Name] = true
	}
	if len(d.Raw) > maxRawFields {
		b, _ := json.Marshal(d.Raw) // a map of strings always marshals
		return append(deadLetter, pb.Field{Name: "raw", Value: string(b)})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Raw)) {
		value := d.Raw[name]
		if ours[name] {
			name = "raw." + name
		}
		deadLetter = append(deadLetter, pb.Field{Name: name, Value: value})
	}
	return deadLetter
}

// DeadLetters implements ingestq.Consumer.
func (q *Queue) DeadLetters(ctx context.Context, deadLetters []ingestq.DeadLetter) error {
	if q.cfg.DLQKey == "" {
		return nil
	}
	for batch := range slices.Chunk(deadLetters, pipelineLength) {
		if err := q.deadLetterBatch(ctx, batch); err != nil {
			return failure(ctx, fmt.Sprintf("write %d dead letters to %s", len(deadLetters), q.cfg.DLQKey), err)
		}
	}
	return nil
}

func (q *Queue) deadLetterBatch(ctx context.Context, deadLetters []ingestq.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	commands := make(rueidis.Commands, len(deadLetters))
	for i, l := range deadLetters {
		commands[i] = q.add(q.cfg.DLQKey, []pb.Field{
			{Name: "taskId", Value: l.TaskID}, {Name: "fence", Value: strconv.FormatInt(l.Fence, 10)},
			{Name: "sourceStream", Value: q.cfg.StreamKey}, {Name: "sourceGroup", Value: q.cfg.Group},
			{Name: "sourceRecordId", Value: l.SourceRecordID}, {Name: "lastError", Value: l.LastError},
			{Name: "attemptCount", Value: strconv.Itoa(l.AttemptCount)}, {Name: "failedAt", Value: instant(l.FailedAt)},
		})
	}
	results := q.client.DoMulti(ctx, commands...)
	for _, r := range results {
		if r.Error() == nil {
			q.metrics.deadLetters.Inc()
		}
	}
	return stream.FirstError(results)
}

func appendFields(args []string, fields []pb.Field) []string {
	for _, f := range fields {
		args = append(args, f.Name, f.Value)
	}
	return args
}

// instant is RFC 3339 in UTC with microseconds, as everywhere in the contract.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
