package pdf

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// scattered is a page of words at any places, each word another one; some lines have gaps, some were not measured.
func scattered(random *rand.Rand, page int) (content pageContent, words []string) {
	number := 0
	word := func() string {
		number++
		w := fmt.Sprintf("p%dw%dx", page, number)
		words = append(words, w)
		return w
	}
	place := func(steps int) float64 { return float64(10 * random.IntN(steps)) }
	y := 800.0
	for range 5 + random.IntN(60) {
		if y -= place(4) - 8; random.IntN(8) == 0 {
			y += place(20)
		}
		l := textLine{left: place(40), base: y, size: []float64{0, 8, 10, 10, 10, 14}[random.IntN(6)], bold: random.IntN(6) == 0, wide: random.IntN(3) == 0}
		x := l.left
		var texts []string
		var cells []cell
		for range 1 + random.IntN(6) {
			w := word()
			cells = append(cells, cell{text: w, left: x, right: x + float64(5*len(w))})
			texts = append(texts, w)
			x += float64(5*len(w)) + place(8)
		}
		l.right = cells[len(cells)-1].right
		if l.text = strings.Join(texts, " "); random.IntN(2) == 0 {
			l.cells = cells
		}
		if random.IntN(10) == 0 {
			l = textLine{text: l.text}
		}
		content.lines = append(content.lines, l)
	}
	var rules []rule
	for range random.IntN(12) {
		rules = append(rules, rule{place(10), 300 + place(10), y, y}, rule{place(60), place(60), y, 800})
		y += place(30)
	}
	for i, r := range rules {
		if r.left > r.right {
			rules[i].left, rules[i].right = r.right, r.left
		}
		rules[i].bottom, rules[i].top = min(r.bottom, r.top), max(r.bottom, r.top)
		if !rules[i].across() {
			rules[i].right = rules[i].left
		}
	}
	content.grids = gridsOf(rules)
	return content, words
}

// requireNothingLost lays out pages at any places: every word comes out, once, but for those of a table's head. It returns the number
// of tables.
func requireNothingLost(t *testing.T, seed uint64) (tables int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a layout, no secret
	text := map[string]int{}
	flow := newPageFlow(document.NewSink(document.Limits{MaxTextBytes: 8 << 20}, func(b ingest.Block) error {
		require.NoError(t, document.CheckBlock(b))
		if b.Kind == ingest.BlockTable {
			tables++
		}
		for _, w := range strings.FieldsFunc(b.Text, func(r rune) bool { return r == ' ' || r == '\n' || r == '|' }) {
			text[w]++
		}
		return nil
	}))
	var all []string
	for page := 1; page <= 4; page++ {
		content, words := scattered(random, page)
		require.NoError(t, flow.page(page, content))
		all = append(all, words...)
	}
	require.NoError(t, flow.close())
	again := 0
	for _, w := range all {
		require.NotZero(t, text[w], "%s is lost, seed %d", w, seed)
		again += text[w] - 1
	}
	require.LessOrEqual(t, again, tables*maxColumns, "seed %d", seed)
	require.Len(t, text, len(all), "seed %d", seed)
	return tables
}

func TestNothingIsLostWhereverItStands(t *testing.T) {
	t.Parallel()
	tables := 0
	for seed := range uint64(500) {
		tables += requireNothingLost(t, seed)
	}
	require.Greater(t, tables, 100)
}

func TestBoldFontsByTheirNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Helvetica-Bold": true, "ABCDEF+CMBX12": true, "Univers-Bd": true, "NimbusRomNo9L-Medi": true, "Lato-Black": true, "LubalinGraphStd-Demi": true,
		"Helvetica": false, "CMR10": false, "Roboto-Medium": false, "ABCDEF+TimesNewRomanPSMT": false, "": false,
	} {
		require.Equal(t, want, boldName(name), name)
	}
}

func TestArabicSpaces(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"بنا ًء على": "بناءً على", "لغة Pythonمن": "لغة Python من", "R وPython": "R وPython", "سلام": "سلام", " ً": " ً",
	} {
		require.Equal(t, want, arabicSpaces([]rune(in)))
	}
}

// measured is a page of lines of those sizes, one below another; bold ones begin with an asterisk.
func measured(lines ...string) (content pageContent) {
	y := 800.0
	for _, text := range lines {
		l := textLine{text: text, left: 72, right: 72 + float64(5*len(text)), base: y, size: 10, face: "Plain"}
		if bold, ok := strings.CutPrefix(text, "*"); ok {
			l.text, l.size, l.bold, l.face = bold, 14, true, "Bold"
		}
		content.lines = append(content.lines, l)
		y -= 20
	}
	return content
}

func TestAnOutlineOfFewMarksIsHelpedByLooks(t *testing.T) {
	t.Parallel()
	page := measured("*The Whole Book", "this is the text of the book and goes on for a line", "*A chapter of it", "this is the text of the chapter and goes on for a line")
	for marks, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 1} {
		var headings []string
		flow := newPageFlow(document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(b ingest.Block) error {
			if b.Kind == ingest.BlockHeading {
				headings = append(headings, b.Text)
			}
			return nil
		}))
		flow.outline = map[int][]bookmark{}
		for range marks {
			flow.outline[1] = append(flow.outline[1], bookmark{key: headingKey("The Whole Book"), level: 1})
		}
		require.NoError(t, flow.page(1, page))
		require.NoError(t, flow.close())
		require.Len(t, headings, want, "%d marks", marks)
	}
}
