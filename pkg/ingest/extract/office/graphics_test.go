package office_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/docx"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pptx"
)

const (
	rich   = `<c:tx><c:rich><a:bodyPr/><a:p><a:r><a:t>%s</a:t></a:r><a:r><a:t>%s</a:t></a:r></a:p></c:rich></c:tx>`
	points = `<c:strRef><c:f>Sheet1!$A$2</c:f><c:strCache><c:ptCount val="3"/><c:pt idx="0"><c:v>%s</c:v></c:pt><c:pt idx="2"><c:v>%s</c:v></c:pt></c:strCache></c:strRef>`
)

// chart has two titles and two series of three points, of which the second has no category and no value.
var chart = `<c:chartSpace><c:chart><c:title>` + fmt.Sprintf(rich, "Sales ", "by year") + `</c:title><c:plotArea><c:barChart>` +
	`<c:ser><c:idx val="0"/><c:tx>` + fmt.Sprintf(points, "North", "") + `</c:tx><c:dLbls><c:dLbl><c:tx><c:rich><a:p><a:r><a:t>LABEL</a:t></a:r></a:p></c:rich></c:tx></c:dLbl></c:dLbls>` +
	`<c:cat>` + fmt.Sprintf(points, "2024", "2026") + `</c:cat><c:val>` + fmt.Sprintf(points, "4.3", "7") + `</c:val></c:ser>` +
	`<c:ser><c:tx>` + fmt.Sprintf(points, "South", "") + `</c:tx><c:val>` + fmt.Sprintf(points, "1", "2") + `</c:val></c:ser></c:barChart>` +
	`<c:catAx><c:title><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>Year</c:v></c:pt></c:strCache></c:strRef></c:tx></c:title></c:catAx></c:plotArea></c:chart></c:chartSpace>`

const diagram = `<dgm:dataModel><dgm:ptLst><dgm:pt type="doc"><dgm:t><a:p><a:endParaRPr/></a:p></dgm:t></dgm:pt><dgm:pt><dgm:t><a:p><a:r><a:t>Plan </a:t></a:r><a:r><a:t>it</a:t></a:r></a:p></dgm:t></dgm:pt>` +
	`<dgm:pt><dgm:t><a:p><a:r><a:t>Do it</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>`

const relations = `<Relationships><Relationship Id="c" Type="http://x/chart" Target="%[1]s/chart1.xml"/><Relationship Id="d" Type="http://x/diagramData" Target="%[1]s/data1.xml"/></Relationships>`

const frames = `<%[1]s><c:chart r:id="c"/></%[1]s><%[1]s><dgm:relIds r:dm="d" r:lo="x"/></%[1]s><%[1]s><c:chart r:id="c"/></%[1]s>`

var said = []string{"p Sales by year", "p Year", "t | North | South\n2024 | 4.3 | 1\n2026 | 7 | 2", "l Plan it", "l Do it"}

func TestChartsAndDiagrams(t *testing.T) {
	t.Parallel()
	pack := func(main string) string {
		return `<Relationships><Relationship Id="r1" Type="http://x/officeDocument" Target="` + main + `"/></Relationships>`
	}
	show := extracttest.ZipOf(t, "_rels/.rels", pack("ppt/presentation.xml"), "ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s" Type="http://x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld>`+fmt.Sprintf(frames, "p:graphicFrame")+`</p:sld>`, "ppt/slides/_rels/slide1.xml.rels", fmt.Sprintf(relations, "../g"),
		"ppt/g/chart1.xml", chart, "ppt/g/data1.xml", diagram)
	_, blocks, err := extracttest.ReadBytes(pptx.Read, show, document.TypePPTX)
	require.NoError(t, err)
	require.Equal(t, said, extracttest.Lines(blocks))
	require.Equal(t, 1, blocks[2].Page)

	text := `<w:document><w:body><w:p><w:r><w:t>before</w:t></w:r>` + fmt.Sprintf(frames, "w:drawing") + `</w:p><w:p><w:r><w:t>after</w:t></w:r></w:p></w:body></w:document>`
	letter := extracttest.ZipOf(t, "_rels/.rels", pack("word/document.xml"), "word/document.xml", text, "word/_rels/document.xml.rels", fmt.Sprintf(relations, "g"),
		"word/g/chart1.xml", chart, "word/g/data1.xml", diagram)
	_, blocks, err = extracttest.ReadBytes(docx.Read, letter, document.TypeDOCX)
	require.NoError(t, err)
	require.Equal(t, append(append([]string{"p before"}, said...), "p after"), extracttest.Lines(blocks))
}

