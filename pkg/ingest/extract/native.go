package extract

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// PDFEngine is what reads PDFs.
type PDFEngine string

// The settings of PDF_ENGINE.
const (
	PDFWasm   PDFEngine = "wasm"   // PDFium in WebAssembly, in the program itself
	PDFNative PDFEngine = "native" // libpdfium.so, in a program of its own; what ends it is read again in WebAssembly
)

// engine is what a child has for PDFs.
type engine int

const (
	noPDF engine = iota
	wasmPDF
	nativePDF
)

const (
	readerName, libraryName = "pdf-reader", "libpdfium.so"
	// nativeMark stands behind the version of a reader that reads natively: another build of PDFium may give other blocks.
	nativeMark = "-native"
	// nativeTimeout is the longest time until the reader has shown that it can start.
	nativeTimeout = 30 * time.Second
)

// nativeProgram is what is started for PDF_ENGINE=native.
type nativeProgram struct{ reader, library string }

// validEngine names what is wrong with PDF_ENGINE and, in a program that reads PDFs, with the files that it needs.
func (c Config) validEngine() error {
	_, reads := formats.LinkedPDF()
	switch {
	case c.PDFEngine != PDFWasm && c.PDFEngine != PDFNative && c.PDFEngine != "":
		return fmt.Errorf("PDF_ENGINE: %q is not one of wasm, native", c.PDFEngine)
	case c.PDFEngine == PDFNative && c.Sandbox == sandbox.Off:
		return errors.New("PDF_ENGINE: native reads in a sandbox only: set EXTRACT_SANDBOX=auto or require, or PDF_ENGINE=wasm")
	case c.PDFEngine == PDFNative && runtime.GOOS != "linux":
		return errors.New("PDF_ENGINE: native needs Linux: set PDF_ENGINE=wasm")
	case c.PDFEngine == PDFNative && reads:
		_, err := c.findProgram()
		return err
	}
	return nil
}

// findProgram finds the program and the library of PDF_ENGINE=native and looks at what they are built for.
func (c Config) findProgram() (*nativeProgram, error) {
	reader := c.PDFReader
	if reader == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("PDF_READER: find the own program: %w", err)
		}
		reader = filepath.Join(filepath.Dir(own), readerName)
	}
	library := c.PDFLibrary
	if library == "" {
		library = filepath.Join(filepath.Dir(reader), libraryName)
	}
	p := &nativeProgram{}
	for _, file := range []struct {
		setting, path, remedy string
		into                  *string
	}{
		{"PDF_READER", reader, "set it to the program pdf-reader of this version", &p.reader},
		{"PDF_LIBRARY", library, "set it to PDFium's libpdfium.so for linux/" + runtime.GOARCH + " (deploy/docs/operator.md)", &p.library},
	} {
		path, err := filepath.Abs(file.path)
		if err == nil {
			err = builtFor(path)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s, or PDF_ENGINE to wasm", file.setting, err, file.remedy)
		}
		*file.into = path
	}
	return p, nil
}

// machines are the processors that Linux programs are built for, by their number in a program's head (ELF, e_machine).
var machines = map[uint16]string{62: "amd64", 183: "arm64"}

// builtFor refuses a file that is no program or library for this machine.
func builtFor(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	head := make([]byte, 20)
	if _, err := io.ReadFull(f, head); err != nil || string(head[:4]) != "\x7fELF" {
		return fmt.Errorf("%s is no program and no library", path)
	}
	if number := binary.LittleEndian.Uint16(head[18:]); machines[number] != runtime.GOARCH {
		return fmt.Errorf("%s is built for another processor (%d), this machine is %s", path, number, runtime.GOARCH)
	}
	return nil
}

// startNative finds the program and starts it once. Where it cannot be confined, PDFs are read in WebAssembly, and the log says so.
// Errors name the setting that is wrong.
func (p *Pool) startNative() error {
	if _, reads := formats.LinkedPDF(); !reads || p.cfg.PDFEngine != PDFNative {
		return nil
	}
	found, err := p.cfg.findProgram()
	if err != nil {
		return err
	}
	p.starter.native = found
	ctx, cancel := context.WithTimeout(context.Background(), nativeTimeout)
	defer cancel()
	w, err := startWorker(ctx, p.starter, p.setup(nativePDF))
	if err == nil {
		w.kill()
		if w.hello.Readers != readers {
			return fmt.Errorf("PDF_READER: %s is of another version than this program: install the two together", found.reader)
		}
		p.native = true
		return nil
	}
	refused, started := errors.AsType[*startError](err)
	switch {
	case started && refused.hello.Unloaded:
		return fmt.Errorf("PDF_LIBRARY: %w: set it to PDFium's libpdfium.so for linux/%s, or PDF_ENGINE to wasm", err, runtime.GOARCH)
	case started:
		p.log.Warn("extract: the native PDF reader cannot be confined here: PDFs are read in WebAssembly", slog.Any("error", err))
		return nil
	}
	return fmt.Errorf("PDF_READER: %s does not start, it needs the C library glibc: %w", found.reader, err)
}

