package xmldoc_test

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/xmldoc"
)

func TestVocabularies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"DocBook": {`<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "docbookx.dtd">
			<article><info><title>The <emphasis>Whole</emphasis></title><author><email>a@b</email></author></info>
			<section><title>One</title><para>Some <emphasis>marked</emphasis>
			text, <code>code</code>.</para><itemizedlist><listitem><para>First</para></listitem><listitem><para>Second</para></listitem></itemizedlist>
			<programlisting>  a
    b</programlisting><para>Do: <screen>x  y</screen> now.</para><section><title>Deep</title><para>End &amp; &#20013; &unknown;.</para></section></section>
			<table><title>Sizes</title><tgroup><thead><row><entry>A</entry><entry>B</entry></row></thead><tbody><row><entry><para>1</para><para>2</para></entry><entry/></row></tbody></tgroup></table></article>`,
			[]string{
				"# The Whole", "p email: a@b", "## One", "p Some marked text, code.", "l First", "l Second", "c   a\n    b", "p Do:", "c x  y", "p now.", "### Deep",
				"p End & 中 &unknown;.", "p Sizes", "t A | B\n1 2 |",
			}},
		"JATS": {`<article xmlns:xlink="x"><front><article-meta><title-group><article-title>On <italic>X</italic></article-title></title-group>
			<contrib><name><surname>Li</surname><given-names>Wei</given-names></name></contrib><abstract><p>Short.</p></abstract></article-meta></front>
			<body><sec><title>Intro</title><p><italic>E. coli</italic> grows<xref>1</xref>. <list><list-item><p>Item</p></list-item></list> Then.</p>
			<fig><caption><title>Curve</title><p>of growth</p></caption></fig></sec></body>
			<back><ref-list><title>References</title><ref><element-citation><surname>Ma</surname><year>2001</year><article-title>On Y</article-title></element-citation></ref></ref-list></back></article>`,
			[]string{
				"# On X", "p surname: Li\ngiven-names: Wei", "p Short.", "## Intro", "p E. coli grows1.", "l Item", "p Then.", "p Curve of growth", "## References", "p Ma 2001 On Y",
			}},
		"RSS": {`<rss><channel><title>News</title><item><title>First</title><link>http://a</link><description>&lt;p&gt;Some &lt;b&gt;bold&lt;/b&gt; text&lt;/p&gt;&lt;p&gt;More&lt;/p&gt;</description></item>
			<item><title>Second</title><description><![CDATA[a < b]]></description></item></channel></rss>`,
			[]string{"# News", "## First", "p link: http://a", "p Some bold text", "p More", "## Second", "p a < b"}},
		"Atom": {`<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><entry><title>First</title><updated>2026</updated><content type="xhtml"><div><p>Some <b>text</b></p></div></content></entry></feed>`,
			[]string{"# News", "## First", "p updated: 2026", "p Some text"}},
		"data": {`<?xml version="1.0"?><people><person id="1"><name>Ann</name><age>3</age><note>` + strings.Repeat("long ", 50) + `</note></person><person><name>Bo</name><tags><tag>x</tag><tag>y</tag></tags></person></people>`,
			[]string{"p name: Ann\nage: 3", "p " + strings.TrimSpace(strings.Repeat("long ", 50)), "p name: Bo\ntag: x\ntag: y"}},
		"rows of data":   {`<table><row><id>1</id><v>a</v></row><row><id>2</id><v>b</v></row></table>`, []string{"p id: 1\nv: a", "p id: 2\nv: b"}},
		"mixed content":  {`<a>one <x>two</x> three<p>four</p> five</a>`, []string{"p one two three", "p four", "p five"}},
		"TEI":            {`<TEI><text><body><div><head>Act</head><p><title>Faust</title> is old.<lb/>So.</p><list><item>a</item></list></div></body></text></TEI>`, []string{"# Act", "p Faust is old. So.", "l a"}},
		"a nested table": {`<table><tr><td>a<table><tr><td>b</td><td>c</td></tr></table></td><td>d</td></tr><tr><td>e</td><td>f</td></tr></table>`, []string{"t a b c | d\ne | f"}},
		"Excel's XML": {`<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?><Workbook xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">
			<Worksheet ss:Name="Sums of May"><Table><Row><Cell><Data ss:Type="String">Name</Data></Cell><Cell ss:MergeAcross="1"><Data>Sum</Data></Cell><Cell><Data>Note</Data></Cell></Row>
			<Row><Cell><Data>Ann</Data></Cell><Cell ss:Index="3"><Data ss:Type="Number">7</Data></Cell><Cell ss:Index="9999999"><Data>x</Data></Cell></Row></Table></Worksheet></Workbook>`,
			[]string{"# Sums of May", "t Name | Sum |  | Note\nAnn |  | 7 | x"}},
		"scripts, comments": {`<a><script>no</script><!-- no --><?no no?><p>yes</p></a>`, []string{"p yes"}},
		"named characters":  {`<p>&ldquo;a&nbsp;b&rdquo; &times; &amp;times; <![CDATA[&times;]]> &e;</p>`, []string{"p “a b” × &times; &times; &e;"}},
		"Chinese lines":     {"<p>持久化\n异步</p>", []string{"p 持久化异步"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte(c.data), c.want...)
		})
	}
}

