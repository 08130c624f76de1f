package extract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

// jobRun is one document in one child. Nothing that comes from the child is trusted.
type jobRun struct {
	pool     *Pool
	worker   *worker
	reader   reader
	job      job
	progress func(done, total int)
	emit     func(ingest.Block) error

	chars    int64
	bytes    int64
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
	ex, err := r.exchange(file, dog)
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
	var f *ingest.Failure
	if errors.As(err, &f) {
		return err
	}
	r.worker.kill()
	why := dog.explain()
	if why == "" {
		why = fmt.Sprintf("the reader died: %s", r.worker.state)
		if said := r.worker.stderr.String(); said != "" {
			why += ": " + said
		}
		if errors.Is(err, errBadFrame) {
			why = "the reader broke the protocol: " + err.Error()
		}
	}
	r.pool.log.WarnContext(ctx, "extract: child ended", slog.String("reason", why), slog.String("media_type", r.job.MediaType),
		slog.Int64("size", r.job.Size), slog.Int64("peak_bytes", r.peak))
	return ingest.Transient(ingest.CodeExtractCrashed, "read the %s: %s", r.reader.name, why)
}

// exchange sends the job and takes frames until the verdict.
func (r *jobRun) exchange(file *os.File, dog *watchdog) (ingest.Extraction, error) {
	if err := r.worker.send(r.job, file); err != nil {
		return ingest.Extraction{}, err
	}
	for {
		kind, payload, err := readFrame(r.worker.in, r.worker.buf)
		if err != nil {
			return ingest.Extraction{}, err
		}
		r.worker.buf = payload
		switch kind {
		case frameBlock:
			err = r.block(payload, dog)
		case frameProgress:
			err = r.report(payload, dog)
		case frameDone:
			return r.verdict(payload)
		default:
			err = fmt.Errorf("%w: type %q", errBadFrame, kind)
		}
		if err != nil {
			return ingest.Extraction{}, err
		}
	}
}

func (r *jobRun) block(payload []byte, dog *watchdog) error {
	b, err := decodeBlock(payload)
	if err != nil {
		return err
	}
	r.bytes += int64(len(b.Text))
	r.chars += int64(utf8.RuneCountInString(b.Text))
	if r.bytes > r.job.Limits.MaxTextBytes {
		return overLimit("more than %d bytes of text", r.job.Limits.MaxTextBytes)
	}
	dog.emitting.Store(true)
	defer dog.emitting.Store(false)
	if err := r.emit(b); err != nil {
		return &receiverError{err}
	}
	return nil
}

func (r *jobRun) report(payload []byte, dog *watchdog) error {
	done, total, err := decodeProgress(payload)
	if err != nil || r.progress == nil {
		return err
	}
	// A child may report as often as it likes; the receiver is promised a few reports a second.
	now := time.Now()
	if now.Sub(r.reported) < progressEvery/2 && done < total {
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
	var v verdict
	if err := json.Unmarshal(payload, &v); err != nil {
		return ingest.Extraction{}, fmt.Errorf("%w: verdict: %w", errBadFrame, err)
	}
	r.clean = !v.Recycle
	if v.Code != "" {
		if v.Stack != "" {
			r.pool.log.Error("extract: reader crashed", slog.String("reader", r.reader.String()), slog.String("cause", shorten(v.Error)), slog.String("stack", v.Stack))
		}
		return ingest.Extraction{}, v.failure()
	}
	ex := v.Extraction
	if ex.Pages < 0 || ex.Pages > r.job.Limits.MaxPages {
		return ingest.Extraction{}, fmt.Errorf("%w: %d pages", errBadFrame, ex.Pages)
	}
	last := 0
	if len(ex.Unread) > ingest.MaxUnread {
		return ingest.Extraction{}, fmt.Errorf("%w: %d unread pages", errBadFrame, len(ex.Unread))
	}
	for _, page := range ex.Unread {
		if page <= last || page > ex.Pages {
			return ingest.Extraction{}, fmt.Errorf("%w: unread page %d of %d", errBadFrame, page, ex.Pages)
		}
		last = page
	}
	if !charsetName.MatchString(ex.Charset) {
		ex.Charset = ""
	}
	ex.Title, ex.MediaType, ex.Reader, ex.Chars = cleanTitle(ex.Title), r.job.MediaType, r.reader.String(), r.chars
	return ex, nil
}

// failure turns a child's words into a Failure; a code that is not a reader's becomes INTERNAL.
func (v verdict) failure() error {
	f := &ingest.Failure{Code: v.Code, Permanent: v.Permanent, Remedy: cleanTitle(v.Remedy), Err: errors.New(cleanText(shorten(v.Error), false))}
	switch v.Code {
	case ingest.CodeEmpty, ingest.CodeEncrypted, ingest.CodeUnsupportedType, ingest.CodeCorrupt, ingest.CodeLimitExceeded,
		ingest.CodeNeedsOCR, ingest.CodeEncoding:
	case ingest.CodeExtractCrashed:
		f.Permanent = false
	default:
		f.Code, f.Permanent = ingest.CodeInternal, false
	}
	return f
}
