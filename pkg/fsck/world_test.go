package fsck_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

const (
	base  = "00000000-0000-7000-8000-00000000000b"
	tomb  = "00000000-0000-7000-8000-0000000000de" // a deleted document
	model = "local/1"
	dim   = 4
	body  = "the bytes of the upload"
	said  = `{"lang":"de","year":2024}` // metadata of the documents
)

var policy = taskstate.Policy{BaseBackoff: 0, MaxBackoff: 0, Lease: time.Minute, MaxCrashes: 3, Slack: time.Second, DLQ: true}

// stillQueue is a queue as a look finds it.
type stillQueue struct {
	state       ingestq.State
	deadLetters []ingestq.WrittenDeadLetter
	before      func()         // what happens between the look at the log and that at the dead letters; nil: nothing
	later       *ingestq.State // what all looks but the first find; nil: the same
	looked      bool
}

func (q *stillQueue) Look(context.Context) (ingestq.State, error) {
	if q.looked && q.later != nil {
		return *q.later, nil
	}
	q.looked = true
	return q.state, nil
}

func (q *stillQueue) DeadLetters(_ context.Context, f func(ingestq.WrittenDeadLetter) error) error {
	if q.before != nil {
		q.before()
	}
	for _, l := range q.deadLetters {
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}

// world is an installation at rest that keeps every rule: real database, vector store and files.
type world struct {
	t       *testing.T
	store   *taskstore.Store
	vectors ingest.VectorStore
	chroma  *chromaHTTP // where the vectors are; nil: embedded
	files   *files.Folder
	dir     string
	queue   *stillQueue
	copies  []string // tasks with a copy; nil: all that are unfinished
	options fsck.Options
	stats   map[taskstate.Status]int64

	client  []fsck.ClientRecord
	effects []fsck.Effect
	acks    []fsck.Ack
	moves   []fsck.Move
	logs    string

	good, dead, twin string // tasks
	sequence         int
	changes          int // of rows by hand
}

// databases are the three dialects.
var databases = map[string]func(t *testing.T) taskstore.Config{
	"sqlite": func(t *testing.T) taskstore.Config {
		return taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}
	},
	"mariadb": func(t *testing.T) taskstore.Config { return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)} },
	"postgres": func(t *testing.T) taskstore.Config {
		return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)}
	},
}

// everyDatabase runs a test on a world of each dialect.
func everyDatabase(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for kind, open := range labserver.Databases(databases) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, open(t)))
		})
	}
}

// newWorld makes one.
func newWorld(t *testing.T, cfg taskstore.Config) *world {
	t.Helper()
	store, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	w := &world{t: t, store: store, dir: t.TempDir(), queue: &stillQueue{}}
	vectors, err := embedded.Open(t.TempDir(), embedded.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vectors.Close()) })
	w.vectors = vectors
	w.files, err = files.Open(w.dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.files.Close()) })
	w.options = fsck.Options{History: true, Policy: &policy, DLQ: true, Rest: true, WholeClient: true, Canaries: []string{"canary-4711"}}
	w.fill()
	return w
}

// id is the next of a kind, in the order of their making.
func (w *world) id(kind string) string {
	w.sequence++
	return fmt.Sprintf("00000000-0000-7000-%s-%012d", kind, w.sequence)
}

