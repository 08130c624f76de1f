package detect_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestWhatIsLetInBesideOurOwn(t *testing.T) {
	t.Parallel()
	png := extracttest.CorpusFile(t, "scan.png")
	legacy := extracttest.CorpusFile(t, "legacy.doc")
	sheet, slides := extracttest.OLEFile("Root Entry", "Book"), extracttest.OLEFile("Root Entry", "PowerPoint Document")
	other := extracttest.OLEFile("Root Entry", "Contents")
	offices := detect.Config{Kind: detect.Tika, Types: []string{"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"}}
	for name, c := range map[string]struct {
		cfg  detect.Config
		data []byte
		want string
	}{
		"a picture, nothing is on":      {detect.Config{OCR: detect.OCROff, Kind: detect.KindOff, Types: offices.Types}, png, ""},
		"a picture, recognition is on":  {detect.Config{OCR: detect.Tesseract}, png, "image/png"},
		"a picture, converted":          {detect.Config{Kind: detect.Docling, Types: []string{"image/*"}}, png, "image/png"},
		"DOC":                           {offices, legacy, "application/msword"},
		"XLS":                           {offices, sheet, "application/vnd.ms-excel"},
		"PPT":                           {offices, slides, "application/vnd.ms-powerpoint"},
		"a compound file of other kind": {offices, other, ""},
		"DOC, recognition is on":        {detect.Config{OCR: detect.Tesseract}, legacy, ""},
		"a program":                     {offices, append([]byte("MZ\x90\x00\x03\x00\x00\x00"), make([]byte, 500)...), ""},
		"text":                          {offices, []byte("text"), document.TypeText},
	} {
		got, err := c.cfg.File(bytes.NewReader(c.data), int64(len(c.data)), "a")
		require.Equal(t, c.want, got, name)
		if c.want == "" {
			extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
		}
	}
}
