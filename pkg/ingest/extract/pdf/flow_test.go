package pdf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestWithoutItsEngineTheReaderSaysSo(t *testing.T) {
	t.Parallel()
	_, err := Read(t.Context(), &document.Input{}, nil)
	require.ErrorContains(t, err, "has not loaded the pdf reader")
}

// unmeasured is a page of which only the text is known.
func unmeasured(text string) pageContent {
	lines, _ := cutLines(text)
	return pageContent{lines: lines}
}

func TestPageFlow(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	out := document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	f := newPageFlow(out)
	f.outline = map[int][]bookmark{1: {{key: "introduction", level: 2}}}
	require.NoError(t, f.page(1, unmeasured("Running title\r\n1.2 Introduction\r\nThe well-known lease is inter\uFFFEnational and fault-\r\ntolerant, as a well\uFFFE\r\nknown rule says here.\r\n• first\n• second\n7")))
	require.NoError(t, f.page(2, unmeasured("Running title\n持久化异步入库任务把文档切成段落，再写入\n向量库。\n- 8 -")))
	require.NoError(t, f.close())
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
		require.NoError(t, flow.page(1, unmeasured(one)))
		require.NoError(t, flow.page(2, unmeasured(two)))
		require.NoError(t, flow.close())
	})
}

// flowOf lays out pages without bookmarks.
func flowOf(t *testing.T, pages ...string) []ingest.Block {
	t.Helper()
	var blocks []ingest.Block
	flow := newPageFlow(document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(b ingest.Block) error {
		require.NoError(t, document.CheckBlock(b))
		blocks = append(blocks, b)
		return nil
	}))
	for i, page := range pages {
		require.NoError(t, flow.page(i+1, unmeasured(page)))
	}
	require.NoError(t, flow.close())
	return blocks
}

func TestPageNumbersAndRunningTitlesGo(t *testing.T) {
	t.Parallel()
	body := "This is the text of a page that is long enough to be a line.\nAnd this is another one of about the same length, you see."
	for _, number := range []string{"%d", "- %d -", "Page %d", "%d / 40", "%d of 9", "第 %d 页", "| %d |"} {
		for _, page := range []string{body + "\n" + number, number + "\n" + body, body + "\n" + number + "\n\n"} {
			for _, first := range []int{2, 7, 301} {
				blocks := flowOf(t, "x", fmt.Sprintf(page, first), fmt.Sprintf(page, first+1))
				require.Len(t, blocks, 3, "%q", page)
				for _, b := range blocks[1:] {
					require.True(t, strings.HasPrefix(b.Text, "This is") && strings.HasSuffix(b.Text, "you see."), "%q: %q", page, b.Text)
				}
			}
		}
	}
	for _, line := range []string{"2", "17", "- 2 -", "Page 2"} {
		require.Contains(t, extracttest.Joined(flowOf(t, "x", body+"\n"+line, body)), line, "a number that stands alone may be a date or a row")
		require.Contains(t, extracttest.Joined(flowOf(t, "x", body+"\n"+line, body+"\n"+line)), line, "no page has the number of the one before")
	}
	for _, line := range []string{"2026", "20,000", "2 apples", "Page", "2.1 Heading", "123456"} {
		blocks := flowOf(t, "x", body+"\n"+line)
		require.Contains(t, extracttest.Joined(blocks), line, "this is no page number")
	}
	titled := "A Running Title\n" + body + "\nThe end of a page comes with its last full line of text."
	blocks := flowOf(t, titled, titled, titled)
	require.Equal(t, 1, strings.Count(extracttest.Joined(blocks), "A Running Title"), "once is enough")
	require.Equal(t, 3, blocks[len(blocks)-1].Page)
}

func TestBrokenWordsAreMended(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"The text of this page is inter-\nnational, as all texts are.": "The text of this page is international, as all texts are.",
		"A well-known rule, and so a well-\nknown exception.":          "A well-known rule, and so a well-known exception.",
		"The years 1990-\n2000 were good years for that.":              "The years 1990-\n2000 were good years for that.",
		"Mr. Smith-\nJones has a name with a hyphen.":                  "Mr. Smith-\nJones has a name with a hyphen.",
		"inter\uFFFEnational and inter\uFFFE\nnational":                "international and international",
		"the end of a line \uFFFE":                                     "the end of a line",
		"持久化异步入库任务把文档切成段落，再写入\n向量库，然后切换版本。":                            "持久化异步入库任务把文档切成段落，再写入向量库，然后切换版本。",
	} {
		blocks := flowOf(t, page)
		require.Len(t, blocks, 1, "%q", page)
		require.Equal(t, want, blocks[0].Text)
	}
}

func TestListsAndEmptyPages(t *testing.T) {
	t.Parallel()
	blocks := flowOf(t, "", "\r\n\r\n", "• one\n- two\n\uF0B7 three\n* four\n-five", "\x00\x02")
	require.Equal(t, []string{"l • one", "l - two", "l \uF0B7 three", "l * four -five"}, extracttest.Lines(blocks))
	for _, b := range blocks {
		require.Equal(t, 3, b.Page)
	}
}

func TestABookmarkOverSeveralLinesIsAHeading(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	flow := newPageFlow(document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	}))
	flow.outline = map[int][]bookmark{1: {{key: headingKey("A heading that goes over two lines"), level: 3}}, 2: {{key: headingKey("Other"), level: 1}}}
	require.NoError(t, flow.page(1, unmeasured("A heading that goes\nover two lines\nAnd then the text begins.")))
	require.NoError(t, flow.page(2, unmeasured("Otherwise this is no heading at all.")))
	require.NoError(t, flow.close())
	require.Equal(t, []string{"### A heading that goes over two lines", "p And then the text begins.", "p Otherwise this is no heading at all."}, extracttest.Lines(blocks))
}
