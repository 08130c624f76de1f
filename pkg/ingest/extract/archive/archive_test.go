package archive

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// FuzzZipDirectory walks any archive's directory: what is opened later was within the limits here.
func FuzzZipDirectory(f *testing.F) {
	f.Add(extracttest.DocxOf(f, strings.NewReader("<w:p/>"), "styles", "<x/>"))
	f.Add(extracttest.ManyNames(3))
	f.Add(extracttest.ZipOf(f, "", "x", `..\x`, "y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		dir, err := ReadDirectory(r, int64(len(data)))
		if err != nil || dir.CheckLimits() != nil {
			return
		}
		seen := 0
		_ = dir.Each(r, func(m Member) bool {
			seen++
			_ = m.CheckLimits()
			return true
		})
		require.LessOrEqual(t, seen, MaxEntries)
		require.LessOrEqual(t, seen*entryBytes, len(data))
	})
}
