package redisq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
)

// failure is ingestq.Failure; a time-out and a redirection, which a client of a cluster follows, say what they mean.
func failure(ctx context.Context, doing string, err error) error {
	switch {
	case ctx.Err() != nil || errors.Is(err, ingestq.ErrUnavailable):
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: no answer in time", ingestq.ErrUnavailable)
	case isRedirect(err):
		err = fmt.Errorf("%w: %w", ingestq.ErrUnavailable, ErrCluster)
	}
	return ingestq.Failure(ctx, doing, err)
}

// isMissing tells that the stream or the group is not there: NOGROUP, or on 7.0 a blocked reader's UNBLOCKED.
func isMissing(err error) bool {
	if _, ok := rueidis.IsRedisErr(err); !ok {
		return false
	}
	for _, sign := range []string{"NOGROUP", "no such key", "requires the key to exist", "UNBLOCKED"} {
		if strings.Contains(err.Error(), sign) {
			return true
		}
	}
	return false
}

func isRedirect(err error) bool {
	redis, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	if _, moved := redis.IsMoved(); moved {
		return true
	}
	_, ask := redis.IsAsk()
	return ask
}

// firstError is the first real error of a pipeline; a nil answer is none.
func firstError(results []rueidis.RedisResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
	}
	return nil
}
