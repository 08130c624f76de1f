package pipeline

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	remedyMissing   = "Upload the file again."
	remedyDimension = "An operator sets EMBEDDING_PREVIOUS_BASE_URL, EMBEDDING_PREVIOUS_MODEL and the others as EMBEDDING_* were when this knowledge " +
		"base was made, or moves it to the model of now (POST /api/knowledge/bases/{base}/reindex), and resumes the task."
	remedyNoText = "Send a file that has text in it."
	remedyOCR    = "The pages are pictures: run text recognition over the file and upload the result."
)

// work is what a run works on, as the rows say.
type work struct {
	task, version, document, base string
	no, uploadNo                  int64
	givenTitle                    string
	path, sha256                  string
	bytes                         int64
	baseModel                     ingest.Model
	collection                    string // that the base's vectors lie in, as its column says: "" is the base's id
	chunking                      ingest.Chunking
	upload                        ingest.Payload
}

// workRead asks for what one run works on.
type workRead struct {
	task  string
	found *foundWork // answered; nil: the task has no open version
}

// foundWork is an open version with its document, as the rows say.
type foundWork struct {
	work
	path, sum     sql.NullString
	size          sql.NullInt64
	deleted       taskstate.DBTime
	visibleUpload int64
}

// loadTogether returns looks of one or more runs.
func (w *Worker) loadTogether(ctx context.Context, b *batcher.Batch[*workRead]) error {
	looks := b.Items()
	tasks := make([]string, len(looks))
	for i, l := range looks {
		tasks[i] = l.task
	}
	found, err := sqldb.ReadAll(ctx, w.d.Store, "load work", w.q.List("WorkLoad", len(tasks)), sqldb.Args(tasks), func(rows *sql.Rows) (foundWork, error) {
		var w foundWork
		err := rows.Scan(&w.task, &w.version, &w.document, &w.base, &w.no, &w.uploadNo, &w.givenTitle,
			&w.path, &w.sum, &w.size, &w.deleted, &w.visibleUpload, &w.baseModel.Key, &w.baseModel.Dim, &w.collection, &w.chunking)
		w.collection = strings.TrimSpace(w.collection)
		return w, err
	})
	if err != nil {
		return err
	}
	byTask := make(map[string]*foundWork, len(found))
	for i := range found { // in the order of their numbers: the newest counts
		byTask[found[i].task] = &found[i]
	}
	for _, l := range looks {
		l.found = byTask[l.task]
	}
	return nil
}

// load reads the open version of the task. unwanted when another upload is visible, or the document is gone.
func (r *run) load(ctx context.Context) error {
	look := &workRead{task: r.job.Task.ID}
	if err := r.w.works.Do(ctx, look)[0]; err != nil {
		return err
	}
	if look.found == nil {
		return ingest.Permanent(ingest.CodeInternal, remedyMissing, "load work: the task has no open version")
	}
	found := look.found
	r.work = found.work
	w := &r.work
	w.path, w.sha256, w.bytes = found.path.String, found.sum.String, found.size.Int64
	if len(r.job.Task.Payload) > 0 {
		if err := json.Unmarshal(r.job.Task.Payload, &w.upload); err != nil {
			return ingest.Permanent(ingest.CodeInternal, remedyMissing, "load work: read payload: %w", err)
		}
	}
	switch {
	case !found.deleted.IsZero():
		return unwanted(taskstate.ReasonDeleted)
	case found.visibleUpload > w.uploadNo:
		return unwanted(taskstate.ReasonSuperseded)
	case !found.path.Valid:
		return ingest.Permanent(ingest.CodeFileMissing, remedyMissing, "load work: the stored file has no row any more")
	}
	return r.chooseEmbedder()
}

// chooseEmbedder takes the one that the base's vectors are made with, before anything is paid for.
// DIMENSION_MISMATCH, which waits for a person, when this process has none.
func (r *run) chooseEmbedder() error {
	if r.embedder = ingest.EmbedderOf(r.work.baseModel, r.w.d.Embedder, r.w.d.Earlier); r.embedder == nil {
		return otherModel(r.work.baseModel, r.w.d.Embedder.Model())
	}
	return nil
}

