package pdf

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// bigger is how many times the usual size a heading is that is not bold.
	bigger = 1.15
	// sameSize is the difference up to which two sizes count as one.
	sameSize = 0.04
	// titleLines is how many lines a heading may have.
	titleLines = 3
	// crowded is the share of bold lines on a page above which bold says nothing.
	crowded = 0.35
	// coverSize is how many times the usual size the title of the document is, which stands over nothing.
	coverSize = 1.5
	// farBelow is the distance, in its size, up to which a heading stands over a text.
	farBelow = 6
	// outdent is how far to the left of its text a heading may end, in its size.
	outdent = 2
	// ownLooks is the number of characters from which a page tells the size of its text itself.
	ownLooks = 400
)

// caption is what stands under a picture or over a table.
var caption = regexp.MustCompile(`(?i)^(fig(ure)?|tab(le)?|listing|chart|exhibit|abbildung|tabelle|tableau|figura|tabla|рисунок|таблица)\b[.:]?\s*[\dIVX]|^[图表圖図]\s*\d`)

// titleStyle is how headings of one level look.
type titleStyle struct {
	size float64
	bold bool
}

// title is a heading that a page's look tells: where it stands and how it looks.
type title struct {
	at, lines int
	style     titleStyle
}

// looks are what the pages of a document have in common.
type looks struct {
	chars   map[float64]int // by font size, in steps of half a point
	faces   map[string]int  // characters by font
	body    float64         // the size of most text
	face    string          // the font of most text
	styles  []titleStyle    // of headings, the largest first
	running map[runningKey]int
	cover   float64 // the largest size of the first page; 0: of another page
}

// runningKey is a line that may stand at the same place of many pages.
type runningKey struct {
	text string
	base int
}

// learn takes what pages look like: the size of their text, and which headings there are.
func (l *looks) learn(pages []*pdfPage) {
	l.chars, l.faces, l.running = map[float64]int{}, map[string]int{}, map[runningKey]int{}
	for _, p := range pages {
		seen := map[runningKey]bool{}
		for _, line := range p.lines {
			if line.size > 0 {
				l.chars[math.Round(2*line.size)/2] += utf8.RuneCountInString(line.text)
				seen[keyOf(line)] = true
				if line.face != "" {
					l.faces[line.face] += utf8.RuneCountInString(line.text)
				}
			}
		}
		for k := range seen {
			l.running[k]++
		}
	}
	l.body, l.face = most(l.chars), most(l.faces)
	var all []titleStyle
	for _, p := range pages {
		for _, t := range l.titles(p.number, p.lines) {
			all = append(all, t.style)
		}
	}
	slices.SortStableFunc(all, compareStyles)
	// A style that comes once is that of a cover or a picture: it takes no level from the others.
	for _, least := range []int{2, 1} {
		for i := 0; i < len(all) && len(l.styles) < maxOutlineDepth; {
			n := 1
			for i+n < len(all) && compareStyles(all[i], all[i+n]) == 0 {
				n++
			}
			if n >= least {
				l.styles = append(l.styles, all[i])
			}
			i += n
		}
		if len(l.styles) > 0 {
			return
		}
	}
}

// most is the key of the largest number, of several the smallest.
func most[K cmp.Ordered](counts map[K]int) (key K) {
	n := 0
	for k, v := range counts {
		if v > n || (v == n && k < key) {
			key, n = k, v
		}
	}
	return key
}

// compareStyles puts the larger first, of two alike the bold one.
func compareStyles(a, b titleStyle) int {
	if !alike(a.size, b.size) {
		return cmp.Compare(b.size, a.size)
	}
	if a.bold != b.bold {
		if a.bold {
			return -1
		}
		return 1
	}
	return 0
}

func keyOf(line textLine) runningKey {
	return runningKey{text: headingKey(line.text), base: int(math.Round(line.base / 4))}
}

func alike(a, b float64) bool { return math.Abs(a-b) <= sameSize*max(a, b) }

// level is the level of a heading by its style.
func (l *looks) level(style titleStyle) int {
	above := 0
	for _, s := range l.styles {
		if compareStyles(s, style) < 0 {
			above++
		}
	}
	return min(above+1, maxOutlineDepth)
}

// titles finds the headings among the lines of a page: larger than the text, or bold and alone.
func (l *looks) titles(number int, lines []textLine) (found []title) {
	if l.body == 0 {
		return nil
	}
	l = l.onPage(lines)
	if number == 1 {
		for _, line := range lines {
			l.cover = max(l.cover, line.size)
		}
	}
	leading := usualLeading(lines)
	bold := 0
	for i := 0; i < len(lines); {
		t, ok := l.titleAt(lines, i, leading)
		if !ok {
			i++
			continue
		}
		found = append(found, t)
		if t.style.size < bigger*l.body {
			bold += t.lines
		}
		i += t.lines
	}
	if float64(bold) > crowded*float64(len(lines)) {
		found = slices.DeleteFunc(found, func(t title) bool { return t.style.size < bigger*l.body })
	}
	return found
}

