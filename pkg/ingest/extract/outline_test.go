//go:build !race

// One file after another is read, by a child or in the process: nothing runs beside another that the race detector could see.

package extract

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// headingsOf reads a PDF in a child and returns its headings.
func headingsOf(t *testing.T, data []byte) (headings []ingest.Block) {
	t.Helper()
	_, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", data))
	require.NoError(t, err)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		if b.Kind == ingest.BlockHeading {
			headings = append(headings, b)
		}
	}
	return headings
}

func TestBookmarksAreHeadings(t *testing.T) {
	t.Parallel()
	var pages [][]string
	var marks []pdfgen.Mark
	for i := range 100 {
		page := []string{}
		for j := range 25 {
			title := fmt.Sprintf("Chapter %c%c%c of it", 'a'+i/26, 'a'+i%26, 'a'+j)
			page = append(page, title, "This is the text of the chapter, and it is longer than its title is.")
			marks = append(marks, pdfgen.Mark{Title: title, Page: i + 1})
		}
		pages = append(pages, page)
	}
	headings := headingsOf(t, pdfgen.Outlined(pages, marks, false))
	require.Len(t, headings, 2500)
	for i, h := range headings {
		require.Equal(t, ingest.Block{Kind: ingest.BlockHeading, Level: 1, Page: marks[i].Page, Text: marks[i].Title}, h)
	}
}

func TestOutlinesWithoutEndAreLeftOut(t *testing.T) {
	t.Parallel()
	pages := [][]string{{"Title", "This is the text of the page, which is longer than its title."}}
	require.Len(t, headingsOf(t, pdfgen.Outlined(pages, []pdfgen.Mark{{Title: "Title", Page: 1}}, false)), 1)
	require.Empty(t, headingsOf(t, pdfgen.Outlined(pages, []pdfgen.Mark{{Title: "Title", Page: 1}, {Title: "Other", Page: 1}}, true)))
}
