// Package monitor reads what Redis is asked, by MONITOR, and writes it down for the checker.
package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/scripts/lab/await"
)

// monitorPause is the pause before Redis is asked again after it went away.
const monitorPause = 50 * time.Millisecond

// Monitor is what one database of a Redis is asked, by MONITOR.
type Monitor struct {
	Addr, DB string
	Acks     io.Writer // every acknowledgement as a JSON line (fsck.Ack)
	Moves    *MoveLog  // what partitioned queues do; nil: not kept
}

// MoveLog writes moves as JSON lines (fsck.Move), in the order in which it is told of them.
type MoveLog struct {
	mu     sync.Mutex
	lines  *json.Encoder
	failed error
}

// NewMoveLog writes to out.
func NewMoveLog(out io.Writer) *MoveLog { return &MoveLog{lines: json.NewEncoder(out)} }

// Note writes moves.
func (l *MoveLog) Note(moves ...fsck.Move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range moves {
		if l.failed == nil {
			l.failed = l.lines.Encode(m)
		}
	}
}

// Err is the first failure of a write.
func (l *MoveLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Record writes until stop is called, which returns the first error of a write. While Redis is away there is nothing to see; what the
// first milliseconds after its return bring may be missing.
func (m Monitor) Record() (stop func() error) {
	lines := json.NewEncoder(m.Acks)
	return await.Beside(context.Background(), func(ctx context.Context) (failed error) {
		for {
			if m.Moves != nil {
				m.Moves.Note(fsck.Move{At: time.Now().UTC(), Op: fsck.MoveGap})
			}
			reader := moveReader{db: m.DB}
			monitor(ctx, m.Addr, func(line string) {
				for _, a := range parseAcks(line, m.DB) {
					if failed == nil {
						failed = lines.Encode(a)
					}
				}
				if m.Moves != nil {
					m.Moves.Note(reader.line(line)...)
				}
			})
			if await.Pause(ctx, monitorPause) {
				continue
			}
			if m.Moves != nil {
				return errors.Join(failed, m.Moves.Err())
			}
			return failed
		}
	})
}

// monitor gives each line to note until the connection breaks or ctx ends.
func monitor(ctx context.Context, addr string, note func(line string)) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unwatch()
	defer conn.Close() //nolint:errcheck // only read
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		return
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	for long := false; ; {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = true // its rest is no command
		case err != nil:
			return
		case long:
			long = false
			note("")
		default:
			note(string(line))
		}
	}
}

// command is one line of MONITOR.
type command struct {
	at     time.Time
	db     string
	script bool // by a script
	name   string
	args   []string // of a command that is watched
}

// watched are the commands that acknowledgements and moves are read from.
var watched = map[string]bool{
	"XACK": true, "XCLAIM": true, "XREADGROUP": true, "SET": true, "PEXPIRE": true, "DEL": true, "UNLINK": true, "EVAL": true, "EVALSHA": true,
	"FLUSHALL": true, "FLUSHDB": true,
}

// parseCommand reads one line of MONITOR: +seconds.micros [db client] "COMMAND" "word" …; the client of a script is "lua".
// A quote inside a word has a backslash before it, so that a space between quotes parts two words.
func parseCommand(line string) (command, bool) {
	head, rest, ok := strings.Cut(strings.TrimSpace(line), `] "`)
	stamp, client, _ := strings.Cut(head, " [")
	db, who, _ := strings.Cut(client, " ")
	seconds, micros, _ := strings.Cut(strings.TrimPrefix(stamp, "+"), ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, microsErr := strconv.ParseInt(micros, 10, 64)
	if !ok || err != nil || microsErr != nil {
		return command{}, false
	}
	c := command{at: time.Unix(s, us*1000).UTC(), db: db, script: who == "lua"}
	name, _, _ := strings.Cut(rest, `"`)
	if c.name = strings.ToUpper(name); !watched[c.name] {
		return c, true
	}
	words := strings.Split(strings.TrimSuffix(rest, `"`), `" "`)
	for i, w := range words {
		if strings.Contains(w, `\`) {
			if words[i], err = strconv.Unquote(`"` + w + `"`); err != nil {
				return command{}, false
			}
		}
	}
	c.args = words[1:]
	return c, true
}

// taskStream is the stream of workflow tasks (contract §5).
const taskStream = "queue:tasks"

// parseAcks are the acknowledgements of one line.
func parseAcks(line, db string) []fsck.Ack {
	c, ok := parseCommand(line)
	if !ok || c.db != db || c.name != "XACK" || len(c.args) < 3 {
		return nil
	}
	partition := ""
	if c.args[0] == taskStream {
		partition = "/" // as deliveries of workflow tasks are named
	}
	if number, ok := strings.CutPrefix(c.args[0], "stream:topic:"+streamq.Topic+":p:"); ok {
		partition = number + ":" // as deliveries of partitions are named
	}
	var out []fsck.Ack
	for _, id := range c.args[2:] {
		out = append(out, fsck.Ack{At: c.at, ID: partition + id, Script: c.script})
	}
	return out
}
