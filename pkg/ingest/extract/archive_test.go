package extract

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzZipDirectory walks any archive's directory: what is opened later was within the limits here.
func FuzzZipDirectory(f *testing.F) {
	f.Add(docxOf(f, strings.NewReader("<w:p/>"), "styles", "<x/>"))
	f.Add(manyNames(3))
	f.Add(zipOf(f, "", "x", `..\x`, "y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		dir, err := readZipDirectory(r, int64(len(data)))
		if err != nil || dir.zipLimits() != nil {
			return
		}
		seen := 0
		_ = dir.eachMember(r, func(m zipMember) bool {
			seen++
			_ = m.declaredLimits()
			return true
		})
		require.LessOrEqual(t, seen, maxZipEntries)
		require.LessOrEqual(t, seen*dirEntryBytes, len(data))
	})
}
