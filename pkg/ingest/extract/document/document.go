// Package document is what all readers of documents share: the input, the sink that takes, cleans and counts
// blocks of text, tables as text, and the permanent failures that a user is told about.
package document

import (
	"bytes"
	"context"
	"image"
	"io"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
)

// The media types that Detect returns.
const (
	TypePDF      = "application/pdf"
	TypeDOCX     = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	TypeHTML     = "text/html"
	TypeMarkdown = "text/markdown"
	TypeText     = "text/plain"
	TypeCSV      = "text/csv"
	TypeJSON     = "application/json"
	TypePPTX     = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	TypeXLSX     = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	TypeODT      = "application/vnd.oasis.opendocument.text"
	TypeODS      = "application/vnd.oasis.opendocument.spreadsheet"
	TypeODP      = "application/vnd.oasis.opendocument.presentation"
	TypeEPUB     = "application/epub+zip"
	TypeRTF      = "text/rtf"
	TypeEML      = "message/rfc822"
	TypeMBOX     = "application/mbox"
	TypeMSG      = "application/vnd.ms-outlook"
	TypeTNEF     = "application/ms-tnef" // Outlook's winmail.dat
	TypeMHTML    = "multipart/related"   // a web page with its files
	TypeIPYNB    = "application/x-ipynb+json"
	TypeXML      = "application/xml"
	TypeLaTeX    = "application/x-tex"
	TypeCode     = "text/x-source-code"

	TypeSubtitles = "text/vtt" // SRT too
)

// TNEFHead begins a winmail.dat (MS-OXTNEF, section 2.1.3.2).
const TNEFHead = "\x78\x9f\x3e\x22"

// PictureTypes are read by text recognition.
var PictureTypes = []string{"image/png", "image/jpeg", "image/tiff", "image/gif", "image/bmp", "image/webp"}

// What a picture may have at most.
const (
	MaxPictureSide   = 20_000 // points
	MaxPicturePixels = 64 << 20
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
	HiddenSheets bool  `json:"hiddenSheets"` // those of workbooks are read too
	// Headers and footers, and comments, of Word documents are read too.
	HeadersFooters bool `json:"headersFooters"`
	Comments       bool `json:"comments"`
	OCR            bool `json:"ocr"` // pictures are read by text recognition
}

// Input is one document as a reader gets it.
type Input struct {
	File      io.ReaderAt
	Size      int64
	MediaType string
	Limits    Limits
	Progress  func(done, total int) // pages, or KiB where there are no pages
	Engine    any                   // what this process loaded for the reader: a pdf.Engine, or nil
	Tainted   bool                  // set by a reader whose process should read no other file
	// Inner reads a file that this one carries, under a heading of that level with its name; 0: without. A file that cannot be read is a
	// warning.
	Inner func(ctx context.Context, name string, data []byte, out *Sink, level int) error
	// Carry takes a file that a message carries, which is a document of its own; nil: the message itself is read. Then no block is sent.
	Carry func(name string, data []byte) error
	// Recognize returns the text on a picture, whose rows lie one behind the other; nil: there is no text recognition.
	// Errors: why there is no text, or that of the connection.
	Recognize func(picture *image.Gray) (string, error)
	advanced  int64 // bytes that were reported
}

// Advance tells how many bytes of total were read, once for each ProgressBytes, and returns ctx's error then. A decoded text or the end of a
// part may have more than its total: never more is reported than there is.
func (in *Input) Advance(ctx context.Context, done, total int64) error {
	if done < in.advanced {
		in.advanced = 0 // another part
	}
	if done-in.advanced < ProgressBytes {
		return nil
	}
	in.advanced = done
	in.Progress(int(min(done, total)>>10), int(total>>10))
	return ctx.Err()
}

// Part returns the input of a document that lies in this one.
func (in *Input) Part(mediaType string, data []byte) *Input {
	return &Input{
		File: bytes.NewReader(data), Size: int64(len(data)), MediaType: mediaType, Limits: in.Limits, Progress: func(int, int) {}, Engine: in.Engine,
		Recognize: in.Recognize,
	}
}

// Stream reads the whole input from its start.
func (in *Input) Stream() *io.SectionReader { return io.NewSectionReader(in.File, 0, in.Size) }

// What the user is told to do about each kind of failure.
const (
	remedyUnsupported = "Upload a PDF, an office or OpenDocument file, an e-book, an e-mail, a web page, Markdown, LaTeX, XML, source code or plain text."
	remedyEncrypted   = "Remove the password or the copy protection and upload the file again."
	remedyCorrupt     = "The file is damaged or incomplete. Open it in its own program, save it anew and upload it again."
	remedyLimit       = "The file is larger inside than is allowed. Split it into smaller documents."
	RemedyEncoding    = "Save the text as UTF-8 and upload it again."
	RemedyOCR         = "The document holds pictures of text only. Run it through a text recognition (OCR) first."
	RemedyEmpty       = "The file holds nothing to read. Check it and upload it again."
)

func Unsupported(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeUnsupportedType, remedyUnsupported, format, args...)
}

func Encrypted(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeEncrypted, remedyEncrypted, format, args...)
}

func Corrupt(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeCorrupt, remedyCorrupt, format, args...)
}

func OverLimit(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeLimitExceeded, remedyLimit, format, args...)
}
