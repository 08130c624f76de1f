package pdf

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
)

const (
	// maxMeasured bounds how many lines of a page are measured, and how many words of it.
	maxMeasured, maxMeasuredWords = 1000, 4000
	// maxLines bounds the lines of a page.
	maxLines = 50_000
	// maxMeasuredRunes is the length of a word up to which its letters may be cells.
	maxMeasuredRunes = 20
	// wideLine is the share of a page's longest line from which a line is taken for running text.
	wideLine = 0.75
	// sizedLines is how many lines of running text tell their font size, in each third of a page.
	sizedLines = 2
	// loose is the width of a character, in font sizes, above which a line has wide gaps.
	loose = 0.62
	// spread is the width of a letter of a word, in font sizes, above which its letters are cells.
	spread = 1.5
	// titleRunes is the length of a line above which it is no heading.
	titleRunes = 120
)

// numbered is how many headings begin.
var numbered = regexp.MustCompile(`^\d{1,2}(\.\d{1,2}){1,4}\.?\s+\pL`)

// textLine is a line of a page as PDFium gives it. Where running text is, and how large, is not asked of every line.
type textLine struct {
	text        string
	left, right float64 // in points, from the page's left
	base        float64 // of the letters, in points from the page's bottom
	size        float64 // of the font, in points; 0: not measured
	wide        bool    // as running text is: its size and font are those of the others
	face        string  // the name of its font at its start and its end; "": not asked, or two
	bold        bool
	table       int    // the table that it is a row of, from 1; 0: none
	cells       []cell // its words, where it has wide gaps
	width       int    // in columns
	first, last int    // characters of the page, counted as UTF-16
}

// placed tells whether it is known where a line is.
func (l textLine) placed() bool { return l.right > l.left }

// hasGap tells whether two words of a line are far apart.
func (l textLine) hasGap() bool {
	for i := 1; i < len(l.cells); i++ {
		if l.cells[i].left-l.cells[i-1].right > wideGap*l.size {
			return true
		}
	}
	return false
}

// cell is a piece of a line.
type cell struct {
	text        string
	left, right float64
}

// measurer asks PDFium where the characters of a page are and how large. Every question costs microseconds: it asks for the ends of lines,
// for sizes where a heading or a table may be, and for words where a line has gaps.
type measurer struct {
	p     *pdfDocument
	text  references.FPDF_TEXTPAGE
	exact bool // every character has its place in the text
	words int  // that were asked for
	signs int  // of Arabic
}

// cutLines cuts a page's text into lines; units is its length in UTF-16.
func cutLines(text string) (lines []textLine, units int) {
	at, line := 0, textLine{first: -1}
	var b strings.Builder
	flush := func() {
		line.text = strings.TrimSpace(b.String())
		lines = append(lines, line)
		line = textLine{first: -1}
		b.Reset()
	}
	for i, r := range text {
		width := 1
		if r >= 0x10000 {
			width = 2
		}
		switch {
		case r == '\n' || (r == '\r' && !strings.HasPrefix(text[i:], "\r\n")):
			if len(lines) < maxLines {
				flush()
			} else {
				b.WriteByte('\n') // hardly a text: the rest is one
			}
		case r == '\r':
		default:
			if r == '\x02' {
				r, _ = utf8.DecodeRuneInString(brokenWord)
			}
			if r != ' ' && !unicode.IsSpace(r) {
				if line.first < 0 {
					line.first = at
				}
				line.last = at
			}
			b.WriteRune(r)
		}
		at += width
	}
	flush()
	return lines, at
}

