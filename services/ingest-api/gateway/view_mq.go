package gateway

import (
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
)

// topicView is a topic as the registry knows it.
type topicView struct {
	Name       string  `json:"name"`
	Partitions int     `json:"partitions"` // 0: its meta cannot be read
	Layout     string  `json:"layout"`
	Status     bool    `json:"status"` // messages have one
	CreatedAt  *string `json:"createdAt"`
	Deleting   bool    `json:"deleting"`
}

func viewTopic(t streammq.TopicInfo) topicView {
	return topicView{Name: t.Name, Partitions: t.Partitions, Layout: string(t.Layout), Status: t.Status, CreatedAt: optionalTime(t.Created), Deleting: t.Deleting}
}

// topicStatsView is a topic or a single stream with what it holds.
type topicStatsView struct {
	topicView
	Kind        string           `json:"kind"`
	Entries     int64            `json:"entries"`
	Retries     int64            `json:"retries"`
	Bad         int64            `json:"malformedRetries"`
	DeadLetters int64            `json:"letters"`
	Beside      int64            `json:"payloadsBeside"`
	Each        []partitionCount `json:"each"`
}

type partitionCount struct {
	Partition int     `json:"partition"`
	Entries   int64   `json:"entries"`
	Beside    int64   `json:"payloadsBeside"`
	FirstID   *string `json:"firstId"`
	LastID    *string `json:"lastId"`
}

func viewTopicStats(info streammq.TopicInfo, stream bool, s streammq.Stats) topicStatsView {
	v := topicStatsView{
		topicView: viewTopic(info), Kind: kindTopic, Entries: s.Entries, Retries: s.Retries, Bad: s.Malformed, DeadLetters: s.Letters, Beside: s.Beside,
		Each: make([]partitionCount, len(s.Each)),
	}
	if stream {
		v.Kind = kindStream
	}
	for i, p := range s.Each {
		v.Each[i] = partitionCount{Partition: p.Partition, Entries: p.Entries, Beside: p.Beside, FirstID: optional(p.FirstID), LastID: optional(p.LastID)}
	}
	return v
}

// groupView is a group over all partitions.
type groupView struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Members    int    `json:"members"`
	Lag        int64  `json:"lag"`
	LagExact   bool   `json:"lagExact"`
	Pending    int64  `json:"pending"`
}

func viewGroup(g streammq.GroupInfo) groupView { return groupView(g) }

// groupStatsView is a group partition by partition.
type groupStatsView struct {
	Name       string          `json:"name"`
	Lag        int64           `json:"lag"`
	LagExact   bool            `json:"lagExact"`
	Pending    int64           `json:"pending"`
	Partitions []groupPartView `json:"partitions"`
}

type groupPartView struct {
	Partition     int     `json:"partition"`
	Owner         *string `json:"owner"`
	Epoch         *string `json:"epoch"`
	Length        int64   `json:"length"`
	Lag           int64   `json:"lag"`
	LagExact      bool    `json:"lagExact"`
	Pending       int64   `json:"pending"`
	PutOff        int64   `json:"putOff"`
	Consumers     int64   `json:"consumers"`
	LastDelivered string  `json:"lastDelivered"`
	Frontier      *string `json:"frontier"` // the oldest entry that it has not finished
	FrontierAgeMs int64   `json:"frontierAgeMs"`
}

func viewGroupStats(name string, parts []streammq.PartitionStats) groupStatsView {
	v := groupStatsView{Name: name, LagExact: true, Partitions: make([]groupPartView, len(parts))}
	for i, p := range parts {
		v.Lag, v.Pending, v.LagExact = v.Lag+p.Lag, v.Pending+p.Pending, v.LagExact && p.LagExact
		v.Partitions[i] = groupPartView{
			Partition: p.Partition, Owner: optional(p.Owner), Epoch: optional(p.Epoch), Length: p.Length, Lag: p.Lag, LagExact: p.LagExact,
			Pending: p.Pending, PutOff: p.Due, Consumers: p.Consumers, LastDelivered: p.LastDelivered,
			Frontier: optional(p.Frontier), FrontierAgeMs: p.FrontierAge.Milliseconds(),
		}
	}
	return v
}

