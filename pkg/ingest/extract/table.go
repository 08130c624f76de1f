package extract

import (
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	cellSeparator = " | "
	// tableBytes is the size at which a long table is sent in pieces, each under the header row again.
	tableBytes = 16 << 10
)

// tableWriter gathers the rows of one table.
type tableWriter struct {
	out    *sink
	page   int
	header string
	rows   strings.Builder
	count  int
}

// row adds one row; rows without any text are dropped.
func (t *tableWriter) row(cells []string) error {
	filled := false
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(squeeze(c), "|", "¦")
		filled = filled || cells[i] != ""
	}
	if !filled {
		return nil
	}
	if len(cells) == 1 && t.count == 0 {
		// A frame around text, not a table.
		return t.out.block(ingest.Block{Kind: ingest.BlockParagraph, Text: cells[0], Page: t.page})
	}
	line := strings.Join(cells, cellSeparator)
	t.count++
	if t.count == 1 {
		t.header = line
	}
	if t.rows.Len() > 0 && t.rows.Len()+len(line) > tableBytes {
		if err := t.flush(); err != nil {
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

// flush sends what was gathered.
func (t *tableWriter) flush() error {
	text := t.rows.String()
	t.rows.Reset()
	return t.out.block(ingest.Block{Kind: ingest.BlockTable, Text: text, Page: t.page})
}