// measure fills in where the lines of a page are: of running text only those beside other lines.
func (m *measurer) measure(lines []textLine, page requests.Page) (grids []grid) {
	lines = lines[:min(len(lines), maxMeasured)]
	widest := 0
	for i := range lines {
		lines[i].width = lineWidth(lines[i].text)
		widest = max(widest, lines[i].width)
	}
	for i := range lines {
		l := &lines[i]
		l.wide = float64(l.width) >= wideLine*float64(widest) && !numbered.MatchString(l.text) && digits(l.text)*4 < l.width
	}
	var sizes []float64
	sized := [3]int{}
	for i := range lines {
		l, third := &lines[i], 3*i/len(lines)
		if l.text == "" || (l.wide && sized[third] >= sizedLines && !besideShort(lines, i)) || !m.place(l) || (l.wide && sized[third] >= sizedLines) {
			continue
		}
		if l.size = m.size(l.first); l.wide && l.size > 0 {
			sized[third]++
			sizes = append(sizes, l.size)
			m.font(l)
		}
	}
	usual := 0.0
	if len(sizes) > 0 {
		slices.Sort(sizes)
		usual = sizes[len(sizes)/2]
	}
	for i := range lines {
		l := &lines[i]
		if l.text == "" {
			continue
		}
		if l.size == 0 {
			l.size = usual
		}
		// A row of a table may be as long as running text is.
		if l.wide && !l.placed() && i > 0 && len(lines[i-1].cells) > 0 && !m.place(l) {
			continue
		}
		if !l.placed() {
			continue
		}
		if l.size > 0 && l.right-l.left > loose*l.size*float64(l.width) {
			m.cells(l)
		}
		if l.wide || !mayBeTitle(l.text) {
			continue
		}
		m.font(l)
		switch {
		case usual == 0:
		case l.size > bigger*usual:
			l.size = min(l.size, max(m.size(l.last), usual)) // a large first letter makes no heading
		case l.size < (1-sameSize)*usual:
			l.size = max(l.size, m.size(l.last)) // a small number may stand before a title
		}
	}
	m.besideCells(lines)
	if rowsLikely(lines) {
		grids = gridsOf(m.p.rules(page))
	}
	for _, g := range grids {
		for i := range lines {
			l := &lines[i]
			if l.text != "" && (l.placed() || m.place(l)) && len(l.cells) == 0 && g.holds((l.left+l.right)/2, l.base+l.size/3) && g.parts(*l) {
				m.cells(l)
			}
		}
	}
	m.mendArabic(lines)
	return grids
}

// besideCells asks for the words of lines that stand near rows of a table: their gaps may be narrow. A line that goes up again is of such a
// row too.
func (m *measurer) besideCells(lines []textLine) {
	row := func(i int) bool {
		return i >= 0 && i < len(lines) && (lines[i].hasGap() || i > 0 && goesUp(lines[i-1], lines[i]))
	}
	ask := func(i int, near ...int) {
		l := &lines[i]
		if len(l.cells) == 0 && l.text != "" && l.size > 0 && slices.ContainsFunc(near, row) && (l.placed() || m.place(l)) {
			m.cells(l)
		}
	}
	for i := range lines {
		ask(i, i-1, i-2)
	}
	for i := len(lines) - 1; i >= 0; i-- {
		ask(i, i+1, i+2, i+3)
	}
}

// goesUp tells whether a line stands beside the end of the one before it, to the right, or above.
func goesUp(before, line textLine) bool {
	return line.placed() && before.placed() && line.base > before.base-sameBase*line.size && line.left > before.left
}

// rowsLikely tells whether a page may have a table: lines with gaps, or lines that stand beside others.
func rowsLikely(lines []textLine) bool {
	n := 0
	for i := range lines {
		if lines[i].hasGap() || i > 0 && goesUp(lines[i-1], lines[i]) {
			if n++; n >= leastRows {
				return true
			}
		}
	}
	return false
}

// besideShort tells whether a line stands beside one that is no running text.
func besideShort(lines []textLine, i int) bool {
	return (i > 0 && !lines[i-1].wide) || (i+1 < len(lines) && !lines[i+1].wide)
}

func digits(text string) (n int) {
	for i := range len(text) {
		if text[i] >= '0' && text[i] <= '9' {
			n++
		}
	}
	return n
}

// index is the number of a character that stands at a place of the text.
func (m *measurer) index(at int) int {
	if m.exact {
		return at
	}
	i, err := m.p.instance.FPDFText_GetCharIndexFromTextIndex(&requests.FPDFText_GetCharIndexFromTextIndex{TextPage: m.text, NTextIndex: at})
	if m.p.refused(err) {
		return at
	}
	return i.CharIndex
}

