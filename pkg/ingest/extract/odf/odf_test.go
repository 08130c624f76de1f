package odf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/odf"
)

func file(t testing.TB, body string) []byte {
	t.Helper()
	return extracttest.ZipOf(t, "content.xml", `<office:document-content><office:automatic-styles><style:style style:name="ta9"><style:table-properties table:display="false"/></style:style>`+
		`</office:automatic-styles><office:body>`+body+`</office:body></office:document-content>`,
		"meta.xml", `<office:document-meta><office:meta><dc:title>The title</dc:title></office:meta></office:document-meta>`)
}

func TestTexts(t *testing.T) {
	t.Parallel()
	ex := extracttest.RequireLines(t, odf.Read, document.TypeODT, file(t,
		`<text:tracked-changes><text:changed-region><text:deletion><text:p>GONE</text:p></text:deletion></text:changed-region></text:tracked-changes>`+
			`<text:h text:outline-level="2">Head</text:h><text:p>a<text:s text:c="3"/>b<text:tab/>c<text:line-break/>d<office:annotation><text:p>REMARK</text:p></office:annotation></text:p>`+
			`<text:p>see<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>the note</text:p></text:note-body></text:note> here</text:p>`+
			`<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>`+
			`<text:p>before <draw:frame><draw:text-box><text:p>in a box</text:p></draw:text-box></draw:frame>after</text:p>`+
			`<table:table><table:table-row><table:table-cell table:number-columns-spanned="2"><text:p>wide</text:p></table:table-cell><table:covered-table-cell/></table:table-row>`+
			`<table:table-row><table:table-cell><text:p>x</text:p><text:p>y</text:p></table:table-cell><table:table-cell><table:table><table:table-row><table:table-cell><text:p>in</text:p></table:table-cell></table:table-row></table:table></table:table-cell></table:table-row></table:table>`),
		"## Head", "p a   b\tc\nd", "p see[1] here", "l item", "p in a box", "p before after", "p wide", "t x y | in", "p [1] the note")
	require.Equal(t, "The title", ex.Title)
}

// A paragraph is a title by its style, or by what its style is based on: in either part, and in texts only.
func TestTitlesOfTexts(t *testing.T) {
	t.Parallel()
	style := func(name, family, parent string) string {
		return `<style:style style:name="` + name + `" style:family="` + family + `" style:parent-style-name="` + parent + `"/>`
	}
	p := func(style, text string) string {
		return `<text:p text:style-name="` + style + `">` + text + `</text:p>`
	}
	data := extracttest.ZipOf(t, "styles.xml", `<office:document-styles>`+style("Cover", "paragraph", "Title")+style("Round", "paragraph", "Round")+style("Subtitle", "paragraph", "Heading")+style("P3", "paragraph", "Title")+`</office:document-styles>`,
		"content.xml", `<office:document-content>`+style("P1", "paragraph", "Cover")+style("P2", "paragraph", "Round")+style("P3", "paragraph", "")+style("T1", "text", "Title")+`<office:body>`+
			p("P2", "before")+p("P3", "plain")+p("Title", "The <text:span>whole</text:span>")+p("Subtitle", "part")+p("P1", "Cover")+p("T1", "text")+
			`<text:h text:outline-level="3" text:style-name="Title">Head</text:h></office:body></office:document-content>`)
	extracttest.RequireLines(t, odf.Read, document.TypeODT, data, "p before", "p plain", "# The whole", "p part", "# Cover", "p text", "### Head")
	extracttest.RequireLines(t, odf.Read, document.TypeODP, data, "p before", "p plain", "p The whole", "p part", "p Cover", "p text", "### Head")
}

// A cell that takes several rows stands in each that has a text of its own.
func TestCellsThatTakeMoreThanOneRow(t *testing.T) {
	t.Parallel()
	tc := func(attrs, text string) string {
		return "<table:table-cell " + attrs + "><text:p>" + text + "</text:p></table:table-cell>"
	}
	covered := func(n int) string {
		return fmt.Sprintf(`<table:covered-table-cell table:number-columns-repeated="%d"/>`, n)
	}
	const tall, wide = `table:number-rows-spanned="3"`, `table:number-columns-spanned="2"`
	tbl := func(rows ...string) string {
		return `<table:table><table:table-row>` + strings.Join(rows, `</table:table-row><table:table-row>`) + `</table:table-row></table:table>`
	}
	data := file(t, tbl(tc(tall+" "+wide, "both")+covered(1)+tc(tall, "tall")+tc("", "a"),
		covered(3)+tc("", "b"),
		covered(3)+tc(`table:number-columns-repeated="999"`, ""),
		tc(wide, "")+covered(1)+`<table:covered-table-cell><text:p>own</text:p></table:covered-table-cell>`+tc("", "c"),
		tc(wide, "d")+covered(2)+tc("", "e"))+
		tbl(covered(1)+tc("", "f"), tc(tall+" "+wide, "title")+covered(1), covered(2)))
	extracttest.RequireLines(t, odf.Read, document.TypeODT, data,
		"t both | both | tall | a\nboth | both | tall | b\n |  | own | c\nd | d | own | e", "t | f\ntitle")
}

