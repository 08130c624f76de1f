package upload

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
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
	c     ingest.Caller
	u     ingest.Upload
	asked string // what makes a request with the same key the same: a sum of the bytes, and of the metadata if there is any; of a rollback what it names
	state acceptState
	raced bool // postponed because of another process
	got   acceptance
	err   error

	base     ingest.Base
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
	app   *Uploads
	tx    taskstate.Tx
	m     taskstate.DBClock
	full  error // why nothing new may be made; nil: it may
	works []*acceptWork

	documents map[string]catalog.DocumentRow // live and locked, by id
	holders   map[sqldb.Pair]string          // documents by base and bytes
	files     map[sqldb.Pair][]*storedFile   // by user and bytes, the oldest first
	latest    map[string]taskBrief           // last tasks of documents, by id
	tasks     []taskstate.NewTask            // to insert
}

// taskBrief is what a repeated upload has to know of the document's last task.
type taskBrief struct{ status, payload, path string }

func newAcceptRun(a *Uploads, tx taskstate.Tx, m taskstate.DBClock, items []*accepting, full error) *acceptRun {
	r := &acceptRun{app: a, tx: tx, m: m, full: full, works: make([]*acceptWork, len(items))}
	for i, x := range items {
		r.works[i] = &acceptWork{c: x.c, u: x.u, asked: requestHash(x.u)}
	}
	return r
}

func requestHash(u ingest.Upload) string {
	if u.Lost != nil {
		return u.Lost.RequestHash
	}
	if u.Kept != nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "rollback of %s to %d", u.DocumentID, u.Kept.Version))
		return hex.EncodeToString(sum[:])
	}
	if u.Metadata == "" {
		return u.File.SHA256
	}
	sum := sha256.Sum256([]byte(u.File.SHA256 + string(u.Metadata)))
	return hex.EncodeToString(sum[:])
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
	return sqldb.QueryRows(ctx, r.tx, what, query, params, scan)
}

// pairs runs a statement with one (@any …) of two columns, unless there is nothing to look for.
func (r *acceptRun) pairs(ctx context.Context, what, name string, keys map[sqldb.Pair]bool, scan func(*sql.Rows) error) error {
	if len(keys) == 0 {
		return nil
	}
	params := sqldb.PairArgs(keys)
	return r.query(ctx, what, r.app.q.Any(name, len(params)/2), params, scan)
}

// list runs a statement with one list of ids, unless there is nothing to look for.
func (r *acceptRun) list(ctx context.Context, what, name string, ids iter.Seq[string], scan func(*sql.Rows) error) error {
	list := sqldb.Padded(slices.Sorted(ids))
	if len(list) == 0 {
		return nil
	}
	return r.query(ctx, what, r.app.q.List(name, len(list)), sqldb.Args(list), scan)
}

// replays looks for the tasks of earlier requests with the same keys.
func (r *acceptRun) replays(ctx context.Context) error {
	keys := map[tasks.UserKey]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.IdempotencyKey != "" {
			keys[tasks.UserKey{User: w.c.Scope.UserID, Key: w.u.IdempotencyKey}] = true
		}
	})
	found, err := r.app.deliver.Earlier(ctx, r.tx, keys)
	if err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		t, replay := found[tasks.UserKey{User: w.c.Scope.UserID, Key: w.u.IdempotencyKey}]
		switch {
		case !replay:
		case t.RequestHash != w.asked, w.u.Lost != nil && w.u.Lost.TaskID != t.ID:
			w.refuse(ingest.ErrKeyReused)
		default:
			w.state, w.replayOf, w.base.ID = acceptAnswered, t.DocumentID, t.KnowledgeBase
			w.got.taskID, w.got.replayed, w.got.ownFile = t.ID, true, t.FilePath == w.u.File.ID
		}
	})
	return nil
}

// heldKeys refuses uploads whose key another request holds that is still being received.
func (r *acceptRun) heldKeys(ctx context.Context) error {
	keys := map[sqldb.Pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.Unclaimed != "" {
			keys[w.requestKey()] = true
		}
	})
	if len(keys) == 0 {
		return nil
	}
	held := map[sqldb.Pair]bool{}
	params := sqldb.PairArgs(keys)
	query := r.app.q.Any("KeysHeld", len(params)/2)
	err := r.query(ctx, "look for held keys", query, append([]any{r.m.Now}, params...), func(rows *sql.Rows) error {
		var k sqldb.Pair
		err := rows.Scan(&k[0], &k[1])
		held[k] = true
		return err
	})
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.Unclaimed != "" && held[w.requestKey()] {
			w.refuse(ingest.ErrKeyInUse)
		}
	})
	return err
}

// requestKey is what a claim of the upload's request is found by.
func (w *acceptWork) requestKey() sqldb.Pair {
	return sqldb.Pair{w.c.Scope.UserID, ingest.RequestKey(w.u.Unclaimed)}
}

