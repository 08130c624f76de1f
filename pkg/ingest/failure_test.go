package ingest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestTheSameCrashTwiceIsForGood(t *testing.T) {
	t.Parallel()
	crash := fmt.Errorf("extract: %w", ingest.ReaderCrashed("docx/2", "index out of range"))
	require.False(t, ingest.AsFailure(crash).Permanent, "once")
	other := errors.New("connection refused")
	for last, permanent := range map[string]bool{
		"":                   false,
		crash.Error():        true,
		"connection refused": false,
		"the reader docx/1 crashed: index out of range": false, // a newer version reads now
		"the reader docx/2 crashed: nil map":            true,
		"read the pdf: the reader died: killed":         false,
	} {
		err := ingest.CrashedBefore(crash, last)
		require.Equal(t, permanent, ingest.AsFailure(err).Permanent, last)
		require.Equal(t, ingest.CodeExtractCrashed, ingest.AsFailure(err).Code)
		require.Equal(t, permanent, ingest.AsFailure(err).Remedy != "")
		require.ErrorContains(t, err, "docx/2 crashed: index out of range")
		require.Equal(t, other, ingest.CrashedBefore(other, last))
	}
	died := ingest.Transient(ingest.CodeExtractCrashed, "read the pdf: the reader died: killed")
	require.Equal(t, error(died), ingest.CrashedBefore(died, died.Error()), "a child that was killed may have been in a bad place")
}
