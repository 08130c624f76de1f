package fsck_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

var errAway = errors.New("away")

// lostVectors is a vector store of which some calls fail.
type lostVectors struct {
	ingest.VectorStore
	get, list, query, change error
}

func (s lostVectors) Get(ctx context.Context, base string, ids []string, values bool) (map[string]ingest.Vector, error) {
	if s.get != nil {
		return nil, s.get
	}
	return s.VectorStore.Get(ctx, base, ids, values)
}

func (s lostVectors) List(ctx context.Context, base string, offset, limit int) ([]string, error) {
	if s.list != nil {
		return nil, s.list
	}
	return s.VectorStore.List(ctx, base, offset, limit)
}

func (s lostVectors) Query(ctx context.Context, base string, v []float32, k int, births []string) ([]ingest.Hit, error) {
	if s.query != nil {
		return nil, s.query
	}
	return s.VectorStore.Query(ctx, base, v, k, births)
}

func (s lostVectors) Delete(context.Context, string, []string) error        { return s.change }
func (s lostVectors) Upsert(context.Context, string, []ingest.Vector) error { return s.change }

// lostQueue is a queue of which some looks fail.
type lostQueue struct {
	ingestq.Inspector
	look, letters error
}

func (q lostQueue) Look(ctx context.Context) (ingestq.State, error) {
	if q.look != nil {
		return ingestq.State{}, q.look
	}
	return q.Inspector.Look(ctx)
}

func (q lostQueue) DeadLetters(context.Context, func(ingestq.WrittenDeadLetter) error) error {
	return q.letters
}

// What keeps a check from looking is an error, and never a report that finds nothing.
func TestACheckThatCannotLookSaysWhatItWasAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	for want, spoil := range map[string]func(e *fsck.Evidence){
		"look at the queue: away":                        func(e *fsck.Evidence) { e.Queue = lostQueue{w.queue, errAway, nil} },
		"check dead letters: away":                       func(e *fsck.Evidence) { e.Queue = lostQueue{w.queue, nil, errAway} },
		"check documents: vectors of collection " + base: func(e *fsck.Evidence) { e.Vectors = lostVectors{VectorStore: w.vectors, get: errAway} },
		"check vectors: list base " + base + ": away":    func(e *fsck.Evidence) { e.Vectors = lostVectors{VectorStore: w.vectors, list: errAway} },
		"check vectors: base " + base + ": away":         func(e *fsck.Evidence) { e.Vectors = lostVectors{VectorStore: w.vectors, query: errAway} },
		"read the client log: line 2":                    func(e *fsck.Evidence) { e.Client = strings.NewReader("{}\nno record\n") },
		"read effects: line 1":                           func(e *fsck.Evidence) { e.Effects = strings.NewReader("[]\n") },
		"read acknowledgements: away":                    func(e *fsck.Evidence) { e.Acks = iotest.ErrReader(errAway) },
		"check the partitions: line 1":                   func(e *fsck.Evidence) { e.Moves = strings.NewReader(`{"partition":"one"}` + "\n") },
		"check the copies: away": func(e *fsck.Evidence) {
			e.Copies = func(context.Context, func(string, taskstate.Status)) error { return errAway }
		},
		"scan logs: read a.log: away":                      func(e *fsck.Evidence) { e.Logs = map[string]io.Reader{"a.log": iotest.ErrReader(errAway)} },
		"check the counts: ask the gateway for its counts": func(e *fsck.Evidence) { e.Stats = noCounts },
	} {
		e := w.evidence()
		spoil(&e)
		found, err := fsck.Check(t.Context(), e, w.options)
		require.ErrorContains(t, err, want)
		require.Empty(t, found.Report, want)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fsck.Check(gone, w.evidence(), w.options)
	require.ErrorContains(t, err, "read the clock")
}

func noCounts(context.Context) (map[taskstate.Status]int64, error) { return nil, errAway }

