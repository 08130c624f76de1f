//go:build !race

// One file after another is read, by a child or in the process: nothing runs beside another that the race detector could see.

package extract

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// fuzzedPDFBytes bounds a fuzzed file: PDFium is slow in WebAssembly.
const fuzzedPDFBytes = 32 << 10

// FuzzPDF has a child read any PDF: text, a plain reason, or the end of a child that took too long, and the
// pool lives on. A child, because a guest that runs cannot be stopped from within its process; nor would
// fuzzing in it see PDFium's coverage.
func FuzzPDF(f *testing.F) {
	cfg := NewDefaultConfig()
	cfg.Sandbox, cfg.Parallel, cfg.TimeoutSmall, cfg.MaxPages, cfg.MaxTextBytes = sandbox.Require, 1, 2*time.Second, 100, 1<<20
	p, err := NewPool(cfg, slog.New(slog.DiscardHandler)) // a target's log is not there while it fuzzes
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, p.Close()) })
	f.Add(pdfgen.Text(2, 1))
	f.Add(extracttest.SimplePDF("/Outlines<</First 6 0 R>>", "BT /F1 9 Tf 9 50 Td (inter\\255national) Tj ET"))
	f.Add(attached("a.txt", "text", "b.bin", "\x00"))
	f.Add(annotated("BT /F1 9 Tf 72 700 Td (a page) Tj ET", []string{"/Subtype/Widget/FT/Tx/T(f)/V(v)", "/Subtype/Stamp/AP<</N 9 0 R>>"}, "drawn"))
	f.Add(drawn(ruling([]float64{70, 150, 330}, []float64{700, 680, 650}) + put(boldFont, 14, 75, 688, "a") + put(plainFont, 10, 155, 688, "b") + put(plainFont, 10, 75, 660, "c  d")))
	f.Add(drawn(page("h1 Title", "text", "h3 Other", "text") + rows(plainFont, []float64{72, 200}, 300, 14, []string{"a", "1"}, []string{"b", "2"}, []string{"c", "3"})))
	for _, s := range extracttest.Samples(f) {
		if data := extracttest.CorpusFile(f, s.File); strings.HasSuffix(s.File, ".pdf") && len(data) <= fuzzedPDFBytes && !strings.Contains(s.File, "bomb") && !strings.Contains(s.File, "fanout") {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > fuzzedPDFBytes {
			return
		}
		ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "fuzzed.pdf", data))
		for _, b := range blocks {
			extracttest.RequireGoodBlock(t, b)
		}
		if reason := ingest.AsFailure(err); err != nil && reason.Code == ingest.CodeExtractCrashed {
			require.Contains(t, err.Error(), "longer than", "only time may end a child")
			return
		}
		if err != nil {
			extracttest.RequirePermanent(t, err)
			return
		}
		last := 0
		for _, page := range ex.Unread {
			require.Greater(t, page, last)
			last = page
		}
		require.LessOrEqual(t, last, ex.Pages)
	})
}
