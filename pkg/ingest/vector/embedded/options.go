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
	minMaxBytes     = 16 << 20
	maxMaxBytes     = 1 << 40
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

// Config is what an operator sets about the embedded store.
type Config struct {
	Dir      string `envconfig:"VECTOR_DIR" default:"./data/vectors" desc:"directory of the embedded vector store; one process at a time"`
	MaxBytes int64  `envconfig:"VECTOR_MAX_BYTES" default:"1073741824" desc:"most memory of the embedded vector store, bytes, 16 MiB..1 TiB"`
}

// NewDefaultConfig returns the defaults.
func NewDefaultConfig() Config { return Config{Dir: "./data/vectors", MaxBytes: defaultMaxBytes} }

// Validate names every setting that cannot be used, and its range.
func (c Config) Validate() error {
	var problems []error
	if c.Dir == "" {
		problems = append(problems, errors.New("VECTOR_DIR: must be set"))
	}
	if c.MaxBytes < minMaxBytes || c.MaxBytes > maxMaxBytes {
		problems = append(problems, fmt.Errorf("VECTOR_MAX_BYTES: %d is not within %d..%d", c.MaxBytes, int64(minMaxBytes), int64(maxMaxBytes)))
	}
	return errors.Join(problems...)
}

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
	if err == nil {
		return nil
	}
	var known *ingest.Failure
	if errors.As(err, &known) {
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
