package docx

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestDOCX(t *testing.T) {
	t.Parallel()
	const styles = `<w:styles><w:style w:styleId="a"><w:name w:val="heading 2"/></w:style><w:style w:styleId="b"><w:basedOn w:val="a"/></w:style><w:style w:styleId="o"><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>` +
		`<w:style w:styleId="l"><w:name w:val="List Bullet"/></w:style><w:style w:styleId="i"><w:basedOn w:val="l"/></w:style></w:styles>`
	const notes = `<w:footnotes><w:footnote w:type="separator" w:id="0"><w:p><w:r><w:t>SEP</w:t></w:r></w:p></w:footnote><w:footnote w:id="1"><w:p><w:r><w:t>the note</w:t></w:r></w:p></w:footnote></w:footnotes>`
	p := func(inner string) string { return "<w:p>" + inner + "</w:p>" }
	r := func(text string) string { return "<w:r><w:t>" + text + "</w:t></w:r>" }
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"styles":            {p(`<w:pPr><w:pStyle w:val="b"/></w:pPr>`+r("Based")) + p(`<w:pPr><w:pStyle w:val="o"/></w:pPr>`+r("Outline")) + p(`<w:pPr><w:outlineLvl w:val="0"/></w:pPr>`+r("Own")), []string{"## Based", "### Outline", "# Own"}},
		"revisions":         {p(`<w:ins>` + r("in") + `</w:ins><w:del><w:r><w:delText>out</w:delText></w:r></w:del><w:moveFrom>` + r("from") + `</w:moveFrom><w:moveTo>` + r("to") + `</w:moveTo>`), []string{"p into"}},
		"old properties":    {p(`<w:pPr><w:pPrChange><w:pPr><w:pStyle w:val="a"/></w:pPr></w:pPrChange></w:pPr>` + r("plain")), []string{"p plain"}},
		"tabs and breaks":   {p(`<w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t></w:r>`), []string{"p a\tb\nc-d"}},
		"one alternative":   {p(`<w:r><mc:AlternateContent><mc:Choice><w:txbxContent>` + p(r("box")) + `</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>` + p(r("box")) + `</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r>` + r("after")), []string{"p box", "p after"}},
		"only the fallback": {p(`<mc:AlternateContent><mc:Fallback>` + r("old") + `</mc:Fallback></mc:AlternateContent>`), []string{"p old"}},
		"hidden text":       {p(`<w:r><w:rPr><w:vanish/></w:rPr><w:t>SECRET</w:t></w:r>` + r("seen")), []string{"p seen"}},
		"lists":             {p(`<w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr>` + r("item")), []string{"l item"}},
		"inherited lists":   {p(`<w:pPr><w:pStyle w:val="i"/></w:pPr>` + r("item")), []string{"l item"}},
		"tables":            {`<w:tbl><w:tr><w:tc>` + p(r("a")) + p(r("b")) + `</w:tc><w:tc>` + p(r("c")) + `</w:tc></w:tr><w:tr><w:tc><w:tbl><w:tr><w:tc>` + p(r("in")) + `</w:tc></w:tr></w:tbl>` + p("") + `</w:tc><w:tc>` + p(r("d")) + `</w:tc></w:tr></w:tbl>`, []string{"t a b | c\nin | d"}},
		"fields and links":  {p(`<w:r><w:instrText>HYPERLINK x</w:instrText></w:r><w:hyperlink>` + r("link") + `</w:hyperlink><w:sdt><w:sdtPr><w:placeholder><w:t>no</w:t></w:placeholder></w:sdtPr><w:sdtContent>` + r(" control") + `</w:sdtContent></w:sdt>`), []string{"p link control"}},
		"formulas":          {p(`<m:oMath><m:r><m:t>x+y</m:t></m:r></m:oMath>`), []string{"p x+y"}},
		"notes":             {p(r("text") + `<w:r><w:footnoteReference w:id="1"/></w:r>`), []string{"p text[1]", "p [1] the note"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := []string{"styles", styles}
			if name == "notes" {
				parts = append(parts, "footnotes", notes)
			}
			extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(c.body), parts...), c.want...)
		})
	}
	for name, body := range map[string]string{"unclosed": "<w:p>", "garbage": "<w:p><&></w:p>", "crossed": "</w:body></w:document></w:p>"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := extracttest.ReadBytes(Read, extracttest.DocxOf(t, strings.NewReader(body)), document.TypeDOCX)
			extracttest.RequirePermanent(t, err)
		})
	}
}

// FuzzDOCX begins with small archives: those of the corpus hold pictures and fonts, whose bytes are no part
// of what is read.
func FuzzDOCX(f *testing.F) {
	f.Add(extracttest.DocxOf(f, strings.NewReader("<w:p><w:r><w:t>text</w:t></w:r></w:p>")))
	f.Add(extracttest.DocxOf(f, strings.NewReader(`<w:tbl><w:tr><w:tc><w:p><w:pPr><w:pStyle w:val="a"/></w:pPr><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`),
		"styles", `<w:styles><w:style w:styleId="a"><w:name w:val="heading 2"/><w:basedOn w:val="a"/></w:style></w:styles>`,
		"footnotes", `<w:footnotes><w:footnote w:id="1"><w:p><w:r><w:t>note</w:t></w:r></w:p></w:footnote></w:footnotes>`))
	f.Add(extracttest.ZipOf(f, "", "x", `word\document.xml`, extracttest.SmallBody, "_rels/.rels", `<Relationships><Relationship Type="officeDocument" Target=""/></Relationships>`))
	f.Add(extracttest.Lying(extracttest.DocxOf(f, extracttest.Repeated("<w:p/>", 1000)), 1<<30))
	extracttest.FuzzReader(f, Read, document.TypeDOCX)
}