// sql changes rows.
func (w *world) sql(query string, args ...any) {
	w.t.Helper()
	w.changes++
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

// state changes columns of a task's state, by a call that says when it wakes then.
func (w *world) state(set, id string, args ...any) {
	w.t.Helper()
	key, raw := sqldb.RawID(w.store.Dialect(), id), uuid.MustParse(id)
	if name, isDelivery := strings.CutPrefix(set, "delivery = "); isDelivery && w.store.Dialect() == string(sqldb.MySQL) {
		name = strings.NewReplacer("-", "a", ":", "b", "k", "c").Replace(strings.Trim(name, "'"))
		set = "delivery = x'" + name + strings.Repeat("f", 32-len(name)) + "'"
	}
	w.sql("UPDATE ingest_task_state SET "+set+" WHERE id = ?", append(args, key)...)
	w.sql(`INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, wake_at, tasks, ids, created_at)
		SELECT ?, status, status, 'SILENT', 1, 'system:test', wake_at, 1, ?, updated_at FROM ingest_task_state WHERE id = ?`, raw[:], raw[:], key)
}

// edit changes transitions where they are kept: in the log, or in the row of their call, which changed no other task.
func (w *world) edit(set, where string, args ...any) {
	w.t.Helper()
	n := strings.Count(set, "?")
	column, _, _ := strings.Cut(set, " ")
	statement := `UPDATE ingest_task_log SET ` + set + ` WHERE call_no = ?`
	if slices.Contains([]string{"from_status", "to_status", "reason", "lease_expires_at", "created_at"}, column) {
		statement = `UPDATE ingest_task_call SET ` + set + ` WHERE no = ?`
	}
	for _, no := range w.calls(where, args[n:]...) {
		w.sql(`UPDATE ingest_task_log SET attempt_count = COALESCE(attempt_count, (SELECT c.attempt_count FROM ingest_task_call c WHERE c.no = call_no)),
			crash_count = COALESCE(crash_count, (SELECT c.crash_count FROM ingest_task_call c WHERE c.no = call_no)),
			fence = COALESCE(fence, (SELECT c.fence FROM ingest_task_call c WHERE c.no = call_no)) WHERE call_no = ?`, no)
		w.sql(statement, append(slices.Clone(args[:n]), no)...)
	}
}

// unlog deletes transitions.
func (w *world) unlog(where string, args ...any) {
	w.t.Helper()
	for _, no := range w.calls(where, args...) {
		w.sql(`DELETE FROM ingest_task_log WHERE call_no = ?`, no)
	}
}

// calls are the numbers of transitions; there is one at least.
func (w *world) calls(where string, args ...any) []int64 {
	w.t.Helper()
	out, err := sqldb.Collect(w.t.Context(), w.store.Reader(), sqldb.Column[int64], sqldb.Rebind(sqldb.Dialect(w.store.Dialect()), `SELECT id FROM ingest_task_transition WHERE `+where), args...)
	require.NoError(w.t, err)
	require.NotEmpty(w.t, out, where)
	return out
}

// apply moves a task.
func (w *world) apply(id string, f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) taskstate.Task {
	w.t.Helper()
	outs, err := w.store.Apply(w.t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	require.NoError(w.t, err)
	require.NoError(w.t, outs[0].Err)
	require.NotNil(w.t, outs[0].Change, "%s: %s", id, outs[0].Answer)
	return outs[0].After
}

// claim lets a worker take a task.
func (w *world) claim(id, worker, delivery string) taskstate.Holder {
	w.t.Helper()
	var epoch int64
	actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: worker}
	t := w.apply(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		epoch = m.Epoch
		return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: worker + "/1", Process: worker, Actor: actor, Delivery: delivery, Alone: true})
	})
	return taskstate.Holder{Token: taskstate.Token{Epoch: epoch, Fence: t.Fence}, Actor: actor}
}

// accept makes a task of a document, with its request in the client log.
func (w *world) accept(document, key string) string {
	w.t.Helper()
	id := w.id("8001")
	sum := hash(body)
	_, err := w.store.Submit(w.t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{{
			Task: taskstate.Task{ID: id, UserID: "u", DocumentID: document, KnowledgeBase: base, Type: "document", Channel: "http", MaxAttempts: 3, IdempotencyKey: key, RequestHash: sum,
				Payload: json.RawMessage(`{"fileName":"f","mediaType":"text/plain","sha256":"` + sum + `"}`)},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"},
		}}, nil
	})
	require.NoError(w.t, err)
	w.client = append(w.client, fsck.ClientRecord{
		Op: fsck.OpUpload, User: "u", Outcome: fsck.OutcomeOK, Status: 202, Key: key, BodyHash: sum, Task: id, Document: document, Ended: now(),
	})
	return id
}

// sent puts an event of a task into the outbox that was sent.
func (w *world) sent(task string) {
	at := now()
	w.sql(`INSERT INTO outbox_event (id, topic, message_key, payload, status, wake_at, created_at, sent_at) VALUES (?, 'ingest-tasks', ?, '{}', 'SENT', ?, ?, ?)`,
		w.id("8009"), task, at, at, at)
}

