// Package fence reads and settles the entries of one source for one consumer, under the epoch of its lease: every script compares it.
package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// ErrLost tells that another member has, or may have, the source now.
var ErrLost = errors.New("lease lost")

// Reader reads one source for one consumer, under one epoch.
type Reader struct {
	Mq       *core.Core
	Src      core.Source
	Group    string
	Consumer string
	Epoch    string      // empty on a single stream
	Status   bool        // of a single stream: its messages have one
	Letters  string      // key of the stream of its dead letters; empty: the topic's, or the partition's, own
	Format   wire.Format // of a single stream's entries that have no envelope
	Deletes  model.DeletePolicy
	Claims   string // ms from which a read takes what others have not touched; empty: it takes nothing of theirs
}

func (r *Reader) keys() []string {
	return []string{r.Src.Stream(), r.Src.Epoch(r.Group), r.Src.Due(r.Group), r.Src.Attempts(r.Group)}
}

// Fetched is the answer of a read.
type Fetched struct {
	Entries []wire.Raw
	Lost    int           // entries whose data is gone
	Last    string        // fetch: the stream's last id when nothing new was there; recover and claimOwn: the last id looked at
	Wait    time.Duration // until the next retry in place; negative: none waits
}

// Fetch reads retries that are due, then what it claims, then new entries. Errors: errLost, or Redis' own.
func (r *Reader) Fetch(ctx context.Context, most int) (Fetched, error) {
	return r.call(ctx, r.Mq.Scripts.Fetch, r.Epoch, r.Group, r.Consumer, strconv.Itoa(most), r.Claims)
}

// Recover takes over pending entries after an id ("" for all). Errors: errLost, or Redis' own.
func (r *Reader) Recover(ctx context.Context, most int, after string) (Fetched, error) {
	return r.call(ctx, r.Mq.Scripts.Recover, r.Epoch, r.Group, r.Consumer, strconv.Itoa(most), stream.Behind(after))
}

// Claim takes entries of dead consumers of a single stream, and of silent ones.
func (r *Reader) Claim(ctx context.Context, most int, idle time.Duration, dead []string) (Fetched, error) {
	args := append([]string{r.Group, r.Consumer, strconv.Itoa(most), stream.Millis(idle), "-"}, dead...)
	return r.call(ctx, r.Mq.Scripts.Claim, args...)
}

// ClaimOwn takes what this consumer had in another life, after an id ("" for all).
func (r *Reader) ClaimOwn(ctx context.Context, most int, after string) (Fetched, error) {
	got, err := r.call(ctx, r.Mq.Scripts.Claim, r.Group, r.Consumer, strconv.Itoa(most), stream.Millis(Never), stream.Behind(after), r.Consumer)
	if got.Last == "" && len(got.Entries) >= most { // due retries have taken all the room: nothing was looked at
		got.Last = cmp.Or(after, "0-0")
	}
	return got, err
}

func (r *Reader) call(ctx context.Context, s stream.Script, args ...string) (Fetched, error) {
	answer, err := r.Mq.Run(ctx, s, r.keys(), args...).ToArray()
	if err != nil {
		return Fetched{}, err
	}
	if code, err := answer[0].AsInt64(); err != nil || code != 1 {
		return Fetched{}, ErrLost
	}
	f := Fetched{Wait: -1}
	items, err := answer[1].ToArray()
	if err != nil {
		return f, err
	}
	f.Entries = make([]wire.Raw, len(items))
	for i := range items {
		if f.Entries[i], err = decodeRaw(&items[i]); err != nil {
			return f, err
		}
	}
	lost, err := answer[2].AsInt64()
	f.Lost = int(lost)
	if len(answer) > 3 && err == nil {
		f.Last, err = answer[3].ToString()
	}
	if len(answer) > 4 && err == nil {
		var ms int64
		ms, err = answer[4].AsInt64()
		f.Wait = time.Duration(ms) * time.Millisecond
	}
	if len(answer) > 5 && err == nil {
		err = f.unpack(&answer[5])
	}
	return f, err
}

// unpack adds the new entries, which come packed.
func (f *Fetched) unpack(m *rueidis.RedisMessage) error {
	text, err := m.ToString()
	if err != nil {
		return err
	}
	entries, err := wire.DecodePacked(text)
	if len(f.Entries) == 0 {
		f.Entries = entries
	} else {
		f.Entries = append(f.Entries, entries...)
	}
	return err
}

// decodeRaw reads {{id, {field, value, …}}, deliveries, attempts}.
func decodeRaw(m *rueidis.RedisMessage) (wire.Raw, error) {
	var e wire.Raw
	parts, err := m.ToArray()
	if err != nil || len(parts) != 3 {
		return e, fmt.Errorf("%w: %d parts of an entry: %w", model.ErrMalformed, len(parts), err)
	}
	if e.Id, e.Fields, err = DecodePair(&parts[0]); err != nil {
		return e, err
	}
	if e.Deliveries, err = parts[1].AsInt64(); err != nil {
		return e, err
	}
	attempts, err := parts[2].AsInt64()
	e.Attempts = int(attempts)
	return e, err
}

