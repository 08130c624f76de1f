package xlsx_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/xuri/excelize/v2"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/xlsx"
)

// workbook lets fill make a workbook.
func workbook(t testing.TB, fill func(f *excelize.File)) []byte {
	t.Helper()
	f := excelize.NewFile()
	defer f.Close()
	fill(f)
	var buf bytes.Buffer
	require.NoError(t, f.Write(&buf))
	return buf.Bytes()
}

func TestTextBoxesChartsAndComments(t *testing.T) {
	t.Parallel()
	data := workbook(t, func(f *excelize.File) {
		require.NoError(t, f.SetSheetRow("Sheet1", "A1", &[]any{"month", "sum"}))
		require.NoError(t, f.SetSheetRow("Sheet1", "A2", &[]any{"May", 7}))
		require.NoError(t, f.AddShape("Sheet1", &excelize.Shape{Cell: "D1", Type: "rect", Paragraph: []excelize.RichTextRun{{Text: "in a "}, {Text: "text box"}}}))
		require.NoError(t, f.AddChart("Sheet1", "D9", &excelize.Chart{
			Type: excelize.Col, Title: excelize.ChartTitle{Paragraph: []excelize.RichTextRun{{Text: "Sums by month"}}},
			Series: []excelize.ChartSeries{{Name: "Sheet1!$B$1", Categories: "Sheet1!$A$2", Values: "Sheet1!$B$2"}},
		}))
		require.NoError(t, f.AddComment("Sheet1", excelize.Comment{Cell: "A2", Author: "Ada", Paragraph: []excelize.RichTextRun{{Text: "why so few?"}}}))
	})
	extracttest.RequireLines(t, xlsx.Read, document.TypeXLSX, data, "## Sheet1", "t month | sum\nMay | 7", "p in a", "p text box", "p Sums by month", "p why so few?")
	without := func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Limits.Comments = false
		return xlsx.Read(ctx, in, out)
	}
	extracttest.RequireLines(t, without, document.TypeXLSX, data, "## Sheet1", "t month | sum\nMay | 7", "p in a", "p text box", "p Sums by month")
	nothingElse := workbook(t, func(f *excelize.File) {
		require.NoError(t, f.AddShape("Sheet1", &excelize.Shape{Cell: "D1", Type: "rect", Paragraph: []excelize.RichTextRun{{Text: "alone"}}}))
	})
	extracttest.RequireLines(t, xlsx.Read, document.TypeXLSX, nothingElse, "p alone")
}

func TestSheets(t *testing.T) {
	t.Parallel()
	data := workbook(t, func(f *excelize.File) {
		require.NoError(t, f.SetSheetRow("Sheet1", "A1", &[]any{"name", "when", "share"}))
		require.NoError(t, f.SetSheetRow("Sheet1", "A3", &[]any{"a|b", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), 0.256}))
		percent, err := f.NewStyle(&excelize.Style{NumFmt: 10})
		require.NoError(t, err)
		require.NoError(t, f.SetCellStyle("Sheet1", "C3", "C3", percent))
		for _, name := range []string{"Empty", "Away", "Far"} {
			_, err := f.NewSheet(name)
			require.NoError(t, err)
		}
		require.NoError(t, f.SetCellStr("Away", "A1", "HIDDEN"))
		require.NoError(t, f.SetSheetVisible("Away", false))
		require.NoError(t, f.SetCellStr("Far", "XFD1048576", "far"))
	})
	in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data)), Limits: document.Limits{MaxTextBytes: 1 << 20}, Progress: func(int, int) {}}
	var out *document.Sink
	read := func() []string {
		var blocks []ingest.Block
		out = document.NewSink(in.Limits, func(b ingest.Block) error {
			blocks = append(blocks, b)
			return nil
		})
		_, err := xlsx.Read(t.Context(), in, out)
		require.NoError(t, err)
		return extracttest.Lines(blocks)
	}
	got := read()
	require.Equal(t, []string{"## Sheet1", got[1], "## Far", "p far"}, got)
	require.Equal(t, "t name | when | share\na¦b | 2026-03-01 | 25.60%", got[1])
	require.Equal(t, []string{`the hidden sheet "Away" was not read`}, out.Warnings)
	in.Limits.HiddenSheets = true
	require.Contains(t, read(), "p HIDDEN")
}

func TestLongSheetsRepeatTheirHeader(t *testing.T) {
	t.Parallel()
	data := workbook(t, func(f *excelize.File) {
		for i := range 3000 {
			require.NoError(t, f.SetSheetRow("Sheet1", "A"+strconv.Itoa(i+1), &[]any{"cell " + strconv.Itoa(i), "value"}))
		}
	})
	_, blocks, err := extracttest.ReadBytes(xlsx.Read, data, document.TypeXLSX)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 3)
	for _, b := range blocks[1:] {
		require.True(t, strings.HasPrefix(b.Text, "cell 0 | value\n"))
	}
	require.Contains(t, extracttest.Joined(blocks), "cell 2999 | value")
}

