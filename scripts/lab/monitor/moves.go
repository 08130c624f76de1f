package monitor

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
)

// The keys of partitioned queues (contract §6) that a log of moves needs.
const (
	leasePrefix  = "streaming:mq:lease:"
	epochSuffix  = ":epoch"
	statusPrefix = "task:status:"
	partitionTag = "stream:topic:"
)

// moveReader turns lines of MONITOR into moves. A script's own line comes before those of its commands.
type moveReader struct {
	db     string
	fence  *fsck.Move // of the fenced script whose commands follow
	told   bool       // its effect
	bidder fsck.Move  // the last that asked for a lease
}

// line reads one line.
func (r *moveReader) line(line string) []fsck.Move {
	c, ok := parseCommand(line)
	if !ok {
		r.fence = nil // a command that was too long to be read
		return nil
	}
	if c.name == "FLUSHALL" || c.name == "FLUSHDB" && c.db == r.db {
		return []fsck.Move{{At: c.at, Op: fsck.MoveGap}}
	}
	if c.db != r.db {
		return nil
	}
	if !c.script {
		r.fence, r.told = nil, false
		switch c.name {
		case "EVAL", "EVALSHA":
			r.fence = fenced(c)
			return nil
		case "XREADGROUP":
			return directRead(c)
		}
	}
	return r.step(c)
}

// step is a command that changes something.
func (r *moveReader) step(c command) []fsck.Move {
	switch c.name {
	case "SET":
		return r.set(c)
	case "PEXPIRE":
		if len(c.args) < 2 || !c.script {
			return nil
		}
		if m, ok := leaseOf(c.args[0]); ok {
			m.At, m.Op, m.TTL = c.at, fsck.MoveRenew, milliseconds(c.args[1])
			return []fsck.Move{m}
		}
	case "DEL", "UNLINK":
		var out []fsck.Move
		for _, key := range c.args {
			if m, ok := leaseOf(key); ok {
				m.At, m.Op = c.at, fsck.MoveRelease
				out = append(out, m)
			}
		}
		return out
	case "XACK", "XCLAIM", "XREADGROUP":
		if c.script && r.fence != nil && !r.told {
			r.told = true
			m := *r.fence
			m.At, m.Op = c.at, fsck.MoveEffect
			return []fsck.Move{m}
		}
	}
	return nil
}

// set is the taking of a lease, a new epoch or a status.
func (r *moveReader) set(c command) []fsck.Move {
	if len(c.args) < 2 || !c.script {
		return nil
	}
	if uuid, ok := strings.CutPrefix(c.args[0], statusPrefix); ok {
		var s struct {
			Status    string    `json:"status"`
			UpdatedAt time.Time `json:"updatedAt"`
		}
		if json.Unmarshal([]byte(c.args[1]), &s) != nil {
			return nil
		}
		return []fsck.Move{{At: c.at, Op: fsck.MoveStatus, Message: uuid, State: s.Status, Updated: s.UpdatedAt}}
	}
	if lease, ok := strings.CutSuffix(c.args[0], epochSuffix); ok {
		m, ok := leaseOf(lease)
		if !ok {
			return nil
		}
		if r.bidder.Topic == m.Topic && r.bidder.Group == m.Group && r.bidder.Partition == m.Partition {
			m = r.bidder
		}
		m.At, m.Op, m.Epoch = c.at, fsck.MoveTake, c.args[1]
		r.bidder = fsck.Move{}
		return []fsck.Move{m}
	}
	if m, ok := leaseOf(c.args[0]); ok && len(c.args) == 5 { // SET lease member NX PX ttl
		m.Owner, m.TTL = c.args[1], milliseconds(c.args[4])
		r.bidder = m
	}
	return nil
}

// fenced is the fence of a script of a partition's owner; nil: it is another script.
func fenced(c command) *fsck.Move {
	if len(c.args) < 2 {
		return nil
	}
	n, err := strconv.Atoi(c.args[1])
	if err != nil || n < 2 || len(c.args) < 2+n+3 || !strings.HasPrefix(c.args[2], partitionTag) {
		return nil
	}
	lease, ok := strings.CutSuffix(c.args[3], epochSuffix)
	m, known := leaseOf(lease)
	if !ok || !known {
		return nil
	}
	m.Epoch, m.Owner = c.args[2+n], c.args[2+n+2]
	return &m
}

// directRead is a read under WATCH of the epoch: XREADGROUP GROUP group consumer … STREAMS key >.
func directRead(c command) []fsck.Move {
	if len(c.args) < 5 || !strings.HasPrefix(c.args[len(c.args)-2], partitionTag) {
		return nil
	}
	topic, number, ok := strings.Cut(strings.TrimPrefix(c.args[len(c.args)-2], partitionTag), ":p:")
	partition, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil
	}
	return []fsck.Move{{At: c.at, Op: fsck.MoveEffect, Topic: topic, Group: c.args[1], Owner: c.args[2], Partition: partition}}
}

// leaseOf is whose lease a key is.
func leaseOf(key string) (fsck.Move, bool) {
	rest, ok := strings.CutPrefix(key, leasePrefix)
	words := strings.Split(rest, ":")
	if !ok || len(words) != 3 {
		return fsck.Move{}, false
	}
	partition, err := strconv.Atoi(words[2])
	return fsck.Move{Topic: words[0], Group: words[1], Partition: partition}, err == nil
}

func milliseconds(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64) // Redis has taken it
	return time.Duration(n) * time.Millisecond
}
