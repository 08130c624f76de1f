package html

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// Pages of many elements cost no memory for what is behind them, and blocks stay within their bounds.
func TestPagesOfManyElements(t *testing.T) {
	t.Parallel()
	var cells strings.Builder
	for i := range 5000 {
		cells.WriteString("<td>" + strconv.Itoa(i))
	}
	for name, page := range map[string]string{
		"paragraphs":         strings.Repeat("<p>text", 20_000),
		"nested boxes":       strings.Repeat("<div>", 20_000) + "text",
		"nested tables":      strings.Repeat("<table><tr><td>x", 2_000),
		"one row":            "<table><tr>" + cells.String() + "</table>",
		"one cell":           "<table><tr><td>" + strings.Repeat("words of a cell ", 20_000) + "<td>x</table>",
		"one paragraph":      "<p>" + strings.Repeat("words of a text ", 20_000),
		"preformatted lines": "<pre>" + strings.Repeat("line\n", 50_000) + "</pre>",
		"lists in lists":     strings.Repeat("<ol><li>x", 2_000),
		"breaks":             strings.Repeat("x<br>", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, blocks, err := extracttest.ReadBytes(Read, []byte("<!doctype html>"+page), document.TypeHTML)
			require.NoError(t, err)
			require.NotEmpty(t, blocks)
			for _, b := range blocks {
				require.NoError(t, document.CheckBlock(b))
			}
		})
	}
}

func TestALongPageReportsItsProgress(t *testing.T) {
	t.Parallel()
	page := "<!doctype html>" + strings.Repeat("<p>a paragraph of a long page", 50_000)
	last, reports := 0, 0
	in := &document.Input{File: strings.NewReader(page), Size: int64(len(page)), MediaType: document.TypeHTML, Progress: func(done, total int) {
		require.GreaterOrEqual(t, done, last)
		require.LessOrEqual(t, done, total)
		last = done
		reports++
	}}
	out := document.NewSink(document.Limits{MaxTextBytes: 8 << 20}, func(ingest.Block) error { return nil })
	_, err := Read(t.Context(), in, out)
	require.NoError(t, err)
	require.Greater(t, reports, 3)
}
