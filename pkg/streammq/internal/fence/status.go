package fence

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Answers of status_write.lua that matter.
const statusCompletedBefore = 2

// WriteStatus notes where a delivery is, before the script that settles it: a crash between the two is healed by the
// next delivery. It returns false when this group has completed the message before.
func (r *Reader) WriteStatus(ctx context.Context, p *Parcel, state model.State, cause error) (bool, error) {
	if !r.HasStatus(p) {
		return true, nil
	}
	reason := ""
	if cause != nil {
		text, err := json.Marshal(model.Describe(cause))
		if err != nil {
			return true, err
		}
		reason = string(text)
	}
	code, err := r.Mq.Run(ctx, r.Mq.Scripts.StatusWrite, []string{core.StatusKey(p.Entry.Headers[model.HeaderUUID])},
		string(state), r.Group, p.Id, r.Epoch, strconv.FormatInt(p.Deliveries, 10),
		r.Mq.Cfg.Now().UTC().Format(core.StatusFormat), reason, strconv.FormatInt(int64(core.StatusTTL/time.Second), 10),
		string(p.Entry.Format)).AsInt64()
	if user := p.Entry.Headers[model.HeaderUser]; err == nil && user != "" {
		err = r.keepOwner(ctx, p.Entry.Headers[model.HeaderUUID], user)
	}
	return code != statusCompletedBefore, err
}

// keepOwner lets the owner live as long as the status that was written; the entry of another publisher has none before.
func (r *Reader) keepOwner(ctx context.Context, uuid, user string) error {
	keep := r.Mq.Client.B().Expire().Key(core.OwnerKey(uuid)).Seconds(int64(core.StatusTTL / time.Second)).Build()
	for _, answer := range r.Mq.Client.DoMulti(ctx, r.Mq.SetOwner(uuid, user), keep) {
		if err := answer.Error(); err != nil && !rueidis.IsRedisNil(err) { // nil: it is there
			return model.Failure(ctx, "keep the owner", err)
		}
	}
	return nil
}

func (r *Reader) HasStatus(p *Parcel) bool {
	return p.Entry.Headers[model.HeaderUUID] != "" && (r.Status || r.Mq.HasStatus(r.Src))
}