// FuzzDocumentXML fuzzes what stands inside the zip, which FuzzDOCX seldom reaches.
func FuzzDocumentXML(f *testing.F) {
	f.Add("<w:tbl><w:tr><w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>")
	f.Add("<mc:AlternateContent><mc:Choice/><mc:Fallback/></mc:AlternateContent></w:tbl>")
	f.Fuzz(func(t *testing.T, body string) {
		_, blocks, err := extracttest.ReadBytes(Read, extracttest.DocxOf(t, strings.NewReader(body)), document.TypeDOCX)
		if err != nil {
			extracttest.RequirePermanent(t, err)
		}
		for _, b := range blocks {
			extracttest.RequireGoodBlock(t, b)
		}
	})
}

// Archives that are no documents, or lie about what they are: a plain reason, and never more text than there is.
func TestArchivesThatAreNoWordDocument(t *testing.T) {
	t.Parallel()
	good := extracttest.DocxOf(t, strings.NewReader("<w:p><w:r><w:t>text</w:t></w:r></w:p>"))
	rels := func(target string) string {
		return `<Relationships><Relationship Type="http://x/officeDocument" Target="` + target + `"/></Relationships>`
	}
	for name, c := range map[string]struct {
		data []byte
		code ingest.Code
	}{
		"no archive":              {[]byte("PK\x03\x04 and no more"), ingest.CodeCorrupt},
		"cut off":                 {good[:len(good)/2], ingest.CodeCorrupt},
		"without a main part":     {extracttest.ZipOf(t, "a.txt", "x"), ingest.CodeCorrupt},
		"relations that lead out": {extracttest.ZipOf(t, "_rels/.rels", rels("../../etc/passwd")), ingest.CodeCorrupt},
		"an address":              {extracttest.ZipOf(t, "_rels/.rels", rels("http://127.0.0.1/x")), ingest.CodeCorrupt},
		"a member that grows":     {extracttest.Lying(extracttest.DocxOf(t, extracttest.Repeated("<w:p/>", 3_000_000)), 100), ""},
		"XML in an unknown charset": {
			extracttest.ZipOf(t, "word/document.xml", `<?xml version="1.0" encoding="klingon"?><w:document/>`), ingest.CodeCorrupt,
		},
		"a document type": {
			extracttest.ZipOf(t, "word/document.xml", `<!DOCTYPE x [<!ENTITY a "b">]><w:document>&a;</w:document>`), ingest.CodeCorrupt,
		},
		"an unknown entity": {extracttest.ZipOf(t, "word/document.xml", `<w:document><w:p><w:t>&xxe;</w:t></w:p></w:document>`), ingest.CodeCorrupt},
		"too deep":          {extracttest.DocxOf(t, strings.NewReader(strings.Repeat("<w:sdt>", 600))), ingest.CodeLimitExceeded},
		"too many members":  {extracttest.ManyNames(20_000), ingest.CodeLimitExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, blocks, err := extracttest.ReadBytes(Read, c.data, document.TypeDOCX)
			require.Empty(t, blocks)
			if c.code == "" {
				extracttest.RequirePermanent(t, err)
				return
			}
			extracttest.RequirePermanent(t, err, c.code)
		})
	}
}

func TestEncryptedMembersAreRefused(t *testing.T) {
	t.Parallel()
	data := extracttest.ZipOf(t, "word/document.xml", "secret")
	at := bytes.Index(data, []byte("PK\x01\x02"))
	data[at+8] |= 1
	_, _, err := extracttest.ReadBytes(Read, data, document.TypeDOCX)
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
}

func TestStylesThatPointAtEachOther(t *testing.T) {
	t.Parallel()
	styles := `<w:styles><w:style w:styleId="a"><w:basedOn w:val="b"/></w:style><w:style w:styleId="b"><w:basedOn w:val="a"/></w:style>` +
		`<w:style w:styleId="t"><w:name w:val="Title"/></w:style><w:style w:styleId="l"><w:name w:val="List Bullet"/></w:style>` +
		`<w:style w:styleId="n"><w:pPr><w:numPr/></w:pPr></w:style><w:style w:styleId="h9"><w:name w:val="heading 9"/></w:style></w:styles>`
	p := func(style, text string) string {
		return `<w:p><w:pPr><w:pStyle w:val="` + style + `"/></w:pPr><w:r><w:t>` + text + `</w:t></w:r></w:p>`
	}
	body := p("a", "circle") + p("t", "title") + p("l", "bullet") + p("n", "number") + p("h9", "deep") + p("nowhere", "plain")
	data := extracttest.DocxOf(t, strings.NewReader(body), "styles", styles)
	extracttest.RequireLines(t, Read, document.TypeDOCX, data, "p circle", "# title", "l bullet", "l number", "###### deep", "p plain")
}

func TestTheTitleOfADocumentsProperties(t *testing.T) {
	t.Parallel()
	core := `<cp:coreProperties><dc:creator>someone</dc:creator><dc:title>The title</dc:title></cp:coreProperties>`
	data := extracttest.ZipOf(t, "word/document.xml", extracttest.SmallBody, "docProps/core.xml", core)
	ex := extracttest.RequireLines(t, Read, document.TypeDOCX, data, "p the text")
	require.Equal(t, "The title", ex.Title)
}
