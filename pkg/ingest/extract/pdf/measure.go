package pdf

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
)

const (
	// maxMeasured bounds how many lines of a page are measured, and how many words of it.
	maxMeasured, maxMeasuredWords = 1000, 4000
	// wideLine is the share of a page's longest line from which a line is taken for running text.
	wideLine = 0.75
	// sizedLines is how many lines of running text tell their font size, in each third of a page.
	sizedLines = 2
	// loose is the width of a character, in font sizes, above which a line has wide gaps.
	loose = 0.62
	// titleRunes is the length of a line above which it is no heading.
	titleRunes = 120
)

// numbered is how many headings begin.
var numbered = regexp.MustCompile(`^\d{1,2}(\.\d{1,2}){1,4}\.?\s+\pL`)

// textLine is a line of a page as PDFium gives it. Without a size it was not measured.
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
	first, last int    // characters of the page, counted as UTF-16
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
	words int
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
			flush()
		case r == '\r':
		default:
			if r == '\x02' {
				r, _ = utf8.DecodeRuneInString(brokenWord)
			}
			if !unicode.IsSpace(r) {
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

// measure fills in where the lines of a page are.
func (m *measurer) measure(lines []textLine) {
	widest := 0
	for _, l := range lines {
		widest = max(widest, lineWidth(l.text))
	}
	sized := map[int]int{}
	var sizes []float64
	for i := range lines[:min(len(lines), maxMeasured)] {
		l := &lines[i]
		if l.text == "" || !m.place(l) {
			continue
		}
		third := 3 * i / len(lines)
		short := float64(lineWidth(l.text)) < wideLine*float64(widest) || numbered.MatchString(l.text)
		l.wide = !short
		if !short && sized[third] >= sizedLines {
			continue
		}
		if l.size = m.size(l.first); !short && l.size > 0 {
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
	for i := range lines[:min(len(lines), maxMeasured)] {
		l := &lines[i]
		if l.right <= l.left {
			continue
		}
		if l.size == 0 {
			l.size = usual
		}
		if l.size > 0 && l.right-l.left > loose*l.size*float64(lineWidth(l.text)) {
			m.cells(l)
		}
		if l.wide || !mayBeTitle(l.text) {
			continue
		}
		m.font(l)
		if l.size > bigger*usual && usual > 0 {
			l.size = min(l.size, max(m.size(l.last), usual)) // a large first letter makes no heading
		}
	}
}

// index is the number of a character that stands at a place of the text.
func (m *measurer) index(at int) int {
	if m.exact {
		return at
	}
	i, err := m.p.instance.FPDFText_GetCharIndexFromTextIndex(&requests.FPDFText_GetCharIndexFromTextIndex{TextPage: m.text, NTextIndex: at})
	if err != nil {
		return at
	}
	return i.CharIndex
}

// place asks where a line begins and ends.
func (m *measurer) place(l *textLine) bool {
	first, err := m.p.instance.FPDFText_GetCharOrigin(&requests.FPDFText_GetCharOrigin{TextPage: m.text, Index: m.index(l.first)})
	if err != nil {
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
	if err != nil || !finite(box.Left) || !finite(box.Right) {
		return 0, 0, false
	}
	return box.Left, box.Right, true
}

// size asks for a character's font size as it is seen. A size of 1 that is scaled by its matrix is usual.
func (m *measurer) size(at int) float64 {
	index := m.index(at)
	font, err := m.p.instance.FPDFText_GetFontSize(&requests.FPDFText_GetFontSize{TextPage: m.text, Index: index})
	if err != nil {
		return 0
	}
	matrix, err := m.p.instance.FPDFText_GetMatrix(&requests.FPDFText_GetMatrix{TextPage: m.text, Index: index})
	if err != nil {
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
	if err != nil {
		return
	}
	last, err := m.p.instance.FPDFText_GetFontInfo(&requests.FPDFText_GetFontInfo{TextPage: m.text, Index: m.index(l.last)})
	if err != nil {
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
		if ok {
			l.cells = append(l.cells, cell{text: b.String(), left: left, right: right})
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
