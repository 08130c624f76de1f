package redisq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Watermark implements ingestq.Consumer.
func (q *Queue) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	return ask(ctx, q, "horizon of "+q.cfg.StreamKey, q.readWatermark)
}

func (q *Queue) readWatermark(ctx context.Context) (h ingestq.Watermark, err error) {
	answer, err := q.scripts.Run(ctx, stream.Loaded().Read, []string{q.cfg.StreamKey}, q.cfg.Group).ToArray()
	if err != nil {
		return h, err
	}
	if len(answer) != 4 {
		return h, fmt.Errorf("%w: %d parts", stream.ErrAnswer, len(answer))
	}
	seconds, err1 := strconv.ParseInt(stream.Text(answer[0]), 10, 64)
	micros, err2 := strconv.ParseInt(stream.Text(answer[1]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return h, fmt.Errorf("%w: %w", stream.ErrAnswer, err)
	}
	h.Now = time.Unix(seconds, micros*int64(time.Microsecond)).UTC()
	if first := stream.Text(answer[2]); first != "" {
		id, ok := stream.ParseID(first)
		if !ok {
			return h, fmt.Errorf("%w: entry id %q", stream.ErrAnswer, first)
		}
		h.At = id.Time()
	}
	if stream.Number(answer[3], 0) == 1 {
		q.log.WarnContext(ctx, "redisq: the group stood beyond its stream's end and was moved back",
			slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group))
	}
	return h, nil
}

// Trim implements ingestq.Consumer.
func (q *Queue) Trim(ctx context.Context) (int64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	removed, _, err := q.scripts.Trim(call, stream.Loaded().Trim, q.cfg.StreamKey, stream.Keep{Finished: true}, false)
	if err != nil {
		return 0, failure(ctx, "trim "+q.cfg.StreamKey, err)
	}
	q.metrics.trimmed.WithLabelValues(q.cfg.StreamKey).Add(float64(removed))
	return int64(removed), nil
}