// place asks where a line begins and ends.
func (m *measurer) place(l *textLine) bool {
	first, err := m.p.instance.FPDFText_GetCharOrigin(&requests.FPDFText_GetCharOrigin{TextPage: m.text, Index: m.index(l.first)})
	if m.p.refused(err) {
		return false
	}
	left, right, ok := m.extent(l.last)
	if !ok {
		return false
	}
	l.left, l.right, l.base = min(first.X, left), max(first.X, right), first.Y
	return finite(l.left) && finite(l.right) && finite(l.base)
}

// extent asks where a character begins and ends.
func (m *measurer) extent(at int) (left, right float64, ok bool) {
	box, err := m.p.instance.FPDFText_GetCharBox(&requests.FPDFText_GetCharBox{TextPage: m.text, Index: m.index(at)})
	if m.p.refused(err) || !finite(box.Left) || !finite(box.Right) {
		return 0, 0, false
	}
	return box.Left, box.Right, true
}

// size asks for a character's font size as it is seen. A size of 1 that is scaled by its matrix is usual.
func (m *measurer) size(at int) float64 {
	index := m.index(at)
	font, err := m.p.instance.FPDFText_GetFontSize(&requests.FPDFText_GetFontSize{TextPage: m.text, Index: index})
	if m.p.refused(err) {
		return 0
	}
	matrix, err := m.p.instance.FPDFText_GetMatrix(&requests.FPDFText_GetMatrix{TextPage: m.text, Index: index})
	if m.p.refused(err) {
		return 0
	}
	size := font.FontSize * math.Hypot(float64(matrix.Matrix.C), float64(matrix.Matrix.D))
	if !finite(size) || size < 0 {
		return 0
	}
	return size
}

// font asks for the font of a line.
func (m *measurer) font(l *textLine) {
	first, err := m.p.instance.FPDFText_GetFontInfo(&requests.FPDFText_GetFontInfo{TextPage: m.text, Index: m.index(l.first)})
	if m.p.refused(err) {
		return
	}
	last, err := m.p.instance.FPDFText_GetFontInfo(&requests.FPDFText_GetFontInfo{TextPage: m.text, Index: m.index(l.last)})
	if m.p.refused(err) {
		return
	}
	l.bold = heavy(first.Flags, first.FontName) && heavy(last.Flags, last.FontName)
	if first.FontName == last.FontName && first.Flags&fixedPitch == 0 {
		l.face = withoutSubset(first.FontName)
	}
}

// Flags of a font's description.
const (
	fixedPitch = 1 << 0
	forceBold  = 1 << 18 // drawn bold even where that is hard to see
)

func heavy(flags int, name string) bool { return flags&forceBold != 0 || boldName(name) }

// boldName tells a bold font by its name: "ABCDEF+Arial-BoldMT", "CMBX12", "Univers-Bd".
func boldName(name string) bool {
	name = strings.ToLower(withoutSubset(name))
	for _, sign := range []string{"bold", "black", "heavy", "demi", "cmbx", "cmssbx", "sfbx", "-bd", "_bd", "-medi"} {
		if strings.Contains(name, sign) {
			return !strings.HasSuffix(name, "-medium")
		}
	}
	return false
}

// cells asks where the words of a line are.
func (m *measurer) cells(l *textLine) {
	at := l.first
	var b strings.Builder
	start := at
	flush := func(end int) {
		if b.Len() == 0 || m.words > maxMeasuredWords {
			return
		}
		m.words++
		left, right, ok := m.extent(start)
		if end > start && ok {
			left2, right2, ok2 := m.extent(end)
			left, right, ok = min(left, left2), max(right, right2), ok2
		}
		if n := utf8.RuneCountInString(b.String()); ok && n > 1 && n <= maxMeasuredRunes && right-left > spread*l.size*float64(n) {
			m.letters(l, b.String(), start)
		} else if ok {
			l.cells = append(l.cells, cell{text: string(m.lamAlef([]rune(b.String()), start)), left: left, right: right})
		} else {
			m.words = maxMeasuredWords + 1 // no word may be lost
		}
		b.Reset()
	}
	last := at
	for _, r := range l.text {
		width := 1
		if r >= 0x10000 {
			width = 2
		}
		if unicode.IsSpace(r) {
			flush(last)
			start = at + width
		} else {
			b.WriteRune(r)
			last = at
		}
		at += width
	}
	flush(last)
	if m.words > maxMeasuredWords {
		l.cells = nil
	}
}

