package pdf

import (
	"math"
	"slices"
	"strings"

	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
)

const (
	// maxPaths bounds the drawings of a page that are looked at, and maxDocumentPaths those of a document: the library forgets none.
	maxPaths, maxDocumentPaths = 1000, 50_000
	// maxRules bounds the lines that are found on a page: each is held against all others.
	maxRules = 1000
	// sampledPaths is how many objects of a page are looked at before all of them are.
	sampledPaths = 40
	// maxSegments bounds the lines of one drawing.
	maxSegments = 100
	// thin is how thick a line is at most, and touch how far its end may be from another, in points.
	thin, touch = 3.0, 3.0
	// leastRule is the length of the shortest line that parts cells.
	leastRule = 5.0
	// maxGridRows bounds a table that lines draw.
	maxGridRows = 500
)

// rule is a line that is drawn across or down: one of its extents is nothing.
type rule struct {
	left, right, bottom, top float64
}

func (r rule) across() bool { return r.right-r.left > r.top-r.bottom }

// meets tells whether two lines cross or touch.
func (r rule) meets(o rule) bool {
	return r.left <= o.right+touch && o.left <= r.right+touch && r.bottom <= o.top+touch && o.bottom <= r.top+touch
}

// grid is what lines draw around a table's cells: places of lines, from left to right and from top to bottom.
type grid struct {
	xs, ys []float64
	down   []rule // those from top to bottom: a cell may reach over several columns
}

// rules asks for the lines that are drawn on a page. Where a few of many objects are no drawings, none is taken to be one.
func (p *pdfDocument) rules(page requests.Page) (found []rule) {
	count, err := p.instance.FPDFPage_CountObjects(&requests.FPDFPage_CountObjects{Page: page})
	if p.refused(err) {
		return nil
	}
	if n := count.Count; n > 4*sampledPaths {
		drawn := false
		for i := 0; i < sampledPaths && !drawn; i++ {
			_, drawn = p.drawing(page, i*n/sampledPaths)
		}
		if !drawn {
			return nil
		}
	}
	for i := 0; i < min(count.Count, maxPaths) && len(found) < maxRules; i++ {
		if path, ok := p.drawing(page, i); ok {
			found = p.rulesOf(path, found)
		}
	}
	return found[:min(len(found), maxRules)]
}

// drawing returns an object of a page if it is a drawing.
func (p *pdfDocument) drawing(page requests.Page, index int) (references.FPDF_PAGEOBJECT, bool) {
	if p.paths++; p.paths > maxDocumentPaths {
		return "", false
	}
	object, err := p.instance.FPDFPage_GetObject(&requests.FPDFPage_GetObject{Page: page, Index: index})
	if p.refused(err) {
		return "", false
	}
	kind, err := p.instance.FPDFPageObj_GetType(&requests.FPDFPageObj_GetType{PageObject: object.PageObject})
	return object.PageObject, !p.refused(err) && kind.Type == enums.FPDF_PAGEOBJ_PATH
}

// rulesOf adds the lines of one drawing.
func (p *pdfDocument) rulesOf(path references.FPDF_PAGEOBJECT, found []rule) []rule {
	b, err := p.instance.FPDFPageObj_GetBounds(&requests.FPDFPageObj_GetBounds{PageObject: path})
	if p.refused(err) {
		return found
	}
	r := rule{left: float64(b.Left), right: float64(b.Right), bottom: float64(b.Bottom), top: float64(b.Top)}
	if !finite(r.left) || !finite(r.right) || !finite(r.bottom) || !finite(r.top) {
		return found
	}
	if line, ok := thinned(r); ok {
		return append(found, line)
	}
	if r.right-r.left < leastRule || r.top-r.bottom < leastRule {
		return found
	}
	count, err := p.instance.FPDFPath_CountSegments(&requests.FPDFPath_CountSegments{PageObject: path})
	if p.refused(err) || count.Count > maxSegments || count.Count < 4 {
		return found
	}
	if count.Count <= 5 {
		return append(found, rule{r.left, r.left, r.bottom, r.top}, rule{r.right, r.right, r.bottom, r.top},
			rule{r.left, r.right, r.bottom, r.bottom}, rule{r.left, r.right, r.top, r.top})
	}
	return p.segments(path, count.Count, found)
}

// thinned makes a line of a drawing that is no thicker than one.
func thinned(r rule) (rule, bool) {
	w, h := r.right-r.left, r.top-r.bottom
	switch {
	case h <= thin && w >= leastRule:
		r.bottom = (r.bottom + r.top) / 2
		r.top = r.bottom
		return r, true
	case w <= thin && h >= leastRule:
		r.left = (r.left + r.right) / 2
		r.right = r.left
		return r, true
	}
	return r, false
}

