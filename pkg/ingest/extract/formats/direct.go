package formats

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// Direct reads documents in the caller's own process, with no protection but the readers' own limits.
// It is for tests, fuzzing and tools on trusted files; services use a Pool.
type Direct struct {
	Limits document.Limits
}

var _ ingest.Extractor = Direct{}

// Extract implements ingest.Extractor.
func (d Direct) Extract(ctx context.Context, src ingest.Source, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	info, err := src.File.Stat()
	if err != nil {
		return ingest.Extraction{}, fmt.Errorf("stat the stored file: %w", err)
	}
	mediaType, err := detect.File(src.File, info.Size(), src.Name)
	if err != nil {
		return ingest.Extraction{}, err
	}
	in := &document.Input{File: src.File, Size: info.Size(), MediaType: mediaType, Limits: d.Limits, Progress: progress}
	if progress == nil {
		in.Progress = func(int, int) {}
	}
	return ReadGuarded(ctx, in, emit)
}

// Fingerprint implements ingest.Extractor.
func (Direct) Fingerprint() string { return Fingerprint() }

// ReadGuarded turns a reader's panic into a failure of its file.
func ReadGuarded(ctx context.Context, in *document.Input, emit func(ingest.Block) error) (ex ingest.Extraction, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &CrashError{cause: fmt.Sprint(p), Stack: debug.Stack()}
		}
	}()
	return Read(ctx, in, emit)
}

// CrashError is a reader's panic.
type CrashError struct {
	cause string
	Stack []byte // for the log only
}

func (e *CrashError) Error() string { return "the reader crashed: " + e.cause }

// Unwrap makes the crash a transient failure, so that the attempts' count decides.
func (e *CrashError) Unwrap() error {
	return ingest.Transient(ingest.CodeExtractCrashed, "%s", "the reader crashed: "+e.cause)
}
