package redisq

import (
	"strings"

	"github.com/redis/rueidis"
)

// isCluster tells whether keys must carry hash tags. What reads a stream by a client of a cluster and what reads it as one
// Redis would not see each other's heartbeats; the two cannot be mixed, since one Redis refuses redis-cluster:// and a
// cluster redirects redis://.
func isCluster(client rueidis.Client) bool { return client.Mode() == rueidis.ClientModeCluster }

// aliveKey is a string "1" that exists while the member lives; TTL Config.HeartbeatTTL, written anew every third of it.
// It begins with the stream's key, or what several streams have in common, so that it is found beside it and two groups or
// streams never share one. On a cluster it lies in the stream's slot, for scripts touch both: {stream}:alive:group:member.
func (q *Queue) aliveKey(consumer string) string {
	return q.beats + ":alive:" + q.cfg.Group + ":" + consumer
}

// writtenKey is a ZSET of the dead letters of undecodable deliveries that the dead letter stream was given, with their time in ms,
// on a cluster only: a repeat of the first of two steps writes nothing new. Old ones are removed as new ones come.
func writtenKey(dlq string) string { return tag(dlq) + ":written" }

// tag is what a key in the slot of another one begins with: that one's own hash tag is kept.
func tag(key string) string {
	if hasTag(key) {
		return key
	}
	return "{" + key + "}"
}

// hasTag tells whether a part in braces, and not the whole key, says the slot.
func hasTag(key string) bool {
	_, rest, open := strings.Cut(key, "{")
	inside, _, closed := strings.Cut(rest, "}")
	return open && closed && inside != ""
}

// taggable tells whether tag finds the slot: braces are a hash tag or there are none.
func taggable(key string) bool { return hasTag(key) || !strings.ContainsAny(key, "{}") }