// segments adds the lines of a drawing that has several.
func (p *pdfDocument) segments(path references.FPDF_PAGEOBJECT, count int, found []rule) []rule {
	matrix, err := p.instance.FPDFPageObj_GetMatrix(&requests.FPDFPageObj_GetMatrix{PageObject: path})
	if p.refused(err) {
		return found
	}
	m := matrix.Matrix
	x, y := 0.0, 0.0
	for i := range count {
		if p.paths++; p.paths > maxDocumentPaths {
			break
		}
		segment, err := p.instance.FPDFPath_GetPathSegment(&requests.FPDFPath_GetPathSegment{PageObject: path, Index: i})
		if p.refused(err) {
			break
		}
		kind, err := p.instance.FPDFPathSegment_GetType(&requests.FPDFPathSegment_GetType{PathSegment: segment.PathSegment})
		if p.refused(err) || kind.Type == enums.FPDF_SEGMENT_BEZIERTO {
			break // a letter or a curve
		}
		point, err := p.instance.FPDFPathSegment_GetPoint(&requests.FPDFPathSegment_GetPoint{PathSegment: segment.PathSegment})
		if p.refused(err) {
			break
		}
		toX, toY := float64(m.A*point.X+m.C*point.Y+m.E), float64(m.B*point.X+m.D*point.Y+m.F)
		if kind.Type == enums.FPDF_SEGMENT_LINETO && finite(toX) && finite(toY) {
			if line, ok := thinned(rule{min(x, toX), max(x, toX), min(y, toY), max(y, toY)}); ok {
				found = append(found, line)
			}
		}
		x, y = toX, toY
	}
	return found
}

// gridsOf puts lines that meet together, and keeps what has two columns and two rows.
func gridsOf(rules []rule) (grids []grid) {
	group := make([]int, len(rules))
	for i := range group {
		group[i] = i
	}
	find := func(i int) int {
		for group[i] != i {
			group[i] = group[group[i]]
			i = group[i]
		}
		return i
	}
	for i := range rules {
		for j := range i {
			if rules[i].across() != rules[j].across() && rules[i].meets(rules[j]) {
				group[find(i)] = find(j)
			}
		}
	}
	members := map[int][]rule{}
	var order []int
	for i := range rules {
		g := find(i)
		if len(members[g]) == 0 {
			order = append(order, g)
		}
		members[g] = append(members[g], rules[i])
	}
	for _, g := range order {
		var xs, ys []float64
		var down []rule
		for _, r := range members[g] {
			if r.across() {
				ys = append(ys, r.top)
			} else {
				xs = append(xs, r.left)
				down = append(down, r)
			}
		}
		xs, ys = distinct(xs), distinct(ys)
		slices.Reverse(ys)
		if len(xs) >= 3 && len(ys) >= 3 && len(xs) <= maxColumns && len(ys) <= maxGridRows {
			grids = append(grids, grid{xs: xs, ys: ys, down: down})
		}
	}
	return grids
}

// distinct sorts places and makes one of those that are close.
func distinct(places []float64) (out []float64) {
	slices.Sort(places)
	for i, p := range places {
		if i == 0 || p-out[len(out)-1] > 2*touch {
			out = append(out, p)
		}
	}
	return out
}

// holds tells whether a place is inside the grid.
func (g grid) holds(x, y float64) bool {
	return x > g.xs[0] && x < g.xs[len(g.xs)-1] && y < g.ys[0] && y > g.ys[len(g.ys)-1]
}

// walls are the columns' ends at a height, of those between the grid's: places, and the columns that begin there.
func (g grid) walls(y float64) (places []float64, columns []int) {
	for c := 1; c < len(g.xs)-1; c++ {
		if slices.ContainsFunc(g.down, func(r rule) bool { return math.Abs(r.left-g.xs[c]) <= 2*touch && r.bottom < y && r.top > y }) {
			places, columns = append(places, g.xs[c]), append(columns, c)
		}
	}
	return places, columns
}

// parts tells whether a line of text reaches over a line of the grid.
func (g grid) parts(l textLine) bool {
	walls, _ := g.walls(l.base + l.size/3)
	return slices.ContainsFunc(walls, func(x float64) bool { return l.left < x-touch && l.right > x+touch })
}

