package pdf

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// wideGap is the gap, in font sizes, that parts two cells of a row.
	wideGap = 1.0
	// river is the gap, in font sizes, that runs between two columns through all rows.
	river = 0.5
	// columnGap is the usual gap between two columns, in font sizes: that of words is narrower.
	columnGap = 0.7
	// sameBase is the difference, in font sizes, up to which lines stand beside each other.
	sameBase = 0.4
	// cellLines is how many lines the cells of a row may have.
	cellLines = 12
	// leastRows is the number of rows with several cells from which rows are a table; one less is enough if it is full and has four columns.
	leastRows = 3
	// looseRows is how many rows of one cell may stand between two others.
	looseRows = 2
	// spanning is the share of rows that may reach over a column's end.
	spanning = 0.12
	// maxColumns bounds a table.
	maxColumns = 64
)

// table is what a table's lines are made of.
type table struct {
	rows  [][]string
	lefts []float64 // of the columns
}

// row is a row of a table: the lines of its cells, side by side.
type row struct {
	from, to  int // its lines: from ≤ i < to
	top, base float64
	size      float64
	pieces    []cell // in reading order
	cells     int    // pieces that wide gaps part
	broken    bool   // a line of it was not measured
}

// tables finds the tables of a page and marks their lines: rows of several cells, whose columns gaps part from top to bottom.
// Text in columns is none: its lines follow each other down, or fill their columns.
func tables(lines []textLine, grids []grid) []table {
	found := ruled(lines, grids)
	rows := cutRows(lines)
	for i := 0; i < len(rows); {
		if rows[i].cells < 2 || rows[i].broken {
			i++
			continue
		}
		end, last := i+1, i+1
		for end < len(rows) && !rows[end].broken && end-last <= looseRows && follows(rows[end-1], rows[end]) {
			end++
			if rows[end-1].cells > 1 {
				last = end
			}
		}
		if t, gaps, ok := tableOf(rows[i:last]); ok {
			for last < len(rows) && follows(rows[last-1], rows[last]) && rows[last].fits(gaps) > 1 {
				last++
			}
			first := headOf(rows, i, gaps)
			if last-first > len(t.rows) {
				t = tableWith(rows[first:last], i-first, gaps)
			}
			found = append(found, t)
			for _, r := range rows[first:last] {
				for at := r.from; at < r.to; at++ {
					lines[at].table = len(found)
				}
			}
		}
		i = last
	}
	return found
}

// follows tells whether a row stands close under another, in letters of about the same size.
func follows(above, below row) bool {
	gap := above.base - below.top
	return gap > 0 && gap < 3.5*max(above.size, below.size) && math.Abs(above.size-below.size) <= 0.2*max(above.size, below.size)
}

// cutRows puts the lines together that stand side by side. PDFium gives a row's cells one after the other; it goes up again for
// each cell when one above had several lines.
func cutRows(lines []textLine) (rows []row) {
	for i, l := range lines {
		if !l.placed() || l.size == 0 || l.table > 0 {
			rows = append(rows, row{from: i, to: i + 1, broken: true})
			continue
		}
		pieces := l.cells
		if len(pieces) == 0 {
			pieces = []cell{{text: l.text, left: l.left, right: l.right}}
		}
		if n := len(rows); n > 0 && !rows[n-1].broken {
			cur, prev := &rows[n-1], lines[i-1]
			switch {
			case math.Abs(l.base-prev.base) < sameBase*l.size && (l.left >= prev.right || l.right <= prev.left),
				len(cur.pieces) > 1 && cur.cells > 1 && below(prev, l) && l.left > cur.left()+2*l.size && cur.to-cur.from > 1 && cur.jumped(lines):
				cur.add(i, l, pieces)
				continue
			case l.base > prev.base && l.left > prev.left+l.size && rises(rows, l):
				for rows[len(rows)-1].top < l.base-sameBase*l.size && len(rows) > 1 && joins(rows[len(rows)-2], rows[len(rows)-1], l) {
					rows = joinLast(rows)
				}
				rows[len(rows)-1].add(i, l, pieces)
				continue
			}
		}
		r := row{from: i, to: i, top: l.base, base: l.base, size: l.size}
		r.add(i, l, pieces)
		rows = append(rows, r)
	}
	for i := range rows {
		rows[i].cells = rows[i].count()
	}
	return rows
}

