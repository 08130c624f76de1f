package extract

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// TestA01 gives documents that name addresses. Reading them calls none, even where nothing confines the
// child.
func TestA01(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	at := "http://" + l.Addr().String() + "/x"
	p := newPool(t, func(c *Config) { c.Sandbox = sandbox.Off })
	rels := `<Relationships><Relationship Id="r1" Type="http://x/attachedTemplate" Target="` + at + `" TargetMode="External"/>` +
		`<Relationship Id="r2" Type="http://x/image" Target="` + at + `" TargetMode="External"/></Relationships>`
	for name, data := range map[string][]byte{
		"a.html": []byte(`<!DOCTYPE html><html><head><base href="` + at + `"><link rel=stylesheet href="` + at + `"><meta http-equiv=refresh content="0;url=` + at +
			`"><script src="` + at + `"></script></head><body><img src="` + at + `"><iframe src="` + at + `"></iframe><object data="` + at + `"></object><p>the text</p>`),
		"a.md":   []byte("![x](" + at + ")\n\n<img src=" + at + ">\n\n[x]: " + at + "\n\nthe text\n"),
		"a.docx": extracttest.ZipOf(t, "word/document.xml", extracttest.SmallBody, "word/_rels/document.xml.rels", rels, "word/_rels/settings.xml.rels", rels),
		"a.pdf":  extracttest.SimplePDF("/OpenAction<</S/URI/URI("+at+")>>", "BT /F1 9 Tf 9 50 Td (the text) Tj ET"),
	} {
		_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, name, data))
		require.NoError(t, err, name)
		require.Contains(t, extracttest.Joined(blocks), "the text", name)
	}
	mine, err := net.Dial("tcp4", l.Addr().String()) // the last in the row of those that wait
	require.NoError(t, err)
	defer mine.Close()
	first, err := l.Accept()
	require.NoError(t, err)
	defer first.Close()
	require.Equal(t, mine.LocalAddr().String(), first.RemoteAddr().String(), "somebody called before")
}

// requireRefusedAtUpload checks that a file gets no reader.
func requireRefusedAtUpload(t *testing.T, name string, data []byte) {
	t.Helper()
	mediaType, err := detect.File(bytes.NewReader(data), int64(len(data)), name)
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
	require.Empty(t, mediaType, name)
}

// TestA15 gives e-mails with attachments whose names are paths: a name is a line of text and that of a document, and no file is named
// by it.
func TestA15(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	victim := filepath.Join(t.TempDir(), "victim.txt")
	carried := func(path string) (files []string) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, p.Attachments(t.Context(), ingest.Source{File: f, Name: path}, nil, func(name string, r io.Reader) error {
			data, err := io.ReadAll(r)
			files = append(files, name, string(data))
			return err
		}))
		return files
	}
	for _, attached := range []string{`..\..\x.txt`, "../../etc/cron.d/x.txt", "/etc/passwd.txt", "C:\\x.txt", "a\x00b.txt", victim} {
		mail := "From: a@b.example\r\nTo: c@d.example\r\nSubject: s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" +
			"Content-Type: text/plain\r\n\r\nthe text\r\n--b\r\nContent-Disposition: attachment; filename=\"" + attached + "\"\r\n\r\nowned\r\n--b--\r\n"
		path := extracttest.WriteTemp(t, "a.eml", []byte(mail))
		ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, path)
		require.NoError(t, err)
		require.Equal(t, document.TypeEML, ex.MediaType)
		require.Contains(t, extracttest.Joined(blocks), "the text")
		files := carried(path)
		require.Len(t, files, 2)
		require.Equal(t, "owned", files[1], "%q", attached)
		require.NotContains(t, files[0], "attachment-1", "%q", attached)
		require.NoFileExists(t, victim)
	}
	outlook := extracttest.OLEStreams("__properties_version1.0", "", "__substg1.0_1000001E", "the text",
		"__attach_version1.0_#00000000/__substg1.0_3707001E", victim, "__attach_version1.0_#00000000/__substg1.0_37010102", strings.Repeat("owned\n  ", 512))
	path := extracttest.WriteTemp(t, "a.msg", outlook)
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, path)
	require.NoError(t, err)
	require.Contains(t, extracttest.Joined(blocks), "the text")
	require.Equal(t, []string{victim, strings.Repeat("owned\n  ", 512)}, carried(path))
	require.NoFileExists(t, victim)
}

