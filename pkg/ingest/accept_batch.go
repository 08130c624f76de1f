package ingest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

// acceptState is how far an upload has come in its transaction.
type acceptState int

const (
	acceptOpen      acceptState = iota
	acceptAnswered              // a replay or duplicate: nothing is written for it
	acceptRefused               // by its own error
	acceptPostponed             // to the next transaction, because another upload has to be seen first
	acceptWrites                // it makes a version and a task
)

// acceptWork is one upload in one run of the accept transaction.
type acceptWork struct {
	c     Caller
	u     Upload
	state acceptState
	raced bool // postponed because of another process
	got   acceptance
	err   error

	base     Base
	exists   bool // got.document is a document that the upload is another version of
	replayOf string
	fileID   string // of the row that holds the bytes
	filePath string
}

func (w *acceptWork) refuse(err error) { w.state, w.err = acceptRefused, err }

// again lets the upload be looked at anew: what it found was gone or changed when it was locked.
func (w *acceptWork) again() { w.state, w.raced = acceptPostponed, true }

// acceptRun is one run of the accept transaction over a batch of uploads. Every rule holds for each upload as if it came alone:
// what depends on another upload of the same batch is postponed until that one is committed.
type acceptRun struct {
	app   *App
	tx    taskstate.Tx
	m     taskstate.DBClock
	full  *backlogFullError
	works []*acceptWork

	documents map[string]documentRow // live and locked, by id
	holders   map[pair]string        // documents by base and bytes
	files     map[pair]storedFile    // by user and bytes
	latest    map[string]taskBrief   // last tasks of documents, by id
}

// pair is a key of two columns.
type pair struct{ a, b string }

// compare orders pairs as an index does.
func (p pair) compare(q pair) int {
	return cmp.Or(strings.Compare(p.a, q.a), strings.Compare(p.b, q.b))
}

// taskBrief is what a repeated upload has to know of the document's last task.
type taskBrief struct{ status, payload, path string }

func newAcceptRun(a *App, tx taskstate.Tx, m taskstate.DBClock, items []*accepting, full *backlogFullError) *acceptRun {
	r := &acceptRun{app: a, tx: tx, m: m, full: full, works: make([]*acceptWork, len(items))}
	for i, x := range items {
		r.works[i] = &acceptWork{c: x.c, u: x.u}
	}
	return r
}

// prepare is the accept transaction: it answers the tasks to insert, none for replays and duplicates.
// Locks are taken in the order of the whole product: bases, documents by id, files by id, inserts.
func (r *acceptRun) prepare(ctx context.Context) ([]taskstate.NewTask, error) {
	for _, step := range []func(context.Context) error{r.replays, r.findBases, r.findSame, r.lockDocuments, r.readLatest} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.decide()
	return r.write(ctx)
}

// each calls f for the uploads of a state, in the order of their arrival.
func (r *acceptRun) each(state acceptState, f func(w *acceptWork)) {
	for _, w := range r.works {
		if w.state == state {
			f(w)
		}
	}
}

// query runs a statement and scans every row.
func (r *acceptRun) query(ctx context.Context, what, query string, params []any, scan func(*sql.Rows) error) error {
	return queryRows(ctx, r.tx, what, query, params, scan)
}

// queryRows runs a statement in a transaction and scans every row.
func queryRows(ctx context.Context, tx taskstate.Tx, what, query string, params []any, scan func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query, params...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// pairs runs a statement with one (@any …) of two columns, unless there is nothing to look for.
func (r *acceptRun) pairs(ctx context.Context, what, name string, keys map[pair]bool, scan func(*sql.Rows) error) error {
	if len(keys) == 0 {
		return nil
	}
	params := pairArgs(keys)
	return r.query(ctx, what, r.app.q.Any(name, len(params)/2), params, scan)
}

// pairArgs are the keys in a fixed order, the last one repeated up to a power of two: few different texts reach the caches of statements.
func pairArgs(keys map[pair]bool) []any {
	sorted := padded(slices.SortedFunc(maps.Keys(keys), pair.compare))
	out := make([]any, 0, 2*len(sorted))
	for _, k := range sorted {
		out = append(out, k.a, k.b)
	}
	return out
}

// padded repeats the last value up to a power of two.
func padded[T any](values []T) []T {
	for n := len(values); n&(n-1) != 0; n++ {
		values = append(values, values[len(values)-1])
	}
	return values
}

// replays looks for the tasks of earlier requests with the same keys.
func (r *acceptRun) replays(ctx context.Context) error {
	keys := map[pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.IdempotencyKey != "" {
			keys[pair{w.c.Scope.UserID, w.u.IdempotencyKey}] = true
		}
	})
	type earlier struct{ task, hash, document, base, path string }
	found := map[pair]earlier{}
	err := r.pairs(ctx, "look for the keys' tasks", "TasksByKey", keys, func(rows *sql.Rows) error {
		var e earlier
		var k pair
		err := rows.Scan(&e.task, &k.a, &k.b, &e.hash, &e.document, &e.base, &e.path)
		e.document, e.base = strings.TrimSpace(e.document), strings.TrimSpace(e.base)
		found[k] = e
		return err
	})
	if err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		e, replay := found[pair{w.c.Scope.UserID, w.u.IdempotencyKey}]
		switch {
		case !replay:
		case e.hash != w.u.File.SHA256:
			w.refuse(ErrKeyReused)
		default:
			w.state, w.replayOf, w.base.ID = acceptAnswered, e.document, e.base
			w.got.taskID, w.got.replayed, w.got.ownFile = e.task, true, e.path == w.u.File.ID
		}
	})
	return nil
}