// fill makes two documents of the same bytes, one task that died, and a tombstone.
func (w *world) fill() {
	at := now()
	w.sql(`INSERT INTO knowledge_base (id, user_id, name, live_name, model_key, dim, created_at, updated_at) VALUES (?, 'u', 'default', 'default', ?, ?, ?, ?)`,
		base, model, dim, at, at)
	for i, text := range []string{"first", "second"} {
		w.sql(`INSERT INTO embedding_ledger VALUES (?, ?, ?, ?, ?)`, model, hash(text), dim, floats(values(i)), at)
	}
	w.sql(`INSERT INTO document_count (base_id, status, documents, segments) VALUES (?, 'READY', 0, 0)`, base)
	w.good = w.document(w.id("8002"), "key-1")
	w.twin = w.document(w.id("8002"), "key-2")

	w.attach(w.goodDocument())
	w.sent(w.good) // it travelled by Kafka too

	w.dead = w.accept(w.id("8002"), "key-3")
	w.client[len(w.client)-1].Document = "" // it has none of its own here
	h := w.claim(w.dead, "w1", "3-0")
	t := w.apply(w.dead, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(policy, m, t, h, taskstate.Failure{Code: "X", Cause: "cannot be read", Permanent: true})
	})
	w.apply(w.dead, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.MarkDLQ(m, t, h.Token)
	})
	w.queue.deadLetters = []ingestq.WrittenDeadLetter{{ID: "1-0", TaskID: w.dead, Fence: t.Fence}, {ID: "2-0"}}
	w.sql(`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, latest_task_id, created_at, updated_at, deleted_at, sweep_at, sweep_pass)
		VALUES (?, 'u', ?, 't', 'f', 'text/plain', 'READY', 1, ?, ?, ?, ?, ?, ?, 1)`, tomb, base, hash("x"), w.dead, at, at, at, at)
	w.receipt(tomb, at, nil, nil)
	w.queue.state = ingestq.State{
		Length: 1, First: "9-0", Deleted: "3-0", Groups: []ingestq.Group{{Name: "g", Given: "9-0"}},
		Pending: []ingestq.Unacked{{Group: "g", ID: "9-0", TaskID: w.id("8003")}},
	}
	w.queue.state.Pending = nil
	w.moves = someMoves()
	w.stats = map[taskstate.Status]int64{taskstate.StatusSucceeded: 2, taskstate.StatusDead: 1}
	w.logs = "{\"level\":\"info\",\"msg\":\"all well\",\"password\":\"***\"}\n"
}

// receipt writes that of a deleted document.
func (w *world) receipt(document string, deleted time.Time, removed, verified any) {
	w.sql(`INSERT INTO document_deletion (document_id, user_id, base_id, content_sha256, bytes, versions, segments, vectors, files, deleted_by, deleted_at, removed_at, verified_at, sweep_at)
		VALUES (?, 'u', ?, ?, 1, 1, 0, 0, '', 'user:u', ?, ?, ?, ?)`, document, base, hash("x"), deleted, removed, verified, deleted)
}

// attach makes the twin an attachment of a document.
func (w *world) attach(message string) {
	w.sql(`UPDATE knowledge_document SET parent_id = ?, parent_no = 1 WHERE latest_task_id = ?`, message, w.twin)
}

// document makes one that was processed with a failure, a takeover of its delivery and a success.
func (w *world) document(id, key string) string {
	task, version, file := w.accept(id, key), w.id("8004"), w.id("8005")
	delivery := key[4:] + "-0"
	h := w.claim(task, "w1", delivery)
	w.pay(task, h.Token.Fence, "batch-"+key)
	outcome := time.Now().Add(5 * time.Millisecond) // clearly later than the claim, on a quick machine too
	require.Eventually(w.t, func() bool { return time.Now().After(outcome) }, time.Minute, time.Millisecond)
	w.apply(task, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(policy, m, t, h, taskstate.Failure{Code: "X", Cause: "connection refused"})
	})
	h = w.claim(task, "w2", "")
	at := now()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, file), []byte(body), 0o600))
	w.sql(`INSERT INTO stored_file (id, user_id, sha256, bytes, original_name, media_type, path, created_at) VALUES (?, 'u', ?, ?, 'f', 'text/plain', ?, ?)`,
		file, hash(body), len(body), file, at)
	w.sql(`INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, model_key, dim, extractor, splitter, title, segment_count, created_at, updated_at, sweep_at, metadata)
		VALUES (?, ?, ?, ?, ?, 1, 1, 'VISIBLE', ?, ?, 'text/1', 'split/1', 't', 2, ?, ?, ?, ?)`, version, id, base, task, file, model, dim, at, at, at, said)
	w.say(version, id, said)
	w.sql(`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, segment_count, bytes, content_sha256, visible_version_id, visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
		VALUES (?, 'u', ?, 't', 'f', 'text/plain', 'READY', 2, ?, ?, ?, 1, 1, 1, 1, ?, ?, ?, ?)`, id, base, len(body), hash(body), version, task, at, at, at)
	w.sql(`INSERT INTO document_count_change (base_id, status, documents, segments) VALUES (?, 'READY', 1, 2)`, base)
	var rows []ingest.Vector
	for i, text := range []string{"first", "second"} {
		vector := hash(version + text)
		w.sql(`INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id, heading_path, byte_start, byte_end)
			VALUES (?, ?, 1, ?, ?, ?, ?, ?, '[]', ?, ?)`, id, version, i, text, hash(text), vector, version, 10*i, 10*i+9)
		rows = append(rows, ingest.Vector{ID: vector, DocumentID: id, Birth: version, Values: values(i)})
	}
	require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, rows))
	w.index(version, "first", "second")
	w.apply(task, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, h, nil, "")
	})
	w.acks = append(w.acks, fsck.Ack{At: now().Add(time.Second), ID: delivery})
	w.watch(task)
	began := now()
	w.client = append(w.client, fsck.ClientRecord{
		Op: fsck.OpSearch, User: "u", Outcome: fsck.OutcomeOK, Status: 200, Began: began, Ended: began.Add(time.Millisecond), Hits: []fsck.Hit{{Document: id, Version: 1}},
	})
	return task
}

