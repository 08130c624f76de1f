// Package document is what all readers of documents share: the input, the sink that takes, cleans and counts
// blocks of text, tables as text, and the permanent failures that a user is told about.
package document

import (
	"io"
	"time"
)

// The media types that Detect answers.
const (
	TypePDF      = "application/pdf"
	TypeDOCX     = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	TypeHTML     = "text/html"
	TypeMarkdown = "text/markdown"
	TypeText     = "text/plain"
	TypeCSV      = "text/csv"
	TypeJSON     = "application/json"
)

const (
	// ProgressEvery is the least time between two reports of progress.
	ProgressEvery = 250 * time.Millisecond
	// ProgressBytes is how often a reader of a stream reports.
	ProgressBytes = 256 << 10
)

// Limits are the caps of one document.
type Limits struct {
	MaxTextBytes int64 `json:"maxTextBytes"`
	MaxPages     int   `json:"maxPages"`
}

// Input is one document as a reader gets it.
type Input struct {
	File      io.ReaderAt
	Size      int64
	MediaType string
	Limits    Limits
	Progress  func(done, total int) // pages, or KiB where there are no pages
	Engine    any                   // what this process loaded for the reader: a *pdfEngine, or nil
	Tainted   bool                  // set by a reader whose process should read no other file
}

// Stream reads the whole input from its start.
func (in *Input) Stream() *io.SectionReader { return io.NewSectionReader(in.File, 0, in.Size) }
