package stream

import (
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// IsMissing tells that the stream or the group is not there: NOGROUP, or on 7.0 a blocked reader's UNBLOCKED.
func IsMissing(err error) bool {
	return IsError(err, "NOGROUP", "no such key", "requires the key to exist", "UNBLOCKED")
}

// IsError tells that the server refused a command in words that have one of the signs in them.
func IsError(err error, signs ...string) bool {
	redis, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(redis.Error(), sign) })
}

// FirstError is the first real error of a pipeline; nil of the server is none.
func FirstError(results []rueidis.RedisResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
	}
	return nil
}

// Text is a text of the server's; "" for anything else.
func Text(m rueidis.RedisMessage) string {
	s, _ := m.ToString()
	return s
}

// Number is a number of the server's, or otherwise.
func Number(m rueidis.RedisMessage, otherwise int64) int64 {
	n, err := m.AsInt64()
	if err != nil {
		return otherwise
	}
	return n
}