// TestA16 gives archives whose names lead out of a folder: members are found by name in memory, and no name
// is ever opened.
func TestA16(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	victim := filepath.Join(t.TempDir(), "victim")
	for _, name := range []string{
		`..\..\x`, "../../x", "/etc/cron.d/x", "//x/y", `C:\x`, `\\server\share\x`, "a/../../x", "word/../../x", "", ".", "..", "x\x00y", "con", strings.Repeat("../", 1000) + "x",
		victim,
	} {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			path := extracttest.WriteTemp(t, "names.docx", extracttest.ZipOf(t, name, "owned", "word/document.xml", extracttest.SmallBody, name, "again"))
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, path)
			require.NoError(t, err)
			require.Equal(t, "the text", extracttest.Joined(blocks))
			require.NoFileExists(t, victim)
		})
	}
	t.Run("relationships lead nowhere else", func(t *testing.T) {
		for _, target := range []string{"../../../../etc/passwd", "/etc/passwd", `..\..\x`, "file:///etc/passwd", "http://127.0.0.1/x"} {
			rels := `<Relationships><Relationship Type="http://x/officeDocument" Target="` + target + `"/></Relationships>`
			path := extracttest.WriteTemp(t, "rels.docx", extracttest.ZipOf(t, "_rels/.rels", rels, "word/document.xml", extracttest.SmallBody))
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, path)
			require.NoError(t, err)
			require.Equal(t, "the text", extracttest.Joined(blocks), target)
		}
	})
	require.Equal(t, 1, p.Stats().Started, "no name did the child harm")
}

// TestA17 gives archives with links. Archives of files are refused at upload; in a document's archive a link
// is the text of its target.
func TestA17(t *testing.T) {
	t.Parallel()
	secret := extracttest.WriteTemp(t, "secret", []byte("CANARY"))
	linked := func(members ...string) []byte {
		var buf bytes.Buffer
		z := zip.NewWriter(&buf)
		for _, name := range members {
			h := &zip.FileHeader{Name: name}
			h.SetMode(fs.ModeSymlink | 0o777)
			w, err := z.CreateHeader(h)
			require.NoError(t, err)
			_, err = io.WriteString(w, secret)
			require.NoError(t, err)
		}
		require.NoError(t, z.Close())
		return buf.Bytes()
	}
	requireRefusedAtUpload(t, "folder.zip", linked("a.txt", "link"))
	header := make([]byte, 1024)
	copy(header, "a.txt")
	copy(header[100:], "0000777\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	copy(header[156:], "2"+secret)
	copy(header[257:], "ustar\x0000")
	requireRefusedAtUpload(t, "folder.tar", header)
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), newPool(t, nil), extracttest.WriteTemp(t, "link.docx", linked("word/document.xml")))
	extracttest.RequirePermanent(t, err, ingest.CodeEmpty, ingest.CodeCorrupt)
	require.NotContains(t, extracttest.Joined(blocks)+err.Error(), "CANARY")
}

// TestA18 lets a child answer with names that lead elsewhere: what it says of types, readers and charsets is
// not taken over, a title is text, and nothing is opened by it.
func TestA18(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	r, ok := formats.For(typeHostile)
	require.True(t, ok)
	run := &jobRun{pool: p, reader: r, job: frame.Job{MediaType: typeHostile, Limits: p.cfg.limits()}}
	const name = "../../../../etc/passwd"
	ex, err := run.verdict([]byte(`{"extraction":{"MediaType":"` + name + `","Reader":"` + name + `","Charset":"` + name + `","Title":"` + name + `\u0000\n\u001b[31m","Chars":-5}}`))
	require.NoError(t, err)
	require.Equal(t, ingest.Extraction{MediaType: typeHostile, Reader: "hostile/1", Title: name + " [31m"}, ex)

	run = &jobRun{pool: p, reader: r, job: frame.Job{MediaType: typeHostile, Limits: p.cfg.limits()}}
	_, err = run.verdict([]byte(`{"code":"` + name + `","permanent":true,"error":"` + strings.Repeat("x", 5000) + `","remedy":"a\nb"}`))
	f := ingest.AsFailure(err)
	require.Equal(t, ingest.CodeInternal, f.Code)
	require.False(t, f.Permanent, "a child does not decide the fate of a task by a code of its own")
	require.LessOrEqual(t, len(f.Error()), frame.MaxMessage)
}