func TestAClientLogThatWasCutOff(t *testing.T) {
	t.Parallel()
	read := func(text string) (ops []string, err error) {
		err = fsck.ReadClientLog(strings.NewReader(text), func(r fsck.ClientRecord) error {
			ops = append(ops, r.Op)
			if r.Op == "stop" {
				return errAway
			}
			return nil
		})
		return ops, err
	}
	ops, err := read("{\"op\":\"upload\"}\n{\"op\":\"search\"}\n{\"op\":\"del")
	require.NoError(t, err, "its process crashed while it wrote the last line")
	require.Equal(t, []string{"upload", "search"}, ops)
	ops, err = read("{\"op\":\"upload\"}\n{\"op\":\n{\"op\":\"search\"}\n")
	require.ErrorContains(t, err, "line 2", "no crash leaves half a line in the middle")
	require.Equal(t, []string{"upload"}, ops)
	ops, err = read("{\"op\":\"stop\"}\n{\"op\":\"search\"}\n")
	require.ErrorIs(t, err, errAway)
	require.Equal(t, []string{"stop"}, ops)
}

// A store that lists an id twice has two vectors of one name, of which a search may find either.
func TestAVectorThatTheStoreListsTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	e := w.evidence()
	e.Vectors = twice{w.vectors}
	found, err := fsck.Check(t.Context(), e, w.options)
	require.NoError(t, err)
	require.Contains(t, found.Report.Rule("I25").Examples[0].Problem, "twice")
}

// twice lists every id two times.
type twice struct{ ingest.VectorStore }

func (s twice) List(ctx context.Context, base string, offset, limit int) ([]string, error) {
	ids, err := s.VectorStore.List(ctx, base, offset, limit)
	return append(ids, ids...), err
}

// A store that returns vectors of another length, or of no length, has other values than were paid for.
func TestValuesOfAnotherLengthAreOtherValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.options.Deep = true
	for what, change := range map[string]func(v []float32) []float32{
		"shorter": func(v []float32) []float32 { return v[:dim-1] },
		"none":    func([]float32) []float32 { return nil },
		"zeros":   func([]float32) []float32 { return make([]float32, dim) },
	} {
		e := w.evidence()
		e.Vectors = changed{w.vectors, change}
		found, err := fsck.Check(t.Context(), e, w.options)
		require.NoError(t, err)
		require.EqualValues(t, 4, found.Report.Rule("I25").Violations, what)
		require.Contains(t, found.Report.Rule("I25").Examples[0].Problem, "has other values", what)
		require.False(t, found.Missing[0].Held, "%s: a repair must not take them", what)
	}
}

// changed returns other values.
type changed struct {
	ingest.VectorStore
	change func(v []float32) []float32
}

func (s changed) Get(ctx context.Context, base string, ids []string, values bool) (map[string]ingest.Vector, error) {
	rows, err := s.VectorStore.Get(ctx, base, ids, values)
	for id, row := range rows {
		row.Values = s.change(row.Values)
		rows[id] = row
	}
	return rows, err
}

// A repair that fails says at what, and what was done before stays done.
func TestARepairThatFailsSaysWhatItWasAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	lost := w.vector()
	w.stray()
	require.NoError(t, w.vectors.Delete(t.Context(), base, []string{lost}))
	w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
	found := w.find()
	e := w.evidence()
	e.Vectors = lostVectors{VectorStore: w.vectors, change: errAway}
	done, err := fsck.Repair(t.Context(), e, found)
	require.ErrorContains(t, err, "delete strays: away")
	require.Equal(t, fsck.Repaired{Rows: 1, Mended: 3}, done, "its base, task and file spoke against it")
	found.Strays = nil
	_, err = fsck.Repair(t.Context(), e, found)
	require.ErrorContains(t, err, "write missing vectors: version "+w.goodVersion()+": away")
	w.sql(`DELETE FROM embedding_ledger`)
	_, err = fsck.Repair(t.Context(), e, found, deaf{})
	require.ErrorContains(t, err, "embed: away")
}

// deaf is an embedder that does not answer.
type deaf struct{ fake }

func (deaf) Embed(context.Context, []string) ([][]float32, error) { return nil, errAway }

