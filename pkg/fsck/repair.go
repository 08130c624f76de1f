package fsck

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// repairBatch is how many vectors are mended at once.
const repairBatch = 200

// Repaired is what a Repair did.
type Repaired struct {
	Deleted  int // strays taken out of the store
	Written  int // missing vectors written again, Paid of them embedded anew
	Paid     int
	Rows     int   // documents whose rows were mended, or the rows of their files made again
	Tasks    int   // tasks that somebody looks at again when they wake
	Failures int   // tasks taken off the failures
	Counts   int   // numbers of documents of a knowledge base that were counted anew
	Indexes  int   // knowledge bases whose full-text index was completed, or damaged parts of it replaced
	Mended   int64 // violations that those rows and indexes were
	Files    int   // files without a row that were removed
	// Left are what could not be mended, with the reason: upload those documents again with force.
	Left []string
}

// Repair puts right what Check found. In the vector store, strays that no row names even now are deleted, and missing or
// changed vectors of visible versions are written again from the embedding cache, or embedded anew when one of embedders is the
// base's model. The full-text index is made from the rows where it is not theirs. Of the rows, those are mended that all other witnesses speak against (mendRows). Files without a row that
// are older than a day are removed. Documents are counted anew, and tasks that do not fail taken off the failures. Nothing else is touched: a lost file or text cannot be made again.
func Repair(ctx context.Context, e Evidence, f Findings, embedders ...ingest.Embedder) (Repaired, error) {
	r := &repair{checker: newChecker(e.DB), embedders: embedders, held: map[string]bool{}}
	r.e, r.Findings = e, f
	for _, l := range f.Lost {
		r.leave(l.Document, l.Reason)
	}
	for _, step := range []struct {
		what string
		run  func(ctx context.Context) error
	}{
		{"mend rows", r.mendRows},
		{"wake tasks", r.wakeTasks},
		{"take tasks off the failures", r.takeOffFailures},
		{"mend the counts of documents", r.mendCounts},
		{"delete strays", r.deleteStrays},
		{"write missing vectors", r.writeMissing},
		{"mend the full-text index", r.mendIndexes},
		{"remove files without a row", r.removeOrphans},
	} {
		if err := step.run(ctx); err != nil {
			return r.done, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r.done, nil
}

// wakeTasks writes calls that name tasks which no call named.
func (r *repair) wakeTasks(ctx context.Context) error {
	for _, id := range r.Asleep {
		raw := uuid.MustParse(id)
		if err := r.exec(ctx, "Awaken", raw[:], raw[:], id); err != nil {
			return err
		}
		r.done.Tasks, r.done.Mended = r.done.Tasks+1, r.done.Mended+1
	}
	return nil
}

// takeOffFailures takes tasks that do not fail off the failures: as the store does it, with the task's state locked first.
func (r *repair) takeOffFailures(ctx context.Context) error {
	for _, id := range r.Counted {
		n := 0
		err := r.write(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			n = 0
			if _, err := sqldb.Collect(ctx, tx, sqldb.Column[int], r.q.Get("FailureLock"), id); err != nil {
				return err
			}
			counted, err := sqldb.Collect(ctx, tx, sqldb.Column[string], r.q.Get("FailureWrong"), id)
			if err != nil || len(counted) == 0 {
				return err
			}
			if _, err := tx.ExecContext(ctx, r.q.Get("FailureGone"), id); err != nil {
				return err
			}
			n = 1
			_, err = tx.ExecContext(ctx, r.q.Get("FailureGroupLess"), counted[0])
			return err
		})
		if err != nil {
			return fmt.Errorf("task %s: %w", id, err)
		}
		r.done.Failures, r.done.Mended = r.done.Failures+n, r.done.Mended+int64(n)
	}
	return nil
}

// mendCounts adds what the counts of documents lack.
func (r *repair) mendCounts(ctx context.Context) error {
	if _, ok := r.e.DB.(Writer); !ok || len(r.Miscounted) == 0 {
		return nil
	}
	if err := r.exec(ctx, "MendCounts"); err != nil {
		return err
	}
	r.done.Counts = len(r.Miscounted)
	r.done.Mended += int64(len(r.Miscounted))
	return nil
}

// repair is one Repair in work.
type repair struct {
	*checker
	embedders []ingest.Embedder
	held      map[string]bool // by vector: the store has its values
	done      Repaired
}

// deleteStrays deletes collection by collection; the rows are asked once more right before.
func (r *repair) deleteStrays(ctx context.Context) error {
	by := map[string][]string{}
	for _, s := range r.Strays {
		by[s.Collection] = append(by[s.Collection], s.ID)
	}
	for collection, ids := range by {
		for part := range slices.Chunk(ids, repairBatch) {
			unnamed, err := r.unnamedVectors(ctx, part)
			if err != nil {
				return err
			}
			if len(unnamed) == 0 {
				continue
			}
			if err := r.e.Vectors.Delete(ctx, collection, unnamed); err != nil {
				return err
			}
			r.done.Deleted += len(unnamed)
		}
	}
	return nil
}

// writeMissing writes version by version.
func (r *repair) writeMissing(ctx context.Context) error {
	type place struct{ document, version string }
	byPlace := map[place][]string{}
	for _, m := range r.Missing {
		r.held[m.ID] = m.Held
		at := place{m.Document, m.Version}
		byPlace[at] = append(byPlace[at], m.ID)
	}
	for at, ids := range byPlace {
		versions, err := r.versionsOf(ctx, at.document)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(versions[at.document], func(v versionRow) bool { return v.id == at.version && v.state == visible })
		if i < 0 {
			continue // it is not visible any more
		}
		for part := range slices.Chunk(ids, repairBatch) {
			if err := r.writeVectors(ctx, versions[at.document][i], part); err != nil {
				return fmt.Errorf("version %s: %w", at.version, err)
			}
		}
	}
	return nil
}

// piece is a segment whose vector is missing.
type piece struct{ vector, hash, birth, text string }

// scanPiece reads the columns of SegmentTexts.
func scanPiece(rows *sql.Rows) (p piece, err error) {
	err = rows.Scan(&p.vector, &p.hash, &p.birth, &p.text)
	return p, err
}

// writeVectors mends one batch of one version.
func (r *repair) writeVectors(ctx context.Context, v versionRow, ids []string) error {
	pieces, err := sqldb.Collect(ctx, r.db, scanPiece, r.q.List("SegmentTexts", len(ids)), slices.Insert(sqldb.Args(ids), 0, any(v.id))...)
	if err != nil || len(pieces) == 0 {
		return err
	}
	hashes := make([]string, len(pieces))
	for i, p := range pieces {
		hashes[i] = p.hash
	}
	vectors, err := r.cached(ctx, embedding{v.model, v.dim}, hashes)
	if err != nil {
		return err
	}
	if err := r.takeHeld(ctx, v.collection, pieces, vectors); err != nil {
		return err
	}
	left, err := r.pay(ctx, v, pieces, vectors)
	if err != nil {
		return err
	}
	if left != "" {
		r.leave(v.document, left)
		return nil
	}
	rows := make([]ingest.Vector, len(pieces))
	for i, p := range pieces {
		rows[i] = ingest.Vector{ID: p.vector, DocumentID: v.document, Birth: p.birth, Values: vectors[p.hash]}
	}
	if err := r.e.Vectors.Upsert(ctx, v.collection, rows); err != nil {
		return err
	}
	r.done.Written += len(rows)
	return nil
}

// takeHeld adds the values of vectors whose metadata alone is wrong, where the cache does not have them.
func (r *repair) takeHeld(ctx context.Context, collection string, pieces []piece, vectors map[string][]float32) error {
	ids := map[string]string{} // hash by vector
	for _, p := range pieces {
		if vectors[p.hash] == nil && r.held[p.vector] {
			ids[p.vector] = p.hash
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.e.Vectors.Get(ctx, collection, slices.Collect(maps.Keys(ids)), true)
	for id, row := range rows {
		vectors[ids[id]] = row.Values
	}
	return err
}

// pay embeds what the embedding cache does not have into vectors, or says why it cannot.
func (r *repair) pay(ctx context.Context, v versionRow, pieces []piece, vectors map[string][]float32) (left string, err error) {
	missing := slices.DeleteFunc(slices.Clone(pieces), func(p piece) bool { return vectors[p.hash] != nil })
	if len(missing) == 0 {
		return "", nil
	}
	i := slices.IndexFunc(r.embedders, func(e ingest.Embedder) bool { return e.Model().Key == v.model })
	if i < 0 {
		return fmt.Sprintf("%d vectors were made by %q, which is no configured model; upload it again with force", len(missing), v.model), nil
	}
	embedder := r.embedders[i]
	for part := range slices.Chunk(missing, max(1, embedder.BatchSize())) {
		texts := make([]string, len(part))
		for i, p := range part {
			texts[i] = p.text
		}
		got, err := embedder.Embed(ctx, texts)
		if err != nil {
			return "", fmt.Errorf("embed: %w", err)
		}
		for i, p := range part {
			vectors[p.hash] = got[i]
		}
		r.done.Paid += len(part)
	}
	return "", nil
}

// mendIndexes makes the full-text index of bases what their rows say, and looks at each again.
func (r *repair) mendIndexes(ctx context.Context) error {
	x := textindex.New(indexDB{r.e.DB})
	for _, u := range r.Unindexed {
		if _, ok := r.e.DB.(Writer); !ok {
			r.done.Left = append(r.done.Left, "full-text index of base "+u.Base+": the database is only looked at")
			continue
		}
		if err := x.Reindex(ctx, u.Base, nil); err != nil {
			return fmt.Errorf("base %s: %w", u.Base, err)
		}
		left := int64(0)
		if _, err := x.Check(ctx, u.Base, func(textindex.Gap) error { left++; return nil }); err != nil {
			return fmt.Errorf("base %s: %w", u.Base, err)
		}
		if left > 0 {
			r.done.Left = append(r.done.Left, fmt.Sprintf("full-text index of base %s: %d flaws, after others were mended; repair again", u.Base, left))
		}
		if left < u.Flaws {
			r.done.Indexes++
			r.done.Mended += u.Flaws - left
		}
	}
	return nil
}

// removeOrphans removes files that nothing names even now. A younger one than the sweep's age is left to it: its upload may
// be under way after all.
func (r *repair) removeOrphans(ctx context.Context) error {
	if r.e.Files == nil || len(r.Orphans) == 0 {
		return nil
	}
	m, err := r.e.DB.Moment(ctx)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	err = r.e.Files.Stored(m.Now.Add(-DefaultFileAge), func(page []string) error {
		for _, name := range page {
			old[name] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(r.Orphans, pageSize) {
		free, err := r.withoutRow(ctx, part)
		if err != nil {
			return err
		}
		for _, name := range free {
			if !old[name] {
				r.done.Left = append(r.done.Left, "file "+name+" is younger than a day; the sweep removes it when it is older")
				continue
			}
			if err := r.e.Files.Remove(name); err != nil {
				return err
			}
			r.done.Files++
		}
	}
	return nil
}

// leave notes a document that a repair cannot mend.
func (r *repair) leave(document, reason string) {
	r.done.Left = append(r.done.Left, fmt.Sprintf("document %s: %s", document, reason))
}

// mendRows mends documents whose rows, or whose files' rows, are wrong. Each is read again first; a row is changed only when
// all other witnesses agree against it.
func (r *repair) mendRows(ctx context.Context) error {
	for _, s := range r.Suspects {
		before, err := r.holdings(ctx, s.Document)
		if err != nil {
			return err
		}
		for _, mend := range []func(context.Context, documentRow, []versionRow) error{r.mendOwner, r.mendFiles, r.mendBytes, r.mendMetadata} {
			d, vs, err := r.look(ctx, s.Document)
			if err == nil && d.id != "" {
				err = mend(ctx, d, vs)
			}
			if err != nil {
				return fmt.Errorf("document %s: %w", s.Document, err)
			}
		}
		after, err := r.holdings(ctx, s.Document)
		if err != nil {
			return err
		}
		for _, f := range after {
			r.leave(s.Document, f.text)
		}
		if len(after) < len(before) {
			r.done.Rows++
			r.done.Mended += min(s.Flaws, int64(len(before)-len(after)))
		}
	}
	return nil
}

// holdings are what is wrong with a document's holdings now.
func (r *repair) holdings(ctx context.Context, id string) ([]flaw, error) {
	d, vs, err := r.look(ctx, id)
	if err != nil || d.id == "" {
		return nil, err
	}
	return holdings(d, vs), nil
}

// mendFiles makes the rows of stored files again whose bytes are in the upload folder and are those that the version's task
// was accepted with.
func (r *repair) mendFiles(ctx context.Context, d documentRow, vs []versionRow) error {
	made := map[string]bool{}
	for _, v := range vs {
		if v.fileID == "" || v.file != "" || made[v.fileID] {
			continue
		}
		sum, size, err := r.onDisk(v.fileID)
		if err != nil {
			return err
		}
		var text string
		if err := r.db.QueryRowContext(ctx, r.q.Get("UploadOf"), v.task).Scan(&text); err != nil {
			return err
		}
		var upload struct { // what the version's task was accepted with
			FileName  string `json:"fileName"`
			MediaType string `json:"mediaType"`
			SHA256    string `json:"sha256"`
		}
		if json.Unmarshal([]byte(text), &upload) != nil || sum == "" || upload.SHA256 != sum {
			continue
		}
		made[v.fileID] = true
		if err := r.exec(ctx, "FileInsert", v.fileID, d.user, sum, size, upload.FileName, upload.MediaType, v.fileID, v.created.Time); err != nil {
			return err
		}
	}
	return nil
}

// mendOwner gives a document back to the user whose base it is in, when all its tasks and files are that user's.
func (r *repair) mendOwner(ctx context.Context, d documentRow, vs []versionRow) error {
	owner := d.baseUser
	other := func(user string) bool { return user != "" && user != owner }
	if owner == "" || owner == d.user || slices.ContainsFunc(vs, func(v versionRow) bool { return other(v.taskUser) || other(v.fileUser) }) {
		return nil
	}
	return r.exec(ctx, "DocumentOwner", owner, d.id, d.user)
}

// mendBytes gives a document the SHA-256 of its newest upload, when the file on disk has it too.
func (r *repair) mendBytes(ctx context.Context, d documentRow, vs []versionRow) error {
	i := slices.IndexFunc(vs, func(v versionRow) bool { return v.upload == d.lastUpload && v.sha != "" })
	if i < 0 || vs[i].sha == d.sha && (d.same == "" || d.same == d.sha) {
		return nil
	}
	v := vs[i]
	sum, _, err := r.onDisk(v.fileID)
	if err != nil || sum != v.sha {
		return err
	}
	return r.exec(ctx, "DocumentBytes", sum, sum, d.id, d.sha, d.latest)
}

// mendMetadata writes the rows anew by which filters find a visible version.
func (r *repair) mendMetadata(ctx context.Context, _ documentRow, vs []versionRow) error {
	for _, v := range vs {
		if v.state != visible || !v.said() || len(metadataFlaws(v)) == 0 {
			continue
		}
		err := r.write(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			still, err := sqldb.Collect(ctx, tx, sqldb.Column[string], r.q.Get("VersionVisible"), v.id)
			if err != nil || len(still) == 0 {
				return err
			}
			if _, err := tx.ExecContext(ctx, r.q.Get("MetadataGone"), v.id); err != nil {
				return err
			}
			var rows []any
			pairs := v.metadata.Pairs()
			for _, pair := range pairs {
				rows = append(rows, v.id, pair[0], pair[1], v.document, v.base)
			}
			if len(pairs) > 0 {
				_, err = tx.ExecContext(ctx, r.q.Rows("MetadataInsert", len(pairs)), rows...)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("metadata of version %s: %w", v.id, err)
		}
	}
	return nil
}

// exec changes a row, where the database can be written.
func (r *repair) exec(ctx context.Context, statement string, args ...any) error {
	return r.write(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		_, err := tx.ExecContext(ctx, r.q.Get(statement), args...)
		return err
	})
}

// write changes rows in one transaction, where the database can be written.
func (r *repair) write(ctx context.Context, f func(ctx context.Context, tx taskstate.Tx) error) error {
	w, ok := r.e.DB.(Writer)
	if !ok {
		return nil // only looked at
	}
	return w.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error { return f(ctx, tx) })
}
