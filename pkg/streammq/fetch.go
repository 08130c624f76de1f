package streammq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// errLost tells that another member has, or may have, the source now.
var errLost = errors.New("lease lost")

// reader reads one source for one consumer, under one epoch.
type reader struct {
	mq       *core
	src      source
	group    string
	consumer string
	epoch    string // empty on a single stream
	status   bool   // of a single stream: its messages have one
	letters  string // key of the stream of its dead letters; empty: the topic's, or the partition's, own
	format   Format // of a single stream's entries that have no envelope
	deletes  DeletePolicy
	claims   string // ms from which a read takes what others have not touched; empty: it takes nothing of theirs
}

func (r *reader) keys() []string {
	return []string{r.src.stream(), r.src.epoch(r.group), r.src.due(r.group), r.src.attempts(r.group)}
}

// fetched is the answer of a read.
type fetched struct {
	entries []raw
	lost    int           // entries whose data is gone
	last    string        // fetch: the stream's last id when nothing new was there; recover and claimOwn: the last id looked at
	wait    time.Duration // until the next retry in place; negative: none waits
}

// fetch reads retries that are due, then what it claims, then new entries. Errors: errLost, or Redis' own.
func (r *reader) fetch(ctx context.Context, most int) (fetched, error) {
	return r.call(ctx, r.mq.scripts.Fetch, r.epoch, r.group, r.consumer, strconv.Itoa(most), r.claims)
}

// recover takes over pending entries after an id ("" for all). Errors: errLost, or Redis' own.
func (r *reader) recover(ctx context.Context, most int, after string) (fetched, error) {
	return r.call(ctx, r.mq.scripts.Recover, r.epoch, r.group, r.consumer, strconv.Itoa(most), stream.Behind(after))
}

// claim takes entries of dead consumers of a single stream, and of silent ones.
func (r *reader) claim(ctx context.Context, most int, idle time.Duration, dead []string) (fetched, error) {
	args := append([]string{r.group, r.consumer, strconv.Itoa(most), stream.Millis(idle), "-"}, dead...)
	return r.call(ctx, r.mq.scripts.Claim, args...)
}

// claimOwn takes what this consumer had in another life, after an id ("" for all).
func (r *reader) claimOwn(ctx context.Context, most int, after string) (fetched, error) {
	got, err := r.call(ctx, r.mq.scripts.Claim, r.group, r.consumer, strconv.Itoa(most), stream.Millis(never), stream.Behind(after), r.consumer)
	if got.last == "" && len(got.entries) >= most { // due retries have taken all the room: nothing was looked at
		got.last = cmp.Or(after, "0-0")
	}
	return got, err
}

func (r *reader) call(ctx context.Context, s stream.Script, args ...string) (fetched, error) {
	answer, err := r.mq.Run(ctx, s, r.keys(), args...).ToArray()
	if err != nil {
		return fetched{}, err
	}
	if code, err := answer[0].AsInt64(); err != nil || code != 1 {
		return fetched{}, errLost
	}
	f := fetched{wait: -1}
	items, err := answer[1].ToArray()
	if err != nil {
		return f, err
	}
	f.entries = make([]raw, len(items))
	for i := range items {
		if f.entries[i], err = decodeRaw(&items[i]); err != nil {
			return f, err
		}
	}
	lost, err := answer[2].AsInt64()
	f.lost = int(lost)
	if len(answer) > 3 && err == nil {
		f.last, err = answer[3].ToString()
	}
	if len(answer) > 4 && err == nil {
		var ms int64
		ms, err = answer[4].AsInt64()
		f.wait = time.Duration(ms) * time.Millisecond
	}
	if len(answer) > 5 && err == nil {
		err = f.unpack(&answer[5])
	}
	return f, err
}

// unpack adds the new entries, which come packed.
func (f *fetched) unpack(m *rueidis.RedisMessage) error {
	text, err := m.ToString()
	if err != nil {
		return err
	}
	entries, err := decodePacked(text)
	if len(f.entries) == 0 {
		f.entries = entries
	} else {
		f.entries = append(f.entries, entries...)
	}
	return err
}

// decodeRaw reads {{id, {field, value, …}}, deliveries, attempts}.
func decodeRaw(m *rueidis.RedisMessage) (raw, error) {
	var e raw
	parts, err := m.ToArray()
	if err != nil || len(parts) != 3 {
		return e, fmt.Errorf("%w: %d parts of an entry: %w", ErrMalformed, len(parts), err)
	}
	if e.id, e.fields, err = decodePair(&parts[0]); err != nil {
		return e, err
	}
	if e.deliveries, err = parts[1].AsInt64(); err != nil {
		return e, err
	}
	attempts, err := parts[2].AsInt64()
	e.attempts = int(attempts)
	return e, err
}

