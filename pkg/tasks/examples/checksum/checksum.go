// Package checksum is a second type of task, beside documents, in one file: it computes the SHA-256 of a file. Whoever
// writes a type of task of their own can begin here.
package checksum

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Type is its tasks' type.
const Type = "checksum"

// The codes of its failures.
const (
	CodeBadPayload = "BAD_PAYLOAD"  // permanent
	CodeNoFile     = "FILE_MISSING" // permanent
	CodeRead       = "READ_FAILED"
)

// Payload says of which file.
type Payload struct {
	Path string `json:"path"`
}

// Sum is the result of a task.
type Sum struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Handler computes checksums. It implements taskrun.Handler.
type Handler struct {
	Files fs.FS
	// Tell is told each sum, outside the database, and may be told it again: a key with a greater fence repeats an older one.
	// nil: nobody is.
	Tell func(ctx context.Context, key string, sum Sum) error
}

var _ taskrun.Handler = Handler{}

var errPayload = errors.New("payload is not valid")

// Describe implements taskrun.Handler.
func (h Handler) Describe() taskrun.Description {
	return taskrun.Description{Noun: "file", Unit: "KiB", Outside: h.Tell != nil}
}

// Handle implements taskrun.Handler.
func (h Handler) Handle(ctx context.Context, job taskrun.Job) taskrun.Result {
	sum, err := h.sum(ctx, job)
	if err == nil && h.Tell != nil {
		err = h.Tell(ctx, job.EffectKey(), sum)
	}
	if err != nil {
		return taskrun.Result{Err: err}
	}
	out, err := json.Marshal(sum)
	return taskrun.Result{Output: out, Err: err}
}

// sum reads the file.
func (h Handler) sum(ctx context.Context, job taskrun.Job) (Sum, error) {
	var p Payload
	if err := json.Unmarshal(job.Task.Payload, &p); err != nil || p.Path == "" {
		return Sum{}, fmt.Errorf("%w: %s", errPayload, job.Task.Payload)
	}
	f, err := h.Files.Open(p.Path)
	if err != nil {
		return Sum{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return Sum{}, err
	}
	w := &meter{ctx: ctx, Hash: sha256.New(), of: info.Size(), report: job.Report}
	if _, err := io.Copy(w, f); err != nil {
		return Sum{}, fmt.Errorf("read %s: %w", p.Path, err)
	}
	return Sum{SHA256: hex.EncodeToString(w.Sum(nil)), Bytes: w.n}, nil
}

// meter hashes what is written to it, tells how far it is, and stops with its context.
type meter struct {
	hash.Hash
	ctx    context.Context //nolint:containedctx // it lives as long as one run
	n, of  int64
	report func(taskstate.Progress)
}

func (m *meter) Write(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, m.ctx.Err()
	}
	m.n += int64(len(p))
	m.report(taskstate.Progress{
		Stage: taskstate.StageRun, Percent: int(100 * m.n / max(m.of, 1)), Processed: int(m.n >> 10), Total: int(m.of >> 10),
	})
	return m.Hash.Write(p)
}

// Classify implements taskrun.Handler.
func (Handler) Classify(err error) taskstate.Failure {
	f := taskstate.Failure{Code: CodeRead, Cause: err.Error(), Message: "The file could not be read."}
	switch {
	case errors.Is(err, errPayload):
		f.Code, f.Permanent, f.Message = CodeBadPayload, true, "The task names no file."
	case errors.Is(err, fs.ErrNotExist):
		f.Code, f.Permanent, f.Message = CodeNoFile, true, "There is no such file."
	}
	return f
}

// OnTransition implements taskrun.Handler: nothing stands beside its tasks.
func (Handler) OnTransition(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision, map[string]any) error {
	return nil
}