// say writes the rows by which filters find a version's metadata.
func (w *world) say(version, document string, said ingest.Metadata) {
	for _, pair := range said.Pairs() {
		w.sql(`INSERT INTO document_metadata (version_id, name, value, document_id, base_id) VALUES (?, ?, ?, ?, ?)`, version, pair[0], pair[1], document, base)
	}
}

// index writes the words of a version's segments.
func (w *world) index(version string, texts ...string) {
	var all []textindex.Text
	for i, text := range texts {
		all = append(all, textindex.Text{Version: version, Index: i, TextHash: hash(text), Title: "t", Text: text})
	}
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return textindex.New(w.store).Add(ctx, tx, m.Now, textindex.Build(base, all))
	}))
}

// watch lets a client see the whole log of a task.
func (w *world) watch(task string) {
	log, err := w.store.Transitions(w.t.Context(), taskstate.System(), task, 0, 0)
	require.NoError(w.t, err)
	for _, tr := range log {
		w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpEvent, User: "u", Outcome: fsck.OutcomeOK, Watcher: "w-" + task, Task: task, Transition: tr.ID, State: string(tr.To)})
	}
}

// pay logs a call of the embedding service.
func (w *world) pay(task string, fence int64, batch string) {
	w.effects = append(w.effects, fsck.Effect{At: now(), Task: task, Fence: fence, TextsHash: batch, Texts: 2, Status: 200, Paid: true})
}

// check judges the world.
func (w *world) check() history.Report {
	w.t.Helper()
	return w.find().Report
}

// find is check with what a repair needs.
func (w *world) find() fsck.Findings {
	w.t.Helper()
	found, err := fsck.Check(w.t.Context(), w.evidence(), w.options)
	require.NoError(w.t, err)
	return found
}

// evidence is all that there is.
func (w *world) evidence() fsck.Evidence {
	return fsck.Evidence{
		DB: w.store, Vectors: w.vectors, Files: w.files, Queue: w.queue,
		Copies: func(ctx context.Context, met func(string, taskstate.Status)) error {
			ids := w.copies
			if ids == nil {
				var err error
				ids, err = sqldb.Texts(ctx, w.store.Reader(), `SELECT id FROM ingest_task WHERE status NOT IN ('SUCCEEDED', 'DEAD', 'CANCELLED')`)
				if err != nil {
					return err
				}
			}
			for _, id := range ids {
				t, err := w.store.Get(ctx, taskstate.System(), id)
				if err != nil {
					return err
				}
				met(id, t.Status)
			}
			met(w.id("8fff"), taskstate.StatusNone) // of a task that has no row: it is kept
			return nil
		},
		Stats:   func(context.Context) (map[taskstate.Status]int64, error) { return w.stats, nil },
		Effects: lines(w.t, w.effects), Client: lines(w.t, w.client), Acks: lines(w.t, w.acks), Moves: lines(w.t, w.moves),
		Logs: map[string]io.Reader{"worker.log": strings.NewReader(w.logs)},
	}
}

// lines renders records as a log.
func lines[T any](t *testing.T, records []T) io.Reader {
	var b strings.Builder
	for _, r := range records {
		require.NoError(t, json.NewEncoder(&b).Encode(r))
	}
	return strings.NewReader(b.String())
}

// values are the vector of the n-th text.
func values(n int) []float32 { return []float32{1, float32(n), 0, 0} }

// floats is a vector as the embedding cache has it.
func floats(values []float32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// run writes a row of workflow_runs.
func (w *world) run(task, status string) {
	w.t.Helper()
	w.sql(`INSERT INTO workflow_runs (task_id, workflow_id, status, created_at, updated_at) VALUES (?, 'w', ?, ?, ?)`, task, status, now(), now())
}
