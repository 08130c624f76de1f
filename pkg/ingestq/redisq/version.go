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
	version, err = infoField(call, client, "server", "redis_version")
	if err != nil {
		return "", "", failure(ctx, "ask for the server's version", err)
	}
	return "Redis", version, nil
}

// infoField is a field of a section of INFO; empty: the server does not name it.
func infoField(ctx context.Context, client rueidis.Client, section, field string) (string, error) {
	text, err := client.Do(ctx, client.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			return value, nil
		}
	}
	return "", nil
}
