package core

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

const (
	StatusTTL    = 72 * time.Hour
	StatusFormat = time.RFC3339Nano
)

// StatusKey is a STRING of JSON, see Status; TTL statusTTL from the last write. It lies in a slot of its own.
func StatusKey(uuid string) string { return "task:status:" + uuid }

// OwnerKey is a STRING, the user of the message's HeaderUser; TTL statusTTL from the last write of its status, in a slot of
// its own. The first message with a uuid has it.
func OwnerKey(uuid string) string { return "task:owner:" + uuid }

// OwnStatus is the status of a user's own message; see MQ.OwnStatus.
func (q *Core) OwnStatus(ctx context.Context, user, uuid string) (s model.Status, found bool, err error) {
	owner, err := q.Client.Do(ctx, q.Client.B().Get().Key(OwnerKey(uuid)).Build()).ToString()
	if rueidis.IsRedisNil(err) || err == nil && (user == "" || owner != user) {
		return model.Status{}, false, nil
	}
	if err != nil {
		return model.Status{}, false, model.Failure(ctx, "read the owner of "+uuid, err)
	}
	list, err := q.Statuses(ctx, uuid)
	s, found = list[uuid]
	return s, found, err
}

// Statuses are those of messages of topics with status, by uuid. One that is missing is unknown, or has expired.
// Errors: ErrMalformed, ErrUnavailable.
func (q *Core) Statuses(ctx context.Context, uuids ...string) (map[string]model.Status, error) {
	commands := make(rueidis.Commands, len(uuids))
	for i, uuid := range uuids {
		commands[i] = q.Client.B().Get().Key(StatusKey(uuid)).Build()
	}
	list := make(map[string]model.Status, len(uuids))
	if len(uuids) == 0 {
		return list, nil
	}
	for i, r := range q.Client.DoMulti(ctx, commands...) {
		text, err := r.AsBytes()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, model.Failure(ctx, "read status", err)
		}
		var s model.Status
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("status of %s: %w: %w", uuids[i], model.ErrMalformed, err)
		}
		list[uuids[i]] = s
	}
	return list, nil
}

// SetPending goes before the XADD in its pipeline. A crash between the two leaves a pending that expires.
func (q *Core) SetPending(uuid string, format wire.Format, now time.Time) rueidis.Completed {
	at := now.UTC().Format(StatusFormat)
	text := `{"status":"` + string(model.StatePending) + `","updatedAt":"` + at + `"`
	if format != wire.FormatOwn {
		text += `,"updated_at":"` + at + `"`
	}
	text += "}"
	return q.Client.B().Set().Key(StatusKey(uuid)).Value(text).Nx().ExSeconds(int64(StatusTTL / time.Second)).Build()
}

// SetOwner goes beside setPending, and beside the status of an entry that another publisher wrote.
func (q *Core) SetOwner(uuid, user string) rueidis.Completed {
	return q.Client.B().Set().Key(OwnerKey(uuid)).Value(user).Nx().ExSeconds(int64(StatusTTL / time.Second)).Build()
}

func (q *Core) HasStatus(s Source) bool {
	meta, ok := q.Topics.Get(s.Topic)
	return ok && meta.status && !s.Single
}
