package redisq

import (
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/redisclient"
)

// Version returns which server this is, and its version as INFO tells it: of a cluster that of one node. Valkey tells the Redis version
// that it is as good as beside its own. Errors: ingestq.ErrUnavailable.
func Version(ctx context.Context, client rueidis.Client, rawURL string) (product, version string, err error) {
	if redisclient.Embedded(rawURL) {
		return "Redis", "", nil // it is part of the program
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := client.Do(call, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "", "", failure(ctx, "ask for the server's version", err)
	}
	for line := range strings.Lines(text) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); found {
			return "Redis", v, nil
		}
	}
	return "Redis", "", nil
}
