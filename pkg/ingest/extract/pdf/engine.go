package pdf

import (
	"context"
	"fmt"
	"io"

	"github.com/klippa-app/go-pdfium"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

func init() {
	formats.RegisterPDF(formats.PDF{
		Compile: func(cacheDir string, memoryMB int) (any, error) {
			return newEngine(cacheDir, min(maxWasmPages, uint32(memoryMB)*16/2))
		},
		Read: Read,
	})
}

// maxWasmPages bounds PDFium's own memory: 128 MiB in pages of 64 KiB.
const maxWasmPages = 2048

// Engine is PDFium, compiled; every document gets an instance of its own.
type Engine struct {
	pool pdfium.Pool
}

// newEngine compiles PDFium, or loads what an earlier process compiled into cacheDir.
// pages bounds an instance's memory. The instances see no files: PDFium's default would mount the whole root.
func newEngine(cacheDir string, pages uint32) (*Engine, error) {
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
	return &Engine{pool: pool}, nil
}