func TestSheets(t *testing.T) {
	t.Parallel()
	data := file(t, `<table:table table:name="One"><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell table:number-columns-repeated="2"><text:p>b</text:p></table:table-cell><table:table-cell table:number-columns-repeated="16380"/></table:table-row>`+
		`<table:table-row table:number-rows-repeated="1048575"><table:table-cell table:number-columns-repeated="16384"/></table:table-row></table:table>`+
		`<table:table table:name="Empty"/><table:table table:name="Away" table:style-name="ta9"><table:table-row><table:table-cell><text:p>HIDDEN</text:p></table:table-cell></table:table-row></table:table>`+
		`<table:table table:name="Last"><table:table-row><table:table-cell><text:p>z</text:p></table:table-cell></table:table-row></table:table>`)
	extracttest.RequireLines(t, odf.Read, document.TypeODS, data, "## One", "t a | b | b", "## Last", "p z")
}

func TestSlides(t *testing.T) {
	t.Parallel()
	data := file(t, `<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>Title</text:p></draw:text-box></draw:frame><draw:frame><draw:text-box><text:p>text</text:p></draw:text-box></draw:frame>`+
		`<presentation:notes><draw:frame presentation:class="notes"><draw:text-box><text:p>note</text:p></draw:text-box></draw:frame><draw:frame presentation:class="page-number"><draw:text-box><text:p>&lt;number&gt;</text:p></draw:text-box></draw:frame></presentation:notes></draw:page>`+
		`<draw:page><draw:frame><draw:text-box><text:p>second</text:p></draw:text-box></draw:frame></draw:page>`)
	ex, blocks, err := extracttest.ReadBytes(odf.Read, data, document.TypeODP)
	require.NoError(t, err)
	require.Equal(t, []string{"## Title", "p text", "p note", "p second"}, extracttest.Lines(blocks))
	require.Equal(t, 2, ex.Pages)
	require.Equal(t, 2, blocks[3].Page)
}

// A chart and a sheet are folders of their own in the archive; each is read once, in its place, and none within another.
func TestObjectsAreReadInTheirPlace(t *testing.T) {
	t.Parallel()
	const whole = `<office:document-content><office:body>%s</office:body></office:document-content>`
	row := func(cells ...string) string {
		out := `<table:table-row>`
		for _, c := range cells {
			out += `<table:table-cell><text:p>` + c + `</text:p></table:table-cell>`
		}
		return out + `</table:table-row>`
	}
	frame := func(folder string) string {
		return `<draw:frame><draw:object xlink:href="./` + folder + `"/><draw:image xlink:href="./ObjectReplacements/` + folder + `"/><svg:title>ALT</svg:title></draw:frame>`
	}
	chart := `<office:chart><chart:chart><chart:title><text:p>Sales</text:p></chart:title><table:table table:name="local-table">` + row("", "North") + row("2024", "4.3") + `</table:table>` + frame("Object 1") + `</chart:chart></office:chart>`
	sheet := `<style:style style:name="P1" style:family="paragraph" style:parent-style-name="Title"/><office:spreadsheet><text:h>Inner</text:h><table:table table:name="S">` + row("a", "b") + `</table:table></office:spreadsheet>`
	body := `<office:text><text:h text:outline-level="1">Head</text:h><text:p text:style-name="P1">before` + frame("Object 1") + `</text:p><text:p>after` + frame("Object 1") + frame("Missing") + frame("../x") + `</text:p>` +
		`<table:table><table:table-row><table:table-cell><text:p>x` + frame("Object 2") + `</text:p></table:table-cell><table:table-cell><text:p>y</text:p></table:table-cell></table:table-row></table:table><text:p>end</text:p></office:text>`
	data := extracttest.ZipOf(t, "content.xml", fmt.Sprintf(whole, body), "Object 1/content.xml", fmt.Sprintf(whole, chart), "Object 2/content.xml", fmt.Sprintf(whole, sheet))
	extracttest.RequireLines(t, odf.Read, document.TypeODT, data,
		"# Head", "p before", "p Sales", "t | North\n2024 | 4.3", "p after", "t x | y", "p Inner", "t a | b", "p end")
}

// OpenOffice 1 and 2 name the type of each part; any other declaration is refused.
func TestDocumentTypesAreNamed(t *testing.T) {
	t.Parallel()
	const named = `<?xml version="1.0"?><!DOCTYPE manifest:manifest PUBLIC "-//OpenOffice.org//DTD Manifest 1.0//EN" "Manifest.dtd">`
	content := `<office:document-content><office:body><text:p>text</text:p></office:body></office:document-content>`
	extracttest.RequireLines(t, odf.Read, document.TypeODT, extracttest.ZipOf(t, "content.xml", named+content,
		"META-INF/manifest.xml", named+`<manifest:manifest/>`), "p text")
	_, _, err := extracttest.ReadBytes(odf.Read, extracttest.ZipOf(t, "content.xml", `<!DOCTYPE x [<!ENTITY a "b">]>`+content), document.TypeODT)
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	require.ErrorContains(t, err, "document type declarations")
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	locked := extracttest.ZipOf(t, "content.xml", "noise", "META-INF/manifest.xml", `<manifest:manifest><manifest:file-entry manifest:full-path="content.xml"><manifest:encryption-data/></manifest:file-entry></manifest:manifest>`)
	_, _, err := extracttest.ReadBytes(odf.Read, locked, document.TypeODT)
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
	_, _, err = extracttest.ReadBytes(odf.Read, extracttest.ZipOf(t, "x", "y"), document.TypeODT)
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
}

func FuzzODF(f *testing.F) {
	extracttest.FuzzReader(f, odf.Read, document.TypeODS, ".odt", ".ods", ".odp")
}