// nestedBomb is an archive in an archive in an archive.
func nestedBomb(t testing.TB) []byte {
	inner := extracttest.DocxOf(t, extracttest.Repeated("<w:p/>", 1_000_000))
	for range 10 {
		inner = extracttest.ZipOf(t, "word/document.xml", string(inner), "inner.docx", string(inner))
	}
	return inner
}

// TestA19 gives documents that grow: 10 KB to 1 GB, archives within archives, one that holds itself.
func TestA19(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	for name, data := range map[string][]byte{"bomb.docx": bomb(t, 1024), "nested.docx": nestedBomb(t), "quine.docx": quine(t)} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, name, data))
			extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded, ingest.CodeCorrupt)
			require.Empty(t, blocks)
			t.Logf("%d bytes: %v in %v", len(data), err, time.Since(began).Round(time.Millisecond))
		})
	}
	require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
}

// quine is an archive whose main part is the archive itself, over and over, as far as it is followed.
func quine(t testing.TB) []byte {
	data := extracttest.ZipOf(t, "word/document.xml", "seed")
	for range 50 {
		data = extracttest.ZipOf(t, "word/document.xml", string(data))
	}
	return data
}

// TestA20 gives members whose declared size lies: what really comes out counts.
func TestA20(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data  []byte
		codes []ingest.Code
	}{
		"declares 1000 bytes, holds 1 GB": {lyingBomb(t), []ingest.Code{ingest.CodeLimitExceeded, ingest.CodeCorrupt}},
		"declares 4 GB, holds little":     {extracttest.Lying(extracttest.DocxOf(t, strings.NewReader("<w:p/>")), 0xFFFFFFF0), []ingest.Code{ingest.CodeLimitExceeded}},
		"declares nothing":                {extracttest.Lying(extracttest.DocxOf(t, strings.NewReader("<w:p><w:r><w:t>x</w:t></w:r></w:p>")), 0), []ingest.Code{ingest.CodeCorrupt}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), newPool(t, nil), extracttest.WriteTemp(t, "lies.docx", c.data))
			extracttest.RequirePermanent(t, err, c.codes...)
			require.Empty(t, blocks)
		})
	}
}

// TestA21 gives a workbook with a row of an enormous number: its cells are read, and no grid is made.
func TestA21(t *testing.T) {
	t.Parallel()
	sheet := `<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>` +
		`<row r="2147483648"><c r="A2147483648"><v>1</v></c></row></sheetData></worksheet>`
	types := `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName="/xl/workbook.xml" ` +
		`ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>`
	data := extracttest.ZipOf(t, "[Content_Types].xml", types, "_rels/.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r0" `+
		`Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>`, "xl/workbook.xml",
		`<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>`,
		"xl/_rels/workbook.xml.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" `+
			`Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/worksheets/sheet1.xml", sheet)
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.xlsx", data))
	require.NoError(t, err)
	require.Equal(t, []string{"## a", "p 1"}, extracttest.Lines(blocks))
}

// TestA22 gives entities, document types and endless nesting: nothing is fetched, nothing grows.
func TestA22(t *testing.T) {
	t.Parallel()
	secret := extracttest.WriteTemp(t, "secret", []byte("CANARY"))
	doc := func(head, text string) []byte {
		return extracttest.ZipOf(t, "word/document.xml", `<?xml version="1.0"?>`+head+`<w:document `+extracttest.WordXMLNS+`><w:body><w:p><w:r><w:t>`+text+`</w:t></w:r></w:p></w:body></w:document>`)
	}
	laughs := `<!DOCTYPE x [<!ENTITY a "lol">`
	for c := 'b'; c <= 'j'; c++ {
		laughs += fmt.Sprintf(`<!ENTITY %c "%s">`, c, strings.Repeat(fmt.Sprintf("&%c;", c-1), 10))
	}
	p := newPool(t, nil)
	for name, data := range map[string][]byte{
		"external entity":    doc(`<!DOCTYPE x [<!ENTITY e SYSTEM "file://`+secret+`">]>`, "&e;"),
		"external subset":    doc(`<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd">`, "text"),
		"parameter entity":   doc(`<!DOCTYPE x [<!ENTITY % e SYSTEM "file://`+secret+`"> %e;]>`, "text"),
		"billion laughs":     doc(laughs+"]>", "&j;"),
		"undefined entity":   doc("", "&e;"),
		"a million elements": extracttest.DocxOf(t, strings.NewReader(strings.Repeat("<w:sdt>", 1_000_000))),
		"in a relationship":  extracttest.ZipOf(t, "_rels/.rels", `<!DOCTYPE x><Relationships/>`, "word/document.xml", extracttest.SmallBody),
		"in the styles":      extracttest.DocxOf(t, strings.NewReader("<w:p/>"), "styles", laughs+`]><w:styles>&j;</w:styles>`),
	} {
		t.Run(name, func(t *testing.T) {
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "entities.docx", data))
			extracttest.RequirePermanent(t, err, ingest.CodeCorrupt, ingest.CodeLimitExceeded)
			require.NotContains(t, extracttest.Joined(blocks)+err.Error(), "CANARY")
		})
	}
	for name, data := range map[string]string{
		"XML, external entity":    `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file://` + secret + `">]><x>&e;</x>`,
		"XML, parameter entity":   `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY % e SYSTEM "file://` + secret + `"> %e;]><x>text</x>`,
		"XML, billion laughs":     `<?xml version="1.0"?>` + laughs + "]><x>&j;</x>",
		"XML, a million elements": `<?xml version="1.0"?>` + strings.Repeat("<x>", 1_000_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "entities.xml", []byte(data)))
			extracttest.RequirePermanent(t, err, ingest.CodeCorrupt, ingest.CodeLimitExceeded)
			require.NotContains(t, extracttest.Joined(blocks)+err.Error(), "CANARY")
		})
	}
	require.Zero(t, p.Stats().Killed)
}

