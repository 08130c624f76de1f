package pptx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pptx"
)

// show builds a presentation of slides; order are the numbers of the slides as they are shown.
func show(t testing.TB, order []int, slides ...string) []byte {
	t.Helper()
	var list, rels strings.Builder
	parts := []string{"_rels/.rels", `<Relationships><Relationship Id="r1" Type="http://x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`}
	for _, n := range order {
		fmt.Fprintf(&list, `<p:sldId id="%d" r:id="s%d"/>`, 255+n, n)
	}
	for i, s := range slides {
		fmt.Fprintf(&rels, `<Relationship Id="s%d" Type="http://x/slide" Target="slides/slide%d.xml"/>`, i+1, i+1)
		parts = append(parts, fmt.Sprintf("ppt/slides/slide%d.xml", i+1), "<p:sld><p:spTree>"+s+"</p:spTree></p:sld>")
	}
	parts = append(parts, "ppt/presentation.xml", "<p:presentation><p:sldIdLst>"+list.String()+"</p:sldIdLst></p:presentation>",
		"ppt/_rels/presentation.xml.rels", "<Relationships>"+rels.String()+"</Relationships>",
		"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="n" Type="http://x/notesSlide" Target="../notesSlides/n1.xml"/></Relationships>`,
		"ppt/notesSlides/n1.xml", "<p:notes>"+shape("sldImg", "no")+shape("body", "a note")+shape("", "a box beside it")+shape("sldNum", "1")+"</p:notes>")
	return extracttest.ZipOf(t, parts...)
}

func shape(kind string, paragraphs ...string) string {
	s := "<p:sp><p:nvPr>"
	if kind != "" {
		s += `<p:ph type="` + kind + `"/>`
	}
	s += "</p:nvPr><p:txBody>"
	for _, p := range paragraphs {
		s += "<a:p>" + p + "</a:p>"
		if !strings.HasPrefix(p, "<") {
			s = strings.TrimSuffix(s, "<a:p>"+p+"</a:p>") + "<a:p><a:r><a:t>" + p + "</a:t></a:r></a:p>"
		}
	}
	return s + "</p:txBody></p:sp>"
}

func TestSlidesComeInTheOrderOfTheShow(t *testing.T) {
	t.Parallel()
	data := show(t, []int{2, 1}, shape("title", "First")+shape("", "text of one")+shape("ftr", "every slide"),
		shape("ctrTitle", "Second", "line")+shape("body", `<a:pPr lvl="1"/><a:r><a:t>item</a:t></a:r>`, "plain")+
			`<p:graphicFrame><a:tbl><a:tr><a:tc gridSpan="2"><a:p><a:r><a:t>wide</a:t></a:r></a:p></a:tc><a:tc hMerge="1"><a:p/></a:tc></a:tr>`+
			`<a:tr><a:tc><a:p><a:r><a:t>a</a:t></a:r><a:br/><a:r><a:t>b</a:t></a:r></a:p></a:tc><a:tc><a:p><a:r><a:t>c</a:t></a:r></a:p></a:tc></a:tr></a:tbl></p:graphicFrame>`+
			"<mc:AlternateContent><mc:Choice>"+shape("", "new")+"</mc:Choice><mc:Fallback>"+shape("", "old")+"</mc:Fallback></mc:AlternateContent>")
	ex, blocks, err := extracttest.ReadBytes(pptx.Read, data, document.TypePPTX)
	require.NoError(t, err)
	require.Equal(t, 2, ex.Pages)
	require.Equal(t, []string{"# Second line", "l item", "p plain", "p wide", "t a b | c", "p new", "## First", "p text of one", "p a note", "p a box beside it"}, extracttest.Lines(blocks))
	for i, b := range blocks {
		require.Equal(t, 1+i/6, b.Page, "%v", b)
	}
}

