// Package formats knows every format: its reader, version and media types.
package formats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/code"
	"github.com/millweir/millweir/pkg/ingest/extract/csv"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/docx"
	"github.com/millweir/millweir/pkg/ingest/extract/epub"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
	"github.com/millweir/millweir/pkg/ingest/extract/latex"
	"github.com/millweir/millweir/pkg/ingest/extract/mail"
	"github.com/millweir/millweir/pkg/ingest/extract/markdown"
	"github.com/millweir/millweir/pkg/ingest/extract/notebook"
	"github.com/millweir/millweir/pkg/ingest/extract/odf"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
	"github.com/millweir/millweir/pkg/ingest/extract/picture"
	"github.com/millweir/millweir/pkg/ingest/extract/plaintext"
	"github.com/millweir/millweir/pkg/ingest/extract/pptx"
	"github.com/millweir/millweir/pkg/ingest/extract/rtf"
	"github.com/millweir/millweir/pkg/ingest/extract/subtitles"
	"github.com/millweir/millweir/pkg/ingest/extract/xlsx"
	"github.com/millweir/millweir/pkg/ingest/extract/xmldoc"
)

// Reader turns documents of some types into blocks.
type Reader struct {
	Name    string
	Version int // goes up whenever equal bytes may give other blocks: part of the fingerprint
	Types   []string
	PDF     bool // its documents are PDFs, or carry files that may be
	objects bool // its documents may embed such files
	// read sends all blocks to out and returns what it found; MediaType, Chars and Reader are filled in by
	// the caller.
	Read func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error)
}

// Registry holds the readers: a new format is one line here and one file beside it.
var Registry = []Reader{
	{Name: "pdf", Version: 6, Types: []string{document.TypePDF}, PDF: true, Read: readPDF},
	{Name: "docx", Version: 6, Types: []string{document.TypeDOCX}, objects: true, Read: docx.Read},
	{Name: "html", Version: 3, Types: []string{document.TypeHTML}, Read: html.Read},
	{Name: "markdown", Version: 3, Types: []string{document.TypeMarkdown}, Read: markdown.Read},
	{Name: "pptx", Version: 4, Types: []string{document.TypePPTX}, objects: true, Read: pptx.Read},
	{Name: "xlsx", Version: 3, Types: []string{document.TypeXLSX}, objects: true, Read: xlsx.Read},
	{Name: "odf", Version: 3, Types: []string{document.TypeODT, document.TypeODS, document.TypeODP}, Read: odf.Read},
	{Name: "epub", Version: 1, Types: []string{document.TypeEPUB}, Read: epub.Read},
	{Name: "rtf", Version: 3, Types: []string{document.TypeRTF}, Read: rtf.Read},
	{Name: "eml", Version: 4, Types: []string{document.TypeEML}, PDF: true, Read: mail.Read},
	{Name: "mbox", Version: 4, Types: []string{document.TypeMBOX}, PDF: true, Read: mail.ReadBox},
	{Name: "msg", Version: 5, Types: []string{document.TypeMSG}, PDF: true, Read: mail.ReadMSG},
	{Name: "tnef", Version: 1, Types: []string{document.TypeTNEF}, PDF: true, Read: mail.ReadTNEF},
	{Name: "mhtml", Version: 1, Types: []string{document.TypeMHTML}, Read: mail.ReadWebArchive},
	{Name: "ipynb", Version: 1, Types: []string{document.TypeIPYNB}, Read: notebook.Read},
	{Name: "subtitles", Version: 2, Types: []string{document.TypeSubtitles}, Read: subtitles.Read},
	{Name: "xml", Version: 3, Types: []string{document.TypeXML}, Read: xmldoc.Read},
	{Name: "latex", Version: 1, Types: []string{document.TypeLaTeX}, Read: latex.Read},
	{Name: "code", Version: 1, Types: []string{document.TypeCode}, Read: code.Read},
	{Name: "picture", Version: 2, Types: document.PictureTypes, Read: picture.Read},
	{Name: "csv", Version: 2, Types: []string{document.TypeCSV}, Read: csv.Read},
	{Name: "text", Version: 3, Types: []string{document.TypeText, document.TypeJSON}, Read: plaintext.Read},
}

// NeedsPDF reports whether a document is read by a process that reads PDFs too.
func (r Reader) NeedsPDF(file io.ReaderAt, size int64) bool {
	return r.PDF || r.objects && office.HasObjects(file, size)
}

// PDF is the reader of PDFs and its engine, which a program links or not.
type PDF struct {
	// Compile compiles the engine, or loads what an earlier process compiled into cacheDir. The engine takes at
	// most half of the process's memory.
	Compile func(cacheDir string, memoryMB int) (engine any, err error)
	Read    func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error)
}

// linked is the reader of PDFs that this program links; zero: none.
var linked PDF

// RegisterPDF makes the reader of PDFs known. Package pdf calls it when it is linked, as drivers of
// database/sql do: a program reads PDFs when it imports that package.
func RegisterPDF(p PDF) { linked = p }

