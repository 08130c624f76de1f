package streammq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// failure says what was being done, and wraps the caller's own ctx error if there is one, ErrEntryID for an id that the server
// cannot read, else ErrFull or ErrUnavailable.
func failure(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case isRedisError(err, "Invalid stream ID"):
		return fmt.Errorf("%s: %w: %w", doing, ErrEntryID, err)
	case isRedisError(err, "OOM "):
		return fmt.Errorf("%s: %w: %w", doing, ErrFull, err)
	default:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
}

// isPassing tells that trying again later may help.
func isPassing(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) }

// isMissing tells that the stream or the group is not there: NOGROUP, or on 7.0 a blocked reader's UNBLOCKED.
func isMissing(err error) bool {
	return isRedisError(err, "NOGROUP", "no such key", "requires the key to exist", "UNBLOCKED")
}

func isRedisError(err error, signs ...string) bool {
	redis, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	for _, sign := range signs {
		if strings.Contains(redis.Error(), sign) {
			return true
		}
	}
	return false
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
