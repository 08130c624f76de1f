package streammq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// State is how far a message of a topic with status is.
type State string

// The states. Failed is left again by a retry or a replay; completed is final.
const (
	StatePending    State = "pending"
	StateProcessing State = "processing"
	StateCompleted  State = "completed"
	StateFailed     State = "failed"
)

const (
	statusTTL    = 72 * time.Hour
	maxTraceback = 4000 // bytes
	statusFormat = time.RFC3339Nano
)

// Status is what is known of one message.
type Status struct {
	State     State           `json:"status"`
	UpdatedAt time.Time       `json:"updatedAt"`
	Error     *StatusError    `json:"error,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"` // of the handler; FastStream's best-practice project writes it
}

// UnmarshalJSON reads what this package and FastStream's best-practice project write: that one calls the time updated_at, and
// writes it in its local time without a zone, which is taken for this process' zone.
func (s *Status) UnmarshalJSON(text []byte) error {
	type plain Status
	read := struct {
		*plain
		UpdatedAt string `json:"updatedAt"`
		Theirs    string `json:"updated_at"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	at := read.UpdatedAt
	if at == "" {
		at = read.Theirs
	}
	if at == "" {
		return nil
	}
	var err error
	if s.UpdatedAt, err = time.Parse(time.RFC3339, at); err != nil {
		s.UpdatedAt, err = time.ParseInLocation("2006-01-02T15:04:05", at, time.Local)
	}
	return err
}

// StatusError is why a message failed.
type StatusError struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"` // of a panic
}

// PanicError is what a handler panicked with; it is ErrPanic.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, e.Value) }

// Unwrap makes it ErrPanic.
func (e *PanicError) Unwrap() error { return ErrPanic }

// statusKey is a STRING of JSON, see Status; TTL statusTTL from the last write. It lies in a slot of its own.
func statusKey(uuid string) string { return "task:status:" + uuid }

// ownerKey is a STRING, the user of the message's HeaderUser; TTL statusTTL from the last write of its status, in a slot of
// its own. The first message with a uuid has it.
func ownerKey(uuid string) string { return "task:owner:" + uuid }

// OwnStatus is the status of a user's own message: one that was published with HeaderUser. found is false for all others,
// whether they exist or not.
// Errors: ErrMalformed, ErrUnavailable.
func (q *MQ) OwnStatus(ctx context.Context, user, uuid string) (s Status, found bool, err error) {
	owner, err := q.client.Do(ctx, q.client.B().Get().Key(ownerKey(uuid)).Build()).ToString()
	if rueidis.IsRedisNil(err) || err == nil && (user == "" || owner != user) {
		return Status{}, false, nil
	}
	if err != nil {
		return Status{}, false, failure(ctx, "read the owner of "+uuid, err)
	}
	list, err := q.Statuses(ctx, uuid)
	s, found = list[uuid]
	return s, found, err
}

// Statuses are those of messages of topics with status, by uuid. One that is missing is unknown, or has expired.
// Errors: ErrMalformed, ErrUnavailable.
func (q *MQ) Statuses(ctx context.Context, uuids ...string) (map[string]Status, error) {
	commands := make(rueidis.Commands, len(uuids))
	for i, uuid := range uuids {
		commands[i] = q.client.B().Get().Key(statusKey(uuid)).Build()
	}
	list := make(map[string]Status, len(uuids))
	if len(uuids) == 0 {
		return list, nil
	}
	for i, r := range q.client.DoMulti(ctx, commands...) {
		text, err := r.AsBytes()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, failure(ctx, "read status", err)
		}
		var s Status
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("status of %s: %w: %w", uuids[i], ErrMalformed, err)
		}
		list[uuids[i]] = s
	}
	return list, nil
}

// setPending goes before the XADD in its pipeline. A crash between the two leaves a pending that expires.
func (q *MQ) setPending(uuid string, format Format, now time.Time) rueidis.Completed {
	at := now.UTC().Format(statusFormat)
	text := `{"status":"` + string(StatePending) + `","updatedAt":"` + at + `"`
	if format != FormatOwn {
		text += `,"updated_at":"` + at + `"`
	}
	text += "}"
	return q.client.B().Set().Key(statusKey(uuid)).Value(text).Nx().ExSeconds(int64(statusTTL / time.Second)).Build()
}

// setOwner goes beside setPending, and beside the status of an entry that another publisher wrote.
func (q *MQ) setOwner(uuid, user string) rueidis.Completed {
	return q.client.B().Set().Key(ownerKey(uuid)).Value(user).Nx().ExSeconds(int64(statusTTL / time.Second)).Build()
}

// Answers of status_write.lua that matter.
const statusCompletedBefore = 2

// writeStatus notes where a delivery is, before the script that settles it: a crash between the two is healed by the
// next delivery. It returns false when this group has completed the message before.
func (r *reader) writeStatus(ctx context.Context, p *parcel, state State, cause error) (bool, error) {
	if !r.hasStatus(p) {
		return true, nil
	}
	reason := ""
	if cause != nil {
		text, err := json.Marshal(describe(cause))
		if err != nil {
			return true, err
		}
		reason = string(text)
	}
	code, err := r.mq.run(ctx, r.mq.scripts.statusWrite, []string{statusKey(p.entry.headers[HeaderUUID])},
		string(state), r.group, p.id, r.epoch, strconv.FormatInt(p.deliveries, 10),
		r.mq.cfg.Now().UTC().Format(statusFormat), reason, strconv.FormatInt(int64(statusTTL/time.Second), 10),
		string(p.entry.format)).AsInt64()
	if user := p.entry.headers[HeaderUser]; err == nil && user != "" {
		err = r.keepOwner(ctx, p.entry.headers[HeaderUUID], user)
	}
	return code != statusCompletedBefore, err
}

// keepOwner lets the owner live as long as the status that was written; the entry of another publisher has none before.
func (r *reader) keepOwner(ctx context.Context, uuid, user string) error {
	keep := r.mq.client.B().Expire().Key(ownerKey(uuid)).Seconds(int64(statusTTL / time.Second)).Build()
	for _, answer := range r.mq.client.DoMulti(ctx, r.mq.setOwner(uuid, user), keep) {
		if err := answer.Error(); err != nil && !rueidis.IsRedisNil(err) { // nil: it is there
			return failure(ctx, "keep the owner", err)
		}
	}
	return nil
}

func (r *reader) hasStatus(p *parcel) bool {
	return p.entry.headers[HeaderUUID] != "" && (r.status || r.mq.hasStatus(r.src))
}

func (q *MQ) hasStatus(s source) bool {
	meta, ok := q.topics.get(s.topic)
	return ok && meta.status && !s.single
}

// describe names an error by its innermost type: the outer ones are mostly texts around it.
func describe(err error) StatusError {
	s := StatusError{Message: clip(err.Error(), maxErrorText)}
	var panicked *PanicError
	if errors.As(err, &panicked) {
		s.Traceback = clip(string(panicked.Stack), maxTraceback)
	}
	inner := err
	for next := errors.Unwrap(inner); next != nil; next = errors.Unwrap(inner) {
		inner = next
	}
	s.Type = fmt.Sprintf("%T", inner)
	return s
}