// ownersView is the rebalance view.
type ownersView struct {
	Unowned    int            `json:"unowned"`
	Uncovered  int            `json:"uncovered"`
	Partitions []ownedView    `json:"partitions"`
	Members    []mqMemberView `json:"members"`
}

type ownedView struct {
	Partition   int     `json:"partition"`
	Owner       *string `json:"owner"`
	Live        bool    `json:"live"`
	LeaseLeftMs int64   `json:"leaseLeftMs"`
	Epoch       *string `json:"epoch"`
}

type mqMemberView struct {
	Name            string `json:"name"`
	Live            bool   `json:"live"`
	HeartbeatLeftMs int64  `json:"heartbeatLeftMs"` // negative: over since then
	Cap             int    `json:"cap"`             // 0: any number
	Owned           int    `json:"owned"`
	Target          int    `json:"target"`
}

func viewOwners(o streammq.Owners) ownersView {
	v := ownersView{Unowned: o.Unowned, Uncovered: o.Uncovered, Partitions: make([]ownedView, len(o.Partitions)), Members: make([]mqMemberView, len(o.Members))}
	for i, p := range o.Partitions {
		v.Partitions[i] = ownedView{Partition: p.Partition, Owner: optional(p.Owner), Live: p.Live, LeaseLeftMs: p.Left.Milliseconds(), Epoch: optional(p.Epoch)}
	}
	for i, m := range o.Members {
		v.Members[i] = mqMemberView{Name: m.Name, Live: m.Live, HeartbeatLeftMs: m.Left.Milliseconds(), Cap: m.Cap, Owned: m.Owned, Target: m.Target}
	}
	return v
}

// consumerView is what one consumer has in hand on one partition.
type consumerView struct {
	Partition int    `json:"partition"`
	Consumer  string `json:"consumer"`
	Live      bool   `json:"live"`
	Pending   int64  `json:"pending"`
	IdleMs    int64  `json:"idleMs"`
}

func viewConsumer(c streammq.ConsumerInfo) consumerView {
	return consumerView{Partition: c.Partition, Consumer: c.Consumer, Live: c.Live, Pending: c.Pending, IdleMs: c.Idle.Milliseconds()}
}

// pendingView is an entry that was given and not finished.
type pendingView struct {
	Partition  int    `json:"partition"`
	ID         string `json:"id"`
	Consumer   string `json:"consumer"`
	IdleMs     int64  `json:"idleMs"`
	Deliveries int64  `json:"deliveries"`
}

func viewPending(p streammq.PendingEntry) pendingView {
	return pendingView{Partition: p.Partition, ID: p.ID, Consumer: p.Consumer, IdleMs: p.Idle.Milliseconds(), Deliveries: p.Deliveries}
}

// messageView is a message as it lies in a stream.
type messageView struct {
	Partition   int                 `json:"partition"`
	ID          string              `json:"id"`
	UUID        *string             `json:"uuid"`
	Key         *blobView           `json:"key"`
	PublishedAt *string             `json:"publishedAt"`
	Failed      int                 `json:"failed"`
	OriginalID  *string             `json:"originalId"`
	Group       *string             `json:"group"`
	Headers     map[string]string   `json:"headers"`
	Payload     blobView            `json:"payload"`
	Problem     *string             `json:"problem"`
	Raw         map[string]blobView `json:"raw"` // of an entry that cannot be read
}