// read puts the lines of a page into the cells of a grid, and returns those it took.
func (g grid) read(lines []textLine) (t table, taken []int) {
	type part struct {
		base  float64
		cells []string
		lines []int // of the page
	}
	columns, beside, inside, over := len(g.xs)-1, 0, 0, 0
	bands := make([][]part, len(g.ys)-1)
	for i, l := range lines {
		middle := l.base + l.size/3
		if !l.placed() || l.table > 0 || !g.holds((l.left+l.right)/2, middle) {
			continue
		}
		taken = append(taken, i)
		if l.left < g.xs[0]-2*touch || l.right > g.xs[columns]+2*touch {
			beside++
		}
		band := 0
		for band < len(bands)-1 && middle < g.ys[band+1] {
			band++
		}
		texts := make([]string, columns)
		pieces := l.cells
		if len(pieces) == 0 {
			pieces = []cell{{text: l.text, left: l.left, right: l.right}}
		}
		walls, starts := g.walls(middle)
		crossed, parted := l.acrossWalls(walls)
		if crossed {
			over++
		}
		for _, p := range pieces {
			c := columnOf(walls, p)
			if c > 0 {
				c = starts[c-1]
			}
			texts[c] = strings.TrimSpace(texts[c] + " " + p.text)
		}
		parts := bands[band]
		at := len(parts)
		for k := range parts {
			if math.Abs(parts[k].base-l.base) < sameBase*l.size {
				at = k
			}
		}
		if at == len(parts) {
			parts = append(parts, part{base: l.base, cells: make([]string, columns)})
		}
		for c, text := range texts {
			parts[at].cells[c] = strings.TrimSpace(parts[at].cells[c] + " " + text)
		}
		if parted || slices.ContainsFunc(parts[at].lines, func(k int) bool { return sideBySide(lines[k], l, walls) }) {
			inside++
		}
		parts[at].lines = append(parts[at].lines, i)
		bands[band] = parts
	}
	if 3*beside > len(taken) || inside >= leastRows {
		return table{}, nil // the lines part some columns of a larger table, or frames of a page
	}
	for _, parts := range bands {
		slices.SortStableFunc(parts, func(a, b part) int { return compareFloat(b.base, a.base) })
		rows := make([][]string, len(parts))
		for i, p := range parts {
			rows[i] = p.cells
		}
		if !eachIsRow(rows) && len(rows) > 1 {
			rows = [][]string{inOne(rows)}
		}
		t.rows = append(t.rows, rows...)
	}
	t.lefts = g.xs[:columns]
	t.rows = withoutEmpty(t.rows, columns)
	if len(t.rows) > 0 && len(t.rows[0]) < columns {
		t.lefts = nil
	}
	if 2*over > len(taken) && sparse(t.rows) {
		return table{}, nil // a picture with words on it
	}
	return t, taken
}

// sparse tells whether at most half of the cells of a table hold something.
func sparse(rows [][]string) bool {
	cells, full := 0, 0
	for _, r := range rows {
		for _, text := range r {
			cells++
			if text != "" {
				full++
			}
		}
	}
	return 2*full <= cells
}

// acrossWalls tells whether a wall stands between two words of a line that are no further apart than words are, and whether none stands
// between two that are far apart.
func (l textLine) acrossWalls(walls []float64) (crossed, parted bool) {
	for i := 1; i < len(l.cells); i++ {
		a, b := l.cells[i-1], l.cells[i]
		gap, same := b.left-a.right, columnOf(walls, a) == columnOf(walls, b)
		crossed = crossed || gap >= 0 && gap < river*l.size && !same
		parted = parted || gap > wideGap*l.size && same
	}
	return crossed, parted
}

// sideBySide tells whether two lines of text stand side by side and far apart between the same walls.
func sideBySide(a, b textLine, walls []float64) bool {
	if a.left > b.left {
		a, b = b, a
	}
	return b.left-a.right > wideGap*b.size && !slices.ContainsFunc(walls, func(x float64) bool { return x > a.right-touch && x < b.left+touch })
}

// eachIsRow tells whether the lines between two drawn lines are rows of their own: all have several cells, the first among them.
func eachIsRow(rows [][]string) bool {
	if len(rows) < leastRows {
		return false
	}
	for _, r := range rows {
		n := 0
		for _, text := range r {
			if text != "" {
				n++
			}
		}
		if r[0] == "" || n < 2 || 2*n < len(r) {
			return false
		}
	}
	return true
}

// inOne joins the lines of a row's cells.
func inOne(rows [][]string) []string {
	out := make([]string, len(rows[0]))
	for _, r := range rows {
		for c, text := range r {
			if text != "" {
				out[c] = strings.TrimSpace(out[c] + "\n" + text)
			}
		}
	}
	return out
}

// withoutEmpty drops rows and columns without any text.
func withoutEmpty(rows [][]string, columns int) [][]string {
	full := make([]bool, columns)
	rows = slices.DeleteFunc(rows, func(r []string) bool {
		empty := true
		for c, text := range r {
			full[c] = full[c] || text != ""
			empty = empty && text == ""
		}
		return empty
	})
	for i, r := range rows {
		out := make([]string, 0, columns)
		for c, text := range r {
			if full[c] {
				out = append(out, text)
			}
		}
		rows[i] = out
	}
	return rows
}

// goesOn tells whether rows stand right below the last line: only the head of a table is drawn.
func (g grid) goesOn(lines []textLine, taken []int) bool {
	next := taken[len(taken)-1] + 1
	return next < len(lines) && lines[next].hasGap() && g.ys[len(g.ys)-1]-lines[next].base < 2*lines[next].size && lines[next].base < g.ys[len(g.ys)-1]
}

// ruled takes the tables that lines draw.
func ruled(lines []textLine, grids []grid) (found []table) {
	for _, g := range grids {
		t, taken := g.read(lines)
		several := 0
		for _, r := range t.rows {
			if says(r) > 1 {
				several++
			}
		}
		if several < 2 || 2*several < len(t.rows) || (several < leastRows+1 && g.goesOn(lines, taken)) {
			continue
		}
		if rightToLeft(t.rows) {
			for _, r := range t.rows {
				slices.Reverse(r)
			}
		}
		found = append(found, t)
		for _, i := range taken {
			lines[i].table = len(found)
		}
	}
	return found
}