func TestTheDeclaredCharset(t *testing.T) {
	t.Parallel()
	data, err := simplifiedchinese.GBK.NewEncoder().String(`<?xml version="1.0" encoding="GBK"?><p>死信队列</p>`)
	require.NoError(t, err)
	ex := extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte(data), "p 死信队列")
	require.Equal(t, "gb18030", ex.Charset)
	// É in ISO 8859-2 and 8859-1 alike; ą only where it is declared.
	extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte("<?xml version='1.0' encoding='iso-8859-2'?><p>\xC9 \xB1</p>"), "p É ą")
	extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte("<?xml version='1.1' encoding='latin-9'?><p>text</p>"), "p text")
}

// Pictures that attributes name, and what only the definition elsewhere uses, are no text.
func TestEntitiesThatAreNoText(t *testing.T) {
	t.Parallel()
	for name, subset := range map[string]string{
		"pictures":           `<!NOTATION TIF SYSTEM ""><!ENTITY US1-D1.TIF SYSTEM "US1.TIF" NDATA TIF><!ENTITY b PUBLIC '-//a>b' 'http://127.0.0.1:1/"x' NDATA TIF >`,
		"switches":           `<!ENTITY % draft "IGNORE"><!-- <!ENTITY l "lol"> --><!ENTITY % final 'INCLUDE'>`,
		"unused definitions": "<!ENTITY\n% local SYSTEM 'http://127.0.0.1:1/100%25.ent'>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := `<!DOCTYPE a SYSTEM "a.dtd" [` + subset + `]><a><p pic="US1-D1.TIF">text &b; %draft;</p></a>`
			extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte(data), "p text &b; %draft;")
		})
	}
}

