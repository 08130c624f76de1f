package document

import (
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	cellSeparator = " | "
	// tableBytes is the size at which a long table is sent in pieces, each under the header row again.
	tableBytes = 16 << 10
)

// TableWriter gathers the rows of one table.
type TableWriter struct {
	Out    *Sink
	Page   int // of all rows; 0: the format has no pages
	header string
	rows   strings.Builder
	count  int
}

// Row adds one row; rows without any text are dropped.
func (t *TableWriter) Row(cells []string) error {
	filled := false
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(Squeeze(c), "|", "¦")
		filled = filled || cells[i] != ""
	}
	if !filled {
		return nil
	}
	if len(cells) == 1 && t.count == 0 {
		// A frame around text, not a table.
		return t.Out.Block(ingest.Block{Kind: ingest.BlockParagraph, Page: t.Page, Text: cells[0]})
	}
	line := strings.Join(cells, cellSeparator)
	t.count++
	if t.count == 1 {
		t.header = line
	}
	if t.rows.Len() > 0 && t.rows.Len()+len(line) > tableBytes {
		if err := t.Flush(); err != nil {
			return err
		}
		if len(t.header) < tableBytes/8 {
			t.rows.WriteString(t.header)
		}
	}
	if t.rows.Len() > 0 {
		t.rows.WriteByte('\n')
	}
	t.rows.WriteString(line)
	return nil
}

// TitleRow returns a row of which own cells are the document's and the others repeat them. A single one that takes all columns is a title
// within the table: it stands once.
func TitleRow(row []string, own int) []string {
	if own == 1 && len(slices.Compact(slices.Clone(row))) == 1 {
		return row[:1]
	}
	return row
}

// Flush sends what was gathered.
func (t *TableWriter) Flush() error {
	text := t.rows.String()
	t.rows.Reset()
	return t.Out.Block(ingest.Block{Kind: ingest.BlockTable, Page: t.Page, Text: text})
}