// findSame looks for documents and stored files with the uploads' bytes.
func (r *acceptRun) findSame(ctx context.Context) error {
	r.holders, r.files = map[sqldb.Pair]string{}, map[sqldb.Pair][]*storedFile{}
	files, documents := map[sqldb.Pair]bool{}, map[sqldb.Pair]bool{}
	for _, w := range r.works {
		if w.state == acceptOpen || w.state == acceptAnswered { // a replay brings a good copy too
			files[w.fileKey()] = true
			documents[sqldb.Pair{w.base.ID, w.u.File.SHA256}] = true
		}
	}
	if len(files) == 0 {
		return nil
	}
	params, more := sqldb.PairArgs(files), sqldb.PairArgs(documents)
	query := r.app.q.Any("SameBytes", len(params)/2, len(more)/2)
	return r.query(ctx, "look for the same bytes", query, append(params, more...), func(rows *sql.Rows) error {
		var kind, id string
		var k sqldb.Pair
		if err := rows.Scan(&kind, &id, &k[0], &k[1]); err != nil {
			return err
		}
		k[0] = strings.TrimSpace(k[0])
		if kind == "file" {
			r.files[k] = append(r.files[k], &storedFile{id: id})
		} else {
			r.holders[k] = id
		}
		return nil
	})
}

// lockDocuments locks the documents that the uploads are further versions of, and reads those of replays.
func (r *acceptRun) lockDocuments(ctx context.Context) error {
	r.documents = map[string]catalog.DocumentRow{}
	ids := map[string]bool{}
	for _, w := range r.works {
		if id := r.documentID(w); id != "" {
			ids[id] = true
		}
		if w.attaches() {
			ids[w.u.Parent.ID] = true
		}
	}
	err := r.list(ctx, "lock documents", "DocumentsWhole", maps.Keys(ids), func(rows *sql.Rows) error {
		d, err := catalog.ScanWholeDocument(rows)
		if d.DeletedAt.IsZero() {
			r.documents[d.ID] = d
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range r.works {
		d, found := r.documents[r.documentID(w)]
		switch {
		case w.attaches():
			r.judgeParent(w)
		case w.state == acceptAnswered && !found: // its document is deleted
			w.got.baseName = ""
		case w.state == acceptAnswered:
			w.got.document = d
		case w.state != acceptOpen, r.documentID(w) == "", !found && w.u.Lost != nil:
		case !found && w.u.DocumentID != "":
			w.refuse(ingest.ErrDocumentNotFound)
		case !found, w.u.DocumentID == "" && w.u.Lost == nil && d.SHA256 != w.u.File.SHA256:
			w.again() // deleted, or renewed, between the two statements
		default:
			w.got.document, w.exists = d, true
		}
	}
	return nil
}

// attaches reports whether an upload makes a document of an attachment. A lost one is restored before its message, or without it.
func (w *acceptWork) attaches() bool {
	return w.state == acceptOpen && w.u.Parent.ID != "" && w.u.DocumentID == "" && w.u.Lost == nil
}

// judgeParent refuses an attachment whose message is deleted, or has a later version that is visible: nobody would delete it with them.
func (r *acceptRun) judgeParent(w *acceptWork) {
	switch parent, found := r.documents[w.u.Parent.ID]; {
	case !found || parent.UserID != w.c.Scope.UserID || parent.BaseID != w.base.ID:
		w.refuse(ingest.ErrDocumentNotFound)
	case parent.VisibleNo > w.u.Parent.No:
		w.refuse(ingest.ErrChanged)
	}
}

// documentID is the document that an upload has to do with; empty: it makes one.
func (r *acceptRun) documentID(w *acceptWork) string {
	switch {
	case w.state == acceptAnswered:
		return w.replayOf
	case w.state != acceptOpen:
		return ""
	case w.u.Lost != nil:
		return w.u.Lost.DocumentID
	case w.u.DocumentID != "" || w.u.Parent.ID != "":
		return w.u.DocumentID
	}
	return r.holders[sqldb.Pair{w.base.ID, w.u.File.SHA256}]
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
	return r.list(ctx, "read the documents' last tasks", "TasksBrief", maps.Keys(ids), func(rows *sql.Rows) error {
		var id string
		var t taskBrief
		err := rows.Scan(&id, &t.status, &t.payload, &t.path)
		r.latest[id] = t
		return err
	})
}

// findBases finds the bases that the uploads go to, makes default ones, and keeps all of them from being deleted meanwhile.
func (r *acceptRun) findBases(ctx context.Context) error {
	if err := r.findDocumentBases(ctx); err != nil {
		return err
	}
	byID, byName := map[sqldb.Pair]ingest.Base{}, map[sqldb.Pair]ingest.Base{}
	ids, names := map[sqldb.Pair]bool{}, map[sqldb.Pair]bool{}
	for _, w := range r.works {
		if id := w.baseID(); id != "" && (w.state == acceptOpen || w.state == acceptAnswered) {
			ids[sqldb.Pair{id, w.c.Scope.UserID}] = true
		}
	}
	if err := r.readBases(ctx, "BasesOfUsers", ids, func(b ingest.Base) { byID[sqldb.Pair{b.ID, b.UserID}] = b }); err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		if _, found := byID[sqldb.Pair{w.baseID(), w.c.Scope.UserID}]; !found && w.u.DocumentID == "" {
			names[sqldb.Pair{w.c.Scope.UserID, w.u.Base}] = true
		}
	})
	named := func(b ingest.Base) { byName[sqldb.Pair{b.UserID, b.Name}] = b }
	if err := r.readBases(ctx, "BasesNamed", names, named); err != nil {
		return err
	}
	if err := r.makeBases(ctx, names, byName); err != nil {
		return err
	}
	for _, w := range r.works {
		b, found := byID[sqldb.Pair{w.baseID(), w.c.Scope.UserID}]
		if !found && w.u.DocumentID == "" && w.state == acceptOpen {
			b, found = byName[sqldb.Pair{w.c.Scope.UserID, w.u.Base}]
		}
		switch {
		case found:
			w.base, w.got.baseName = b, b.Name
		case w.state != acceptOpen: // the base of a replay may be gone
		case w.makesBase() && r.full != nil:
			w.refuse(r.full)
		case w.makesBase():
			w.again()
		default:
			w.refuse(ingest.ErrBaseNotFound)
		}
	}
	return nil
}

// makesBase reports whether the upload's base is made when it is missing.
func (w *acceptWork) makesBase() bool {
	return w.u.Lost != nil || w.u.Base == ingest.DefaultBase && w.u.DocumentID == ""
}

// baseID is the base's id as far as the upload knows it: its document's or replay's, or what may be one by its look; empty: a name.
func (w *acceptWork) baseID() string {
	if w.base.ID != "" {
		return w.base.ID
	}
	if uuid.Validate(w.u.Base) == nil {
		return w.u.Base
	}
	return ""
}

// findDocumentBases finds the bases of documents that get a new version.
func (r *acceptRun) findDocumentBases(ctx context.Context) error {
	renewed := map[sqldb.Pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.DocumentID != "" {
			renewed[sqldb.Pair{w.u.DocumentID, w.c.Scope.UserID}] = true
		}
	})
	bases := map[sqldb.Pair]string{}
	err := r.pairs(ctx, "find the documents' bases", "DocumentsBase", renewed, func(rows *sql.Rows) error {
		var k sqldb.Pair
		var base string
		err := rows.Scan(&k[0], &k[1], &base)
		bases[k] = base
		return err
	})
	if err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.DocumentID == "" {
			return
		}
		if w.base.ID = bases[sqldb.Pair{w.u.DocumentID, w.c.Scope.UserID}]; w.base.ID == "" {
			w.refuse(ingest.ErrDocumentNotFound)
		}
	})
	return nil
}

