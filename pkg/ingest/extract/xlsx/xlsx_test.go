package xlsx_test

import (
	"bytes"
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
	read := func() []string {
		var blocks []ingest.Block
		_, err := xlsx.Read(t.Context(), in, document.NewSink(in.Limits, func(b ingest.Block) error {
			blocks = append(blocks, b)
			return nil
		}))
		require.NoError(t, err)
		return extracttest.Lines(blocks)
	}
	got := read()
	require.Equal(t, []string{"## Sheet1", got[1], "## Far", "p far"}, got)
	require.True(t, strings.HasPrefix(got[1], "t name | when | share\na¦b | "), "%s", got[1])
	require.True(t, strings.HasSuffix(got[1], " | 25.60%"), "%s", got[1])
	require.Equal(t, []string{`the hidden sheet "Away" was not read`}, in.Warnings)
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
	big := extracttest.ZipOf(t, "xl/workbook.xml", "<workbook/>", "xl/worksheets/sheet1.xml", strings.Repeat("<row/>", 130<<20/6))
	_, _, err := extracttest.ReadBytes(xlsx.Read, big, document.TypeXLSX)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

func FuzzXLSX(f *testing.F) {
	f.Add(workbook(f, func(*excelize.File) {}))
	extracttest.FuzzReader(f, xlsx.Read, document.TypeXLSX, "sheet.xlsx")
}
