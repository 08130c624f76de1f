package embedded

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	// defaultMaxBytes of memory, about 580,000 rows of 384 dimensions.
	defaultMaxBytes = 1 << 30
	// defaultCompactBytes is the file size below which dead rows are left alone.
	defaultCompactBytes = 1 << 20
	// rowOverhead is what a row costs beside its values, bytes: id, map entry, births and documents, slack of slices.
	rowOverhead = 250
)

// Errors, always inside an *ingest.Failure.
var (
	ErrClosed  = errors.New("vector store is closed")
	ErrInUse   = errors.New("vector directory is used by another process")
	ErrDamaged = errors.New("vector file is damaged")
	ErrFull    = errors.New("embedded vector store is full")
)

// Options of a Store; the zero value is usable.
type Options struct {
	MaxBytes     int64        // memory for vectors; 0: 1 GiB
	CompactBytes int64        // smallest file that is rewritten; 0: 1 MiB
	Log          *slog.Logger // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.CompactBytes <= 0 {
		o.CompactBytes = defaultCompactBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// failure is the transient failure of what was being done.
func failure(err error, format string, args ...any) error {
	if _, known := errors.AsType[*ingest.Failure](err); known || err == nil {
		return err
	}
	f := ingest.Transient(ingest.CodeVector, "%s: %w", fmt.Sprintf(format, args...), err)
	switch {
	case errors.Is(err, ErrDamaged):
		f.Remedy = "Restore the file from a backup, or move it away and run `millweir fsck --repair`."
	case errors.Is(err, ErrFull):
		f.Remedy = "The built-in vector store is full: delete documents or set VECTOR_STORE=chroma."
	default:
		f.Remedy = "The built-in vector store cannot write or read its files: check the disk under the data directory."
	}
	return f
}