// letters asks where the letters of a word are that is far wider than its letters: PDFium sees no gap in some rows of single ones.
func (m *measurer) letters(l *textLine, word string, at int) {
	for _, r := range word {
		if left, right, ok := m.extent(at); ok && m.words <= maxMeasuredWords {
			m.words++
			l.cells = append(l.cells, cell{text: string(r), left: left, right: right})
		} else {
			m.words = maxMeasuredWords + 1
		}
		at += utf16.RuneLen(r)
	}
}

// mayBeTitle tells whether a line could be one of a heading by its length and end.
func mayBeTitle(text string) bool {
	last, _ := utf8.DecodeLastRuneInString(text)
	return utf8.RuneCountInString(text) <= titleRunes && !strings.ContainsRune(".,;。，；、…\uFFFE", last)
}

func finite(f float64) bool { return !math.IsNaN(f) && math.Abs(f) < 1e6 }

// withoutSubset is a font's name without the mark of the characters that are embedded: "ABCDEF+Arial".
func withoutSubset(name string) string {
	if _, after, ok := strings.Cut(name, "+"); ok {
		return after
	}
	return name
}

// arabicAlefs are the letters that stand with a lam as one sign.
const arabicAlefs = "اأإآ"

// mendArabic puts the letters of Arabic lines in order. A mark comes with a space before its letter, and no space where a Latin word ends.
func (m *measurer) mendArabic(lines []textLine) {
	for i := range lines {
		if l := &lines[i]; strings.IndexFunc(l.text, func(r rune) bool { return unicode.Is(unicode.Arabic, r) }) >= 0 {
			l.text = arabicSpaces(m.lamAlef([]rune(l.text), l.first))
		}
	}
}

// lamAlef puts lam and alef in order. They are drawn as one sign; where PDFium turns a line around, it turns the two letters of the sign
// too. An alef before a lam of another sign, as the article is, stays: those two have places of their own.
func (m *measurer) lamAlef(letters []rune, at int) []rune {
	for k := 0; k < len(letters); k++ {
		if k+1 < len(letters) && letters[k+1] == 'ل' && strings.ContainsRune(arabicAlefs, letters[k]) && m.signs < maxMeasuredWords {
			if m.signs++; m.sameSign(at, at+1) {
				letters[k], letters[k+1] = letters[k+1], letters[k]
				k++
				at++
			}
		}
		at += utf16.RuneLen(letters[k])
	}
	return letters
}

// arabicSpaces drops the space before a mark, which stands before its letter then, and puts one between a Latin letter and an Arabic one.
func arabicSpaces(letters []rune) string {
	out := make([]rune, 0, len(letters))
	for k := 0; k < len(letters); k++ {
		r := letters[k]
		if r == ' ' && k+2 < len(letters) && unicode.Is(unicode.Mn, letters[k+1]) && unicode.Is(unicode.Arabic, letters[k+2]) {
			out = append(out, letters[k+2], letters[k+1])
			k += 2
			continue
		}
		if n := len(out); n > 0 && unicode.Is(unicode.Latin, out[n-1]) && unicode.Is(unicode.Arabic, r) && unicode.IsLetter(r) {
			out = append(out, ' ')
		}
		out = append(out, r)
	}
	return string(out)
}

// sameSign tells whether two characters are one on the page.
func (m *measurer) sameSign(a, b int) bool {
	left, right, ok := m.extent(a)
	left2, right2, ok2 := m.extent(b)
	return ok && ok2 && left == left2 && right == right2
}
