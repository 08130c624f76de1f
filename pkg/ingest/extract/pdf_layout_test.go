//go:build !race

// One file after another is read, by a child or in the process: nothing runs beside another that the race detector could see.

package extract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// Fonts of drawn.
const (
	plainFont = "F1"
	boldFont  = "F2"
	fixedFont = "F3"
)

// drawn is a PDF with a page for each content stream.
func drawn(contents ...string) []byte {
	objects := []string{"<</Type/Catalog/Pages 2 0 R>>", ""}
	for _, name := range []string{"Helvetica", "Helvetica-Bold", "Courier"} {
		objects = append(objects, "<</Type/Font/Subtype/Type1/BaseFont/"+name+"/Encoding/WinAnsiEncoding>>")
	}
	kids := ""
	for i, content := range contents {
		kids += fmt.Sprintf("%d 0 R ", 6+2*i)
		objects = append(objects, fmt.Sprintf("<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 3 0 R/F2 4 0 R/F3 5 0 R>>>>/Contents %d 0 R>>", 7+2*i),
			pdfgen.Stream("", content))
	}
	objects[1] = fmt.Sprintf("<</Type/Pages/Kids[%s]/Count %d>>", kids, len(contents))
	return pdfgen.Objects(objects...)
}

// put writes a text at a place.
func put(font string, size, x, y float64, text string) string {
	return fmt.Sprintf("BT /%s %g Tf %g %g Td (%s) Tj ET\n", font, size, x, y, strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`).Replace(text))
}

// prose writes lines of running text below a place, and returns the place of the line after them.
func prose(x, y float64, lines int) (string, float64) {
	out := ""
	for i := range lines {
		out += put(plainFont, 10, x, y, fmt.Sprintf("the worker claims one durable task from its queue and renews the lease %d while it works", i))
		y -= 12
	}
	return out, y
}

// page writes a heading and running text in turns.
func page(parts ...string) string {
	out, y := "", 780.0
	for _, part := range parts {
		kind, text, _ := strings.Cut(part, " ")
		switch kind {
		case "h1", "h2", "h3":
			size := map[string]float64{"h1": 22, "h2": 14, "h3": 10}[kind]
			y -= size
			out += put(boldFont, size, 72, y, text)
			y -= 18
		case "bold":
			out += put(boldFont, 10, 72, y, text)
			y -= 12
		case "text":
			var lines string
			lines, y = prose(72, y, 6)
			out += lines
			y -= 8
		default:
			out += put(plainFont, 10, 72, y, part)
			y -= 12
		}
	}
	return out
}

func blocksOf(t *testing.T, data []byte) []ingest.Block {
	t.Helper()
	_, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", data))
	require.NoError(t, err)
	for _, b := range blocks {
		extracttest.RequireGoodBlock(t, b)
	}
	return blocks
}

func ofKind(blocks []ingest.Block, kind ingest.BlockKind) (found []string) {
	for _, b := range blocks {
		if b.Kind == kind {
			found = append(found, strings.Repeat("#", b.Level)+b.Text)
		}
	}
	return found
}

func TestHeadingsAreToldByTheirLooks(t *testing.T) {
	t.Parallel()
	header := put(boldFont, 10, 72, 810, "Handbook of Tasks")
	blocks := blocksOf(t, drawn(
		header+page("h1 The Whole Book", "text", "h2 1 Of workers", "text", "h3 Their leases", "text"),
		header+page("h2 2 Of queues and", "text", "bold Figure 2: A queue in bold letters", "text", "bold Note", "h3 Long queues", "text"),
		header+page("h1 The Second Part", "h2 2.1 A heading under a heading", "text", "bold This sentence is bold and ends.", "text"),
	))
	require.Equal(t, []string{
		"#The Whole Book", "##1 Of workers", "###Their leases", "##2 Of queues and", "###Long queues", "#The Second Part", "##2.1 A heading under a heading",
	}, ofKind(blocks, ingest.BlockHeading), "no caption, no label inside a text, no running title, no sentence")
}

// A heading may stand in the margin, left of its text, but not before a column beside it.
func TestHeadingsInTheMargin(t *testing.T) {
	t.Parallel()
	content := ""
	for i, name := range []string{"Authors", "Thanks"} {
		text, _ := prose(136, 750-200*float64(i), 8)
		content += put(boldFont, 16, 65, 780-200*float64(i), name) + text
	}
	beside, _ := prose(300, 380, 8)
	content += put(boldFont, 16, 65, 400, "Aside") + beside
	first, _ := prose(72, 780, 8)
	require.Equal(t, []string{"#Authors", "#Thanks"}, ofKind(blocksOf(t, drawn(first, content)), ingest.BlockHeading))
}

func TestALargeFirstLetterOrALargeNumberIsNoHeading(t *testing.T) {
	t.Parallel()
	text, _ := prose(72, 600, 12)
	blocks := blocksOf(t, drawn(
		put(plainFont, 40, 72, 700, "O")+put(plainFont, 10, 105, 700, "nce upon a time a worker claimed a task")+text,
		put(plainFont, 40, 72, 700, "1234")+text,
	))
	require.Empty(t, ofKind(blocks, ingest.BlockHeading))
}

func TestASmallNumberBeforeALargeTitleBelongsToTheHeading(t *testing.T) {
	t.Parallel()
	first, _ := prose(72, 780, 8)
	text, _ := prose(72, 660, 12)
	blocks := blocksOf(t, drawn(first, put(plainFont, 7, 72, 700, "Chapter 1.")+put(plainFont, 26, 112, 700, "Fundamentals of tasks")+text))
	require.Equal(t, []string{"#Chapter 1. Fundamentals of tasks"}, ofKind(blocks, ingest.BlockHeading))
}

func TestAPageOfBoldLinesHasNoHeadings(t *testing.T) {
	t.Parallel()
	parts := []string{"text"}
	for i := range 20 {
		parts = append(parts, fmt.Sprintf("h3 Entry %c of a list", 'A'+i), fmt.Sprintf("its meaning %d", i))
	}
	require.Empty(t, ofKind(blocksOf(t, drawn(page(parts...))), ingest.BlockHeading))
}

// rows writes the cells of a table, one row a line.
func rows(font string, xs []float64, y, leading float64, cells ...[]string) string {
	out := ""
	for _, r := range cells {
		for c, text := range r {
			if text != "" {
				out += put(font, 10, xs[c], y, text)
			}
		}
		y -= leading
	}
	return out
}

// spaced writes letters far apart, as one word.
func spaced(x, y float64, word string) string {
	return fmt.Sprintf("BT /F1 10 Tf 20 Tc %g %g Td (%s) Tj 0 Tc ET\n", x, y, word)
}

// ruling draws lines around cells.
func ruling(xs, ys []float64) string {
	out := ""
	for _, x := range xs {
		out += fmt.Sprintf("%g %g m %g %g l S\n", x, ys[0], x, ys[len(ys)-1])
	}
	for _, y := range ys {
		out += fmt.Sprintf("%g %g m %g %g l S\n", xs[0], y, xs[len(xs)-1], y)
	}
	return out
}

func TestTablesAreReadByTheirColumns(t *testing.T) {
	t.Parallel()
	xs := []float64{72, 200, 300}
	body := [][]string{{"Blue widget", "3", "12.00"}, {"Red widget", "10", "15.00"}, {"Green gadget", "", "99.90"}, {"Grey", "7", "1.00"}}
	text, y := prose(72, 780, 5)
	after, _ := prose(72, y-120, 5)
	blocks := blocksOf(t, drawn(
		text+rows(boldFont, xs, y-20, 14, []string{"Item", "Quantity", "Price"})+rows(plainFont, xs, y-34, 14, body...)+after,
		rows(plainFont, xs, 780, 14, body[:3]...)+after,
	))
	require.Equal(t, []string{
		"Item | Quantity | Price\nBlue widget | 3 | 12.00\nRed widget | 10 | 15.00\nGreen gadget |  | 99.90\nGrey | 7 | 1.00",
		"Item | Quantity | Price\nBlue widget | 3 | 12.00\nRed widget | 10 | 15.00\nGreen gadget |  | 99.90",
	}, ofKind(blocks, ingest.BlockTable), "that of the second page goes on under its header")
	require.Empty(t, ofKind(blocks, ingest.BlockHeading))
}

func TestRowsOfATableAreFoundByTheirNeighbours(t *testing.T) {
	t.Parallel()
	text, y := prose(72, 780, 5)
	long := "the rights of who signed on, also where a procedure of somebody else runs; without one they are the same"
	for name, c := range map[string]struct{ content, want string }{
		"beside a cell of two lines, a gap that is small in its line": {
			rows(boldFont, []float64{72, 150}, y-20, 14, []string{"Register", "Value"}) +
				put(plainFont, 10, 72, y-40, "USER or") + put(plainFont, 10, 72, y-52, "SESSION") + put(plainFont, 10, 150, y-40, "who signed on") +
				rows(plainFont, []float64{72, 150}, y-66, 14, []string{"CURRENT_US", long}, []string{"SYSTEM_US", long}),
			"Register | Value\nUSER or SESSION | who signed on\nCURRENT_US | " + long + "\nSYSTEM_US | " + long,
		},
		"letters in columns of their own": {
			put(plainFont, 10, 72, y-20, "Trace a job") + spaced(300, y-20, "XXX") + put(plainFont, 10, 72, y-34, "Explain a query") + spaced(300, y-34, "XX") +
				put(plainFont, 10, 72, y-48, "Show a plan") + spaced(300, y-48, "XXX"),
			"Trace a job | X | X | X\nExplain a query | X | X | \nShow a plan | X | X | X",
		},
		"a text over several columns": {
			rows(plainFont, []float64{72, 200, 240, 280, 320, 360}, y-20, 14, []string{"Wages", "1", "2", "3", "4", "5"}, []string{"to 100", "9", "8", "7", "6", "5"},
				[]string{"to 200", "19", "18", "17", "16", "15"}, []string{"to 300", "29", "28", "27", "26", "25"}, []string{"over 300", "use the table of a single person"}),
			"Wages | 1 | 2 | 3 | 4 | 5\nto 100 | 9 | 8 | 7 | 6 | 5\nto 200 | 19 | 18 | 17 | 16 | 15\nto 300 | 29 | 28 | 27 | 26 | 25\n" +
				"over 300 |  |  | use the table of a single person |  |",
		},
		"a head that is wider than its numbers": {
			rows(boldFont, []float64{72, 136}, y-20, 13, []string{"Year", "Freshwater Ducks"}) +
				rows(plainFont, []float64{112, 207}, y-33, 13, []string{"2019", "120"}, []string{"2020", "135"}, []string{"2021", "150"}, []string{"2022", "170"}),
			"Year | Freshwater Ducks\n2019 | 120\n2020 | 135\n2021 | 150\n2022 | 170",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, []string{c.want}, ofKind(blocksOf(t, drawn(text+c.content)), ingest.BlockTable))
		})
	}
}

func TestTablesAreReadByTheirLines(t *testing.T) {
	t.Parallel()
	xs := []float64{70, 150, 330, 430}
	cells := put(boldFont, 10, 75, 688, "Setting") + put(boldFont, 10, 155, 688, "Meaning") + put(boldFont, 10, 335, 688, "Default") +
		put(plainFont, 10, 75, 668, "WAIT_MS") + put(plainFont, 10, 155, 668, "how long a worker waits") + put(plainFont, 10, 155, 656, "until it asks again") +
		put(plainFont, 10, 335, 668, "250") +
		put(plainFont, 10, 75, 638, "RETRIES") + put(plainFont, 10, 155, 638, "how often") + put(plainFont, 10, 335, 638, "3") +
		put(plainFont, 10, 75, 618, "All of them may be changed while a worker runs")
	text, _ := prose(72, 590, 5)
	across := ruling(xs, []float64{700, 680, 650, 630})
	frame := fmt.Sprintf("%g 610 %g 20 re S\n", xs[0], xs[3]-xs[0])
	want := "Setting | Meaning | Default\nWAIT_MS | how long a worker waits until it asks again | 250\nRETRIES | how often | 3\n" +
		"All of them may be changed while a worker runs |  |"
	require.Equal(t, []string{want}, ofKind(blocksOf(t, drawn(across+frame+cells+text)), ingest.BlockTable))

	tight := ruling([]float64{70, 160, 188.5, 217}, []float64{700, 688, 676, 664}) +
		rows(plainFont, []float64{72, 161.5, 190.5}, 691, 12, []string{"one", "AB12", "CD34"}, []string{"two", "GH78", "IJ90"}, []string{"three", "MN34", "OP56"})
	require.Equal(t, []string{"one | AB12 | CD34\ntwo | GH78 | IJ90\nthree | MN34 | OP56"}, ofKind(blocksOf(t, drawn(tight+text)), ingest.BlockTable))

	one := "" // all lines as one drawing, moved by a matrix
	for _, x := range xs {
		one += fmt.Sprintf("%g 530 m %g 600 l ", x-50, x-50)
	}
	for _, y := range []float64{600, 580, 550, 530, 510} {
		one += fmt.Sprintf("%g %g m %g %g l ", xs[0]-50, y, xs[3]-50, y)
	}
	require.Equal(t, []string{want}, ofKind(blocksOf(t, drawn("q 1 0 0 1 50 100 cm "+one+"S Q\n"+frame+cells+text)), ingest.BlockTable))
}

func TestWhatOnlyLooksLikeATable(t *testing.T) {
	t.Parallel()
	columns, lines, contents, listing, bullets := "", "", "", "", ""
	for i := range 24 {
		y := 780 - 12*float64(i)
		left, right := fmt.Sprintf("the left column goes on in its line %d", i), fmt.Sprintf("and the right one has words %d as well", i)
		columns += put(plainFont, 10, 72, y, left)
		lines += put(plainFont, 10, 72, y, left) + put(plainFont, 10, 330, y, right)
		contents += put(plainFont, 10, 72, y, fmt.Sprintf("Chapter %c of the book", 'A'+i)) + put(plainFont, 10, 450, y, fmt.Sprint(3*i+1))
		listing += put(fixedFont, 10, 72, y, fmt.Sprint(i+10)) + put(fixedFont, 10, 110, y, "if err != nil { return err }")
		bullets += put(plainFont, 10, 72, y, `•`) + put(plainFont, 10, 100, y, fmt.Sprintf("an item %d of a list", i))
	}
	frames := ""
	for i := range 6 {
		y := 740 - 12*float64(i)
		frames += put(boldFont, 10, 26, y, "what it is for") + put(plainFont, 10, 150, y, fmt.Sprintf("a description of the book in %d lines", i)) +
			put(plainFont, 10, 450, y, "who wrote it") + put(plainFont, 10, 450, y-240, "where it is") + put(plainFont, 10, 26, y-240, "when it was made")
	}
	for i := range 24 {
		columns += put(plainFont, 10, 330, 780-12*float64(i), fmt.Sprintf("and the right one has words %d as well", i))
	}
	for name, content := range map[string]string{
		"two columns": columns, "two columns, line by line": lines, "contents": contents, "a listing": listing, "a list": strings.ReplaceAll(bullets, "•", "\x95"),
		"frames of a page": ruling([]float64{20, 440, 580}, []float64{760, 560, 300}) + frames,
		"a picture with words on it": ruling([]float64{100, 140, 190, 240, 290}, []float64{700, 660, 620, 580}) +
			put(plainFont, 10, 115, 680, "Threaded nut core") + put(plainFont, 10, 150, 640, "Keyway") + put(plainFont, 10, 215, 600, "Tightened nut"),
		"two lines": put(plainFont, 10, 72, 700, "Date:") + put(plainFont, 10, 300, 700, "today") + put(plainFont, 10, 72, 680, "Place:") + put(plainFont, 10, 300, 680, "here"),
	} {
		blocks := blocksOf(t, drawn(content))
		require.Empty(t, ofKind(blocks, ingest.BlockTable), name)
		if name == "two columns" {
			all := extracttest.Joined(blocks)
			require.Less(t, strings.Index(all, "in its line 23"), strings.Index(all, "right one has words 0"), "a column is read to its end")
		}
	}
}

func TestLamAndAlefComeInOrder(t *testing.T) {
	t.Parallel()
	// The codes a, b, c … stand for Arabic letters, as they are drawn from the left; X is lam and alef as one sign, Y its one code.
	cmap := "/CIDInit/ProcSet findresource begin 12 dict begin begincmap /CMapName/X def /CMapType 2 def 1 begincodespacerange <00> <FF> endcodespacerange\n" +
		"8 beginbfchar <61> <0633> <62> <0645> <63> <0627> <64> <0644> <65> <0629> <58> <06440627> <59> <FEFB> <66> <0643> endbfchar endcmap end end"
	of := func(text string) []byte {
		return pdfgen.Objects("<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
			"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R>>",
			"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>", pdfgen.Stream("", put(plainFont, 12, 72, 700, text)), pdfgen.Stream("", cmap))
	}
	for drawn, want := range map[string]string{
		"bXa":      "سلام",    // lam and alef are one sign
		"bYa":      "سلام",    // and have one code
		"bdabfdc":  "الكمسلم", // the article is two signs
		"bXa bXdc": "الלאم سلام",
	} {
		if strings.ContainsRune(want, 'ל') {
			want = "اللام سلام"
		}
		require.Equal(t, []ingest.Block{{Kind: ingest.BlockParagraph, Page: 1, Text: want}}, blocksOf(t, of(drawn)))
	}
}

// manyDrawings is a page of words with gaps in a heap of lines, rectangles, curves and numbers out of range.
func manyDrawings() []byte {
	content := rows(plainFont, []float64{72, 200, 300}, 780, 14, []string{"a b", "1", "2"}, []string{"c", "3", "4"}, []string{"d", "5", "6"})
	for i := range 3000 {
		content += fmt.Sprintf("%d %d m %d %d l S %d %d 40 12 re S 1 1 m 2 2 3 3 %d 9 c S\n", i%500, i%700, i%500+50, i%700, i%400, i%800, i)
	}
	return drawn(content + "1e30 0 0 1e30 0 0 cm 0 0 m 1e38 1e38 l 1e38 0 l 0 1e38 l 5 5 l 6 6 l S " + put(plainFont, 1e9, 1e9, 0, "far away"))
}

func TestAHeapOfDrawingsIsRead(t *testing.T) {
	t.Parallel()
	require.Contains(t, extracttest.Joined(blocksOf(t, manyDrawings())), "a b")
}