// onPage returns the looks with the size of a page's own text, if it has enough.
func (l *looks) onPage(lines []textLine) *looks {
	chars, all := map[float64]int{}, 0
	for _, line := range lines {
		if n := utf8.RuneCountInString(line.text); line.size > 0 {
			chars[math.Round(2*line.size)/2] += n
			all += n
		}
	}
	page := *l
	if all >= ownLooks {
		page.body = most(chars)
	}
	return &page
}

// titleAt tells whether a heading begins at a line.
func (l *looks) titleAt(lines []textLine, at int, leading float64) (title, bool) {
	first := lines[at]
	t := title{at: at, lines: 1, style: titleStyle{size: first.size, bold: first.bold}}
	big := first.size >= bigger*l.body
	other := first.face != "" && first.face != l.face && !first.bold // neither larger nor bold, but of another font
	if !first.placed() || first.size == 0 || first.table > 0 || first.size < (1-sameSize)*l.body || !(big || first.bold || other) || !beginsTitle(first.text) || l.running[keyOf(first)] > 1 {
		return t, false
	}
	text := first.text
	for at+t.lines < len(lines) {
		prev, next := lines[at+t.lines-1], lines[at+t.lines]
		if next.table > 0 || next.bold != first.bold || math.Abs(next.size-first.size) > 2.5*sameSize*first.size || prev.base-next.base > 1.7*first.size || prev.base <= next.base ||
			(other && !big && next.face != first.face) {
			break
		}
		if t.lines++; t.lines > titleLines {
			return t, false
		}
		text += " " + next.text
	}
	if !endsTitle(text) || caption.MatchString(text) || hasGap(first) {
		return t, false
	}
	switch {
	case big:
	case at > 0 && !apart(lines[at-1], first, leading):
		return t, false
	case !first.bold && (at == 0 || lines[at-1].base-first.base < 1.2*leading || utf8.RuneCountInString(text) > titleRunes/2):
		return t, false
	}
	return t, (first.size >= coverSize*l.body && alike(first.size, l.cover)) || l.standsOver(lines[at:at+t.lines], lines[at+t.lines:], other && !big)
}

// standsOver tells whether a heading has text below it: no line of a picture or a cover. In plain text only the font tells a heading.
func (l *looks) standsOver(heading, below []textLine, plain bool) bool {
	first, last := heading[0], heading[len(heading)-1]
	for _, next := range below[:min(len(below), 2*titleLines)] {
		if next.table > 0 {
			return true
		}
		if !next.placed() {
			continue
		}
		if next.size >= bigger*l.body || (next.bold && next.size >= (1-sameSize)*l.body) {
			last = next // another heading
			continue
		}
		if plain && next.face != "" && next.face != l.face {
			return false
		}
		gap := last.base - next.base
		return next.size > l.body/2 && gap > 0 && gap < farBelow*first.size && next.left < first.right+outdent*first.size && next.right > first.left
	}
	return false
}

// apart tells whether more room is between two lines than between others, or none follows the other.
func apart(above, below textLine, leading float64) bool {
	gap := above.base - below.base
	return above.text == "" || !above.placed() || above.table > 0 || gap <= 0 || gap >= 1.2*leading || above.size > (1+sameSize)*below.size || (above.bold && !below.bold)
}

// usualLeading is the median distance of a page's lines.
func usualLeading(lines []textLine) float64 {
	var gaps []float64
	for i := 1; i < len(lines); i++ {
		if gap := lines[i-1].base - lines[i].base; lines[i-1].placed() && lines[i].placed() && gap > lines[i].size/2 && gap < 3*lines[i].size {
			gaps = append(gaps, gap)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// hasGap tells whether a line has a wide gap that does not stand behind a number.
func hasGap(line textLine) bool {
	for i := 1; i < len(line.cells); i++ {
		before := line.cells[i-1]
		if line.cells[i].left-before.right > 1.5*line.size && (i > 1 || strings.IndexFunc(before.text, unicode.IsDigit) < 0) {
			return true
		}
	}
	return false
}

// beginsTitle tells whether a heading may begin so.
func beginsTitle(text string) bool {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeft(text, "([<「『【“\"'‘«§ "))
	return !unicode.IsLower(first) && (unicode.IsLetter(first) || unicode.IsDigit(first))
}

// endsTitle tells whether a heading may have these words.
func endsTitle(text string) bool {
	if utf8.RuneCountInString(text) > 2*titleRunes || strings.HasSuffix(text, brokenWord) {
		return false
	}
	last, _ := utf8.DecodeLastRuneInString(text)
	if strings.ContainsRune(".,;。，；、…", last) || strings.Contains(text, "....") || strings.Contains(text, ". . .") {
		return false
	}
	letters, others := 0, 0
	for _, r := range text {
		switch {
		case unicode.IsLetter(r), unicode.IsMark(r):
			letters++
		case !unicode.IsSpace(r):
			others++
		}
	}
	return letters >= 2 && letters > others && !strings.Contains(text, "@") && !strings.Contains(text, "://")
}
