// Package wasm has PDFium compiled to WebAssembly: what a hostile document breaks in it ends with the instance. Its import makes a
// program a reader of PDFs.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klippa-app/go-pdfium"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/pdf"
)

func init() {
	formats.RegisterPDF(formats.PDF{
		Compile: func(cacheDir string, memoryMB int) (any, error) {
			return newEngine(cacheDir, min(maxWasmPages, uint32(memoryMB)*16/2))
		},
		Read: pdf.Read,
	})
}

const (
	// maxWasmPages bounds PDFium's own memory: 128 MiB in pages of 64 KiB.
	maxWasmPages = 2048
	// instanceTimeout is the longest wait for a new instance; it takes a few milliseconds.
	instanceTimeout = 30 * time.Second
)

// engine is PDFium, compiled; every document gets an instance of its own.
type engine struct {
	pool pdfium.Pool
}

// newEngine compiles PDFium, or loads what an earlier process compiled into cacheDir.
// pages bounds an instance's memory. The instances see no files: PDFium's default would mount the whole root.
func newEngine(cacheDir string, pages uint32) (*engine, error) {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("open the cache of the pdf reader: %w", err)
	}
	pool, err := webassembly.Init(webassembly.Config{
		Context:  experimental.WithMemoryAllocator(context.Background(), experimental.MemoryAllocatorFunc(newGuestMemory)),
		MinIdle:  0,
		MaxIdle:  0,
		MaxTotal: 1,
		FSConfig: wazero.NewFSConfig(),
		RuntimeConfig: wazero.NewRuntimeConfig().
			WithCompilationCache(cache).
			WithMemoryLimitPages(pages),
		Stdout: io.Discard,
		Stderr: io.Discard,
	})
	if err != nil {
		return nil, fmt.Errorf("start the pdf reader: %w", err)
	}
	return &engine{pool: pool}, nil
}

// Open implements pdf.Engine: it starts a fresh instance and opens the document in it.
func (e *engine) Open(file io.ReaderAt, size int64) (pdf.Library, references.FPDF_DOCUMENT, error) {
	instance, err := e.pool.GetInstance(instanceTimeout)
	if err != nil {
		return nil, "", fmt.Errorf("%w: start an instance: %w", pdf.ErrEngine, err)
	}
	doc, err := instance.FPDF_LoadCustomDocument(&requests.FPDF_LoadCustomDocument{Reader: &blockReader{src: file, size: size}, Size: size})
	if err != nil {
		_ = instance.Close()
		return nil, "", err
	}
	return instance, doc.Document, nil
}

// blockReader reads the file in blocks: PDFium asks for a few bytes at a time.
type blockReader struct {
	src   io.ReaderAt
	size  int64
	at    int64
	block []byte
	start int64
}

// blockBytes is what one read of the file fetches.
const blockBytes = 64 << 10

// Read implements io.Reader.
func (b *blockReader) Read(buf []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	if b.at < b.start || b.at >= b.start+int64(len(b.block)) {
		b.start = b.at - b.at%blockBytes
		if cap(b.block) == 0 {
			b.block = make([]byte, blockBytes)
		}
		n, err := b.src.ReadAt(b.block[:min(blockBytes, b.size-b.start)], b.start)
		b.block = b.block[:n]
		if b.at >= b.start+int64(n) {
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
	}
	n := copy(buf, b.block[b.at-b.start:])
	b.at += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (b *blockReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	b.at = offset
	return offset, nil
}
