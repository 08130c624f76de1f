package views

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func Topic(t streammq.TopicInfo) wire.Topic {
	return wire.Topic{Name: t.Name, Partitions: t.Partitions, Layout: string(t.Layout), Status: t.Status, CreatedAt: wire.MaybeAt(t.Created), Deleting: t.Deleting}
}

func TopicStats(info streammq.TopicInfo, stream bool, s streammq.Stats) wire.TopicStats {
	v := wire.TopicStats{
		Topic: Topic(info), Kind: KindTopic, Entries: s.Entries, Retries: s.Retries, Malformed: s.Malformed, DeadLetters: s.Letters, Beside: s.Beside,
		Each: web.Each(s.Each, func(p streammq.PartitionCount) wire.PartitionStats {
			first, last := wire.NullText(p.FirstID), wire.NullText(p.LastID)
			return wire.PartitionStats{Partition: p.Partition, Entries: p.Entries, Beside: p.Beside, FirstID: first, LastID: last}
		}),
	}
	if stream {
		v.Kind = KindStream
	}
	return v
}

func Group(g streammq.GroupInfo) wire.Group { return wire.Group(g) }

func GroupStats(name string, parts []streammq.PartitionStats) wire.GroupStats {
	v := wire.GroupStats{Name: name, LagExact: true, Partitions: make([]wire.GroupPartition, len(parts))}
	for i, p := range parts {
		v.Lag, v.Pending, v.LagExact = v.Lag+p.Lag, v.Pending+p.Pending, v.LagExact && p.LagExact
		v.Partitions[i] = wire.GroupPartition{
			Partition: p.Partition, Owner: wire.NullText(p.Owner), Epoch: wire.NullText(p.Epoch), Length: p.Length, Lag: p.Lag, LagExact: p.LagExact,
			Pending: p.Pending, PutOff: p.Due, Consumers: p.Consumers, LastDelivered: p.LastDelivered,
			Frontier: wire.NullText(p.Frontier), FrontierAgeMs: p.FrontierAge.Milliseconds(),
		}
	}
	return v
}

func Owners(o streammq.Owners) wire.Owners {
	return wire.Owners{
		Unowned: o.Unowned, Uncovered: o.Uncovered,
		Partitions: web.Each(o.Partitions, func(p streammq.PartitionOwner) wire.OwnedPartition {
			owner, epoch := wire.NullText(p.Owner), wire.NullText(p.Epoch)
			return wire.OwnedPartition{Partition: p.Partition, Owner: owner, Live: p.Live, LeaseLeftMs: p.Left.Milliseconds(), Epoch: epoch}
		}),
		Members: web.Each(o.Members, func(m streammq.MemberInfo) wire.Member {
			return wire.Member{Name: m.Name, Live: m.Live, HeartbeatLeftMs: m.Left.Milliseconds(), Cap: m.Cap, Owned: m.Owned, Target: m.Target}
		}),
	}
}

func Trimmed(parts []streammq.PartitionTrim, dryRun bool) wire.Trimmed {
	v := wire.Trimmed{DryRun: dryRun, Partitions: make([]wire.TrimmedPartition, len(parts))}
	for i, p := range parts {
		v.Entries += p.Entries
		v.Partitions[i] = wire.TrimmedPartition{Partition: p.Partition, Entries: p.Entries, Frontier: wire.NullText(p.Frontier)}
	}
	return v
}

func Consumer(c streammq.ConsumerInfo) wire.Consumer {
	return wire.Consumer{Partition: c.Partition, Consumer: c.Consumer, Live: c.Live, Pending: c.Pending, IdleMs: c.Idle.Milliseconds()}
}

func Pending(p streammq.PendingEntry) wire.Pending {
	return wire.Pending{Partition: p.Partition, ID: p.ID, Consumer: p.Consumer, IdleMs: p.Idle.Milliseconds(), Deliveries: p.Deliveries}
}

func Message(m streammq.Stored) wire.Message {
	v := wire.Message{
		Partition: m.Partition, ID: m.ID, UUID: wire.NullText(m.UUID), Key: optionalBlob(m.Key), PublishedAt: wire.MaybeAt(m.Published), Failed: m.Failed,
		OriginalID: wire.NullText(m.OriginalID), Group: wire.NullText(m.Group), Headers: Headers(m.Headers), Payload: Blob(m.Payload),
		Raw: Raw(m.Raw),
	}
	if m.Problem != nil {
		v.Problem = wire.NullText(m.Problem.Error())
	}
	return v
}

// optionalBlob is null for nothing.
func optionalBlob(text string) *wire.Blob {
	if text == "" {
		return nil
	}
	v := Blob([]byte(text))
	return &v
}

// Headers keeps headers as they are, clipped: their values are valid UTF-8.
func Headers(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	for name, value := range headers {
		out[web.Cut(name, web.MaxFilter)] = web.Cut(strings.ToValidUTF8(value, "\uFFFD"), maxBlob)
	}
	return out
}

// Raw shows foreign fields; nil stays nil.
func Raw(raw map[string]string) map[string]wire.Blob {
	if raw == nil {
		return nil
	}
	out := make(map[string]wire.Blob, len(raw))
	for name, value := range raw {
		out[strings.ToValidUTF8(name, "\uFFFD")] = Blob([]byte(value))
	}
	return out
}

func MessageStatus(id string, found map[string]streammq.Status) wire.MessageStatus {
	s, ok := found[id]
	if !ok {
		return wire.MessageStatus{ID: id}
	}
	v := &wire.MessageStep{State: string(s.State), UpdatedAt: wire.At(s.UpdatedAt)}
	if s.Error != nil {
		v.Error = &wire.MessageError{Type: s.Error.Type, Message: s.Error.Message, Traceback: wire.NullText(s.Error.Traceback)}
	}
	return wire.MessageStatus{ID: id, Status: v}
}

func TopicDeadLetter(l streammq.Letter) wire.TopicDeadLetter {
	return wire.TopicDeadLetter{
		ID: l.ID, Topic: l.Topic, Partition: l.Partition, OriginalID: l.OriginalID, Group: l.Group, Key: optionalBlob(l.Key), Attempts: l.Attempts,
		MaxRetries: l.MaxRetries, FailedAt: wire.MaybeAt(orZero(l.FailedAt)), Error: strings.ToValidUTF8(l.Error, "\uFFFD"), Headers: Headers(l.Headers),
		Payload: Blob(l.Payload), Raw: Raw(l.Raw), Replayable: l.Raw == nil && l.Replayed == "", ReplayedAs: wire.NullText(l.Replayed),
	}
}

// orZero takes the epoch for no time.
func orZero(t time.Time) time.Time {
	if t.UnixMilli() == 0 {
		return time.Time{}
	}
	return t
}

// The two things that a topic's path may name.
const (
	KindTopic  = "topic"
	KindStream = "stream" // a single stream, by its key
)

// maxBlob is the most bytes of a foreign value that a list shows.
const maxBlob = 4096

func Blob(b []byte) wire.Blob { return ViewBlobUpTo(b, maxBlob) }

// ViewBlobUpTo shows at most most bytes, and no half character.
func ViewBlobUpTo(b []byte, most int) wire.Blob {
	v := wire.Blob{Encoding: "utf-8", Bytes: len(b), Clipped: len(b) > most}
	text := utf8.Valid(b)
	if v.Clipped {
		b = b[:most]
		for text && !utf8.Valid(b) {
			b = b[:len(b)-1]
		}
	}
	if v.Value = string(b); !text {
		v.Encoding, v.Value = "base64", base64.StdEncoding.EncodeToString(b)
	}
	return v
}