// below tells whether a line is the next one of the same cell.
func below(above, line textLine) bool {
	gap := above.base - line.base
	return gap > 0 && gap < 1.7*line.size && line.left < above.right && line.right > above.left
}

// rises tells whether a line goes up to the top of the rows of one cell that are the last: no higher than a cell is.
func rises(rows []row, l textLine) bool {
	r := rows[len(rows)-1]
	if l.base > r.top+sameBase*l.size {
		// The cell before it had several lines, each a row until now.
		for i := len(rows) - 1; i >= 0 && len(rows)-i <= cellLines && !rows[i].broken; i-- {
			if rows[i].right() > l.left {
				return false
			}
			if math.Abs(rows[i].top-l.base) < sameBase*l.size || (i < len(rows)-1 && rows[i].top > l.base) {
				return true
			}
		}
		return false
	}
	return r.right() <= l.left || r.cells > 1 || len(r.pieces) > 1
}

// joins tells whether two rows are lines of one cell, beside which a line stands.
func joins(above, below row, l textLine) bool {
	return !above.broken && above.top <= l.base+sameBase*l.size && above.top > below.top && above.base-below.top < 1.7*max(above.size, below.size)
}

func joinLast(rows []row) []row {
	n := len(rows)
	a, b := &rows[n-2], rows[n-1]
	a.to, a.base, a.pieces = b.to, min(a.base, b.base), append(a.pieces, b.pieces...)
	return rows[:n-1]
}

func (r *row) add(i int, l textLine, pieces []cell) {
	r.to, r.top, r.base, r.size = i+1, max(r.top, l.base), min(r.base, l.base), max(r.size, l.size)
	r.pieces = append(r.pieces, pieces...)
	r.cells = r.count()
}

// jumped tells whether a row goes up at some line: it has cells of several lines.
func (r row) jumped(lines []textLine) bool {
	for i := r.from + 1; i < r.to; i++ {
		if lines[i].base > lines[i-1].base-sameBase*lines[i].size {
			return true
		}
	}
	return false
}

func (r row) left() float64 {
	left := math.Inf(1)
	for _, p := range r.pieces {
		left = min(left, p.left)
	}
	return left
}

func (r row) right() float64 {
	right := math.Inf(-1)
	for _, p := range r.pieces {
		right = max(right, p.right)
	}
	return right
}

// count counts the pieces that wide gaps part.
func (r row) count() int {
	return len(gapsOf([][]cell{r.pieces}, wideGap*r.size, 0)) + 1
}

