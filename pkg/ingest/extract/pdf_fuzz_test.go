package extract

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// fuzzedPDFBytes bounds a fuzzed file: PDFium is slow in WebAssembly.
const fuzzedPDFBytes = 32 << 10

// FuzzPDF has a child read any PDF: text, a plain reason, or the end of a child that took too long, and the pool lives on.
// A child, because a guest that runs cannot be stopped from within its process; nor would fuzzing in it see PDFium's coverage.
func FuzzPDF(f *testing.F) {
	cfg := NewDefaultConfig()
	cfg.Sandbox, cfg.Parallel, cfg.TimeoutSmall, cfg.MaxPages, cfg.MaxTextBytes = SandboxRequire, 1, 2*time.Second, 100, 1<<20
	p, err := NewPool(cfg, slog.New(slog.DiscardHandler)) // a target's log is not there while it fuzzes
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, p.Close()) })
	f.Add(pdfgen.Text(2, 1))
	f.Add(simplePDF("/Outlines<</First 6 0 R>>", "BT /F1 9 Tf 9 50 Td (inter\\255national) Tj ET"))
	for _, s := range samples(f) {
		if data := corpusFile(f, s.File); strings.HasSuffix(s.File, ".pdf") && len(data) <= fuzzedPDFBytes && !strings.Contains(s.File, "bomb") && !strings.Contains(s.File, "fanout") {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > fuzzedPDFBytes {
			return
		}
		ex, blocks, err := extractPath(t, t.Context(), p, writeTemp(t, "fuzzed.pdf", data))
		for _, b := range blocks {
			requireGoodBlock(t, b)
		}
		if reason := ingest.AsFailure(err); err != nil && reason.Code == ingest.CodeExtractCrashed {
			require.Contains(t, err.Error(), "longer than", "only time may end a child")
			return
		}
		if err != nil {
			requirePermanent(t, err)
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

// FuzzPageFlow lays out any text as the pages of a PDF, with any title as a bookmark of the first.
func FuzzPageFlow(f *testing.F) {
	f.Add("1 Introduction\r\nThe lease is inter\uFFFEnational\r\nand fault-\r\ntolerant.\n7", "• first\n• second\n- 2 -", "Introduction")
	f.Add("持久化异步入库任务\n向量库。\n\x02", "\n\n", "")
	f.Fuzz(func(t *testing.T, one, two, title string) {
		out := &sink{limits: limits{MaxTextBytes: 8 << 20}, emit: func(b ingest.Block) error {
			requireGoodBlock(t, b)
			return nil
		}}
		flow := newPageFlow(out)
		flow.outline = map[int][]bookmark{1: {{key: headingKey(title), level: 1}}}
		require.NoError(t, flow.page(1, one))
		require.NoError(t, flow.page(2, two))
	})
}

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