func TestXMLThatIsRefused(t *testing.T) {
	t.Parallel()
	laughs := `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l "lol"><!ENTITY m "&l;&l;">]><a>&m;</a>`
	for name, c := range map[string]struct {
		data string
		code ingest.Code
		says string
	}{
		"entities of its own":  {laughs, ingest.CodeCorrupt, "entities"},
		"an external entity":   {`<!DOCTYPE a [<!entity l SYSTEM "file:///etc/passwd">]><a>&l;</a>`, ingest.CodeCorrupt, "entities"},
		"a parameter entity":   {`<!DOCTYPE a [<!ENTITY % l "<!ENTITY m 'x'>"> %l;]><a>&m;</a>`, ingest.CodeCorrupt, "entities"},
		"one more entity":      {`<!DOCTYPE a [<!ENTITY t SYSTEM "t" NDATA TIF><!ENTITY l "lol">]><a>&l;</a>`, ingest.CodeCorrupt, "entities"},
		"one in a name":        {`<!DOCTYPE a [<!ENTITY t SYSTEM '"' NDATA TIF><!ENTITY l '" NDATA TIF>'>]><a>&l;</a>`, ingest.CodeCorrupt, "entities"},
		"nested too deep":      {strings.Repeat("<a>", 600) + strings.Repeat("</a>", 600), ingest.CodeLimitExceeded, "512"},
		"dropped, but deep":    {"<script>" + strings.Repeat("<a>", 600), ingest.CodeLimitExceeded, "512"},
		"cut off":              {"<a><b>text", ingest.CodeCorrupt, "ends inside"},
		"ends that do not fit": {"<a><b>text</a></b>", ingest.CodeCorrupt, "</a>"},
		"an end alone":         {"<a/></b>", ingest.CodeCorrupt, "</b>"},
		"another declaration":  {"<a><?xml version='1.1'?></a>", ingest.CodeCorrupt, "version"},
		"no tag":               {"<a><></a>", ingest.CodeCorrupt, "line 1"},
		"a huge comment":       {"<a><!--" + strings.Repeat("<x>", 2<<20) + "--></a>", ingest.CodeLimitExceeded, "single"},
		"a huge text":          {"<a><![CDATA[" + strings.Repeat("<x>", 2<<20) + "]]></a>", ingest.CodeLimitExceeded, "single"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := extracttest.ReadBytes(xmldoc.Read, []byte(c.data), document.TypeXML)
			extracttest.RequirePermanent(t, err, c.code)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestLongTextsAreCutAndAllThere(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("<v>word word</v>"), 20_000)
	_, blocks, err := extracttest.ReadBytes(xmldoc.Read, append(append([]byte("<a>"), data...), "</a>"...), document.TypeXML)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 50)
	require.Equal(t, 20_000, strings.Count(extracttest.Joined(blocks), "v: word word"))
	_, blocks, err = extracttest.ReadBytes(xmldoc.Read, []byte("<a><b>"+strings.Repeat("word &amp; ", 50_000)+"</b></a>"), document.TypeXML)
	require.NoError(t, err)
	require.Equal(t, 50_000, strings.Count(extracttest.Joined(blocks), "word"))
	require.Greater(t, len(blocks), 3)
}

// Pictures and other files that stand in a document as base64 are no text: those of FictionBook and OpenDocument by the name of their element,
// others by their letters.
func TestDataInBase64IsNoText(t *testing.T) {
	t.Parallel()
	picture := make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(picture)
	one := base64.StdEncoding.EncodeToString(picture)
	var lines strings.Builder
	for line := range slices.Chunk([]byte(one), 76) {
		lines.Write(append(line, "\r\n"...))
	}
	protein := strings.Repeat("MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFKDLGEENFKALVLIAFAQYLQQCPFEDHVKLVNEVTEFAKTCVADESAENCDK\n", 4)
	words := strings.Repeat("Internationalization 2 of applications ", 10)
	data := "<Invoice><ID>7</ID><Document>" + one + "</Document><Lines>" + lines.String() + "</Lines><Short>" + one[:50] + "</Short><Protein>" + protein + "</Protein><Words>" + words + "</Words>" +
		"<p>Text<binary-data>" + one[:80] + "</binary-data> of a paragraph.</p><binary id=\"c.jpg\">" + one + "</binary></Invoice>"
	extracttest.RequireLines(t, xmldoc.Read, document.TypeXML, []byte(data),
		"p id: 7", "p short: "+one[:50], "p "+strings.Join(strings.Fields(protein), " "), "p "+strings.TrimSpace(words), "p Text of a paragraph.")
}

func FuzzXML(f *testing.F) {
	f.Add([]byte(`<!DOCTYPE a><table><row><entry>a</entry></row></table>`))
	f.Add([]byte(`<rss><channel><title>a</title><item><description>&lt;p&gt;b</description></item></channel></rss>`))
	f.Add([]byte(`<article><info><title>t</title></info><ref><title>c</title></ref><pre> d</pre><list><item>e</item></list></article>`))
	extracttest.FuzzReader(f, xmldoc.Read, document.TypeXML, ".xml")
}