// setup is that of a child that reads documents.
func (p *Pool) setup(has engine) sandbox.Setup {
	set := sandbox.Setup{PDF: has != noPDF, Native: has == nativePDF, MemoryMB: p.cfg.MemoryMB, Sandbox: p.cfg.Sandbox, Without: p.without}
	if has == wasmPDF {
		set.CacheDir = p.cacheDir // fixed by Warm
	}
	return set
}

// version names a reader as Fingerprint does.
func (p *Pool) version(r formats.Reader) string {
	if p.native && r.Name == pdfReader.Name {
		return r.String() + nativeMark
	}
	return r.String()
}

var (
	readers      = formats.Fingerprint() // of the product: tests add others
	pdfReader, _ = formats.For(document.TypePDF)
)

// fingerprint names all readers.
func (p *Pool) fingerprint() string {
	return strings.Replace(formats.Fingerprint(), pdfReader.String(), p.version(pdfReader), 1)
}

// readNative runs a job in a native child. Its blocks are held until it has come to a regular end: a job whose child ended in another way,
// or said nonsense, is run again in WebAssembly, from the start and within the same call. What the child says of a document is its word as
// in WebAssembly: a refusal is not repeated.
func (p *Pool) readNative(ctx context.Context, file *os.File, job frame.Job, r formats.Reader, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	held := &heldBlocks{}
	defer held.close()
	ex, err := p.readIn(ctx, nativePDF, file, job, r, progress, held.add)
	if err == nil {
		return ex, held.send(emit)
	}
	if f, ok := errors.AsType[*ingest.Failure](err); !ok || f.Code != ingest.CodeExtractCrashed || ctx.Err() != nil {
		return ingest.Extraction{}, err
	}
	p.mu.Lock()
	p.stats.Repeated++
	p.mu.Unlock()
	p.log.WarnContext(ctx, "extract: the native PDF reader ended abnormally: reading the document again in WebAssembly",
		slog.Any("error", err), slog.Int64("size", job.Size))
	return p.readIn(ctx, wasmPDF, file, job, r, progress, emit)
}

// heldBytes is how much text of one document is held in memory; more is held in a file without a name.
const heldBytes = 4 << 20

// heldBlocks keeps the blocks of one document.
type heldBlocks struct {
	memory bytes.Buffer
	file   *os.File
	out    *bufio.Writer // to file; nil: all is in memory
	frame  []byte
}

// add takes a block.
func (h *heldBlocks) add(b ingest.Block) error {
	h.frame = frame.EncodeBlock(h.frame[:0], b)
	if h.out == nil && h.memory.Len()+len(h.frame) > heldBytes {
		file, err := os.CreateTemp("", "millweir-blocks-")
		if err == nil {
			h.file, h.out = file, bufio.NewWriterSize(file, frame.BufferBytes)
			err = os.Remove(file.Name())
		}
		if err != nil {
			return fmt.Errorf("%w: hold the text of a document: %w", ingest.ErrProcess, err)
		}
	}
	to := io.Writer(&h.memory)
	if h.out != nil {
		to = h.out
	}
	if err := frame.Write(to, frame.KindBlock, h.frame); err != nil {
		return fmt.Errorf("%w: hold the text of a document: %w", ingest.ErrProcess, err)
	}
	return nil
}

// send passes all blocks on.
func (h *heldBlocks) send(emit func(ingest.Block) error) error {
	all := io.Reader(&h.memory)
	if h.out != nil {
		err := h.out.Flush()
		if err == nil {
			_, err = h.file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("%w: hold the text of a document: %w", ingest.ErrProcess, err)
		}
		all = io.MultiReader(&h.memory, bufio.NewReaderSize(h.file, frame.BufferBytes))
	}
	for {
		_, payload, err := frame.Read(all, h.frame)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: hold the text of a document: %w", ingest.ErrProcess, err)
		}
		h.frame = payload
		b, err := frame.DecodeBlock(payload)
		if err == nil {
			err = emit(b)
		}
		if err != nil {
			return err
		}
	}
}

// close frees what is held.
func (h *heldBlocks) close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}
