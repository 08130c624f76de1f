package streammq

import (
	"strconv"
	"strings"
)

const (
	// claimSuffix ends the name under which a single stream's member claims.
	claimSuffix = "-claims"
	registryKey = "streaming:mq:topics:registry" // SET of topic names
	// bornKey is a STRING made with the first topic: who knows a topic that is gone tells by it a server that was flushed,
	// where the topic is made again, from a topic that was deleted. No TTL.
	bornKey  = "streaming:mq:topics:born"
	mqPrefix = "streaming:mq:"
)

// source is one stream that is consumed: a partition of a topic, or a single stream whose key its user gave.
type source struct {
	layout Layout
	topic  string // the single stream's key for a single stream
	part   int
	single bool
}

// metaKey is a HASH: partitionCount, layout, createdAt. No TTL.
func metaKey(topic string) string { return mqPrefix + "topic:" + topic + ":meta" }

// partitionsKey is a SET of the partitions' stream keys, for readers that know no meta. No TTL.
func partitionsKey(topic string) string { return mqPrefix + "topic:" + topic + ":partitions" }

// replyKey is a STREAM of the replies to one requester; it renews its TTL, RequesterConfig.TTL. It lies in a slot of its own.
func replyKey(requester string) string { return mqPrefix + "reply:" + requester }

// stream is the STREAM of entries: the same in both layouts, and the hash tag of all that scripts touch with it.
func (s source) stream() string {
	if s.single {
		return s.topic
	}
	return "stream:topic:" + s.topic + ":p:" + strconv.Itoa(s.part)
}

// tagged is a key in the slot of the stream.
func (s source) tagged(rest string) string { return beside(s.stream(), rest) }

// beside is a key in the slot of another one, whose own hash tag, if it has one, is kept.
func beside(key, rest string) string {
	if strings.Contains(key, "{") {
		return key + ":" + rest
	}
	return "{" + key + "}:" + rest
}

// written is a ZSET of the dead letters that a stream of dead letters in a slot of its own was given, with their time in ms: a
// repeat of the first of two steps writes nothing new. Old ones are removed as new ones come.
func written(letters string) string { return beside(letters, "written") }

// apart tells whether keys are named after the stream: on a cluster, and for streams that their users named.
func (s source) apart() bool { return s.single || s.layout == LayoutCluster }

// name is the key of one thing per partition, and per group if that is not empty.
func (s source) name(what, group string) string {
	if s.apart() {
		if group == "" {
			return s.tagged(what)
		}
		return s.tagged(what + ":" + group)
	}
	if group == "" {
		return mqPrefix + what + ":" + s.topic + ":" + strconv.Itoa(s.part)
	}
	return mqPrefix + what + ":" + s.topic + ":" + group + ":" + strconv.Itoa(s.part)
}

// members is a HASH member → "expiry in ms by Redis' clock|cap|pinned partitions" of a group: one for all partitions of a topic.
// No TTL; members remove the dead.
func (s source) members(group string) string {
	if s.single {
		return s.tagged("members:" + group)
	}
	return mqPrefix + "members:" + s.topic + ":" + group
}

// lease is a STRING, the name of the member that owns the source in the group; TTL GroupConfig.Lease.
func (s source) lease(group string) string { return s.name("lease", group) }

// epoch is a STRING, the number of the lease's last taking. It has no TTL: it must outlive every lease.
func (s source) epoch(group string) string {
	return s.lease(group) + ":epoch"
}

// due is a ZSET, id of a pending entry → when it is to be retried in place, in ms by Redis' clock. No TTL.
func (s source) due(group string) string { return s.name("due", group) }

// attempts is a HASH, id of a pending entry → its failed attempts in place. No TTL; reconciling removes the field.
func (s source) attempts(group string) string { return s.name("attempts", group) }

// retry is a ZSET, retry item → when it is due, in ms by Redis' clock. No TTL. On one Redis the items of a topic have the
// whole key of their hash for a name, elsewhere its end.
func (s source) retry() string {
	if s.apart() {
		return s.tagged("retry")
	}
	return mqPrefix + "retry:" + s.topic
}

// item is a HASH: the fields of a message that waits for its next attempt, and dueAt. No TTL; the mover removes it.
// The name may be the key itself.
func (s source) item(name string) string {
	switch {
	case s.apart():
		return s.tagged("item:" + name)
	case strings.HasPrefix(name, itemPrefix):
		return name
	}
	return s.items() + name
}

const itemPrefix = mqPrefix + "retry:item:"

// items is what the keys of a topic's items begin with, where their names are keys; "" elsewhere.
func (s source) items() string {
	if s.apart() {
		return ""
	}
	return itemPrefix + s.topic + ":"
}

// quarantine is a ZSET, retry item → when it was found malformed, in ms. No TTL: a person looks at it. Items of ours have the
// ends of their keys for names.
func (s source) quarantine() string { return s.retry() + ":malformed" }

// itemName names a retry item; the group and the partition make it unique in its topic.
func (s source) itemName(group, entry string) string {
	return s.items() + group + ":" + strconv.Itoa(s.part) + ":" + entry
}

// dlq is a STREAM of dead letters. No TTL.
func (s source) dlq() string {
	switch {
	case s.layout == LayoutCluster:
		return s.tagged("dlq")
	case s.single:
		return s.topic + ":dlq"
	default:
		return "stream:topic:" + s.topic + ":dlq"
	}
}

// replayed is a HASH, id of a dead letter → id of the entry that its replay added. No TTL; deleting the dead letter removes it.
func (s source) replayed() string { return s.dlq() + ":replayed" }

// ownDeadLetters is a STREAM of a topic's dead letters that programs in Java do not read, on one Redis; see Config.Letters. Its ids
// begin with the sequence of firstOwnDeadLetter. No TTL.
func (s source) ownDeadLetters() string { return mqPrefix + "letters:" + s.topic }

// ownReplayed is what replayed is, for ownDeadLetters.
func (s source) ownReplayed() string { return s.ownDeadLetters() + ":replayed" }

// letterKeys are the streams of dead letters of a source with their marks.
func (s source) letterKeys() [][2]string {
	keys := [][2]string{{s.dlq(), s.replayed()}}
	if !s.apart() {
		keys = append(keys, [2]string{s.ownDeadLetters(), s.ownReplayed()})
	}
	return keys
}

// commit is a HASH group → id of its last acknowledged entry, of the Java original, in the codec of its client.
func (s source) commit() string {
	return mqPrefix + "commit:" + s.topic + ":p:" + strconv.Itoa(s.part)
}

// javaPayloads is a SET of the keys of large payloads of the Java original's producers; javaPayloadTimes is a ZSET of those of all
// topics, with the time in ms. No TTL.
func (s source) javaPayloads() string { return mqPrefix + "payload:idx:" + s.topic }

const javaPayloadTimes = mqPrefix + "payload:ts"

// body is a STRING, a payload too large for the stream. No TTL; retention removes it when all groups are done.
func (s source) body(uuid string) string { return s.name("body", "") + ":" + uuid }

// bodies is a ZSET, uuid of a payload beside the stream → time part of its entry's id. No TTL.
func (s source) bodies() string { return s.name("bodies", "") }

// groupKeys are what a group has in the slot of the stream, as the scripts want them.
func (s source) groupKeys(group string) []string {
	return []string{s.stream(), s.lease(group), s.epoch(group), s.due(group), s.attempts(group)}
}
