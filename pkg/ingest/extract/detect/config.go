package detect

import (
	"fmt"
	"io"
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

// Config says what is let in beside what every installation reads. Processes that receive documents and those that read them need the same.
type Config struct {
	OCR OCR `envconfig:"EXTRACT_OCR" default:"off" desc:"off, or tesseract: pictures, and pages that are pictures, are read by text recognition"`
}

// Validate names a setting that is out of range.
func (c Config) Validate() error {
	if c.OCR != OCROff && c.OCR != Tesseract && c.OCR != "" {
		return fmt.Errorf("EXTRACT_OCR: %q is not one of off, tesseract", c.OCR)
	}
	return nil
}

// Type is the function Type for what this configuration lets in.
func (c Config) Type(head []byte, r io.ReaderAt, size int64, name string) (mediaType string, err error) {
	mediaType, err = Type(head, r, size, name)
	if err == nil || ingest.AsFailure(err).Code != ingest.CodeUnsupportedType {
		return mediaType, err
	}
	base, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	if c.OCR == Tesseract && slices.Contains(document.PictureTypes, base) {
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
