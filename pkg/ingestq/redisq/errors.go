package redisq

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/redisclient"
)

// failure is ingestq.Failure; a time-out and a redirection, which a client of a cluster follows, say what they mean.
func failure(ctx context.Context, doing string, err error) error {
	switch {
	case ctx.Err() != nil || errors.Is(err, ingestq.ErrUnavailable):
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: no answer in time", ingestq.ErrUnavailable)
	case isRedirect(err):
		err = fmt.Errorf("%w: %w", ingestq.ErrUnavailable, redisclient.ErrCluster)
	}
	return ingestq.Failure(ctx, doing, err)
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
