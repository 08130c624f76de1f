package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		os.Exit(child.Main())
	}
	os.Exit(m.Run())
}

// A reclaimer reads every format but PDF, which it leaves to a worker (pkg/taskrun TestWhatAnotherProgramDoesIsHandedBack).
func TestAPDFIsAnotherProgramsWork(t *testing.T) {
	t.Parallel()
	cfg := extract.NewDefaultConfig()
	cfg.CacheDir, cfg.Sandbox = filepath.Join(t.TempDir(), "cache"), sandbox.Off
	pool, err := extract.NewPool(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, pool.Warm(t.Context()))
	read := func(name, content string) (blocks int, err error) {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		f, err := os.Open(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		_, err = pool.Extract(context.Background(), ingest.Source{File: f, Name: name}, nil, func(ingest.Block) error { blocks++; return nil })
		return blocks, err
	}
	_, err = read("a.pdf", "%PDF-1.7\nof no use here")
	require.ErrorIs(t, err, ingest.ErrElsewhere)
	blocks, err := read("a.md", "# Title\n\ntext\n")
	require.NoError(t, err)
	require.Equal(t, 2, blocks)
}
