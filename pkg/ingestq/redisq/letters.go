package redisq

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// ErrNoDeadLetters says that the dead letter stream is off (INGEST_REDIS_DLQ_STREAM_KEY is empty).
var ErrNoDeadLetters = errors.New("there is no dead letter stream: INGEST_REDIS_DLQ_STREAM_KEY is empty")

// DeadLetters implements ingestq.DeadLetterReader on the dead letter stream.
type DeadLetters struct {
	client rueidis.Client
	key    string
}

var _ ingestq.DeadLetterReader = (*DeadLetters)(nil)

// NewDeadLetters makes one on a client that the caller closes. ErrNoDeadLetters when cfg names no stream.
func NewDeadLetters(client rueidis.Client, cfg Config) (*DeadLetters, error) {
	if cfg.DLQKey == "" {
		return nil, ErrNoDeadLetters
	}
	return &DeadLetters{client, cfg.DLQKey}, nil
}

// List implements ingestq.DeadLetterReader.
func (l *DeadLetters) List(ctx context.Context, after ingestq.DeadLetterPlace, n int) ([]ingestq.StoredDeadLetter, error) {
	end := "+"
	if after.ID != "" {
		end = "(" + after.ID
	}
	rows, err := do(ctx, l.client, l.client.B().Xrevrange().Key(l.key).End(end).Start("-").Count(int64(n)).Build()).AsXRange()
	if err != nil {
		return nil, failure(ctx, "read dead letters of "+l.key, err)
	}
	out := make([]ingestq.StoredDeadLetter, len(rows))
	for i, e := range rows {
		out[i] = decodeDeadLetter(e)
	}
	return out, nil
}

// DeadLetter implements ingestq.DeadLetterReader.
func (l *DeadLetters) DeadLetter(ctx context.Context, id string) (deadLetter ingestq.StoredDeadLetter, found bool, err error) {
	if _, ok := stream.ParseID(id); !ok {
		return deadLetter, false, nil
	}
	rows, err := do(ctx, l.client, l.client.B().Xrange().Key(l.key).Start(id).End(id).Build()).AsXRange()
	if err != nil || len(rows) == 0 {
		return deadLetter, false, failure(ctx, "read dead letter "+id, err)
	}
	return decodeDeadLetter(rows[0]), true, nil
}

// Drop implements ingestq.DeadLetterReader.
func (l *DeadLetters) Drop(ctx context.Context, ids ...string) (int64, error) {
	var total int64
	for _, batch := range idBatches(ids) {
		n, err := do(ctx, l.client, l.client.B().Xdel().Key(l.key).Id(batch...).Build()).AsInt64()
		if err != nil {
			return total, failure(ctx, "drop dead letters of "+l.key, err)
		}
		total += n
	}
	return total, nil
}

// Length implements ingestq.DeadLetterReader.
func (l *DeadLetters) Length(ctx context.Context) (int64, error) {
	n, err := do(ctx, l.client, l.client.B().Xlen().Key(l.key).Build()).AsInt64()
	return n, failure(ctx, "count dead letters of "+l.key, err)
}

// decodeDeadLetter reads what it can: a dead letter without a fence is a delivery as it came (see rawDeadLetter).
func decodeDeadLetter(e rueidis.XRangeEntry) ingestq.StoredDeadLetter {
	f := e.FieldValues
	out := ingestq.StoredDeadLetter{ID: e.ID, SourceStream: f["sourceStream"], SourceGroup: f["sourceGroup"]}
	out.SourceRecordID, out.LastError = f["sourceRecordId"], f["lastError"]
	var err error
	if out.FailedAt, err = time.Parse(time.RFC3339Nano, f["failedAt"]); err != nil {
		id, _ := stream.ParseID(e.ID)
		out.FailedAt = id.Time()
	}
	fence, err := strconv.ParseInt(f["fence"], 10, 64)
	if err != nil || f["taskId"] == "" {
		out.Raw = rawFields(f)
		return out
	}
	out.TaskID, out.Fence = f["taskId"], fence
	out.AttemptCount, _ = strconv.Atoi(f["attemptCount"])
	return out
}

// rawFields takes away what rawDeadLetter added.
func rawFields(f map[string]string) map[string]string {
	ours := map[string]bool{"sourceStream": true, "sourceGroup": true, "sourceRecordId": true, "lastError": true, "failedAt": true}
	raw := make(map[string]string, len(f))
	for name, value := range f {
		if !ours[name] {
			raw[strings.TrimPrefix(name, "raw.")] = value
		}
	}
	if many := map[string]string{}; len(raw) == 1 && json.Unmarshal([]byte(raw["raw"]), &many) == nil {
		return many
	}
	return raw
}