// Between a check and a repair work goes on: what is in order by then is left alone.
func TestARepairLooksAgain(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		w.stray()
		require.NoError(t, w.vectors.Delete(t.Context(), base, []string{w.vector()}))
		name := w.id("8005")
		path := filepath.Join(w.dir, name)
		require.NoError(t, os.WriteFile(path, []byte("whose?"), 0o600))
		long := time.Now().Add(-26 * time.Hour)
		require.NoError(t, os.Chtimes(path, long, long))
		w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
		found := w.find()
		require.Len(t, found.Strays, 1)
		require.Len(t, found.Missing, 1)
		require.Len(t, found.Suspects, 1)
		require.Equal(t, []string{name}, found.Orphans)

		w.garbage(hash("stray"))
		w.hide()
		w.sql(`UPDATE knowledge_document SET user_id = 'u' WHERE id = ?`, w.goodDocument())
		w.sql(`INSERT INTO stored_file (id, user_id, sha256, bytes, original_name, media_type, path, created_at) VALUES (?, 'u', ?, 6, 'f', 'text/plain', ?, ?)`,
			name, hash("whose?"), name, now())
		done, err := fsck.Repair(t.Context(), w.evidence(), found, fake{})
		require.NoError(t, err)
		require.Equal(t, fsck.Repaired{}, done)
		require.FileExists(t, path)
	})
}

// A database that is only looked at keeps its rows, and the repair says what is wrong with them.
func TestARepairThatMayNotWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
	found := w.find()
	e := w.evidence()
	e.DB = struct{ fsck.DB }{w.store}
	done, err := fsck.Repair(t.Context(), e, found)
	require.NoError(t, err)
	require.Zero(t, done.Rows)
	require.NotEmpty(t, done.Left)
	require.Equal(t, "mallory", w.read(`SELECT user_id FROM knowledge_document WHERE id = ?`, w.goodDocument()))
}

// A sampler is a loop of a service: it ends with its context, and a vector store that is away is no finding.
func TestASamplerOutlivesItsStores(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	s := fsck.NewSampler(w.store, lostVectors{VectorStore: w.vectors, get: errAway}, policy, time.Millisecond, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, s.Look(t.Context()), "the first look only notes the log's end")
	require.ErrorContains(t, s.Look(t.Context()), "vectors of base "+base)
	require.Empty(t, s.Lost(), "nobody knows what it holds")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	cancel()
	require.NoError(t, <-ended)
}

// numbered is a database whose n-th read, or transaction, fails.
type numbered struct {
	fsck.DB
	n, failAt int
}

func (d *numbered) next() bool {
	d.n++
	return d.n == d.failAt
}

func (d *numbered) Reader() taskstate.Tx { return numberedTx{d.DB.Reader(), d} }

func (d *numbered) InTx(ctx context.Context, f taskstate.TxFunc) error {
	if d.next() {
		return errAway
	}
	return d.DB.(fsck.Writer).InTx(ctx, f)
}

type numberedTx struct {
	taskstate.Tx
	d *numbered
}

func (t numberedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t.d.next() {
		return nil, errAway
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t numberedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if t.d.next() { // a row cannot carry another error
		gone, cancel := context.WithCancel(ctx)
		cancel()
		ctx = gone
	}
	return t.Tx.QueryRowContext(ctx, query, args...)
}

// Whichever statement of a check fails: it is an error, and never a report that finds less.
func TestNoStatementOfACheckFailsUnseen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.accept(w.id("8002"), "key-8") // QUEUED: its events are looked for
	w.queue.deadLetters = append(w.queue.deadLetters, ingestq.WrittenDeadLetter{ID: "8-0", TaskID: w.good, Fence: 1})
	w.pend(ingestq.Unacked{ID: "9-0", TaskID: w.good})
	w.hide()
	w.stray()
	require.NoError(t, os.Remove(filepath.Join(w.dir, w.goodFile())))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, w.id("8005")), []byte("whose?"), 0o600))
	w.options.FileAge, w.options.Deep = fsck.AnyFileAge, true
	w.options.Patience, w.copies = time.Millisecond, []string{w.twin} // what has no copy, and what has one left, is looked for
	check := func(failAt int) (*numbered, fsck.Findings, error) {
		d := &numbered{DB: w.store, failAt: failAt}
		e := w.evidence()
		e.DB = d
		found, err := fsck.Check(t.Context(), e, w.options)
		return d, found, err
	}
	whole, _, err := check(0)
	require.NoError(t, err)
	require.Greater(t, whole.n, 40)
	for n := 1; n <= whole.n; n++ {
		_, found, err := check(n)
		require.Error(t, err, "statement %d", n)
		require.Empty(t, found.Report, "statement %d", n)
	}
}

