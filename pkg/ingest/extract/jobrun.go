package extract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

// jobRun is one document in one child. Nothing that comes from the child is trusted.
type jobRun struct {
	pool     *Pool
	worker   *worker
	reader   formats.Reader
	job      frame.Job
	progress func(done, total int)
	emit     func(ingest.Block) error
	visit    func(name string, r io.Reader) error // takes the files that a message carries

	pictures int // whose text was asked for
	chars    int64
	bytes    int64
	files    int
	carried  int64 // bytes of files
	reported time.Time

	clean  bool // the child may read another document
	killed bool
	peak   int64
}

// receiverError marks errors of the caller's own emit.
type receiverError struct{ err error }

func (e *receiverError) Error() string { return e.err.Error() }

// do runs the job to its end.
func (r *jobRun) do(ctx context.Context, file *os.File) (ingest.Extraction, error) {
	dog := watch(ctx, r.worker, r.pool.cfg.timeout(r.job.Size), r.pool.cfg.MemoryMB)
	ex, err := r.exchange(ctx, file, dog)
	r.peak = dog.end()
	r.killed = dog.reason.Load() != killedNot
	r.clean = r.clean && !r.killed
	var receiver *receiverError
	switch {
	case err == nil:
		return ex, nil
	case errors.As(err, &receiver):
		return ingest.Extraction{}, receiver.err
	case dog.reason.Load() == killedCanceled:
		return ingest.Extraction{}, ctx.Err()
	}
	return ingest.Extraction{}, r.failure(ctx, err, dog)
}

// failure names why a job ended without a verdict.
func (r *jobRun) failure(ctx context.Context, err error, dog *watchdog) error {
	if _, known := errors.AsType[*ingest.Failure](err); known {
		return err
	}
	r.worker.kill()
	why := dog.explain()
	if why == "" {
		why = fmt.Sprintf("the reader died: %s", r.worker.state)
		if said := r.worker.stderr.String(); said != "" {
			why += ": " + said
		}
		if errors.Is(err, frame.ErrBad) {
			why = "the reader broke the protocol: " + err.Error()
		}
	}
	r.pool.log.WarnContext(ctx, "extract: child ended", slog.String("reason", why), slog.String("media_type", r.job.MediaType),
		slog.Int64("size", r.job.Size), slog.Int64("peak_bytes", r.peak))
	return ingest.Transient(ingest.CodeExtractCrashed, "read the %s: %s", r.reader.Name, why)
}

// exchange sends the job and takes frames until the verdict.
func (r *jobRun) exchange(ctx context.Context, file *os.File, dog *watchdog) (ingest.Extraction, error) {
	if err := r.worker.send(r.job, file); err != nil {
		return ingest.Extraction{}, err
	}
	for {
		kind, payload, err := frame.Read(r.worker.in, r.worker.buf)
		if err != nil {
			return ingest.Extraction{}, err
		}
		r.worker.buf = payload
		switch kind {
		case frame.KindBlock:
			err = r.block(payload, dog)
		case frame.KindProgress:
			err = r.report(payload, dog)
		case frame.KindPicture:
			err = r.picture(ctx, payload, dog)
		case frame.KindFile:
			err = r.file(payload, dog)
		case frame.KindDone:
			return r.verdict(payload)
		default:
			err = fmt.Errorf("%w: type %q", frame.ErrBad, kind)
		}
		if err != nil {
			return ingest.Extraction{}, err
		}
	}
}

func (r *jobRun) block(payload []byte, dog *watchdog) error {
	b, err := frame.DecodeBlock(payload)
	if err != nil {
		return err
	}
	r.bytes += int64(len(b.Text))
	r.chars += int64(utf8.RuneCountInString(b.Text))
	if r.bytes > r.job.Limits.MaxTextBytes {
		return document.OverLimit("more than %d bytes of text", r.job.Limits.MaxTextBytes)
	}
	dog.emitting.Store(true)
	defer dog.emitting.Store(false)
	if err := r.emit(b); err != nil {
		return &receiverError{err}
	}
	return nil
}

func (r *jobRun) report(payload []byte, dog *watchdog) error {
	done, total, err := frame.DecodeProgress(payload)
	if err != nil || r.progress == nil {
		return err
	}
	// A child may report as often as it likes; the receiver is promised a few reports a second.
	now := time.Now()
	if now.Sub(r.reported) < document.ProgressEvery/2 && done < total {
		return nil
	}
	r.reported = now
	dog.emitting.Store(true)
	defer dog.emitting.Store(false)
	r.progress(done, total)
	return nil
}

var charsetName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// verdict takes from the child what is its to say; the rest is known here.
func (r *jobRun) verdict(payload []byte) (ingest.Extraction, error) {
	var v frame.Verdict
	if err := json.Unmarshal(payload, &v); err != nil {
		return ingest.Extraction{}, fmt.Errorf("%w: verdict: %w", frame.ErrBad, err)
	}
	r.clean = !v.Recycle
	if v.Code != "" {
		if v.Stack != "" {
			r.pool.log.Error("extract: reader crashed", slog.String("reader", r.reader.String()), slog.String("cause", frame.Shorten(v.Error)), slog.String("stack", v.Stack))
		}
		return ingest.Extraction{}, v.Failure()
	}
	ex := v.Extraction
	if ex.Pages < 0 || ex.Pages > r.job.Limits.MaxPages {
		return ingest.Extraction{}, fmt.Errorf("%w: %d pages", frame.ErrBad, ex.Pages)
	}
	last := 0
	if len(ex.Unread) > ingest.MaxUnread {
		return ingest.Extraction{}, fmt.Errorf("%w: %d unread pages", frame.ErrBad, len(ex.Unread))
	}
	for _, page := range ex.Unread {
		if page <= last || page > ex.Pages {
			return ingest.Extraction{}, fmt.Errorf("%w: unread page %d of %d", frame.ErrBad, page, ex.Pages)
		}
		last = page
	}
	said := document.Sink{}
	for _, w := range ex.Warnings {
		said.Warn("%s", w)
	}
	ex.Warnings = said.Warnings
	if !charsetName.MatchString(ex.Charset) {
		ex.Charset = ""
	}
	ex.Title, ex.MediaType, ex.Reader, ex.Chars = document.CleanTitle(ex.Title), r.job.MediaType, r.reader.String(), r.chars
	return ex, nil
}