// otherModel is the failure of a run whose vectors do not fit the base. No document is to blame, and none would do better: all of the
// base wait for whoever mends the settings.
func otherModel(base, mine ingest.Model) error {
	return ingest.Suspended(ingest.CodeDimension, remedyDimension,
		"the knowledge base was made with model %s (%d dimensions), not %s (%d)", base.Key, base.Dim, mine.Key, mine.Dim)
}

// read extracts and splits the file into the spool, and checks meanwhile that its bytes are those that were uploaded.
func (r reading) read(ctx context.Context) error {
	f, err := r.w.mount.Folder.Open(r.work.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r.missing(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("open stored file: %w", err)
	}
	defer func() { _ = f.Close() }()
	r.spool = &spool{}
	r.report(ingest.StageExtract, 0, 0, 0)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var check errgroup.Group
	check.Go(guarded("check the stored file", func() error {
		err := r.verify(ctx, f)
		if err != nil {
			stop()
		}
		return err
	}))
	err = guarded("extract", func() error { return r.extract(reading, f) })()
	// The check goes on when the reader gave up: what it says of other bytes than were uploaded is no fault of the document.
	if damage := check.Wait(); damage != nil {
		return damage
	}
	if err != nil {
		return err
	}
	if len(r.spool.items) == 0 {
		return r.noText()
	}
	return nil
}

// verify hashes the stored file by offsets, so that the reader's own position is untouched.
func (r reading) verify(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at stored file: %w", err)
	}
	if info.Size() != r.work.bytes {
		return ingest.Permanent(ingest.CodeFileDamaged, remedyMissing, "the stored file has %d bytes, %d were uploaded", info.Size(), r.work.bytes)
	}
	h := sha256.New()
	section := files.NewContextReader(ctx, io.NewSectionReader(f, 0, info.Size()))
	if _, err := io.CopyBuffer(h, section, make([]byte, files.CopyBuffer)); err != nil {
		return fmt.Errorf("read stored file: %w", err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != r.work.sha256 {
		return ingest.Permanent(ingest.CodeFileDamaged, remedyMissing, "the stored file is damaged: its sha256 is %s, %s was uploaded", sum, r.work.sha256)
	}
	return nil
}

// extract runs the reader and the splitter into the spool.
func (r reading) extract(ctx context.Context, f *os.File) error {
	split := r.w.d.Splitter.NewRun(r.work.chunking)
	progress := func(done, total int) {
		r.report(ingest.StageExtract, within(0, percentExtract, done, total), 0, 0)
	}
	emit := func(b ingest.Block) error {
		for _, s := range split.Add(b) {
			if err := r.spool.add(s); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	source := ingest.Source{File: f, Name: r.work.upload.FileName, MediaType: r.work.upload.MediaType}
	found, err := r.w.d.Extractor.Extract(ctx, source, progress, emit)
	if err != nil {
		return fmt.Errorf("extract: %w", ingest.CrashedBefore(err, r.job.Task.LastError))
	}
	if err := crash.Fault("worker.after_extract"); err != nil {
		return err
	}
	r.found = found
	r.report(ingest.StageSplit, percentExtract, 0, len(r.spool.items))
	// The splitter works beside the reader, block by block: this span is the end of its work.
	return r.staged(ctx, "split", func(context.Context) error {
		for _, s := range split.Close() {
			if err := r.spool.add(s); err != nil {
				return err
			}
		}
		return nil
	})
}

// noText is the failure of a document without a single segment.
func (r reading) noText() error {
	if r.found.Pages > 0 {
		return ingest.Permanent(ingest.CodeNeedsOCR, remedyOCR, "no text on any of %d pages", r.found.Pages)
	}
	return ingest.Permanent(ingest.CodeEmpty, remedyNoText, "there is no text in the file")
}

// shortTitle makes a document's own title fit its column.
func shortTitle(title string) string {
	words := strings.FieldsFunc(title, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) })
	return taskstate.Shorten(strings.Join(words, " "), ingest.MaxTitleChars)
}
