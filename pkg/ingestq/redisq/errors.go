package redisq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
)

// failure says what was being done, and wraps the caller's own ctx error if there is one, else ingestq.ErrUnavailable.
func failure(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case errors.Is(err, ingestq.ErrUnavailable):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w: no answer in time", doing, ingestq.ErrUnavailable)
	case isRedirect(err):
		return fmt.Errorf("%s: %w: %w", doing, ingestq.ErrUnavailable, ErrCluster)
	default:
		return fmt.Errorf("%s: %w: %w", doing, ingestq.ErrUnavailable, err)
	}
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
	if _, moved := redis.IsMoved(); moved || strings.HasPrefix(redis.Error(), "CLUSTERDOWN") {
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
