package redisq

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/redisclient"
)

// Keeps returns what Redis keeps of the deliveries that it has taken: disk (everything), 1s (a power failure loses about
// the last second), os (a power failure loses what the kernel had not written yet), none (memory, at most snapshots), or
// unknown (the server does not say); of a cluster what can be said of all its nodes. No promise depends on it: deliveries
// are made again from the table. Errors: ingestq.ErrUnavailable.
func Keeps(ctx context.Context, client rueidis.Client, rawURL string) (string, error) {
	if redisclient.Embedded(rawURL) {
		return "none", nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := map[string]rueidis.Client{"": client}
	if isCluster(client) {
		nodes = client.Nodes()
	}
	least := ""
	for _, node := range nodes {
		one, err := keepsOne(call, node)
		if err != nil {
			return "", failure(ctx, "read the configuration", err)
		}
		if least == "" || keepsRank(one) < keepsRank(least) {
			least = one
		}
	}
	return least, nil
}

// keepsRank orders what can be said of all nodes, beginning with the least.
func keepsRank(level string) int {
	return slices.Index([]string{"none", "unknown", "os", "1s", "disk"}, strings.Fields(level)[0])
}

// keepsOne asks one server.
func keepsOne(ctx context.Context, client rueidis.Client) (string, error) {
	config, err := client.Do(ctx, client.B().ConfigGet().Parameter("append*").Build()).AsStrMap()
	if _, refused := rueidis.IsRedisErr(err); refused {
		return "unknown", nil // managed servers hide their configuration
	}
	if err != nil {
		return "", err
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
