package extract

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// Size classes of the wall deadline.
const (
	smallBytes  = 1 << 20
	mediumBytes = 16 << 20
)

// Config is what an operator sets for reading documents (EXTRACT_*, PDF_*).
type Config struct {
	// Accept is a setting of the processes that receive documents too.
	Accept        detect.Config `ignored:"true"`
	External      External      `ignored:"true"`
	PDFEngine     PDFEngine     `envconfig:"PDF_ENGINE" default:"wasm" desc:"what reads PDFs: wasm, or native (two to four times as fast; needs the two that follow, and a sandbox)"`
	PDFReader     string        `envconfig:"PDF_READER" desc:"program that reads PDFs where PDF_ENGINE=native; empty: pdf-reader beside the own program"`
	PDFLibrary    string        `envconfig:"PDF_LIBRARY" desc:"PDFium's libpdfium.so where PDF_ENGINE=native; empty: the one beside PDF_READER"`
	Parallel      int           `envconfig:"EXTRACT_PARALLEL" default:"2" desc:"child processes that read documents at a time"`
	Sandbox       sandbox.Mode  `envconfig:"EXTRACT_SANDBOX" default:"auto" desc:"auto, require (refuse to read without landlock and seccomp) or off"`
	CacheDir      string        `envconfig:"EXTRACT_CACHE_DIR" desc:"folder of the compiled PDF reader; empty: the user's cache folder"`
	TimeoutSmall  time.Duration `envconfig:"EXTRACT_TIMEOUT_SMALL" default:"30s" desc:"longest reading time of a file up to 1 MiB"`
	TimeoutMedium time.Duration `envconfig:"EXTRACT_TIMEOUT_MEDIUM" default:"2m" desc:"longest reading time of a file up to 16 MiB"`
	TimeoutLarge  time.Duration `envconfig:"EXTRACT_TIMEOUT_LARGE" default:"10m" desc:"longest reading time of a larger file"`
	MemoryMB      int           `envconfig:"EXTRACT_MEMORY_MB" default:"256" desc:"memory of one child in MiB, beyond which it is killed"`
	MaxTextBytes  int64         `envconfig:"EXTRACT_MAX_TEXT_BYTES" default:"67108864" desc:"most bytes of text that one document may give"`
	MaxPages      int           `envconfig:"EXTRACT_MAX_PAGES" default:"10000" desc:"most pages that one document may have"`
	HiddenSheets  bool          `envconfig:"EXTRACT_HIDDEN_SHEETS" default:"false" desc:"read hidden sheets of workbooks too; false: a warning names them"`
	Headers       bool          `envconfig:"EXTRACT_HEADERS" default:"false" desc:"read headers and footers of Word and RTF documents too, once each"`
	Comments      bool          `envconfig:"EXTRACT_COMMENTS" default:"false" desc:"read comments in Word documents, workbooks and presentations too"`
	Languages     string        `envconfig:"EXTRACT_OCR_LANGUAGES" default:"eng" desc:"languages of the text recognition, e.g. eng+chi_sim"`
	ChildFiles    int           `envconfig:"EXTRACT_CHILD_FILES" default:"200" desc:"files that a child reads before a fresh one takes over"`
	IdleTimeout   time.Duration `envconfig:"EXTRACT_IDLE_TIMEOUT" default:"1m" desc:"an idle child ends after this time"`
}

// NewDefaultConfig returns the defaults that the struct tags name.
func NewDefaultConfig() Config {
	return Config{
		PDFEngine: PDFWasm, Parallel: 2, Sandbox: sandbox.Auto,
		TimeoutSmall: 30 * time.Second, TimeoutMedium: 2 * time.Minute, TimeoutLarge: 10 * time.Minute,
		Accept: detect.Config{OCR: detect.OCROff}, Languages: "eng",
		MemoryMB: 256, MaxTextBytes: 64 << 20, MaxPages: 10_000, ChildFiles: 200, IdleTimeout: time.Minute,
	}
}

// Validate lists every setting that is out of range, by name.
func (c Config) Validate() error {
	errs := []error{
		inRange("EXTRACT_PARALLEL", c.Parallel, 1, 64),
		inRange("EXTRACT_MEMORY_MB", c.MemoryMB, 128, 4096),
		inRange("EXTRACT_MAX_TEXT_BYTES", c.MaxTextBytes, 64<<10, 1<<30),
		inRange("EXTRACT_MAX_PAGES", c.MaxPages, 1, 100_000),
		inRange("EXTRACT_CHILD_FILES", c.ChildFiles, 1, 100_000),
		inRange("EXTRACT_TIMEOUT_SMALL", c.TimeoutSmall, 100*time.Millisecond, time.Hour),
		inRange("EXTRACT_TIMEOUT_MEDIUM", c.TimeoutMedium, 100*time.Millisecond, 6*time.Hour),
		inRange("EXTRACT_TIMEOUT_LARGE", c.TimeoutLarge, 100*time.Millisecond, 24*time.Hour),
		c.Accept.Validate(),
		c.validEngine(),
		validOCR(c.Languages),
		c.External.validate(c.Accept),
		inRange("EXTRACT_IDLE_TIMEOUT", c.IdleTimeout, time.Second, 24*time.Hour),
	}
	switch c.Sandbox {
	case sandbox.Auto, sandbox.Require, sandbox.Off:
	default:
		errs = append(errs, fmt.Errorf("EXTRACT_SANDBOX: %q is not one of auto, require, off", c.Sandbox))
	}
	return errors.Join(errs...)
}

// timeout is the reading time that a file of size bytes gets.
func (c Config) timeout(size int64) time.Duration {
	switch {
	case size <= smallBytes:
		return c.TimeoutSmall
	case size <= mediumBytes:
		return c.TimeoutMedium
	default:
		return c.TimeoutLarge
	}
}

// choices names the settings by which equal bytes give other blocks than by default; empty: all are as by default.
func (c Config) choices() string {
	var out strings.Builder
	for _, s := range []struct {
		on   bool
		name string
	}{
		{c.HiddenSheets, "hidden-sheets"},
		{c.Headers, "headers"},
		{c.Comments, "comments"},
		{c.Accept.OCR == detect.Tesseract, "tesseract=" + c.Languages},
		{c.Accept.On(), string(c.Accept.Kind) + "=" + strings.Join(c.Accept.Types, ",")},
	} {
		if s.on {
			out.WriteString(" " + s.name)
		}
	}
	return out.String()
}

// limits are the caps that a reader works under.
func (c Config) limits() document.Limits {
	return document.Limits{
		MaxTextBytes: c.MaxTextBytes, MaxPages: c.MaxPages, HiddenSheets: c.HiddenSheets, HeadersFooters: c.Headers, Comments: c.Comments,
		OCR: c.Accept.OCR == detect.Tesseract,
	}
}

func inRange[T cmp.Ordered](name string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %v is not in %v..%v", name, value, low, high)
	}
	return nil
}