// LinkedPDF returns the reader of PDFs; ok false: this program links none.
func LinkedPDF() (p PDF, ok bool) { return linked, linked.Read != nil }

// ErrNoPDF says that this program links no reader of PDFs.
var ErrNoPDF = errors.New("this program links no reader of PDFs")

// readPDF reads a PDF with the reader that is linked.
func readPDF(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if p, ok := LinkedPDF(); ok && in.Engine != nil {
		return p.Read(ctx, in, out)
	}
	return ingest.Extraction{}, fmt.Errorf("%w: %w", ingest.ErrElsewhere, ErrNoPDF)
}

// For finds the reader of a media type.
func For(mediaType string) (Reader, bool) {
	for _, r := range Registry {
		if slices.Contains(r.Types, mediaType) {
			return r, true
		}
	}
	return Reader{}, false
}

// String is the reader's name and version, e.g. "pdf/1".
func (r Reader) String() string { return fmt.Sprintf("%s/%d", r.Name, r.Version) }

// Fingerprint names all readers and their versions.
func Fingerprint() string {
	names := make([]string, 0, 8)
	for _, r := range Registry {
		names = append(names, r.String())
	}
	return strings.Join(names, " ")
}

// Read reads one document in this process: in the child, and in tests.
func Read(ctx context.Context, in *document.Input, emit func(ingest.Block) error) (ingest.Extraction, error) {
	r, ok := For(in.MediaType)
	if !ok {
		return ingest.Extraction{}, document.Unsupported("no reader for %s", in.MediaType)
	}
	out := document.NewSink(in.Limits, emit)
	out.ReadBy(r.String())
	in.Inner = inner(in, 1)
	ex, err := r.Read(ctx, in, out)
	if err != nil {
		return ingest.Extraction{}, err
	}
	if out.Chars == 0 && in.Carry == nil {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeEmpty,
			"The document holds no text. Check the file and upload it again.", "read %s: no text found", in.MediaType)
	}
	ex.MediaType, ex.Reader, ex.Chars, ex.Warnings = in.MediaType, strings.Join(out.Readers, " "), out.Chars, out.Warnings
	// A PDF's first heading is that of its outline: a chapter, not the whole.
	if ex.Title == "" && in.MediaType != document.TypePDF {
		ex.Title = out.FirstHeading
	}
	ex.Title = document.CleanTitle(ex.Title)
	return ex, nil
}

// maxInner bounds how deep files lie in each other: an attachment of a message that is attached to a message.
const maxInner = 4

// inner returns the function that reads the files that a document carries; depth counts the documents around them.
func inner(outer *document.Input, depth int) func(context.Context, string, []byte, *document.Sink, int) error {
	return func(ctx context.Context, name string, data []byte, out *document.Sink, level int) error {
		if depth >= maxInner {
			out.Warn("%q was not read: it lies in more than %d files", name, maxInner)
			return nil
		}
		in := outer.Part("", data)
		in.Inner = inner(in, depth+1)
		err := readInner(ctx, in, name, out, min(level, 6))
		outer.Tainted = outer.Tainted || in.Tainted
		if errors.Is(err, ErrNoPDF) {
			out.Warn("%q was not read: it is a PDF. Upload it by itself", name)
			return nil
		}
		// Limits of the whole and faults of ours end the reading.
		f, ok := errors.AsType[*ingest.Failure](err)
		if !ok || !f.Permanent || f.Code == ingest.CodeLimitExceeded {
			return err
		}
		out.Warn("%q was not read: %v", name, f)
		return nil
	}
}

// readInner reads a file that a document carries, below its name where it has a level.
func readInner(ctx context.Context, in *document.Input, name string, out *document.Sink, level int) (err error) {
	accept := detect.Config{}
	if in.Recognize != nil {
		accept.OCR = detect.Tesseract
	}
	if in.MediaType, err = accept.File(in.File, in.Size, name); err != nil {
		return err
	}
	r, ok := For(in.MediaType)
	if !ok {
		return document.Unsupported("no reader for %s", in.MediaType)
	}
	if level > 0 {
		if err := out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: level, Text: document.CleanTitle(name)}); err != nil {
			return err
		}
	}
	out.ReadBy(r.String())
	ex, err := r.Read(ctx, in, out)
	for _, page := range ex.Unread {
		out.Warn("page %d of %q could not be read", page, name)
	}
	return err
}

// ReadGuarded turns a reader's panic into a failure of its file.
func ReadGuarded(ctx context.Context, in *document.Input, emit func(ingest.Block) error) (ex ingest.Extraction, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, _ := For(in.MediaType)
			err = &CrashError{failure: ingest.ReaderCrashed(r.String(), fmt.Sprint(p)), Stack: debug.Stack()}
		}
	}()
	return Read(ctx, in, emit)
}

// CrashError is a reader's panic.
type CrashError struct {
	failure *ingest.Failure
	Stack   []byte // for the log only
}

func (e *CrashError) Error() string { return e.failure.Error() }

// Unwrap makes the crash the failure of its file.
func (e *CrashError) Unwrap() error { return e.failure }
