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
	pb "github.com/millweir/millweir/proto"
)

// maxRawFields is the most fields that a dead letter keeps one by one: a Lua call takes some thousand arguments.
const maxRawFields = 1000

// Requeue implements ingestq.Consumer.
func (q *Queue) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	var calls []scriptCall
	var bad []error
	for _, c := range copies {
		fields, err := q.codec.Encode(c.Envelope)
		if err != nil {
			bad = append(bad, fmt.Errorf("copy delivery %s of task %q: %w", c.ID, c.Envelope.GetTaskId(), err))
			continue
		}
		if _, ok := parseID(c.ID); ok {
			args := appendFields([]string{q.cfg.Group, c.ID}, fields)
			calls = append(calls, scriptCall{[]string{q.cfg.StreamKey}, args})
		}
	}
	copied := 0
	err := q.healing(ctx, func() error {
		results := q.runAll(ctx, requeueScript, calls)
		for _, r := range results {
			if id, err := r.ToString(); err == nil && id != "" {
				copied++
			}
		}
		return firstError(results)
	})
	err = failure(ctx, fmt.Sprintf("copy %d deliveries", len(copies)), err)
	return copied, errors.Join(append(bad, err)...)
}

// Quarantine implements ingestq.Consumer. Without a dead letter stream the delivery is acknowledged, counted and logged.
func (q *Queue) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	if _, ok := parseID(d.ID); !ok {
		return nil
	}
	if q.cfg.DLQKey == "" {
		q.metrics.dropped.Inc()
		q.log.WarnContext(ctx, "redisq: undecodable delivery dropped, there is no dead letter stream",
			slog.String("delivery", d.ID), slog.Any("error", d.Err))
		return q.Ack(ctx, d.ID)
	}
	call := scriptCall{
		keys: []string{q.cfg.StreamKey, q.cfg.DLQKey},
		args: appendFields([]string{q.cfg.Group, d.ID}, q.rawLetter(d)),
	}
	var id string
	err := q.healing(ctx, func() (err error) {
		id, err = q.runAll(ctx, quarantineScript, []scriptCall{call})[0].ToString()
		return err
	})
	if err == nil && id != "" {
		q.metrics.letters.Inc()
	}
	return failure(ctx, "quarantine delivery "+d.ID, err)
}

// rawLetter has where the delivery came from, why it is here, and its fields as they came
// (one that has a name of ours gets "raw." in front).
func (q *Queue) rawLetter(d ingestq.Delivery) []pb.Field {
	cause := "undecodable"
	if d.Err != nil {
		cause = d.Err.Error()
	}
	letter := []pb.Field{
		{Name: "sourceStream", Value: q.cfg.StreamKey}, {Name: "sourceGroup", Value: q.cfg.Group},
		{Name: "sourceRecordId", Value: d.ID}, {Name: "lastError", Value: cause},
		{Name: "failedAt", Value: instant(q.now())},
	}
	ours := map[string]bool{"fence": true, "attemptCount": true}
	for _, f := range letter {
		ours[f.Name] = true
	}
	if len(d.Raw) > maxRawFields {
		b, _ := json.Marshal(d.Raw) // a map of strings always marshals
		return append(letter, pb.Field{Name: "raw", Value: string(b)})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Raw)) {
		value := d.Raw[name]
		if ours[name] {
			name = "raw." + name
		}
		letter = append(letter, pb.Field{Name: name, Value: value})
	}
	return letter
}

// DeadLetters implements ingestq.Consumer.
func (q *Queue) DeadLetters(ctx context.Context, letters []ingestq.DeadLetter) error {
	if q.cfg.DLQKey == "" {
		return nil
	}
	for batch := range slices.Chunk(letters, pipelineLength) {
		if err := q.deadLetterBatch(ctx, batch); err != nil {
			return failure(ctx, fmt.Sprintf("write %d dead letters to %s", len(letters), q.cfg.DLQKey), err)
		}
	}
	return nil
}

func (q *Queue) deadLetterBatch(ctx context.Context, letters []ingestq.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	commands := make(rueidis.Commands, len(letters))
	for i, l := range letters {
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
			q.metrics.letters.Inc()
		}
	}
	return firstError(results)
}

func appendFields(args []string, fields []pb.Field) []string {
	for _, f := range fields {
		args = append(args, f.Name, f.Value)
	}
	return args
}

// instant is RFC 3339 in UTC with microseconds, as everywhere in the contract.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