// damagedAll is a world in which a repair has all that it can mend.
func damagedAll(t *testing.T) *world {
	w := newWorld(t, databases["sqlite"](t))
	w.stray()
	require.NoError(t, w.vectors.Delete(t.Context(), base, []string{w.vector()}))
	w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
	w.sql(`UPDATE knowledge_document SET content_sha256 = ? WHERE latest_task_id = ?`, hash("other"), w.twin)
	w.sql(`DELETE FROM stored_file WHERE id = ?`, w.goodFile())
	w.sql(`UPDATE knowledge_text_part SET tokens = 99`)
	w.sql(`UPDATE document_metadata SET value = 'b1' WHERE name = 'year'`)
	path := filepath.Join(w.dir, w.id("8005"))
	require.NoError(t, os.WriteFile(path, []byte("whose?"), 0o600))
	long := time.Now().Add(-26 * time.Hour)
	require.NoError(t, os.Chtimes(path, long, long))
	w.options.History = false
	return w
}

// Whichever statement of a repair fails: it is an error, nothing is worse, and the next repair mends what is left.
func TestARepairThatFailedIsDoneAgain(t *testing.T) {
	t.Parallel()
	repair := func(w *world, failAt int) (*numbered, error) {
		d := &numbered{DB: w.store, failAt: failAt}
		found := w.find()
		e := w.evidence()
		e.DB = d
		_, err := fsck.Repair(t.Context(), e, found, fake{})
		return d, err
	}
	whole, err := repair(damagedAll(t), 0)
	require.NoError(t, err)
	require.Greater(t, whole.n, 30)
	for n := 1; n <= whole.n; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			w := damagedAll(t)
			before := w.check().Violations()
			d, err := repair(w, n)
			if d.n >= n {
				require.Error(t, err)
			}
			require.LessOrEqual(t, w.check().Violations(), before)
			_, err = repair(w, 0)
			require.NoError(t, err)
			require.NoError(t, w.check().Err())
		})
	}
}

// Whichever statement of a sampler's look fails: nothing is counted, and a later look goes on where it was.
func TestASamplerWhoseLookFailsLooksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	d := &numbered{DB: w.store}
	metrics := prometheus.NewRegistry()
	s := fsck.NewSampler(d, w.vectors, policy, time.Hour, slog.New(slog.DiscardHandler), metrics)
	fail := func(n int) error {
		d.n, d.failAt = 0, n
		return s.Look(t.Context())
	}
	require.ErrorContains(t, fail(1), "find the end of the log")
	require.NoError(t, fail(0))
	broken := w.document(w.id("8002"), "key-6")
	w.edit(`attempt_count = 0`, `task_id = ? AND reason = 'FAILED'`, broken)
	require.ErrorContains(t, fail(1), "find what moved")
	require.ErrorContains(t, fail(2), "task "+broken)
	require.Zero(t, counted(t, metrics))
	require.NoError(t, fail(0))
	require.Positive(t, counted(t, metrics))
	require.ErrorContains(t, fail(2), "list bases")
}

// counted is the sum of a sampler's violations.
func counted(t *testing.T, metrics *prometheus.Registry) (sum float64) {
	families, err := metrics.Gather()
	require.NoError(t, err)
	for _, m := range families[0].GetMetric() {
		sum += m.GetCounter().GetValue()
	}
	return sum
}
