package streammq

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

const (
	statusTTL    = 72 * time.Hour
	statusFormat = time.RFC3339Nano
)

// statusKey is a STRING of JSON, see Status; TTL statusTTL from the last write. It lies in a slot of its own.
func statusKey(uuid string) string { return "task:status:" + uuid }

// ownerKey is a STRING, the user of the message's HeaderUser; TTL statusTTL from the last write of its status, in a slot of
// its own. The first message with a uuid has it.
func ownerKey(uuid string) string { return "task:owner:" + uuid }

// OwnStatus is the status of a user's own message; see MQ.OwnStatus.
func (q *core) OwnStatus(ctx context.Context, user, uuid string) (s Status, found bool, err error) {
	owner, err := q.Client.Do(ctx, q.Client.B().Get().Key(ownerKey(uuid)).Build()).ToString()
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
func (q *core) Statuses(ctx context.Context, uuids ...string) (map[string]Status, error) {
	commands := make(rueidis.Commands, len(uuids))
	for i, uuid := range uuids {
		commands[i] = q.Client.B().Get().Key(statusKey(uuid)).Build()
	}
	list := make(map[string]Status, len(uuids))
	if len(uuids) == 0 {
		return list, nil
	}
	for i, r := range q.Client.DoMulti(ctx, commands...) {
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
func (q *core) setPending(uuid string, format Format, now time.Time) rueidis.Completed {
	at := now.UTC().Format(statusFormat)
	text := `{"status":"` + string(StatePending) + `","updatedAt":"` + at + `"`
	if format != FormatOwn {
		text += `,"updated_at":"` + at + `"`
	}
	text += "}"
	return q.Client.B().Set().Key(statusKey(uuid)).Value(text).Nx().ExSeconds(int64(statusTTL / time.Second)).Build()
}

// setOwner goes beside setPending, and beside the status of an entry that another publisher wrote.
func (q *core) setOwner(uuid, user string) rueidis.Completed {
	return q.Client.B().Set().Key(ownerKey(uuid)).Value(user).Nx().ExSeconds(int64(statusTTL / time.Second)).Build()
}

func (q *core) hasStatus(s source) bool {
	meta, ok := q.topics.get(s.topic)
	return ok && meta.status && !s.single
}
