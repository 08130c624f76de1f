package pdf

import (
	"context"
	"fmt"
	"io"

	"github.com/klippa-app/go-pdfium"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// MaxWasmPages bounds PDFium's own memory: 128 MiB in pages of 64 KiB.
const MaxWasmPages = 2048

// Engine is PDFium, compiled; every document gets an instance of its own.
type Engine struct {
	pool pdfium.Pool
}

// NewEngine compiles PDFium, or loads what an earlier process compiled into cacheDir.
// pages bounds an instance's memory. The instances see no files: PDFium's default would mount the whole root.
func NewEngine(cacheDir string, pages uint32) (*Engine, error) {
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
