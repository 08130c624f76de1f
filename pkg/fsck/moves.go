package fsck

import (
	"cmp"
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// MoveOp says what a Move is.
type MoveOp string

// The kinds of moves. All but MoveHandle are what Redis was asked and did.
const (
	MoveTake    MoveOp = "take"    // a lease, with Owner, Epoch and TTL; without an owner the epoch alone was set
	MoveRenew   MoveOp = "renew"   // a lease, with TTL
	MoveRelease MoveOp = "release" // a lease
	MoveEffect  MoveOp = "effect"  // something was read or settled, by Owner under Epoch; "": the reader watched the epoch
	MoveStatus  MoveOp = "status"  // of Message: State, Updated
	MoveGap     MoveOp = "gap"     // Redis lost what it had, or was not looked at for a while
	MoveHandle  MoveOp = "handle"  // a handler began: ID, Key, Attempt
)

// Move is one step of partitioned queues (pkg/streammq). A log of them is in the order in which they were done.
type Move struct {
	At        time.Time     `json:"at"` // the server's clock; of MoveHandle the process's
	Op        MoveOp        `json:"op"`
	Topic     string        `json:"topic,omitempty"`
	Group     string        `json:"group,omitempty"`
	Partition int           `json:"partition,omitempty"`
	Owner     string        `json:"owner,omitempty"`
	Epoch     string        `json:"epoch,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`
	ID        string        `json:"id,omitempty"`
	Key       string        `json:"key,omitempty"`
	Attempt   int           `json:"attempt,omitempty"`
	Message   string        `json:"message,omitempty"`
	State     string        `json:"state,omitempty"`
	Updated   time.Time     `json:"updated,omitzero"`
}

const (
	// leaseSkew is how much later than a script's own clock its commands may be shown.
	leaseSkew = 100 * time.Millisecond
	// laneSlack is how far two claims of one process may pass each other: a worker reads with two loops.
	laneSlack = time.Second
)

// shard is one partition for one group.
type shard struct {
	topic, group string
	partition    int
}

func (p shard) String() string { return p.topic + "/" + strconv.Itoa(p.partition) + " of " + p.group }

// holder is who has a partition, as far as the log tells.
type holder struct {
	owner, epoch string
	until        time.Time
	known        bool // a taking was seen, and no loss since
}

// moves judges a log of the partitioned queue.
type moves struct {
	c       *checker
	holders map[shard]*holder
	orders  map[orderKey]*order
	states  map[string]Move // the last status of a message
}

type orderKey struct {
	shard
	key string
}

// order is what was handled of one key.
type order struct {
	last string
	seen map[string]bool
}

// judgeMoves is I31 to I33 by the log, and I32 by the rows.
func (c *checker) judgeMoves(ctx context.Context) error {
	if err := c.judgeClaims(ctx); err != nil {
		return err
	}
	if c.e.Moves == nil {
		c.notJudged("no log of the partitioned queue", "I31", "I33")
		return nil
	}
	m := moves{c: c, holders: map[shard]*holder{}, orders: map[orderKey]*order{}, states: map[string]Move{}}
	return readLines(c.e.Moves, m.add)
}

// add judges one move.
func (m *moves) add(v Move) error {
	at := shard{v.Topic, v.Group, v.Partition}
	switch v.Op {
	case MoveTake:
		m.take(at, v)
	case MoveRenew:
		if h := m.holders[at]; h != nil {
			h.until = v.At.Add(v.TTL)
		}
	case MoveRelease:
		if h := m.holders[at]; h != nil {
			h.until = time.Time{}
		}
	case MoveEffect:
		m.effect(at, v)
	case MoveStatus:
		m.status(v)
	case MoveGap:
		for _, h := range m.holders {
			h.known = false // its epoch must rise all the same
		}
		clear(m.states)
	case MoveHandle:
		m.handle(at, v)
	}
	return nil
}

// take is I31: a lease is taken when nobody has it, and begins a higher epoch.
func (m *moves) take(at shard, v Move) {
	h := m.holders[at]
	if h == nil {
		h = &holder{}
		m.holders[at] = h
	}
	if h.known && h.owner != "" && v.Owner != "" && h.owner != v.Owner {
		m.c.verdict(!v.At.Before(h.until.Add(-leaseSkew)), "I31", at.String(), "%s took the lease at %s, %s had it until %s",
			v.Owner, stamp(v.At), h.owner, stamp(h.until))
	} else {
		m.c.judged("I31")
	}
	if h.epoch != "" && compareNumbers(h.epoch, v.Epoch) >= 0 {
		m.c.bad("I31", at.String(), "epoch %s of %s came after %s", v.Epoch, v.Owner, h.epoch)
	}
	*h = holder{owner: v.Owner, epoch: v.Epoch, until: v.At.Add(v.TTL), known: true}
}

// effect is I31: what is read and settled carries the epoch of the last taking.
func (m *moves) effect(at shard, v Move) {
	h := m.holders[at]
	if h == nil || !h.known {
		return
	}
	if v.Epoch != "" {
		m.c.verdict(v.Epoch == h.epoch, "I31", at.String(), "%s read or settled at %s under epoch %s, the epoch was %s",
			v.Owner, stamp(v.At), v.Epoch, h.epoch)
		return
	}
	m.c.verdict(h.owner == "" || v.Owner == h.owner, "I31", at.String(), "%s read at %s, the owner was %s", v.Owner, stamp(v.At), h.owner)
}

// handle is I32: first deliveries of one key come in the order of the stream. Retries, and what another life had begun, may come later.
func (m *moves) handle(at shard, v Move) {
	key := orderKey{at, v.Key}
	o := m.orders[key]
	if o == nil {
		o = &order{seen: map[string]bool{}}
		m.orders[key] = o
	}
	if v.Attempt != 1 || v.Key == "" || o.seen[v.ID] {
		return
	}
	o.seen[v.ID] = true
	m.c.verdict(compareEntries(o.last, v.ID) < 0, "I32", at.String(), "entry %s of key %s was begun after %s", v.ID, v.Key, o.last)
	if compareEntries(o.last, v.ID) < 0 {
		o.last = v.ID
	}
}

// status is I33: completed is final, and times do not go back.
func (m *moves) status(v Move) {
	before, known := m.states[v.Message]
	m.states[v.Message] = v
	if !known {
		m.c.judged("I33")
		return
	}
	m.c.verdict(before.State != "completed" || v.State == "completed", "I33", v.Message, "it was completed at %s and %s at %s",
		stamp(before.Updated), v.State, stamp(v.Updated))
	if v.Updated.Before(before.Updated) {
		m.c.bad("I33", v.Message, "its status of %s came after that of %s", stamp(v.Updated), stamp(before.Updated))
	}
}

// judgeClaims is I32 by the rows: the tasks of one document in one partition begin in the order of the deliveries that began
// them. One whose delivery was replaced by a copy, at a stop, stands behind the newer ones in the stream.
func (c *checker) judgeClaims(ctx context.Context) error {
	type beginning struct {
		task, entry string
		at          taskstate.DBTime
	}
	last, document := map[string]beginning{}, "" // the furthest entry that was begun, by partition
	return c.each(ctx, func(rows *sql.Rows) error {
		var b beginning
		var of, delivery string
		if err := rows.Scan(&of, &b.task, &delivery, &b.at); err != nil {
			return err
		}
		partition, entry, _ := strings.Cut(delivery, ":")
		if strings.Trim(partition, "0123456789") != "" || !strings.Contains(entry, "-") {
			return nil // of another queue
		}
		if of != document {
			document = of
			clear(last)
		}
		b.entry = entry
		before, again := last[partition]
		if again {
			passed := millis(entry) < millis(before.entry) && before.at.Add(laneSlack).Before(b.at.Time)
			c.verdict(!passed, "I32", b.task, "it began by entry %s at %s, task %s of the same document by entry %s at %s",
				delivery, stamp(b.at.Time), before.task, before.entry, stamp(before.at.Time))
		}
		if !again || compareEntries(before.entry, entry) < 0 {
			last[partition] = b
		}
		return nil
	}, c.q.Get("Beginnings"))
}

// millis is the time in the id of a stream's entry; 0 for what is none.
func millis(id string) int64 {
	left, _, _ := strings.Cut(id, "-")
	ms, _ := strconv.ParseInt(left, 10, 64)
	return ms
}

// compareEntries compares ids of stream entries; "" comes before all.
func compareEntries(a, b string) int {
	ams, aseq, _ := strings.Cut(a, "-")
	bms, bseq, _ := strings.Cut(b, "-")
	return cmp.Or(compareNumbers(ams, bms), compareNumbers(aseq, bseq))
}

// compareNumbers compares decimal numbers of any width.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