// findSame looks for documents and stored files with the uploads' bytes.
func (r *acceptRun) findSame(ctx context.Context) error {
	r.holders, r.files = map[pair]string{}, map[pair]storedFile{}
	files, documents := map[pair]bool{}, map[pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		files[w.fileKey()] = true
		documents[pair{w.base.ID, w.u.File.SHA256}] = true
	})
	r.each(acceptAnswered, func(w *acceptWork) { // a replay brings a good copy too
		files[w.fileKey()] = true
		documents[pair{w.base.ID, w.u.File.SHA256}] = true
	})
	if len(files) == 0 {
		return nil
	}
	params, more := pairArgs(files), pairArgs(documents)
	query := r.app.q.Any("SameBytes", len(params)/2, len(more)/2)
	return r.query(ctx, "look for the same bytes", query, append(params, more...), func(rows *sql.Rows) error {
		var kind, id string
		var k pair
		if err := rows.Scan(&kind, &id, &k.a, &k.b); err != nil {
			return err
		}
		k.a = strings.TrimSpace(k.a)
		if _, older := r.files[k]; kind == "file" && !older {
			r.files[k] = storedFile{id: id}
		}
		if kind == "document" {
			r.holders[k] = id
		}
		return nil
	})
}

// lockDocuments locks the documents that the uploads are further versions of, and reads those of replays.
func (r *acceptRun) lockDocuments(ctx context.Context) error {
	r.documents = map[string]documentRow{}
	ids := map[string]bool{}
	for _, w := range r.works {
		if id := r.documentID(w); id != "" {
			ids[id] = true
		}
	}
	if len(ids) > 0 {
		list := padded(slices.Sorted(maps.Keys(ids)))
		err := r.query(ctx, "lock documents", r.app.q.List("DocumentsWhole", len(list)), args(list), func(rows *sql.Rows) error {
			d, err := scanWholeDocument(rows)
			if d.DeletedAt.IsZero() {
				r.documents[d.ID] = d
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, w := range r.works {
		d, found := r.documents[r.documentID(w)]
		switch {
		case w.state == acceptAnswered && !found: // its document is deleted
			w.got.baseName = ""
		case w.state == acceptAnswered:
			w.got.document = d
		case w.state != acceptOpen, r.documentID(w) == "":
		case !found && w.u.DocumentID != "":
			w.refuse(ErrDocumentNotFound)
		case !found, w.u.DocumentID == "" && d.SHA256 != w.u.File.SHA256:
			w.again() // deleted, or renewed, between the two statements
		default:
			w.got.document, w.exists = d, true
		}
	}
	return nil
}

// documentID is the document that an upload has to do with; empty: it makes one.
func (r *acceptRun) documentID(w *acceptWork) string {
	switch {
	case w.state == acceptAnswered:
		return w.replayOf
	case w.state != acceptOpen:
		return ""
	case w.u.DocumentID != "":
		return w.u.DocumentID
	}
	return r.holders[pair{w.base.ID, w.u.File.SHA256}]
}

// readLatest reads the last tasks of the locked documents.
func (r *acceptRun) readLatest(ctx context.Context) error {
	r.latest = map[string]taskBrief{}
	ids := map[string]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.exists {
			ids[w.got.document.LatestTask] = true
		}
	})
	if len(ids) == 0 {
		return nil
	}
	list := padded(slices.Sorted(maps.Keys(ids)))
	return r.query(ctx, "read the documents' last tasks", r.app.q.List("TasksBrief", len(list)), args(list), func(rows *sql.Rows) error {
		var id string
		var t taskBrief
		err := rows.Scan(&id, &t.status, &t.payload, &t.path)
		r.latest[id] = t
		return err
	})
}
