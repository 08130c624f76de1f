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
)

// ErrNoLetters says that the dead letter stream is off (INGEST_REDIS_DLQ_STREAM_KEY is empty).
var ErrNoLetters = errors.New("there is no dead letter stream: INGEST_REDIS_DLQ_STREAM_KEY is empty")

// Letters implements ingestq.DeadLetterReader on the dead letter stream.
type Letters struct {
	client rueidis.Client
	key    string
}

var _ ingestq.DeadLetterReader = (*Letters)(nil)

// NewLetters makes one on a client that the caller closes. ErrNoLetters when cfg names no stream.
func NewLetters(client rueidis.Client, cfg Config) (*Letters, error) {
	if cfg.DLQKey == "" {
		return nil, ErrNoLetters
	}
	return &Letters{client, cfg.DLQKey}, nil
}

// List implements ingestq.DeadLetterReader.
func (l *Letters) List(ctx context.Context, after ingestq.LetterPlace, n int) ([]ingestq.StoredLetter, error) {
	end := "+"
	if after.ID != "" {
		end = "(" + after.ID
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := l.client.Do(call, l.client.B().Xrevrange().Key(l.key).End(end).Start("-").Count(int64(n)).Build()).AsXRange()
	if err != nil {
		return nil, failure(ctx, "read dead letters of "+l.key, err)
	}
	out := make([]ingestq.StoredLetter, len(rows))
	for i, e := range rows {
		out[i] = decodeLetter(e)
	}
	return out, nil
}

// Letter implements ingestq.DeadLetterReader.
func (l *Letters) Letter(ctx context.Context, id string) (letter ingestq.StoredLetter, found bool, err error) {
	if _, ok := parseID(id); !ok {
		return letter, false, nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := l.client.Do(call, l.client.B().Xrange().Key(l.key).Start(id).End(id).Build()).AsXRange()
	if err != nil || len(rows) == 0 {
		return letter, false, failure(ctx, "read dead letter "+id, err)
	}
	return decodeLetter(rows[0]), true, nil
}

// Drop implements ingestq.DeadLetterReader.
func (l *Letters) Drop(ctx context.Context, ids ...string) (int64, error) {
	var total int64
	for _, batch := range idBatches(ids) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		n, err := l.client.Do(call, l.client.B().Xdel().Key(l.key).Id(batch...).Build()).AsInt64()
		cancel()
		if err != nil {
			return total, failure(ctx, "drop dead letters of "+l.key, err)
		}
		total += n
	}
	return total, nil
}

// Length implements ingestq.DeadLetterReader.
func (l *Letters) Length(ctx context.Context) (int64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := l.client.Do(call, l.client.B().Xlen().Key(l.key).Build()).AsInt64()
	return n, failure(ctx, "count dead letters of "+l.key, err)
}

// decodeLetter reads what it can: a letter without a fence is a delivery as it came (see rawLetter).
func decodeLetter(e rueidis.XRangeEntry) ingestq.StoredLetter {
	f := e.FieldValues
	out := ingestq.StoredLetter{ID: e.ID, SourceStream: f["sourceStream"], SourceGroup: f["sourceGroup"]}
	out.SourceRecordID, out.LastError = f["sourceRecordId"], f["lastError"]
	var err error
	if out.FailedAt, err = time.Parse(time.RFC3339Nano, f["failedAt"]); err != nil {
		id, _ := parseID(e.ID)
		out.FailedAt = id.time()
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

// rawFields takes away what rawLetter added.
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
