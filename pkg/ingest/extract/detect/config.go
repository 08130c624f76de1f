package detect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// OCR names the text recognition.
type OCR string

// The values of EXTRACT_OCR.
const (
	OCROff    OCR = "off"
	Tesseract OCR = "tesseract"
)

// Kind names a service that converts documents.
type Kind string

// The values of EXTRACT_KIND.
const (
	KindOff Kind = "off"
	Tika    Kind = "tika"
	Docling Kind = "docling"
)

// Config says what is let in beside what every installation reads. Processes that receive documents and those that read them need the same.
type Config struct {
	OCR  OCR  `envconfig:"EXTRACT_OCR" default:"off" desc:"off, or tesseract: pictures, and pages that are pictures, are read by text recognition"`
	Kind Kind `envconfig:"EXTRACT_KIND" default:"off" desc:"off, or the service at EXTRACT_URL that converts documents: tika or docling"`
	// Types default to what no reader of ours takes.
	Types []string `envconfig:"EXTRACT_TYPES" default:"application/msword,application/vnd.ms-excel,application/vnd.ms-powerpoint" desc:"media types that the service converts; image/* are all of a kind"`
}

// Validate names a setting that is out of range.
func (c Config) Validate() error {
	var errs []error
	if c.OCR != OCROff && c.OCR != Tesseract && c.OCR != "" {
		errs = append(errs, fmt.Errorf("EXTRACT_OCR: %q is not one of off, tesseract", c.OCR))
	}
	if c.Kind != KindOff && c.Kind != Tika && c.Kind != Docling && c.Kind != "" {
		errs = append(errs, fmt.Errorf("EXTRACT_KIND: %q is not one of off, tika, docling", c.Kind))
	}
	for _, t := range c.Types {
		if !mediaTypes.MatchString(t) {
			errs = append(errs, fmt.Errorf("EXTRACT_TYPES: %q is no media type", t))
		}
	}
	return errors.Join(errs...)
}

var mediaTypes = regexp.MustCompile(`^[a-z0-9.+-]+/(\*|[a-z0-9.+-]+)$`)

// On reports whether a service converts documents.
func (c Config) On() bool { return c.Kind == Tika || c.Kind == Docling }

// Converts reports whether the service converts documents of a type.
func (c Config) Converts(mediaType string) bool {
	return c.On() && slices.ContainsFunc(c.Types, func(t string) bool {
		group, all := strings.CutSuffix(t, "*")
		return t == mediaType || all && strings.HasPrefix(mediaType, group)
	})
}

// Type is the function Type for what this configuration lets in.
func (c Config) Type(head []byte, r io.ReaderAt, size int64, name string) (mediaType string, err error) {
	mediaType, err = Type(head, r, size, name)
	if err == nil || ingest.AsFailure(err).Code != ingest.CodeUnsupportedType {
		return mediaType, err
	}
	base, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	if bytes.HasPrefix(head, oleMagic) {
		base = oleType(oleNames(r, size))
	}
	if c.OCR == Tesseract && slices.Contains(document.PictureTypes, base) || c.Converts(base) {
		return base, nil
	}
	return "", err
}

// File reads a file's head and calls Type.
func (c Config) File(r io.ReaderAt, size int64, name string) (string, error) {
	head, err := readHead(r, size)
	if err != nil {
		return "", err
	}
	return c.Type(head, r, size, name)
}

// oleType is the media type of an office file in the old binary formats.
func oleType(names map[string]bool) string {
	switch {
	case names["WordDocument"]:
		return "application/msword"
	case names["Workbook"], names["Book"]:
		return "application/vnd.ms-excel"
	case names["PowerPoint Document"]:
		return "application/vnd.ms-powerpoint"
	}
	return "application/x-ole-storage"
}