func TestWorkbooksThatAreDamagedOrTooLarge(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]string{
		"none":    {"x", "y"},
		"no XML":  {"xl/workbook.xml", "<workbook", "[Content_Types].xml", "<"},
		"a sheet": {"xl/workbook.xml", `<workbook><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>`, "xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="r1" Type="http://x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`, "xl/worksheets/sheet1.xml", "<worksheet><sheetData><row><c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, blocks, err := extracttest.ReadBytes(xlsx.Read, extracttest.ZipOf(t, parts...), document.TypeXLSX)
			if err == nil {
				require.Empty(t, blocks)
				return
			}
			extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
		})
	}
	texts := "<sst>" + strings.Repeat("<si><t>"+strings.Repeat("a text ", 9000)+"</t></si>", 1100)
	big := extracttest.ZipOf(t, "xl/workbook.xml", "<workbook/>", "xl/_rels/workbook.xml.rels", `<Relationships><Relationship Type="http://x/sharedStrings" Target="sharedStrings.xml"/></Relationships>`,
		"xl/sharedStrings.xml", texts)
	_, _, err := extracttest.ReadBytes(xlsx.Read, big, document.TypeXLSX)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

func TestCellsOfEverySort(t *testing.T) {
	t.Parallel()
	const book = `<workbook><workbookPr date1904="%s"/><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>`
	const rels = `<Relationships><Relationship Id="r1" Type="http://x/worksheet" Target="worksheets/sheet1.xml"/>` +
		`<Relationship Id="r2" Type="http://x/sharedStrings" Target="sharedStrings.xml"/><Relationship Id="r3" Type="http://x/styles" Target="styles.xml"/></Relationships>`
	const texts = `<sst><si><t>one</t></si><si><r><t>ri</t></r><r><rPr/><t>ch</t></r><rPh><t>PHONETIC</t></rPh></si></sst>`
	const styles = `<styleSheet><numFmts><numFmt numFmtId="164" formatCode="[Red]yyyy&quot;h&quot;\\-mm;@"/><numFmt numFmtId="165" formatCode="0.0%"/><numFmt numFmtId="166" formatCode="[h]:mm"/>` +
		`<numFmt numFmtId="167" formatCode="&quot;days&quot; 0"/></numFmts><cellStyleXfs><xf numFmtId="9"/></cellStyleXfs>` +
		`<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/><xf numFmtId="20"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="166"/><xf numFmtId="167"/></cellXfs></styleSheet>`
	for name, c := range map[string]struct{ cells, since1904, want string }{
		"texts":              {`<c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="inlineStr"><is><t>in</t></is></c><c r="D1" t="str"><f>A1</f><v>of a formula</v></c>`, "0", "one | rich | in | of a formula"},
		"no such text":       {`<c r="A1" t="s"><v>7</v></c><c r="B1"><v>1</v></c>`, "0", " | 1"},
		"truth and errors":   {`<c r="A1" t="b"><v>1</v></c><c r="B1" t="b"><v>0</v></c><c r="C1" t="e"><v>#N/A</v></c>`, "0", "TRUE | FALSE | #N/A"},
		"numbers":            {`<c r="A1"><v>0.30000000000000004</v></c><c r="B1"><v>1234567890123</v></c><c r="C1"><v>-2.5</v></c><c r="D1" s="7"><v>3</v></c>`, "0", "0.3 | 1234567890123 | -2.5 | 3"},
		"dates":              {`<c r="A1" s="1"><v>46082</v></c><c r="B1" s="2"><v>46082.75</v></c><c r="C1" s="3"><v>0.5</v></c><c r="D1" s="4"><v>46082</v></c><c r="E1" s="6"><v>0.25</v></c>`, "0", "2026-03-01 | 2026-03-01 18:00:00 | 12:00:00 | 2026-03-01 | 06:00:00"},
		"dates since 1904":   {`<c r="A1" s="1"><v>44620</v></c><c r="B1"><v>1</v></c>`, "1", "2026-03-01 | 1"},
		"no dates":           {`<c r="A1" s="1"><v>-5</v></c><c r="B1" s="1"><v>99999999</v></c>`, "0", "-5 | 99999999"},
		"halves of percent":  {`<c r="A1" s="5"><v>0.0125</v></c><c r="B1" s="5"><v>-0.00250</v></c><c r="C1" s="5"><v>0.0245</v></c>`, "0", "1.3% | -0.3% | 2.5%"},
		"percent":            {`<c r="A1" s="5"><v>0.256</v></c><c r="B1"><v>1</v></c>`, "0", "25.6% | 1"},
		"cells left out":     {`<c r="A1"><v>1</v></c><c r="C1"><v>3</v></c><c r="E1"/>`, "0", "1 |  | 3"},
		"without references": {`<c><v>1</v></c><c><v>2</v></c>`, "0", "1 | 2"},
		"far out":            {`<c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c>`, "0", "1 | 2"},
		"a style of nothing": {`<c r="A1" s="99"><v>1</v></c><c r="B1" s="-1"><v>2</v></c>`, "0", "1 | 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := extracttest.ZipOf(t, "xl/workbook.xml", fmt.Sprintf(book, c.since1904), "xl/_rels/workbook.xml.rels", rels, "xl/sharedStrings.xml", texts, "xl/styles.xml", styles,
				"xl/worksheets/sheet1.xml", `<worksheet><sheetData><row r="1">`+c.cells+`</row></sheetData></worksheet>`)
			extracttest.RequireLines(t, xlsx.Read, document.TypeXLSX, data, "## a", "t "+strings.TrimLeft(c.want, " "))
		})
	}
}

func FuzzXLSX(f *testing.F) {
	f.Add(workbook(f, func(*excelize.File) {}))
	extracttest.FuzzReader(f, xlsx.Read, document.TypeXLSX, "sheet.xlsx")
}
