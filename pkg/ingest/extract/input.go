package extract

import (
	"io"
	"time"
)

// The media types that Detect answers.
const (
	typePDF      = "application/pdf"
	typeDOCX     = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	typeHTML     = "text/html"
	typeMarkdown = "text/markdown"
	typeText     = "text/plain"
	typeCSV      = "text/csv"
	typeJSON     = "application/json"
)

const (
	// progressEvery is the least time between two reports of progress.
	progressEvery = 250 * time.Millisecond
	// progressBytes is how often a reader of a stream reports.
	progressBytes = 256 << 10
)

// limits are the caps of one document.
type limits struct {
	MaxTextBytes int64 `json:"maxTextBytes"`
	MaxPages     int   `json:"maxPages"`
}

// input is one document as a reader gets it.
type input struct {
	file      io.ReaderAt
	size      int64
	mediaType string
	limits    limits
	progress  func(done, total int) // pages, or KiB where there are no pages
	engine    any                   // what this process loaded for the reader: a *pdfEngine, or nil
	tainted   bool                  // set by a reader whose process should read no other file
}

// stream reads the whole input from its start.
func (in *input) stream() *io.SectionReader { return io.NewSectionReader(in.file, 0, in.size) }
