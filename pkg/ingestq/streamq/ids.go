package streamq

import (
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/streammq"
)

// single is the place of the stream of INGEST_STREAM_PARTITIONS=1 among the parts.
const single = -1

// idOf is a delivery's id: at most 19 characters and the digits of a sequence number, so that it fits into the row's column.
func idOf(partition int, entry string) string {
	if partition == single {
		return entry
	}
	return strconv.Itoa(partition) + ":" + entry
}

// splitID is the opposite of idOf. What has no partition in front is an entry of the single stream, or no id at all, which
// redisq finds out.
func splitID(id string) (partition int, entry string, ok bool) {
	left, right, found := strings.Cut(id, ":")
	if !found {
		return single, id, true
	}
	n, err := strconv.Atoi(left)
	if err != nil || n < 0 || n >= streammq.MaxPartitions || strconv.Itoa(n) != left {
		return 0, "", false
	}
	return n, right, true
}

// byPart groups ids by their part, in their order.
func byPart(ids []string) map[int][]string {
	groups := map[int][]string{}
	for _, id := range ids {
		if partition, entry, ok := splitID(id); ok {
			groups[partition] = append(groups[partition], entry)
		}
	}
	return groups
}
