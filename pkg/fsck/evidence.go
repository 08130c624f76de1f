package fsck

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// DB is what the checker needs of the database; taskstate.Database is one.
type DB interface {
	Reader() taskstate.Tx
	Moment(ctx context.Context) (taskstate.DBClock, error)
	Dialect() string
}

// Writer is a database whose rows Repair can mend; taskstate.Database is one.
type Writer interface {
	InTx(ctx context.Context, f taskstate.TxFunc) error
}

// The kinds of what an example of a violation is about, as Kinds names them.
const (
	KindTask     = "task"
	KindDocument = "document"
	KindBase     = "base" // a knowledge base
)

// Kinds tells which of ids are those of tasks, documents and knowledge bases that are there; others are missing from the map.
func Kinds(ctx context.Context, db DB, ids []string) (map[string]string, error) {
	q := sqldb.MustLoad(queryFiles, "queries", db.Dialect())
	out := map[string]string{}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !sqldb.ASCII(id) })
	for part := range slices.Chunk(ids, repairBatch) {
		args := slices.Concat(sqldb.Args(part), sqldb.Args(part), sqldb.Args(part))
		err := sqldb.Each(ctx, db.Reader(), func(rows *sql.Rows) error {
			var kind, id string
			err := rows.Scan(&kind, &id)
			out[id] = kind
			return err
		}, q.List("Kinds", len(part), len(part), len(part)), args...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Evidence is what there is to judge by. DB is needed; without one of the others the rules that need it are not judged.
type Evidence struct {
	DB      DB
	Vectors ingest.VectorStore
	Files   *files.Folder
	Queue   ingestq.Inspector
	// Copies goes round the queue of the mirror once, names the task of each copy with the status of its row, read after the copy was
	// taken (StatusNone: there is none), and leaves all of them there.
	Copies func(ctx context.Context, met func(task string, row taskstate.Status)) error
	// Stats asks the gateway for its counts by status.
	Stats func(ctx context.Context) (map[taskstate.Status]int64, error)
	// Effects is what the embedding service was asked, Client what clients saw, Acks what was acknowledged: JSON lines.
	Effects, Client, Acks io.Reader
	// Moves is what the partitioned queue did.
	Moves io.Reader
	// Logs are texts in which no secret may stand, by name.
	Logs map[string]io.Reader
}

// Options say what is asked and what is known of the installation.
type Options struct {
	// History asks for all rules; without it only the content is checked: rows, files, segments, vectors, dead letters.
	History bool
	// Deep compares the values of every visible version's vectors with those of the embedding cache.
	Deep bool
	// FileAge is how young a file without a row is no violation; 0: DefaultFileAge.
	FileAge time.Duration
	// Policy holds the settings in force since Since; nil: not known.
	Policy *taskstate.Policy
	Since  time.Time
	// DLQ says that a dead letter stream is set.
	DLQ bool
	// Rest says that all work has come to its end and nothing is broken any more.
	Rest bool
	// Want are tasks that must not be SUCCEEDED at rest but this, by id; nil: nothing is expected of outcomes.
	Want map[string]taskstate.Status
	// Patience is how long the loops of the product may take for what they do by themselves (a sweep, a takeover).
	Patience time.Duration
	// WholeClient says that the client log has every request that was ever sent.
	WholeClient bool
	// RepliesLost says that something between worker and embedding service may have lost answers that were paid for.
	RepliesLost bool
	// InFlight is how many batches of one task are embedded at the same time.
	InFlight int
	// Operators are users whose searches reach every document.
	Operators []string
	// Flushes are the times at which the queue had lost all it had.
	Flushes []time.Time
	// Canaries are secrets that were planted: they must stand nowhere.
	Canaries []string
	// Progress is told again and again how many of all steps of the check are done; it must not block. nil: nobody asks.
	Progress func(done, steps int)
}

// tell is Progress, if anybody asks.
func (o Options) tell(done, steps int) {
	if o.Progress != nil {
		o.Progress(done, steps)
	}
}

// Ages of a file without a row that is no violation: an upload may be under way, and what a crash left is the sweep's,
// which removes it after a day.
const (
	DefaultFileAge = 25 * time.Hour
	AnyFileAge     = -1 // at rest, where nothing crashed: there is none
)

// DefaultPatience is a sweep, a reclaim and some load: L6 allows 15 s.
const DefaultPatience = 15 * time.Second

// Effect is one request that the embedding service got, as embedtest writes it.
type Effect struct {
	At        time.Time `json:"at"`
	Task      string    `json:"task"`
	Fence     int64     `json:"fence"`
	Batch     string    `json:"batch"`
	TextsHash string    `json:"textsHash"`
	Texts     int       `json:"texts"`
	Status    int       `json:"status"`
	Paid      bool      `json:"paid"`
	Spoiled   bool      `json:"spoiled,omitempty"` // what was answered is of no use
}

// Ack is one acknowledgement that the queue got.
type Ack struct {
	At     time.Time `json:"at"`
	ID     string    `json:"id"`
	Script bool      `json:"script,omitempty"` // by a script that checks for itself: reconciling, hand-back
}

// Outcome is what a client knows of a request.
type Outcome string

// The outcomes. A request without a whole answer stays Maybe for ever: it is never taken for failed.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeRefused Outcome = "refused"
	OutcomeMaybe   Outcome = "maybe"
)

// The operations of a client. The first three take a file, and with the fourth they make a task.
const (
	OpUpload  = "upload"  // BodyHash, Key; with force too
	OpReplace = "replace" // a new version of Document
	OpImport  = "import"  // a task that another source made
	OpApply   = "apply"   // a workflow
	OpDelete  = "delete"
	OpCancel  = "cancel"
	OpRetry   = "retry"
	OpSuspend = "suspend"
	OpResume  = "resume"
	OpSearch  = "search" // Hits
	OpEvent   = "event"  // one server-sent event: Watcher, Task, Transition, Status
	OpRead    = "read"   // anything else that changes nothing
	OpOutage  = "outage" // the database was killed right after Began and answered again at Ended
)

// ClientRecord is one line of a client's log: a request with its answer, or one server-sent event.
// Its times are the client's own clock, Began before the first byte was sent and Ended after the last was read.
type ClientRecord struct {
	Op        string    `json:"op"`
	User      string    `json:"user"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	Outcome   Outcome   `json:"outcome"`
	Status    int       `json:"status,omitempty"` // of HTTP; 0: no answer
	Code      string    `json:"code,omitempty"`   // of a refusal
	Key       string    `json:"key,omitempty"`    // Idempotency-Key as sent; a request with several files has one
	BodyHash  string    `json:"bodyHash,omitempty"`
	Task      string    `json:"task,omitempty"`     // asked for, or answered
	Document  string    `json:"document,omitempty"` // asked for, or answered
	Duplicate bool      `json:"duplicate,omitempty"`
	Replayed  bool      `json:"replayed,omitempty"`
	Hits      []Hit     `json:"hits,omitempty"`

	// Of an event. One Watcher is one client that goes and comes back with Last-Event-ID; its events stand in their order.
	Watcher    string `json:"watcher,omitempty"`
	Transition int64  `json:"transition,omitempty"`
	State      string `json:"state,omitempty"` // the task's status
	Attempt    int    `json:"attempt,omitempty"`
	Crashes    int    `json:"crashes,omitempty"`
}

// Hit is what a search answered.
type Hit struct {
	Document string `json:"document"`
	Version  int64  `json:"version"` // the visible version's number
}

// ReadClientLog gives every record of a log to f, in its order; a last line that was cut off by a crash is dropped.
// Errors: f's; a line that is no record.
func ReadClientLog(r io.Reader, f func(ClientRecord) error) error { return readLines(r, f) }

// readLines gives each JSON line to f; a last line without its end is dropped.
func readLines[T any](r io.Reader, f func(T) error) error {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