// gapsOf finds the gaps of at least that width which run through the rows, but for some of them; the places are their middles.
func gapsOf(rows [][]cell, width float64, but int) (gaps []float64) {
	type edge struct {
		at   float64
		step int
	}
	var edges []edge
	for _, pieces := range rows {
		// A row covers a place once, however many of its lines do.
		sorted := slices.Clone(pieces)
		slices.SortFunc(sorted, func(a, b cell) int { return compareFloat(a.left, b.left) })
		for i := 0; i < len(sorted); {
			left, right := sorted[i].left, sorted[i].right
			for i++; i < len(sorted) && sorted[i].left <= right+width/4; i++ {
				right = max(right, sorted[i].right)
			}
			edges = append(edges, edge{left, 1}, edge{right, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return compareFloat(a.at, b.at)
		}
		return b.step - a.step
	})
	depth, start := 0, math.Inf(1)
	for i, e := range edges {
		was := depth
		depth += e.step
		switch {
		case was > but && depth <= but:
			start = e.at
		case was <= but && depth > but && i > 0:
			if e.at-start >= width {
				gaps = append(gaps, (start+e.at)/2)
			}
		}
	}
	return gaps
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// fits counts the columns that a row fills; 0 if it reaches over the end of one.
func (r row) fits(gaps []float64) (filled int) {
	if r.broken {
		return 0
	}
	full := make([]bool, len(gaps)+1)
	for _, p := range r.pieces {
		for _, g := range gaps {
			if min(g-p.left, p.right-g) > r.size/2 {
				return 0
			}
		}
		full[columnOf(gaps, p)] = true
	}
	for _, f := range full {
		if f {
			filled++
		}
	}
	return filled
}

// headOf finds the first row of a table's head: rows close above the first one that keep to its columns.
func headOf(rows []row, first int, gaps []float64) int {
	head := first
	for i := first - 1; i >= 0 && first-i <= cellLines/2; i-- {
		below := rows[i+1]
		if rows[i].broken || rows[i].base-below.top > 2*below.size || rows[i].top <= below.top || rows[i].size > 1.2*below.size || rows[i].fits(gaps) == 0 {
			break
		}
		if rows[i].fits(gaps) > 1 {
			head = i
		}
	}
	return head
}

// tableOf makes a table of rows, if they are one; gaps part its columns.
func tableOf(rows []row) (t table, gaps []float64, ok bool) {
	several, size := 0, 0.0
	pieces := make([][]cell, len(rows))
	for i, r := range rows {
		if r.cells > 1 {
			several++
		}
		size += r.size / float64(len(rows))
		pieces[i] = r.pieces
	}
	if several < leastRows-1 {
		return table{}, nil, false
	}
	but := 0
	if len(rows) > leastRows {
		but = max(1, int(spanning*float64(len(rows))))
	}
	gaps = slices.DeleteFunc(gapsOf(pieces, river*size, but), func(g float64) bool { return usualGap(rows, g) < columnGap*size })
	gaps = withoutLone(rows, gaps)
	if len(gaps) == 0 || len(gaps) >= maxColumns {
		return table{}, nil, false
	}
	t = tableWith(rows, 0, gaps)
	filled := 0
	for _, r := range t.rows {
		if says(r) > 1 {
			filled++
		}
	}
	full := len(t.rows) == leastRows-1 && len(gaps) > 2 && !slices.Contains(slices.Concat(t.rows...), "")
	return t, gaps, (filled >= leastRows || full) && 2*filled >= len(t.rows) && !isProse(t.rows) && !isList(t.rows)
}

// says counts the cells of a row that hold a letter or a digit.
func says(cells []string) (n int) {
	for _, text := range cells {
		if strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			n++
		}
	}
	return n
}

// tableWith puts rows into the columns that gaps part. The first head rows are one.
func tableWith(rows []row, head int, gaps []float64) table {
	t := table{lefts: make([]float64, len(gaps)+1)}
	for c := range t.lefts {
		t.lefts[c] = math.Inf(1)
	}
	for _, r := range rows {
		cells := make([]string, len(gaps)+1)
		own := gapsOf([][]cell{r.pieces}, wideGap*r.size, 0)
		if len(own) != len(gaps) || r.fits(gaps) > 0 {
			own = gaps
		}
		for _, p := range inRuns(r.pieces, own, river*r.size) {
			c := columnOf(own, p)
			t.lefts[c] = min(t.lefts[c], p.left)
			cells[c] = strings.TrimSpace(cells[c] + " " + p.text)
		}
		t.rows = append(t.rows, cells)
	}
	if head > 1 {
		t.rows = append([][]string{inOne(t.rows[:head])}, t.rows[head:]...)
		rows = rows[head-1:]
	}
	t.rows = joinHead(joinContinued(rows, t.rows))
	if rightToLeft(t.rows) {
		for _, r := range t.rows {
			slices.Reverse(r)
		}
	}
	return t
}

// inRuns makes one piece of words that follow each other over several columns' ends, as a title over these does; no gap between them is as
// wide as between columns.
func inRuns(pieces []cell, gaps []float64, width float64) (out []cell) {
	for i := 0; i < len(pieces); {
		run, n := pieces[i], i+1
		for n < len(pieces) && pieces[n].left >= run.right && pieces[n].left < run.right+width {
			run.text, run.right = run.text+" "+pieces[n].text, pieces[n].right
			n++
		}
		over := 0
		for _, g := range gaps {
			if g > run.left && g < run.right {
				over++
			}
		}
		if over > 1 {
			out = append(out, run)
		} else {
			out = append(out, pieces[i:n]...)
		}
		i = n
	}
	return out
}

// withoutLone drops gaps beside a column that holds a single cell.
func withoutLone(rows []row, gaps []float64) []float64 {
	for c := len(gaps); c >= 0 && len(gaps) > 0; c-- {
		n := 0
		for _, r := range rows {
			if slices.ContainsFunc(r.pieces, func(p cell) bool { return columnOf(gaps, p) == c }) {
				n++
			}
		}
		if n < 2 {
			at := max(c-1, 0)
			gaps = slices.Delete(gaps, at, at+1)
		}
	}
	return gaps
}

// usualGap is the median of the gaps that rows have at a place between two of their words.
func usualGap(rows []row, at float64) float64 {
	var gaps []float64
	for _, r := range rows {
		left, right := math.Inf(-1), math.Inf(1)
		for _, p := range r.pieces {
			if p.left < at && p.right > at {
				left = math.NaN() // over it
			} else if p.right <= at {
				left = max(left, p.right)
			} else {
				right = min(right, p.left)
			}
		}
		if !math.IsNaN(left) && !math.IsInf(left, 0) && !math.IsInf(right, 0) {
			gaps = append(gaps, right-left)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// columnOf is the column in which most of a piece lies.
func columnOf(gaps []float64, p cell) int {
	middle := (p.left + p.right) / 2
	for i, g := range gaps {
		if middle < g {
			return i
		}
	}
	return len(gaps)
}

// joinContinued joins rows that go on in the next line with it: their first cell is empty there, and they stand closer than others.
func joinContinued(rows []row, cells [][]string) (out [][]string) {
	var gaps []float64
	for i := 1; i < len(rows); i++ {
		gaps = append(gaps, rows[i-1].base-rows[i].top)
	}
	if len(gaps) == 0 {
		return cells
	}
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	for i, r := range cells {
		if i > 0 && r[0] == "" && rows[i-1].base-rows[i].top < 1.02*min(usual, 1.6*rows[i].size) && goesOn(r, out[len(out)-1]) {
			last := out[len(out)-1]
			for c, text := range r {
				if text != "" {
					last[c] = strings.TrimSpace(last[c] + "\n" + text)
				}
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// joinHead joins the first rows that hold words only, over rows of numbers: a head of several lines.
func joinHead(rows [][]string) [][]string {
	numbered := func(r []string) bool {
		return slices.ContainsFunc(r[1:], func(text string) bool { return text != "" && strings.IndexByte("0123456789+-$€£±<>", text[0]) >= 0 })
	}
	head, body := 0, 0
	for head < len(rows) && !numbered(rows[head]) {
		head++
	}
	for _, r := range rows[head:] {
		if numbered(r) {
			body++
		}
	}
	if head < 2 || head > cellLines/2 || 10*body < 7*(len(rows)-head) || body < 2 {
		return rows
	}
	return append([][]string{inOne(rows[:head])}, rows[head:]...)
}

// goesOn tells whether the cells of a row may be second lines of those above: words over words.
func goesOn(below, above []string) bool {
	for c, text := range below {
		if text == "" {
			continue
		}
		first, _ := utf8.DecodeRuneInString(text)
		if above[c] == "" || !unicode.IsLetter(first) && first != '(' {
			return false
		}
	}
	return true
}

// isProse tells running text in columns from a table: most cells are lines of sentences.
func isProse(rows [][]string) bool {
	long, words := 0, 0
	cells := 0
	for _, r := range rows {
		for _, text := range r {
			if text == "" {
				continue
			}
			cells++
			n := len(strings.Fields(text))
			words += n
			if lineWidth(text) > 30 && n > 4 {
				long++
			}
		}
	}
	return len(rows[0]) < 4 && 5*long > 4*cells
}

// isList tells lists, contents and listings from a table: items, leaders, or numbers that go on from the first row.
func isList(rows [][]string) bool {
	items, leaders := 0, 0
	pages, counted := len(rows[0]) == 2, 0
	before, number := -1, 0
	for i, r := range rows {
		if r[0] == "" || beginsItem(r[0]+" ") || isCounter(r[0]) {
			items++
		}
		if slices.ContainsFunc(r, func(text string) bool { return strings.Contains(text, "....") || strings.Contains(text, ". . .") }) {
			leaders++
		}
		last := strings.ReplaceAll(r[len(r)-1], " ", "")
		if page, err := strconv.Atoi(last); !isRoman(last) && (err != nil || page < before) {
			pages = false
		} else if err == nil {
			before = page
		}
		if n, err := strconv.Atoi(firstWord(r)); err == nil && (i == 0 || n == number+1) {
			counted++
			number = n
		}
	}
	return 2*leaders > len(rows) || (pages && before >= 0) || 10*counted >= 8*len(rows) || (len(rows[0]) == 2 && 10*items > 9*len(rows) && !allEmpty(rows, 0))
}

func firstWord(r []string) string {
	word, _, _ := strings.Cut(r[0], " ")
	return word
}

func allEmpty(rows [][]string, column int) bool {
	return !slices.ContainsFunc(rows, func(r []string) bool { return r[column] != "" })
}

func isRoman(text string) bool { return strings.Trim(text, "ivxlc") == "" }

// isCounter tells "1.", "(a)", "iv)" from other cells.
func isCounter(text string) bool {
	if utf8.RuneCountInString(text) > 5 || text == "" {
		return false
	}
	last, _ := utf8.DecodeLastRuneInString(text)
	return last == '.' || last == ')' || last == ']'
}

// rightToLeft tells whether most letters of a table are of a script that begins at the right.
func rightToLeft(rows [][]string) bool {
	letters, right := 0, 0
	for _, r := range rows {
		for _, text := range r {
			for _, c := range text {
				if unicode.IsLetter(c) {
					letters++
					if unicode.In(c, unicode.Arabic, unicode.Hebrew) {
						right++
					}
				}
			}
		}
	}
	return 2*right > letters
}

// write sends a table.
func (f *pageFlow) table(page int, t table, continued bool) error {
	if err := f.end(page); err != nil {
		return err
	}
	w := &document.TableWriter{Out: f.out, Page: page}
	if continued && f.lastTable.sameColumns(t) && !slices.Equal(f.lastTable.rows[0], t.rows[0]) {
		if err := w.Row(slices.Clone(f.lastTable.rows[0])); err != nil {
			return err
		}
		t.rows = append([][]string{f.lastTable.rows[0]}, t.rows...)
		f.lastTable = t
		t.rows = t.rows[1:]
	} else {
		f.lastTable = t
	}
	for _, r := range t.rows {
		for c := range r {
			r[c] = f.mend(r[c])
		}
		if err := w.Row(slices.Clone(r)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// sameColumns tells whether a table goes on in another: its columns begin at the same places.
func (t table) sameColumns(next table) bool {
	if len(t.rows) == 0 || len(t.lefts) != len(next.lefts) {
		return false
	}
	near := 0
	for i, left := range t.lefts {
		if math.Abs(left-next.lefts[i]) < 6 {
			near++
		}
	}
	return 3*near >= 2*len(t.lefts)
}
