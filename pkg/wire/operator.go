package wire

import (
	"encoding/json"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Key is an API key without its secret.
type Key struct {
	KeyID      string         `json:"keyId"`
	UserID     string         `json:"userId"`
	Name       string         `json:"name"`
	Role       taskstate.Role `json:"role"`
	Scopes     []string       `json:"scopes"`
	Bases      []string       `json:"knowledgeBases,omitempty"` // ids of those that it is limited to; missing: it is not
	Shown      string         `json:"shown"`                    // how the key begins
	CreatedAt  Time           `json:"createdAt"`
	ExpiresAt  NullTime       `json:"expiresAt"`
	RevokedAt  NullTime       `json:"revokedAt"`
	LastUsedAt NullTime       `json:"lastUsedAt"` // to the minute
}

// CreatedKey is a new key; its secret is shown here and nowhere else.
type CreatedKey struct {
	Key
	Secret string `json:"key"`
}

// KeyRequest asks for a key.
type KeyRequest struct {
	UserID  string         `json:"userId"`
	Name    string         `json:"name,omitempty"`
	Role    taskstate.Role `json:"role,omitempty"`
	Scopes  []string       `json:"scopes,omitempty"`
	Bases   []string       `json:"knowledgeBases,omitempty"` // ids or names; empty: all of its user's
	TTLDays int            `json:"ttlDays,omitempty"`        // 0: no end
}

// AuditEvent is one row of the audit log.
type AuditEvent struct {
	ID        string   `json:"id"`
	At        Time     `json:"at"`
	Action    string   `json:"action"`
	Actor     NullText `json:"actor"` // null: nobody proved who he is
	Role      NullText `json:"role"`
	KeyID     NullText `json:"keyId"`
	IP        NullText `json:"ip"` // of failed logins the network; null: the command line
	RequestID NullText `json:"requestId"`
	Target    NullText `json:"target"`
	Detail    NullText `json:"detail"`
	Times     int      `json:"times"` // attempts of one kind are counted together
}

// OutboxStats is what waits in the outbox, and for how long.
type OutboxStats struct {
	Counts           map[string]int64 `json:"counts"`
	Backlog          int64            `json:"backlog"`
	OldestAgeSeconds float64          `json:"oldestAgeSeconds"`
}

// OutboxEvent is an event of the outbox.
type OutboxEvent struct {
	ID           string   `json:"id"`
	Topic        string   `json:"topic"`
	TaskID       string   `json:"taskId"`
	Status       string   `json:"status"`
	Cause        string   `json:"cause"`
	AttemptCount int      `json:"attemptCount"`
	NextRetryAt  NullTime `json:"nextRetryAt"`
	LastError    NullText `json:"lastError"`
	CreatedAt    Time     `json:"createdAt"`
	SentAt       NullTime `json:"sentAt"`
}

// OneOutboxEvent is an event with what it carries.
type OneOutboxEvent struct {
	OutboxEvent
	Payload json.RawMessage `json:"payload"`
}

// RequeueEvents asks for DEAD events to be made NEW.
type RequeueEvents struct {
	Cause string `json:"cause,omitempty"`
	Topic string `json:"topic,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// RequeuedEvents says how many events were made NEW.
type RequeuedEvents struct {
	Requeued int  `json:"requeued"`
	More     bool `json:"more"` // the limit was reached
}

// Worker is a process that has claimed tasks lately.
type Worker struct {
	Name       string   `json:"name"`
	Alive      bool     `json:"alive"` // its lease lasts
	StartedAt  Time     `json:"startedAt"`
	LeaseUntil Time     `json:"leaseUntil"`
	DrainAt    NullTime `json:"drainAt"`   // since when it is to take no more tasks; null: it takes some
	DrainedAt  NullTime `json:"drainedAt"` // when it had finished what it had
	Running    int      `json:"running"`   // tasks
	Slots      *int     `json:"slots"`     // tasks that it may run at once, as of its last renewal; null: it has not said it
	More       bool     `json:"more"`      // so many tasks run that not all were looked at
	Tasks      []Task   `json:"tasks"`     // the first 20
}

// Setting is a setting of the process that is asked.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"` // secrets and logins of addresses hidden
	Default string `json:"default"`
	Allowed string `json:"allowed"`
	Meaning string `json:"meaning"`
	Changed bool   `json:"changed"` // it differs from its default
}