// A cell that is merged downwards stands in each row that has a text of its own.
func TestCellsThatTakeMoreThanOneRow(t *testing.T) {
	t.Parallel()
	tc := func(attrs, text string) string {
		return "<a:tc " + attrs + "><a:p><a:r><a:t>" + text + "</a:t></a:r></a:p></a:tc>"
	}
	tbl := func(rows ...string) string {
		return "<p:graphicFrame><a:tbl><a:tr>" + strings.Join(rows, "</a:tr><a:tr>") + "</a:tr></a:tbl></p:graphicFrame>"
	}
	data := show(t, []int{2}, "",
		tbl(tc(`gridSpan="2" rowSpan="3"`, "both")+tc(`hMerge="1" rowSpan="3"`, "")+tc(`rowSpan="2"`, "tall")+tc("", "a"),
			tc(`gridSpan="2" vMerge="1"`, "")+tc(`hMerge="1" vMerge="1"`, "")+tc(`vMerge="1"`, "")+tc("", "b"),
			tc(`gridSpan="2" vMerge="1"`, "")+tc(`hMerge="1" vMerge="1"`, "")+tc("", "c")+tc(`vMerge="1"`, "own")+tc(`vMerge="1"`, ""),
			tc(`vMerge="1"`, "")+tc(`vMerge="1"`, "")+tc("", "")+tc("", ""),
			tc(`vMerge="1"`, "")+tc("", "both")+tc(`vMerge="1"`, ""))+
			tbl(tc(`vMerge="1"`, "")+tc("", "x"), tc("", "y")+tc(`hMerge="1"`, "")))
	extracttest.RequireLines(t, pptx.Read, document.TypePPTX, data,
		"t both | both | tall | a\nboth | both | tall | b\nboth | both | c | own | \nboth | both |", "t | x\ny")
	_, blocks, err := extracttest.ReadBytes(pptx.Read, show(t, []int{2}, "", tbl(tc("", "x")+strings.Repeat(`<a:tc hMerge="1"/>`, 9999))), document.TypePPTX)
	require.NoError(t, err)
	require.Equal(t, 1024, strings.Count(blocks[0].Text, "x"))
}

// Remarks on a slide stand behind it by a setting, those of today's PowerPoint as those before 2021.
func TestComments(t *testing.T) {
	t.Parallel()
	comments := func(name, content string) []byte {
		return extracttest.ZipOf(t, "_rels/.rels", `<Relationships><Relationship Id="r1" Type="http://x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
			"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst></p:presentation>`,
			"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="http://x/slide" Target="slides/slide1.xml"/></Relationships>`,
			"ppt/slides/slide1.xml", "<p:sld><p:spTree>"+shape("title", "Head")+"</p:spTree></p:sld>",
			"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="c" Type="http://x/2018/10/relationships/comments" Target="../comments/`+name+`"/></Relationships>`,
			"ppt/comments/"+name, content)
	}
	old := comments("comment1.xml", `<p:cmLst><p:cm authorId="0"><p:pos x="1" y="1"/><p:text>first &amp; last</p:text><p:extLst>no</p:extLst></p:cm><p:cm><p:text>second</p:text></p:cm></p:cmLst>`)
	body := func(text string) string {
		return "<p188:txBody><a:bodyPr/><a:p><a:r><a:t>" + text + "</a:t></a:r><a:r><a:t> too</a:t></a:r></a:p></p188:txBody>"
	}
	now := comments("modernComment_1.xml", `<p188:cmLst><p188:cm><p188:replyLst><p188:reply>`+body("reply")+`</p188:reply></p188:replyLst>`+body("remark")+`</p188:cm></p188:cmLst>`)
	extracttest.RequireLines(t, pptx.Read, document.TypePPTX, old, "## Head", "p first & last", "p second")
	extracttest.RequireLines(t, pptx.Read, document.TypePPTX, now, "## Head", "p reply too", "p remark too")
	without := func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Limits.Comments = false
		return pptx.Read(ctx, in, out)
	}
	extracttest.RequireLines(t, without, document.TypePPTX, now, "## Head")
}

func TestPresentationsThatAreDamagedOrTooLong(t *testing.T) {
	t.Parallel()
	_, _, err := extracttest.ReadBytes(pptx.Read, extracttest.ZipOf(t, "ppt/other.xml", "<x/>"), document.TypePPTX)
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	order := make([]int, 101)
	for i := range order {
		order[i] = 1
	}
	_, _, err = extracttest.ReadBytes(pptx.Read, show(t, order, shape("", "x")), document.TypePPTX)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	ex, blocks, err := extracttest.ReadBytes(pptx.Read, show(t, []int{7, 1}, shape("", "x")), document.TypePPTX)
	require.NoError(t, err, "a slide that is listed and not there is an empty one")
	require.Equal(t, 2, ex.Pages)
	require.Equal(t, []string{"p x", "p a note", "p a box beside it"}, extracttest.Lines(blocks))
}

func FuzzPPTX(f *testing.F) {
	f.Add(show(f, []int{1}, shape("title", "a")+shape("", "b")))
	extracttest.FuzzReader(f, pptx.Read, document.TypePPTX, ".pptx")
}
