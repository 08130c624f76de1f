package streammq

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

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
	code, err := r.mq.Run(ctx, r.mq.scripts.StatusWrite, []string{statusKey(p.entry.headers[HeaderUUID])},
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
	keep := r.mq.Client.B().Expire().Key(ownerKey(uuid)).Seconds(int64(statusTTL / time.Second)).Build()
	for _, answer := range r.mq.Client.DoMulti(ctx, r.mq.setOwner(uuid, user), keep) {
		if err := answer.Error(); err != nil && !rueidis.IsRedisNil(err) { // nil: it is there
			return failure(ctx, "keep the owner", err)
		}
	}
	return nil
}

func (r *reader) hasStatus(p *parcel) bool {
	return p.entry.headers[HeaderUUID] != "" && (r.status || r.mq.hasStatus(r.src))
}
