package core

import (
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

const (
	// ClaimSuffix ends the name under which a single stream's member claims.
	ClaimSuffix = "-claims"
	RegistryKey = "streaming:mq:topics:registry" // SET of topic names
	// bornKey is a STRING made with the first topic: who knows a topic that is gone tells by it a server that was flushed,
	// where the topic is made again, from a topic that was deleted. No TTL.
	bornKey  = "streaming:mq:topics:born"
	MqPrefix = "streaming:mq:"
)

// Source is one stream that is consumed: a partition of a topic, or a single stream whose key its user gave.
type Source struct {
	Layout model.Layout
	Topic  string // the single stream's key for a single stream
	Part   int
	Single bool
}

// MetaKey is a HASH: partitionCount, layout, createdAt. No TTL.
func MetaKey(topic string) string { return MqPrefix + "topic:" + topic + ":meta" }

// PartitionsKey is a SET of the partitions' stream keys, for readers that know no meta. No TTL.
func PartitionsKey(topic string) string { return MqPrefix + "topic:" + topic + ":partitions" }

// ReplyKey is a STREAM of the replies to one requester; it renews its TTL, RequesterConfig.TTL. It lies in a slot of its own.
func ReplyKey(requester string) string { return MqPrefix + "reply:" + requester }

// Stream is the STREAM of entries: the same in both layouts, and the hash tag of all that scripts touch with it.
func (s Source) Stream() string {
	if s.Single {
		return s.Topic
	}
	return "stream:topic:" + s.Topic + ":p:" + strconv.Itoa(s.Part)
}

// tagged is a key in the slot of the stream.
func (s Source) tagged(rest string) string { return Beside(s.Stream(), rest) }

// Beside is a key in the slot of another one, whose own hash tag, if it has one, is kept.
func Beside(key, rest string) string {
	if strings.Contains(key, "{") {
		return key + ":" + rest
	}
	return "{" + key + "}:" + rest
}

// Written is a ZSET of the dead letters that a stream of dead letters in a slot of its own was given, with their time in ms: a
// repeat of the first of two steps writes nothing new. Old ones are removed as new ones come.
func Written(letters string) string { return Beside(letters, "written") }

// Apart tells whether keys are named after the stream: on a cluster, and for streams that their users named.
func (s Source) Apart() bool { return s.Single || s.Layout == model.LayoutCluster }

// name is the key of one thing per partition, and per group if that is not empty.
func (s Source) name(what, group string) string {
	if s.Apart() {
		if group == "" {
			return s.tagged(what)
		}
		return s.tagged(what + ":" + group)
	}
	if group == "" {
		return MqPrefix + what + ":" + s.Topic + ":" + strconv.Itoa(s.Part)
	}
	return MqPrefix + what + ":" + s.Topic + ":" + group + ":" + strconv.Itoa(s.Part)
}

// Members is a HASH member → "expiry in ms by Redis' clock|cap|pinned partitions" of a group: one for all partitions of a topic.
// No TTL; members remove the dead.
func (s Source) Members(group string) string {
	if s.Single {
		return s.tagged("members:" + group)
	}
	return MqPrefix + "members:" + s.Topic + ":" + group
}

// Lease is a STRING, the name of the member that owns the source in the group; TTL GroupConfig.Lease.
func (s Source) Lease(group string) string { return s.name("lease", group) }

// Epoch is a STRING, the number of the lease's last taking. It has no TTL: it must outlive every lease.
func (s Source) Epoch(group string) string {
	return s.Lease(group) + ":epoch"
}

// Due is a ZSET, id of a pending entry → when it is to be retried in place, in ms by Redis' clock. No TTL.
func (s Source) Due(group string) string { return s.name("due", group) }

// Attempts is a HASH, id of a pending entry → its failed attempts in place. No TTL; reconciling removes the field.
func (s Source) Attempts(group string) string { return s.name("attempts", group) }

// Retry is a ZSET, retry item → when it is due, in ms by Redis' clock. No TTL. On one Redis the items of a topic have the
// whole key of their hash for a name, elsewhere its end.
func (s Source) Retry() string {
	if s.Apart() {
		return s.tagged("retry")
	}
	return MqPrefix + "retry:" + s.Topic
}

// Item is a HASH: the fields of a message that waits for its next attempt, and dueAt. No TTL; the mover removes it.
// The name may be the key itself.
func (s Source) Item(name string) string {
	switch {
	case s.Apart():
		return s.tagged("item:" + name)
	case strings.HasPrefix(name, itemPrefix):
		return name
	}
	return s.Items() + name
}

const itemPrefix = MqPrefix + "retry:item:"

// Items is what the keys of a topic's items begin with, where their names are keys; "" elsewhere.
func (s Source) Items() string {
	if s.Apart() {
		return ""
	}
	return itemPrefix + s.Topic + ":"
}

// Quarantine is a ZSET, retry item → when it was found malformed, in ms. No TTL: a person looks at it. Items of ours have the
// ends of their keys for names.
func (s Source) Quarantine() string { return s.Retry() + ":malformed" }

// ItemName names a retry item; the group and the partition make it unique in its topic.
func (s Source) ItemName(group, entry string) string {
	return s.Items() + group + ":" + strconv.Itoa(s.Part) + ":" + entry
}

// Dlq is a STREAM of dead letters. No TTL.
func (s Source) Dlq() string {
	switch {
	case s.Layout == model.LayoutCluster:
		return s.tagged("dlq")
	case s.Single:
		return s.Topic + ":dlq"
	default:
		return "stream:topic:" + s.Topic + ":dlq"
	}
}

// Replayed is a HASH, id of a dead letter → id of the entry that its replay added. No TTL; deleting the dead letter removes it.
func (s Source) Replayed() string { return s.Dlq() + ":replayed" }

// OwnDeadLetters is a STREAM of a topic's dead letters that programs in Java do not read, on one Redis; see Config.Letters. Its ids
// begin with the sequence of firstOwnDeadLetter. No TTL.
func (s Source) OwnDeadLetters() string { return MqPrefix + "letters:" + s.Topic }

// OwnReplayed is what replayed is, for ownDeadLetters.
func (s Source) OwnReplayed() string { return s.OwnDeadLetters() + ":replayed" }

// LetterKeys are the streams of dead letters of a source with their marks.
func (s Source) LetterKeys() [][2]string {
	keys := [][2]string{{s.Dlq(), s.Replayed()}}
	if !s.Apart() {
		keys = append(keys, [2]string{s.OwnDeadLetters(), s.OwnReplayed()})
	}
	return keys
}

// Commit is a HASH group → id of its last acknowledged entry, of the Java original, in the codec of its client.
func (s Source) Commit() string {
	return MqPrefix + "commit:" + s.Topic + ":p:" + strconv.Itoa(s.Part)
}

// JavaPayloads is a SET of the keys of large payloads of the Java original's producers; javaPayloadTimes is a ZSET of those of all
// topics, with the time in ms. No TTL.
func (s Source) JavaPayloads() string { return MqPrefix + "payload:idx:" + s.Topic }

const JavaPayloadTimes = MqPrefix + "payload:ts"

// Body is a STRING, a payload too large for the stream. No TTL; retention removes it when all groups are done.
func (s Source) Body(uuid string) string { return s.name("body", "") + ":" + uuid }

// Bodies is a ZSET, uuid of a payload beside the stream → time part of its entry's id. No TTL.
func (s Source) Bodies() string { return s.name("bodies", "") }

// GroupKeys are what a group has in the slot of the stream, as the scripts want them.
func (s Source) GroupKeys(group string) []string {
	return []string{s.Stream(), s.Lease(group), s.Epoch(group), s.Due(group), s.Attempts(group)}
}
