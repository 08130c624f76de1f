package wire

import "time"

// Topic is a topic as the registry knows it.
type Topic struct {
	Name       string   `json:"name"`
	Partitions int      `json:"partitions"` // 0: its meta cannot be read
	Layout     string   `json:"layout"`
	Status     bool     `json:"status"` // messages have one
	CreatedAt  NullTime `json:"createdAt"`
	Deleting   bool     `json:"deleting"`
}

// TopicStats is a topic or a single stream with what it holds.
type TopicStats struct {
	Topic
	Kind        string           `json:"kind"`
	Entries     int64            `json:"entries"`
	Retries     int64            `json:"retries"`
	Malformed   int64            `json:"malformedRetries"`
	DeadLetters int64            `json:"letters"`
	Beside      int64            `json:"payloadsBeside"`
	Each        []PartitionStats `json:"each"`
}

// PartitionStats is what one partition holds.
type PartitionStats struct {
	Partition int      `json:"partition"`
	Entries   int64    `json:"entries"`
	Beside    int64    `json:"payloadsBeside"`
	FirstID   NullText `json:"firstId"`
	LastID    NullText `json:"lastId"`
}

// Group is a group over all partitions.
type Group struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Members    int    `json:"members"`
	Lag        int64  `json:"lag"`
	LagExact   bool   `json:"lagExact"`
	Pending    int64  `json:"pending"`
}

// GroupStats is a group partition by partition.
type GroupStats struct {
	Name       string           `json:"name"`
	Lag        int64            `json:"lag"`
	LagExact   bool             `json:"lagExact"`
	Pending    int64            `json:"pending"`
	Partitions []GroupPartition `json:"partitions"`
}

// GroupPartition is how a group stands on one partition.
type GroupPartition struct {
	Partition     int      `json:"partition"`
	Owner         NullText `json:"owner"`
	Epoch         NullText `json:"epoch"`
	Length        int64    `json:"length"`
	Lag           int64    `json:"lag"`
	LagExact      bool     `json:"lagExact"`
	Pending       int64    `json:"pending"`
	PutOff        int64    `json:"putOff"`
	Consumers     int64    `json:"consumers"`
	LastDelivered string   `json:"lastDelivered"`
	Frontier      NullText `json:"frontier"` // the oldest entry that it has not finished
	FrontierAgeMs int64    `json:"frontierAgeMs"`
}

// Owners says who owns which partition, and who should.
type Owners struct {
	Unowned    int              `json:"unowned"`
	Uncovered  int              `json:"uncovered"`
	Partitions []OwnedPartition `json:"partitions"`
	Members    []Member         `json:"members"`
}

// OwnedPartition is a partition with its owner.
type OwnedPartition struct {
	Partition   int      `json:"partition"`
	Owner       NullText `json:"owner"`
	Live        bool     `json:"live"`
	LeaseLeftMs int64    `json:"leaseLeftMs"`
	Epoch       NullText `json:"epoch"`
}

// Member is a member of a group.
type Member struct {
	Name            string `json:"name"`
	Live            bool   `json:"live"`
	HeartbeatLeftMs int64  `json:"heartbeatLeftMs"` // negative: over since then
	Cap             int    `json:"cap"`             // 0: any number
	Owned           int    `json:"owned"`
	Target          int    `json:"target"`
}

// Consumer is what one consumer has in hand on one partition.
type Consumer struct {
	Partition int    `json:"partition"`
	Consumer  string `json:"consumer"`
	Live      bool   `json:"live"`
	Pending   int64  `json:"pending"`
	IdleMs    int64  `json:"idleMs"`
}

// Pending is an entry that was given and not finished.
type Pending struct {
	Partition  int    `json:"partition"`
	ID         string `json:"id"`
	Consumer   string `json:"consumer"`
	IdleMs     int64  `json:"idleMs"`
	Deliveries int64  `json:"deliveries"`
}

// Message is a message as it lies in a stream.
type Message struct {
	Partition   int               `json:"partition"`
	ID          string            `json:"id"`
	UUID        NullText          `json:"uuid"`
	Key         *Blob             `json:"key"`
	PublishedAt NullTime          `json:"publishedAt"`
	Failed      int               `json:"failed"`
	OriginalID  NullText          `json:"originalId"`
	Group       NullText          `json:"group"`
	Headers     map[string]string `json:"headers"`
	Payload     Blob              `json:"payload"`
	Problem     NullText          `json:"problem"`
	Raw         map[string]Blob   `json:"raw"` // of an entry that cannot be read
}

// MessageStatus is how far a message is; null: unknown or expired.
type MessageStatus struct {
	ID     string       `json:"id"`
	Status *MessageStep `json:"status"`
}

// MessageStep is the state that a message has come to.
type MessageStep struct {
	State     string        `json:"state"`
	UpdatedAt Time          `json:"updatedAt"`
	Error     *MessageError `json:"error"`
}

// MessageError is why a message failed.
type MessageError struct {
	Type      string   `json:"type"`
	Message   string   `json:"message"`
	Traceback NullText `json:"traceback"`
}

// TrimTopic says what a topic keeps.
type TrimTopic struct {
	MaxLen        int   `json:"maxLen,omitempty"`
	MaxAgeSeconds int64 `json:"maxAgeSeconds,omitempty"`
	Finished      bool  `json:"finished"`
	DryRun        bool  `json:"dryRun"`
}

// Trimmed is what a trim removed, or would remove.
type Trimmed struct {
	DryRun     bool               `json:"dryRun"`
	Entries    int                `json:"entries"`
	Partitions []TrimmedPartition `json:"partitions"`
}

// TrimmedPartition is what a trim removed of one partition.
type TrimmedPartition struct {
	Partition int      `json:"partition"`
	Entries   int      `json:"entries"`
	Frontier  NullText `json:"frontier"` // null: there is no group, so nothing is needed
}

// ResetGroup says where a group goes on; exactly one of to, time and after is set.
type ResetGroup struct {
	To          string     `json:"to,omitempty"` // start or end
	Time        *time.Time `json:"time,omitempty"`
	After       string     `json:"after,omitempty"` // an entry's id
	Partition   *int       `json:"partition,omitempty"`
	Force       bool       `json:"force"`
	DropRetries bool       `json:"dropRetries"`
}

// ResetDone says what a reset gave up.
type ResetDone struct {
	PendingDropped int `json:"pendingDropped"`
}