// letterOf is a Word document that shows the part of a chart, or of a diagram: both are read alike.
func letterOf(t testing.TB, part string) []byte {
	t.Helper()
	return extracttest.ZipOf(t, "_rels/.rels", `<Relationships><Relationship Id="r1" Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/document.xml", `<w:document><w:p><c:chart r:id="c"/></w:p></w:document>`, "word/_rels/document.xml.rels", fmt.Sprintf(relations, "g"),
		"word/g/chart1.xml", part)
}

// FuzzGraphics fuzzes the part of a chart or of a diagram inside of a document, which the readers' own targets seldom reach.
func FuzzGraphics(f *testing.F) {
	f.Add(chart)
	f.Add(diagram)
	f.Add(`<chart><title><tx><v>a</v></tx></title><ser><tx><pt idx="0"><v>n</v></pt><pt idx="1"><v>m</v></pt></tx><cat><lvl><pt idx="1"><v>in</v></pt></lvl><lvl><pt idx="1"><v>out</v></pt></lvl></cat><yVal><pt idx="1"><v>2</v></pt></yVal></ser></chart>`)
	f.Add(`<x><ser><ser/><v>a</v></ser><pt idx="-1"><v>b</v></pt><t>c</t><title><title/>d</title><pt idx="999999999999999999999"><t>e</t></pt></x>`)
	f.Add(`<ser><val><pt idx="999"><v>1</v></pt><pt idx="1000"><v>2</v></pt><pt><v>&#9;|&#10;</v></pt></val></ser>`)
	f.Fuzz(func(t *testing.T, part string) {
		_, blocks, err := extracttest.ReadBytes(docx.Read, letterOf(t, part), document.TypeDOCX)
		if err != nil {
			extracttest.RequirePermanent(t, err)
		}
		for _, b := range blocks {
			extracttest.RequireGoodBlock(t, b)
		}
	})
}

// A chart of more points than anybody reads is cut, whatever its indexes say.
func TestALargeChartIsCut(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `<c:pt idx="%d"><c:v>%d</c:v></c:pt>`, i*7-3, i)
	}
	series := `<c:ser><c:val>` + many.String() + `</c:val></c:ser>`
	_, blocks, err := extracttest.ReadBytes(docx.Read, letterOf(t, `<c:chart>`+strings.Repeat(series, 100)+`</c:chart>`), document.TypeDOCX)
	require.NoError(t, err)
	lines := extracttest.Lines(blocks)
	rows := strings.Split(strings.Join(lines, "\n"), "\n")
	require.Len(t, strings.Split(rows[1], " | "), 65, "64 series")
	require.Less(t, len(rows), 1000)
}

// What many points say for one place is cut: each would be added to all before it.
func TestAPlaceOfAChartIsBounded(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `<c:pt idx="1"><c:v>%d %s</c:v></c:pt>`, i, strings.Repeat("word ", 20))
	}
	for _, of := range []string{"tx", "cat"} {
		part := `<c:chart><c:ser><c:` + of + `>` + many.String() + `</c:` + of + `><c:val><c:pt idx="1"><c:v>7</c:v></c:pt></c:val></c:ser></c:chart>`
		_, blocks, err := extracttest.ReadBytes(docx.Read, letterOf(t, part), document.TypeDOCX)
		require.NoError(t, err)
		text := extracttest.Joined(blocks)
		require.Contains(t, text, "word word")
		require.Contains(t, text, "7")
		require.Less(t, len(text), 3*document.MaxBlockBytes, of)
	}
}
