package extract

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/millweir/millweir/pkg/ingest"
)

// Direct reads documents in the caller's own process, with no protection but the readers' own limits.
// It is for tests, fuzzing and tools on trusted files; services use a Pool.
type Direct struct {
	Limits limits
}

var _ ingest.Extractor = Direct{}

// Extract implements ingest.Extractor.
func (d Direct) Extract(ctx context.Context, src ingest.Source, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	info, err := src.File.Stat()
	if err != nil {
		return ingest.Extraction{}, fmt.Errorf("stat the stored file: %w", err)
	}
	mediaType, err := DetectFile(src.File, info.Size(), src.Name)
	if err != nil {
		return ingest.Extraction{}, err
	}
	in := &input{file: src.File, size: info.Size(), mediaType: mediaType, limits: d.Limits, progress: progress}
	if progress == nil {
		in.progress = func(int, int) {}
	}
	return guardedRun(ctx, in, emit)
}

// Fingerprint implements ingest.Extractor.
func (Direct) Fingerprint() string { return fingerprint() }

// guardedRun turns a reader's panic into a failure of its file.
func guardedRun(ctx context.Context, in *input, emit func(ingest.Block) error) (ex ingest.Extraction, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &crashError{cause: fmt.Sprint(p), stack: debug.Stack()}
		}
	}()
	return runReader(ctx, in, emit)
}

// crashError is a reader's panic.
type crashError struct {
	cause string
	stack []byte // for the log only
}

func (e *crashError) Error() string { return "the reader crashed: " + e.cause }

// Unwrap makes the crash a transient failure, so that the attempts' count decides.
func (e *crashError) Unwrap() error {
	return ingest.Transient(ingest.CodeExtractCrashed, "%s", "the reader crashed: "+e.cause)
}