// decodePair reads {id, {field, value, …}}.
func decodePair(m *rueidis.RedisMessage) (id string, fields []string, err error) {
	pair, err := m.ToArray()
	if err != nil || len(pair) != 2 {
		return "", nil, fmt.Errorf("%w: %d parts of an entry's data: %w", ErrMalformed, len(pair), err)
	}
	if id, err = pair[0].ToString(); err != nil {
		return "", nil, err
	}
	fields, err = pair[1].AsStrSlice()
	return id, fields, err
}

// parcel is a delivery with what its entry holds; malformed ones have an error instead.
type parcel struct {
	raw
	entry entry
	bad   error
}

// unpack decodes entries and gets the payloads that lie beside the stream.
func (r *reader) unpack(ctx context.Context, entries []raw) ([]parcel, error) {
	parcels := make([]parcel, len(entries))
	var beside []int
	var keys []string
	var commands rueidis.Commands
	for i, e := range entries {
		p := parcel{raw: e}
		if p.entry, p.bad = r.decode(e); p.bad == nil && p.entry.format == FormatOwn {
			if key := payloadKey(r.src, &p.entry); key != "" {
				beside, keys = append(beside, i), append(keys, key)
				commands = append(commands, r.mq.Client.B().Get().Key(key).Build())
			}
			p.entry.unwrap()
		}
		parcels[i] = p
	}
	if len(commands) == 0 {
		return parcels, nil
	}
	for j, result := range r.mq.Client.DoMulti(ctx, commands...) {
		p := &parcels[beside[j]]
		var err error
		if p.bad, err = p.entry.bring(keys[j], result); err != nil {
			return nil, err
		}
	}
	return parcels, nil
}

// forOthers tells that the entry was added again for another group, which had failed it or asked for its replay.
func (p *parcel) forOthers(group string) bool {
	other := p.entry.headers[HeaderRetryGroup]
	return other != "" && other != group
}

// original is the id of the message's first entry.
func (p *parcel) original() string {
	return cmp.Or(p.entry.originalID, p.entry.headers[HeaderOriginalID], p.id)
}

// published is when the message was published. The mover of the Java original writes its own time into an entry that it
// adds again: then it is the time of the first entry by the server's clock.
func (p *parcel) published() time.Time {
	at := p.entry.timestamp
	if ms, _, _ := strings.Cut(p.original(), "-"); at.IsZero() || p.entry.retryCount > 0 {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && (at.IsZero() || time.UnixMilli(n).Before(at)) {
			return time.UnixMilli(n)
		}
	}
	return at
}

func (r *reader) delivery(p *parcel) *Delivery {
	original := p.original()
	return &Delivery{
		Topic: r.src.topic, Partition: r.src.part, Group: r.group, ID: p.id, UUID: p.entry.headers[HeaderUUID],
		Key: p.entry.key, Payload: p.entry.payload, Headers: p.entry.headers,
		Attempt: p.entry.retryCount + p.attempts + 1, Deliveries: p.deliveries, MaxAttempts: p.entry.maxRetries,
		OriginalID: original, Published: p.published(), Epoch: r.epoch,
	}
}

const (
	never = 100 * 365 * 24 * time.Hour
	farID = "18446744073709551615-0" // behind every entry; the very last id would mean ">"
)

// canClaim asks the server whether it knows XREADGROUP … CLAIM, by a read of its own pending entries after an id that none has. It
// is asked again after each error: another server, which does not, answers with one.
func (r *reader) canClaim(ctx context.Context) (bool, error) {
	err := r.mq.Client.Do(ctx, r.mq.Client.B().Arbitrary("XREADGROUP", "GROUP", r.group, r.consumer, "COUNT", "1", "CLAIM", "1", "STREAMS").
		Keys(r.src.stream()).Args(farID).Build()).Error()
	if err == nil || rueidis.IsRedisNil(err) {
		return true, nil
	}
	if _, refused := rueidis.IsRedisErr(err); refused && !stream.IsMissing(err) {
		return false, nil // each sort of server has its own words for it
	}
	return false, err
}

// decode reads an entry in any format that its source may have.
func (r *reader) decode(e raw) (entry, error) {
	if !r.src.single {
		return decodeEntry(e.fields)
	}
	data, own := "", false
	for i := 0; i+1 < len(e.fields); i += 2 {
		switch e.fields[i] {
		case fieldEnvelope:
			data = e.fields[i+1]
		case fieldPayload, fieldPayloadRef:
			own = true
		}
	}
	if data == "" && (own || r.format == FormatOwn) {
		return decodeEntry(e.fields)
	}
	return decodeFastStream(e.fields, data, r.format)
}

// payloadKey is the key of a payload beside the stream; "" when it is in the entry.
func payloadKey(s source, e *entry) string {
	if e.payloadRef != "" {
		return s.body(e.payloadRef)
	}
	if s.apart() || len(e.payload) > 0 && e.headers[HeaderPayloadStorage] != payloadJava {
		return ""
	}
	return e.headers[HeaderPayloadRef]
}