// readBases reads and locks bases.
func (r *acceptRun) readBases(ctx context.Context, name string, keys map[sqldb.Pair]bool, take func(ingest.Base)) error {
	return r.pairs(ctx, "find bases", name, keys, func(rows *sql.Rows) error {
		var b ingest.Base
		err := rows.Scan(&b.ID, &b.UserID, &b.Name, &b.MetadataSchema)
		take(b)
		return err
	})
}

// makeBases makes bases that are missing, by their names; another process may do the same at once.
func (r *acceptRun) makeBases(ctx context.Context, names map[sqldb.Pair]bool, found map[sqldb.Pair]ingest.Base) error {
	missing := map[sqldb.Pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		k := sqldb.Pair{w.c.Scope.UserID, w.u.Base}
		if _, there := found[k]; !there && names[k] && w.makesBase() && r.full == nil {
			missing[k] = true
		}
	})
	if len(missing) == 0 {
		return nil
	}
	var params []any
	made := slices.SortedFunc(maps.Keys(missing), sqldb.Pair.Compare)
	for _, k := range made {
		params = append(params, ingest.NewID(), k[0], k[1], k[1], ingest.SearchAuto, nil, nil, r.m.Now, r.m.Now, catalog.Never())
	}
	if _, err := r.tx.ExecContext(ctx, r.app.q.Rows("BasesInsert", len(made)), params...); err != nil {
		return fmt.Errorf("make knowledge bases: %w", err)
	}
	return r.readBases(ctx, "BasesNamed", missing, func(b ingest.Base) { found[sqldb.Pair{b.UserID, b.Name}] = b })
}
