package redisq

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// Keeps answers what Redis keeps of the deliveries that it has taken: disk (everything), 1s (a power failure loses about
// the last second), os (a power failure loses what the kernel had not written yet), none (memory, at most snapshots), or
// unknown (the server does not say). No promise depends on it: deliveries are made again from the table.
// Errors: ingestq.ErrUnavailable.
func Keeps(ctx context.Context, client rueidis.Client, rawURL string) (string, error) {
	if a, err := parseURL(rawURL); err == nil && a.embedded {
		return "none", nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config, err := client.Do(call, client.B().ConfigGet().Parameter("append*").Build()).AsStrMap()
	if _, refused := rueidis.IsRedisErr(err); refused {
		return "unknown", nil // managed servers hide their configuration
	}
	if err != nil {
		return "", failure(ctx, "read the configuration", err)
	}
	return keeps(config["appendonly"], config["appendfsync"]), nil
}

// keeps reads the two settings of the append-only file.
func keeps(appendOnly, fsync string) string {
	switch {
	case appendOnly == "no":
		return "none"
	case fsync == "always":
		return "disk"
	case fsync == "everysec":
		return "1s"
	case fsync == "no":
		return "os"
	}
	return fmt.Sprintf("unknown (appendonly=%q appendfsync=%q)", appendOnly, fsync)
}