// DecodePair reads {id, {field, value, …}}.
func DecodePair(m *rueidis.RedisMessage) (id string, fields []string, err error) {
	pair, err := m.ToArray()
	if err != nil || len(pair) != 2 {
		return "", nil, fmt.Errorf("%w: %d parts of an entry's data: %w", model.ErrMalformed, len(pair), err)
	}
	if id, err = pair[0].ToString(); err != nil {
		return "", nil, err
	}
	fields, err = pair[1].AsStrSlice()
	return id, fields, err
}

// Parcel is a delivery with what its entry holds; malformed ones have an error instead.
type Parcel struct {
	wire.Raw
	Entry wire.Entry
	Bad   error
}

// Unpack decodes entries and gets the payloads that lie beside the stream.
func (r *Reader) Unpack(ctx context.Context, entries []wire.Raw) ([]Parcel, error) {
	parcels := make([]Parcel, len(entries))
	var beside []int
	var keys []string
	var commands rueidis.Commands
	for i, e := range entries {
		p := Parcel{Raw: e}
		if p.Entry, p.Bad = r.Decode(e); p.Bad == nil && p.Entry.Format == wire.FormatOwn {
			if key := payloadKey(r.Src, &p.Entry); key != "" {
				beside, keys = append(beside, i), append(keys, key)
				commands = append(commands, r.Mq.Client.B().Get().Key(key).Build())
			}
			p.Entry.Unwrap()
		}
		parcels[i] = p
	}
	if len(commands) == 0 {
		return parcels, nil
	}
	for j, result := range r.Mq.Client.DoMulti(ctx, commands...) {
		p := &parcels[beside[j]]
		var err error
		if p.Bad, err = p.Entry.Bring(keys[j], result); err != nil {
			return nil, err
		}
	}
	return parcels, nil
}

// ForOthers tells that the entry was added again for another group, which had failed it or asked for its replay.
func (p *Parcel) ForOthers(group string) bool {
	other := p.Entry.Headers[model.HeaderRetryGroup]
	return other != "" && other != group
}

// original is the id of the message's first entry.
func (p *Parcel) original() string {
	return cmp.Or(p.Entry.OriginalID, p.Entry.Headers[model.HeaderOriginalID], p.Id)
}

// Published is when the message was published. The mover of the Java original writes its own time into an entry that it
// adds again: then it is the time of the first entry by the server's clock.
func (p *Parcel) Published() time.Time {
	at := p.Entry.Timestamp
	if ms, _, _ := strings.Cut(p.original(), "-"); at.IsZero() || p.Entry.RetryCount > 0 {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && (at.IsZero() || time.UnixMilli(n).Before(at)) {
			return time.UnixMilli(n)
		}
	}
	return at
}

func (r *Reader) Delivery(p *Parcel) *model.Delivery {
	original := p.original()
	return &model.Delivery{
		Topic: r.Src.Topic, Partition: r.Src.Part, Group: r.Group, ID: p.Id, UUID: p.Entry.Headers[model.HeaderUUID],
		Key: p.Entry.Key, Payload: p.Entry.Payload, Headers: p.Entry.Headers,
		Attempt: p.Entry.RetryCount + p.Attempts + 1, Deliveries: p.Deliveries, MaxAttempts: p.Entry.MaxRetries,
		OriginalID: original, Published: p.Published(), Epoch: r.Epoch,
	}
}

const (
	Never = 100 * 365 * 24 * time.Hour
	farID = "18446744073709551615-0" // behind every entry; the very last id would mean ">"
)

// CanClaim asks the server whether it knows XREADGROUP … CLAIM, by a read of its own pending entries after an id that none has. It
// is asked again after each error: another server, which does not, answers with one.
func (r *Reader) CanClaim(ctx context.Context) (bool, error) {
	err := r.Mq.Client.Do(ctx, r.Mq.Client.B().Arbitrary("XREADGROUP", "GROUP", r.Group, r.Consumer, "COUNT", "1", "CLAIM", "1", "STREAMS").
		Keys(r.Src.Stream()).Args(farID).Build()).Error()
	if err == nil || rueidis.IsRedisNil(err) {
		return true, nil
	}
	if _, refused := rueidis.IsRedisErr(err); refused && !stream.IsMissing(err) {
		return false, nil // each sort of server has its own words for it
	}
	return false, err
}

// Decode reads an entry in any format that its source may have.
func (r *Reader) Decode(e wire.Raw) (wire.Entry, error) {
	if !r.Src.Single {
		return wire.DecodeEntry(e.Fields)
	}
	data, own := "", false
	for i := 0; i+1 < len(e.Fields); i += 2 {
		switch e.Fields[i] {
		case wire.FieldEnvelope:
			data = e.Fields[i+1]
		case wire.FieldPayload, wire.FieldPayloadRef:
			own = true
		}
	}
	if data == "" && (own || r.Format == wire.FormatOwn) {
		return wire.DecodeEntry(e.Fields)
	}
	return wire.DecodeFastStream(e.Fields, data, r.Format)
}

// payloadKey is the key of a payload beside the stream; "" when it is in the entry.
func payloadKey(s core.Source, e *wire.Entry) string {
	if e.PayloadRef != "" {
		return s.Body(e.PayloadRef)
	}
	if s.Apart() || len(e.Payload) > 0 && e.Headers[model.HeaderPayloadStorage] != wire.PayloadJava {
		return ""
	}
	return e.Headers[model.HeaderPayloadRef]
}