func viewMessage(m streammq.Stored) messageView {
	v := messageView{
		Partition: m.Partition, ID: m.ID, UUID: optional(m.UUID), Key: optionalBlob(m.Key), PublishedAt: optionalTime(m.Published), Failed: m.Failed,
		OriginalID: optional(m.OriginalID), Group: optional(m.Group), Headers: viewHeaders(m.Headers), Payload: viewBlob(m.Payload),
		Raw: viewRaw(m.Raw),
	}
	if m.Problem != nil {
		text := m.Problem.Error()
		v.Problem = &text
	}
	return v
}

// optionalBlob is null for nothing.
func optionalBlob(text string) *blobView {
	if text == "" {
		return nil
	}
	v := viewBlob([]byte(text))
	return &v
}

// viewHeaders keeps headers as they are, clipped: their values are valid UTF-8.
func viewHeaders(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	for name, value := range headers {
		out[cut(name, maxFilter)] = cut(strings.ToValidUTF8(value, "\uFFFD"), maxBlob)
	}
	return out
}

// viewRaw shows foreign fields; nil stays nil.
func viewRaw(raw map[string]string) map[string]blobView {
	if raw == nil {
		return nil
	}
	out := make(map[string]blobView, len(raw))
	for name, value := range raw {
		out[strings.ToValidUTF8(name, "\uFFFD")] = viewBlob([]byte(value))
	}
	return out
}

// statusView is how far a message is; null: unknown or expired.
type statusView struct {
	ID     string       `json:"id"`
	Status *messageStep `json:"status"`
}

type messageStep struct {
	State     streammq.State `json:"state"`
	UpdatedAt string         `json:"updatedAt"`
	Error     *messageError  `json:"error"`
}

type messageError struct {
	Type      string  `json:"type"`
	Message   string  `json:"message"`
	Traceback *string `json:"traceback"`
}

func viewStatus(id string, found map[string]streammq.Status) statusView {
	s, ok := found[id]
	if !ok {
		return statusView{ID: id}
	}
	v := &messageStep{State: s.State, UpdatedAt: formatTime(s.UpdatedAt)}
	if s.Error != nil {
		v.Error = &messageError{Type: s.Error.Type, Message: s.Error.Message, Traceback: optional(s.Error.Traceback)}
	}
	return statusView{ID: id, Status: v}
}

// topicDeadLetterView is a dead letter of a topic: a message with its payload.
type topicDeadLetterView struct {
	ID         string              `json:"id"`
	Topic      string              `json:"topic"`
	Partition  int                 `json:"partition"`
	OriginalID string              `json:"originalId"`
	Group      string              `json:"group"`
	Key        *blobView           `json:"key"`
	Attempts   int                 `json:"attempts"`
	MaxRetries int                 `json:"maxRetries"`
	FailedAt   *string             `json:"failedAt"`
	Error      string              `json:"error"`
	Headers    map[string]string   `json:"headers"`
	Payload    blobView            `json:"payload"`
	Raw        map[string]blobView `json:"raw"`
	Replayable bool                `json:"replayable"`
	ReplayedAs *string             `json:"replayedAs"` // the id of the entry that a replay added
}

func viewTopicDeadLetter(l streammq.Letter) topicDeadLetterView {
	return topicDeadLetterView{
		ID: l.ID, Topic: l.Topic, Partition: l.Partition, OriginalID: l.OriginalID, Group: l.Group, Key: optionalBlob(l.Key), Attempts: l.Attempts,
		MaxRetries: l.MaxRetries, FailedAt: optionalTime(orZero(l.FailedAt)), Error: strings.ToValidUTF8(l.Error, "\uFFFD"), Headers: viewHeaders(l.Headers),
		Payload: viewBlob(l.Payload), Raw: viewRaw(l.Raw), Replayable: l.Raw == nil && l.Replayed == "", ReplayedAs: optional(l.Replayed),
	}
}

// orZero takes the epoch for no time.
func orZero(t time.Time) time.Time {
	if t.UnixMilli() == 0 {
		return time.Time{}
	}
	return t
}