// TestA24 gives an archive of a million names: its end record is enough to refuse it, and so it is at upload.
func TestA24(t *testing.T) {
	t.Parallel()
	data := extracttest.ManyNames(1_000_000)
	began := time.Now()
	r := &extracttest.CountingReader{Reader: bytes.NewReader(data)}
	_, err := detect.Type(data[:detect.HeadBytes], r, int64(len(data)), "names.docx")
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	require.LessOrEqual(t, r.N, int64(128<<10))
	require.Less(t, time.Since(began), time.Minute)

	// An end record that denies them makes the directory one that does not fit.
	lies := bytes.Clone(data)
	copy(lies[len(lies)-22+8:], []byte{1, 0, 1, 0})
	_, err = detect.File(bytes.NewReader(lies), int64(len(lies)), "names.docx")
	extracttest.RequirePermanent(t, err)
}

// TestA26 gives programs and pictures that are called documents: the content decides, and the name must
// agree.
func TestA26(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("\x00", 600)
	for kind, content := range map[string]string{
		"exe": "MZ\x90\x00\x03" + pad, "elf": "\x7fELF\x02\x01\x01" + pad, "mach-o": "\xcf\xfa\xed\xfe\x07\x00\x00\x01" + pad,
		"png": "\x89PNG\r\n\x1a\n" + pad, "java class": "\xca\xfe\xba\xbe\x00\x00\x00\x41" + pad, "gzip": "\x1f\x8b\x08\x00" + pad,
		"rar": "Rar!\x1a\x07\x01\x00" + pad, "7z": "7z\xbc\xaf\x27\x1c\x00\x04" + pad, "wasm": "\x00asm\x01\x00\x00\x00" + pad,
		"sqlite": "SQLite format 3\x00" + pad, "jar": string(extracttest.ZipOf(t, "META-INF/MANIFEST.MF", "x")), "apk": string(extracttest.ZipOf(t, "AndroidManifest.xml", "x")),
	} {
		for _, name := range []string{"invoice.pdf", "invoice.docx", "invoice.txt", "invoice.md", "invoice.html", "invoice"} {
			mediaType, err := detect.File(strings.NewReader(content), int64(len(content)), name)
			extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType, ingest.CodeCorrupt)
			require.Empty(t, mediaType, "%s called %s", kind, name)
		}
	}
	// A program with a document behind it is no document.
	both := "MZ\x90" + pad + "%PDF-1.7\n%%EOF"
	mediaType, err := detect.File(strings.NewReader(both), int64(len(both)), "a.exe")
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
	require.Empty(t, mediaType)
}
