package ole_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

func TestUnpack(t *testing.T) {
	t.Parallel()
	streams := func(s ...string) string { return string(extracttest.OLEStreams(s...)) }
	for name, c := range map[string]struct {
		data string
		want string // how the file begins; empty: there is none
		file string
	}{
		"no compound file":                    {"PK\x03\x04", "PK\x03\x04", "o.bin"},
		"a compound file without a directory": {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "\xD0\xCF", "o.bin"},
		"a package":                           {streams("\x01Ole", "x", "Package", "PK\x03\x04"), "PK\x03\x04", "o.bin"},
		"an OpenDocument file":                {streams("EmbeddedOdf", "PK\x03\x04"), "PK\x03\x04", "o.bin"},
		"a PDF":                               {streams("CONTENTS", "%PDF-1.7"), "%PDF-1.7", "o.bin"},
		"the contents of something else":      {streams("CONTENTS", "else"), "", ""},
		"a package in a storage":              {streams("Other/Package", "PK\x03\x04"), "", ""},
		"an old workbook":                     {streams("Workbook", "x"), "\xD0\xCF", "o.bin"},
		"a packaged file":                     {streams("\x01Ole10Native", "size\x02\x00C:\\a\\b.txt\x00C:\\own\\c.txt\x00\x00\x00\x03\x00\x02\x00\x00\x00x\x00\x03\x00\x00\x00one"), "one", "b.txt"},
		"one without a label":                 {streams("\x01Ole10Native", "size\x02\x00\x00/own/c.txt\x00\x00\x00\x03\x00\x00\x00\x00\x00\x03\x00\x00\x00one"), "one", "c.txt"},
		"sizes beyond the end":                {streams("\x01Ole10Native", "size\x02\x00a\x00b\x00\x00\x00\x03\x00\xff\xff\xff\xff"), "", ""},
		"texts without an end":                {streams("\x01Ole10Native", strings.Repeat("a", 4096)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ok := ole.Unpack("word/embeddings/o.bin", []byte(c.data))
			require.Equal(t, c.want != "", ok)
			require.Equal(t, c.file, f.Name)
			require.True(t, strings.HasPrefix(string(f.Data), c.want))
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x01\x05\x00\x00\x02\x00\x00\x00\x08\x00\x00\x00Package\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00\x02\x00a\x00b\x00\x00\x00\x03\x00\x02\x00\x00\x00x\x00\x03\x00\x00\x00one"))
	f.Add([]byte("\x01\x05\x00\x00\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Add(extracttest.OLEStreams("\x01Ole10Native", "size\x02\x00a\x00b\x00\x00\x00\x03\x00\x02\x00\x00\x00x\x00\x03\x00\x00\x00one"))
	f.Add(extracttest.OLEStreams("Package", ""))
	f.Add(extracttest.OLEStreams("Package", "PK\x03\x04", "Other/CONTENTS", "%PDF-"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, unpack := range []func() (ole.File, bool){
			func() (ole.File, bool) { return ole.Unpack("a/b.bin", data) }, func() (ole.File, bool) { return ole.UnpackOld(data) },
		} {
			file, ok := unpack()
			require.True(t, ok || len(file.Data) == 0)
			require.LessOrEqual(t, len(file.Data), max(len(data), 1<<20))
		}
	})
}
