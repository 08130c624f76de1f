package pdf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestPageFlow(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	out := document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	f := newPageFlow(out)
	f.outline = map[int][]bookmark{1: {{key: "introduction", level: 2}}}
	require.NoError(t, f.page(1, "Running title\r\n1.2 Introduction\r\nThe well-known lease is inter\uFFFEnational and fault-\r\ntolerant, as a well\uFFFE\r\nknown rule says here.\r\n• first\n• second\n7"))
	require.NoError(t, f.page(2, "Running title\n持久化异步入库任务把文档切成段落，再写入\n向量库。\n- 2 -"))
	require.Equal(t, []string{
		"p Running title", "## 1.2 Introduction",
		"p The well-known lease is international and faulttolerant, as a well-known rule says here.",
		"l • first", "l • second", "p 持久化异步入库任务把文档切成段落，再写入向量库。",
	}, extracttest.Lines(blocks))
	require.Equal(t, 2, blocks[len(blocks)-1].Page)
}

// FuzzPageFlow lays out any text as the pages of a PDF, with any title as a bookmark of the first.
func FuzzPageFlow(f *testing.F) {
	f.Add("1 Introduction\r\nThe lease is inter\uFFFEnational\r\nand fault-\r\ntolerant.\n7", "• first\n• second\n- 2 -", "Introduction")
	f.Add("持久化异步入库任务\n向量库。\n\x02", "\n\n", "")
	f.Fuzz(func(t *testing.T, one, two, title string) {
		out := document.NewSink(document.Limits{MaxTextBytes: 8 << 20}, func(b ingest.Block) error {
			require.NoError(t, document.CheckBlock(b))
			return nil
		})
		flow := newPageFlow(out)
		flow.outline = map[int][]bookmark{1: {{key: headingKey(title), level: 1}}}
		require.NoError(t, flow.page(1, one))
		require.NoError(t, flow.page(2, two))
	})
}
