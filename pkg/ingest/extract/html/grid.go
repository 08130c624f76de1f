package html

import "strconv"

const (
	// maxColumns bounds the columns of one cell, and maxRows its rows.
	maxColumns = 64
	maxRows    = 1 << 16
	// maxRow bounds a row: what has more cells is sent in parts.
	maxRow = 1024
	// maxRepeated bounds a text that is repeated, in bytes: a longer one heads nothing.
	maxRepeated = 256
)

// span is how many columns and rows a cell takes; zero: one.
type span struct{ columns, rows int }

// set takes an attribute of a cell.
func (s *span) set(key, value string) {
	n, err := strconv.Atoi(value)
	switch {
	case err != nil || n < 0:
	case key == "colspan":
		s.columns = min(n, maxColumns)
	case key == "rowspan" && n == 0: // up to the end of the table
		s.rows = maxRows
	case key == "rowspan":
		s.rows = min(n, maxRows)
	}
}

// grid makes the rows of a table: a cell of several columns or rows is repeated in each, so that every value stands under its header.
type grid struct {
	row   []string
	cells int    // of the page in the row
	above []cell // those that reach into this row, by column
}

// cell is a cell that reaches into rows below its own.
type cell struct {
	text string
	rows int // still to come
}

// add adds a cell of the page to the row.
func (g *grid) add(text string, s span) {
	g.reached()
	g.cells++
	repeated := text
	if len(text) > maxRepeated {
		repeated = ""
	}
	for range max(s.columns, 1) {
		at := len(g.row)
		g.row = append(g.row, text)
		text = repeated
		if s.rows > 1 && at < maxRow {
			for len(g.above) <= at {
				g.above = append(g.above, cell{})
			}
			g.above[at] = cell{repeated, s.rows} // this row counts too
		}
	}
}

// reached adds the cells that reach into the row at its next column.
func (g *grid) reached() {
	for at := len(g.row); at < len(g.above) && g.above[at].rows > 0; at++ {
		g.row = append(g.row, g.above[at].text)
	}
}

// full reports whether the row has so many cells that it is sent as it is.
func (g *grid) full() bool { return len(g.row) >= maxRow }

// take ends the row. A row of one wide cell is that cell alone: a title within the table.
func (g *grid) take() []string {
	alone := g.cells == 1
	for g.cells > 0 && len(g.row) < len(g.above) { // a row may end before the cells that reach into it
		before := len(g.row)
		if g.reached(); len(g.row) == before {
			g.row = append(g.row, "")
		}
	}
	row := g.row
	for _, c := range g.above {
		alone = alone && c.rows == 0
	}
	for i := range g.above {
		g.above[i].rows = max(g.above[i].rows-1, 0)
	}
	for n := len(g.above); n > 0 && g.above[n-1].rows == 0; n-- {
		g.above = g.above[:n-1]
	}
	if alone {
		row = row[:1]
	}
	g.row, g.cells = nil, 0
	return row
}
