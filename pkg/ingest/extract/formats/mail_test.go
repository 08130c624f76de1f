package formats_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

const head = "From: Ann <a@example.org>\r\nTo: b@example.org\r\nDate: Tue, 24 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n"

// letter is a message with a text and attachments (name, content, …).
func letter(subject, text string, files ...string) string {
	s := head + "Subject: " + subject + "\r\nContent-Type: multipart/mixed; boundary=XX\r\n\r\n--XX\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" + text + "\r\n"
	for i := 0; i < len(files); i += 2 {
		s += fmt.Sprintf("--XX\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=%q\r\nContent-Transfer-Encoding: base64\r\n\r\n%s\r\n",
			files[i], base64.StdEncoding.EncodeToString([]byte(files[i+1])))
	}
	return s + "--XX--\r\n"
}

// readFile detects and reads a file in this process.
func readFile(t *testing.T, name, content string) (ingest.Extraction, []string, error) {
	t.Helper()
	mediaType, err := detect.File(strings.NewReader(content), int64(len(content)), name)
	require.NoError(t, err)
	in := &document.Input{
		File: strings.NewReader(content), Size: int64(len(content)), MediaType: mediaType,
		Limits: document.Limits{MaxTextBytes: 4 << 20, MaxPages: 100}, Progress: func(int, int) {},
	}
	var blocks []ingest.Block
	ex, err := formats.Read(t.Context(), in, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return document.CheckBlock(b)
	})
	return ex, extracttest.Lines(blocks), err
}

// carried reads the attachments of a message in this process.
func carried(t *testing.T, name, content string) (files []string, warnings []string) {
	t.Helper()
	mediaType, err := detect.File(strings.NewReader(content), int64(len(content)), name)
	require.NoError(t, err)
	in := &document.Input{
		File: strings.NewReader(content), Size: int64(len(content)), MediaType: mediaType, Limits: limits, Progress: func(int, int) {},
		Carry: func(name string, data []byte) error {
			files = append(files, name+" "+string(data))
			return nil
		},
	}
	ex, err := formats.Read(t.Context(), in, func(ingest.Block) error {
		t.Error("a block")
		return nil
	})
	require.NoError(t, err)
	return files, ex.Warnings
}

// A message names its attachments, which are documents of their own: it gives them away as they are.
func TestAMessageAndWhatItCarries(t *testing.T) {
	t.Parallel()
	docx := string(extracttest.DocxOf(t, strings.NewReader("<w:p><w:r><w:t>of the file</w:t></w:r></w:p>")))
	inside := letter("Inner", "inner text", "c.txt", "deepest")
	text := letter("=?utf-8?q?Caf=C3=A9?=", "First.\r\n\r\nSecond.", "b.docx", docx, "x.bin", "\x00\x01\x02\xff", "fwd.eml", inside, "../../etc/passwd", "p", "", "q", "b.docx", "r")
	ex, lines, err := readFile(t, "a.eml", text)
	require.NoError(t, err)
	require.Equal(t, []string{
		"# Café", "p From: Ann <a@example.org>\nTo: b@example.org\nDate: Tue, 24 Nov 2026 10:00:00 +0000\nAttachments: b.docx, x.bin, fwd.eml, ../../etc/passwd, attachment-5, b.docx",
		"p First.", "p Second.",
	}, lines)
	require.Equal(t, "Café", ex.Title)
	require.Equal(t, document.TypeEML, ex.MediaType)
	require.Empty(t, ex.Warnings)
	files, _ := carried(t, "a.eml", text)
	require.Equal(t, []string{"b.docx " + docx, "x.bin \x00\x01\x02\xff", "fwd.eml " + inside, "../../etc/passwd p", "attachment-5 q", "b.docx r"}, files)
}

// What belongs to a message's text is read with it, and is no attachment: pictures that it names by their Content-ID, signatures.
func TestInlinePartsAreNoAttachments(t *testing.T) {
	t.Parallel()
	part := func(head, body string) string { return "--XX\r\n" + head + "\r\n\r\n" + body + "\r\n" }
	text := head + "Subject: s\r\nContent-Type: multipart/mixed; boundary=XX\r\n\r\n" +
		part("Content-Type: text/plain\r\nContent-Disposition: inline", "The text.") +
		part("Content-Type: multipart/related; boundary=YY", "--YY\r\nContent-Type: text/html\r\n\r\n<p>Page<img src=\"cid:1\">\r\n--YY\r\n"+
			"Content-Type: text/csv; name=related.csv\r\nContent-ID: <1>\r\nContent-Disposition: attachment; filename=related.csv\r\n\r\na,b\r\n--YY--") +
		part("Content-Type: multipart/related; boundary=ZZ", "--ZZ\r\nContent-Type: text/html\r\n\r\n<p>Other\r\n--ZZ\r\n"+
			"Content-Type: text/csv; name=located.csv\r\nContent-Location: located.csv\r\n\r\na,b\r\n--ZZ--") +
		part("Content-Type: text/csv; name=logo.csv\r\nContent-ID: <2>\r\nContent-Disposition: inline; filename=logo.csv", "logo,x") +
		part("Content-Type: application/pgp-signature; name=signature.asc", "signed") +
		part("Content-Type: application/pdf; name=seen.pdf\r\nContent-Disposition: inline; filename=seen.pdf", "as Apple's program sends it") +
		part("Content-Type: application/octet-stream; name=once.bin\r\nContent-Disposition: inline; filename=once.bin", "once") +
		part("Content-Type: text/plain; name=kept.txt\r\nContent-ID: <3>\r\nContent-Disposition: attachment; filename=kept.txt", "as Google's does") +
		part("Content-Type: message/rfc822", "From: b@example.org\r\nSubject: forwarded\r\n\r\ntext") + "--XX--\r\n"
	files, _ := carried(t, "a.eml", text)
	require.ElementsMatch(t, []string{
		"seen.pdf as Apple's program sends it", "once.bin once", "kept.txt as Google's does", "message.eml From: b@example.org\r\nSubject: forwarded\r\n\r\ntext",
	}, files)
	_, lines, err := readFile(t, "a.eml", text)
	require.NoError(t, err)
	require.Contains(t, lines, "p The text.")
	require.Contains(t, lines, "## logo.csv")
	require.Contains(t, lines, "## related.csv")
	require.Contains(t, lines, "## located.csv")
	require.NotContains(t, strings.Join(lines, " "), "signed")
}

// More attachments than there is room for are named, and broken ones come as far as they can be read.
func TestTooManyAttachmentsAreNamed(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 1003 {
		many = append(many, fmt.Sprint(i, ".txt"), "x")
	}
	text := letter("s", "t", many...)
	ex, _, err := readFile(t, "a.eml", text)
	require.NoError(t, err)
	require.Len(t, ex.Warnings, 3)
	require.Equal(t, `attachment "1000.txt" is no document: there are more than 1000`, ex.Warnings[0])
	files, _ := carried(t, "a.eml", text)
	require.Len(t, files, 1000)
	box := "From a Tue Nov 24 10:00:00 2026\n" + text + "\nFrom a Tue Nov 24 10:00:00 2026\n" + letter("two", "t", "last.txt", "x")
	files, _ = carried(t, "inbox", box)
	require.Len(t, files, 1000, "of the whole mailbox")
	cut := letter("s", "t", "a.txt", strings.Repeat("whole lines ", 100))
	files, _ = carried(t, "a.eml", cut[:len(cut)-300])
	require.Len(t, files, 1)
	require.True(t, strings.HasPrefix(files[0], "a.txt whole lines"), files[0])
}

func TestAPageOnlyMessage(t *testing.T) {
	t.Parallel()
	_, lines, err := readFile(t, "a.eml", head+"Subject: Page\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<h2>Head</h2><p>one<script>no</script></p><table><tr><td>a</td><td>b</td></tr></table>")
	require.NoError(t, err)
	require.Equal(t, []string{"## Head", "p one", "t a | b"}, lines[2:])
}

// All that a message says is read, in its order: of alternatives the plain text, where there is one, and every other part of text, whichever
// kind it has. A list's footer in plain text is no reason to leave out the page above it.
func TestAllPartsOfAMessagesTextAreRead(t *testing.T) {
	t.Parallel()
	plain := func(text string) string { return "Content-Type: text/plain; charset=utf-8\r\n\r\n" + text }
	page := func(text string) string {
		return "Content-Type: text/html; charset=utf-8\r\n\r\n<html><body><p>" + text + "</p></body></html>"
	}
	picture := "Content-Type: image/png; name=a.png\r\nContent-Disposition: inline; filename=a.png\r\n\r\npng"
	boundary := 0
	of := func(kind string, parts ...string) string {
		boundary++
		mark := fmt.Sprintf("b%dx", boundary)
		s := "Content-Type: multipart/" + kind + "; boundary=" + mark + "\r\n\r\n"
		for _, part := range parts {
			s += "--" + mark + "\r\n" + part + "\r\n"
		}
		return s + "--" + mark + "--\r\n"
	}
	for name, c := range map[string]struct{ message, want string }{
		"a list's footer below a page":         {of("mixed", page("The page."), plain("A footer.")), "The page.|A footer."},
		"a footer below alternatives":          {of("mixed", of("alternative", plain("The text."), page("The page.")), plain("A footer.")), "The text.|A footer."},
		"pages around a picture, as Apple's":   {of("mixed", page("Before."), picture, page("After.")), "Before.|After."},
		"the same beside a plain text":         {of("alternative", plain("Before and after."), of("mixed", page("Before."), picture, page("After."))), "Before and after."},
		"a page below a text":                  {of("mixed", plain("The text."), picture, page("The page.")), "The text.|The page."},
		"an empty plain text":                  {of("alternative", plain("  "), of("related", page("The page."), picture)), "The page."},
		"alternatives the wrong way round":     {of("alternative", page("The page."), plain("The text.")), "The text."},
		"signed":                               {of("signed", of("mixed", page("The page."), plain("A footer.")), "Content-Type: application/pgp-signature\r\n\r\nsigned"), "The page.|A footer."},
		"another kind of text":                 {of("mixed", plain("See this."), "Content-Type: text/x-diff\r\n\r\n+one line"), "See this.|+one line"},
		"an invitation":                        {of("alternative", plain("Come."), page("Come."), "Content-Type: text/calendar\r\n\r\nBEGIN:VCALENDAR"), "Come."},
		"an invitation without a text":         {of("alternative", page("Come."), "Content-Type: text/calendar\r\n\r\nBEGIN:VCALENDAR"), "Come."},
		"a text that is a file":                {of("mixed", plain("The text."), "Content-Type: text/plain; name=log.txt\r\nContent-Disposition: inline; filename=log.txt\r\n\r\nthe log"), "The text."},
		"nothing but a file":                   {of("mixed", "Content-Type: text/plain; name=log.txt\r\nContent-Disposition: attachment; filename=log.txt\r\n\r\nthe log"), ""},
		"a plain text that stands for nothing": {of("alternative", plain("Open this in your browser."), page(strings.Repeat("All of it. ", 20))), strings.TrimSpace(strings.Repeat("All of it. ", 20))},
		"parts without a type":                 {of("mixed", "\r\nuntyped", page("The page.")), "untyped|The page."},
		"a message cut within its last part":   {strings.SplitAfter(of("mixed", page("The page."), plain("A footer.")), "A foo")[0], "The page.|A foo"},
	} {
		_, lines, err := readFile(t, "a.eml", head+"Subject: s\r\n"+c.message)
		require.NoError(t, err, name)
		var said []string
		for _, line := range lines[2:] {
			if text, ok := strings.CutPrefix(line, "p "); ok {
				said = append(said, strings.TrimRight(text, "-\n"))
			}
		}
		require.Equal(t, c.want, strings.Join(said, "|"), name)
	}
}

func TestMailboxes(t *testing.T) {
	t.Parallel()
	box := ""
	for _, s := range []string{"one", "two"} {
		box += "From a@example.org Tue Nov 24 10:00:00 2026\n" + strings.ReplaceAll(letter(s, "text "+s+"\r\n>From here on."), "\r\n", "\n") + "\n"
	}
	ex, lines, err := readFile(t, "inbox", box)
	require.NoError(t, err)
	require.Equal(t, document.TypeMBOX, ex.MediaType)
	require.Equal(t, []string{"# one", "p text one\nFrom here on.", "# two", "p text two\nFrom here on."}, append(append(lines[0:1:1], lines[2:4]...), lines[5]))
}

func TestAMessageOfOutlook(t *testing.T) {
	t.Parallel()
	wide := func(s string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = binary.LittleEndian.AppendUint16(b, u)
		}
		return string(b)
	}
	fixed := make([]byte, 32+16)
	binary.LittleEndian.PutUint32(fixed[32:], 0x00390040)
	binary.LittleEndian.PutUint64(fixed[40:], (1_764_000_000+11_644_473_600)*10_000_000)
	file := extracttest.OLEStreams("__properties_version1.0", string(fixed), "__substg1.0_0037001F", wide("主题 Subject"), "__substg1.0_0C1A001F", wide("Ann"),
		"__substg1.0_5D01001F", wide("a@example.org"), "__substg1.0_0E04001E", "Bob", "__substg1.0_1000001F", wide("First.\r\n\r\nSecond."),
		"__attach_version1.0_#00000000/__substg1.0_3704001F", wide("FILE~1.TXT"), "__attach_version1.0_#00000000/__substg1.0_3707001F", wide("a file.txt"),
		"__attach_version1.0_#00000000/__substg1.0_37010102", strings.Repeat("of file\n", 512), "__recip_version1.0_#00000000/__substg1.0_3001001F", wide("Nobody"),
		"__attach_version1.0_#00000001/__substg1.0_3707001F", wide("logo.txt"), "__attach_version1.0_#00000001/__substg1.0_370E001F", wide("image/png"),
		"__attach_version1.0_#00000001/__substg1.0_3712001F", wide("1@x"), "__attach_version1.0_#00000001/__substg1.0_37010102", strings.Repeat("of logo\n", 512))
	ex, lines, err := readFile(t, "a.msg", string(file))
	require.NoError(t, err)
	require.Equal(t, []string{
		"# 主题 Subject", "p From: Ann <a@example.org>\nTo: Bob\nDate: Mon, 24 Nov 2025 16:00:00 +0000\nAttachments: a file.txt", "p First.", "p Second.", "## logo.txt",
	}, lines[:5])
	require.Equal(t, document.TypeMSG, ex.MediaType)
	files, _ := carried(t, "a.msg", string(file))
	require.Equal(t, []string{"a file.txt " + strings.Repeat("of file\n", 512)}, files)
}

func TestWhatIsAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, want string }{
		"a message under any name":      {"notes.txt", head + "Subject: x\r\n\r\ntext", document.TypeEML},
		"as servers store it":           {"1", "Return-Path: <a@b.c>\nReceived: from x\n\tby y\nFrom: a@b.c\n\ntext", document.TypeEML},
		"a short one by its name":       {"a.eml", "Subject: x\n\ntext", document.TypeEML},
		"a letter that somebody typed":  {"letter.txt", "To: Ann\nFrom: Bob\n\nDear Ann,", document.TypeText},
		"settings":                      {"a.txt", "name: x\nport: 80\nhost: y\n", document.TypeText},
		"a text that begins with From":  {"a.txt", "From here on\nDate: unknown\n", document.TypeText},
		"header fields in running text": {"a.txt", "The fields From: and To: are\nMessage-ID: x\n", document.TypeText},
		"a mailbox":                     {"a.txt", "From a@b.c Tue Nov 24 10:00:00 2026\nMessage-ID: <x>\nFrom: a@b.c\n\ntext", document.TypeMBOX},
	} {
		got, err := detect.File(strings.NewReader(c.content), int64(len(c.content)), c.file)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func FuzzMail(f *testing.F) {
	f.Add([]byte(letter("s", "t", "a.txt", "u")), true)
	f.Add([]byte("From a\nFrom: b\nMessage-ID: c\n\nd\n\nFrom e\n\nf"), false)
	f.Fuzz(func(t *testing.T, data []byte, single bool) {
		if len(data) == 0 {
			return
		}
		in := &document.Input{
			File: bytes.NewReader(data), Size: int64(len(data)), MediaType: document.TypeMBOX,
			Limits: document.Limits{MaxTextBytes: 1 << 20, MaxPages: 100}, Progress: func(int, int) {},
		}
		if single {
			in.MediaType = document.TypeEML
		}
		_, err := formats.Read(t.Context(), in, document.CheckBlock)
		if err != nil && !strings.Contains(err.Error(), "links no reader of PDFs") {
			extracttest.RequirePermanent(t, err)
		}
	})
}

// What is encrypted in a message, or in a mailbox, is said; and a winmail.dat is known by its content.
func TestEncryptedPartsAreNamed(t *testing.T) {
	t.Parallel()
	const armor = "-----BEGIN PGP MESSAGE-----\r\n\r\nhQEM\r\n-----END PGP MESSAGE-----"
	sealed := head + "Subject: s\r\nContent-Type: text/plain\r\n\r\n" + armor
	_, _, err := readFile(t, "a.eml", sealed)
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
	ex, _, err := readFile(t, "inbox", "From a Tue Nov 24 10:00:00 2026\n"+sealed+"\n\nFrom a Tue Nov 24 10:00:00 2026\n"+letter("open", "t"))
	require.NoError(t, err)
	require.Equal(t, []string{"message 1 could not be read: the message is encrypted with PGP"}, ex.Warnings)
	ex, lines, err := readFile(t, "a.eml", strings.Replace(letter("s", "t"), "--XX--", "--XX\r\nContent-Type: text/plain\r\n\r\n"+armor+"\r\n--XX--", 1))
	require.NoError(t, err)
	require.Equal(t, "p t", lines[len(lines)-1])
	require.Equal(t, []string{"a part of the message is not read: it is encrypted with PGP"}, ex.Warnings)

	ex, lines, err = readFile(t, "attachment.bin", "\x78\x9f\x3e\x22\x01\x00\x01\x0c\x80\x02\x00\x04\x00\x00\x00text\x00\x00")
	require.NoError(t, err)
	require.Equal(t, document.TypeTNEF, ex.MediaType)
	require.Equal(t, []string{"p text"}, lines)
}

// A web page that a browser, Word or Confluence saved with its files is a page, not a message with attachments.
func TestWebArchives(t *testing.T) {
	t.Parallel()
	const related = "MIME-Version: 1.0\r\nContent-Type: multipart/related; type=\"text/html\"; boundary=XX\r\n"
	parts := func(page string) string {
		return "\r\nThis is a web archive.\r\n--XX\r\nContent-Type: text/html\r\nContent-Location: https://x.example/\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" + page +
			"\r\n--XX\r\nContent-Type: text/css\r\nContent-Location: a.css\r\n\r\nbody { color: red }\r\n--XX\r\nContent-Type: application/javascript\r\nContent-Location: a.js\r\n\r\nalert(1)" +
			"\r\n--XX\r\nContent-Type: image/png\r\nContent-Location: a.png\r\n\r\npng\r\n--XX\r\nContent-Type: text/html\r\nContent-Location: frame.htm\r\n\r\n<p>in a frame</p>\r\n--XX--\r\n"
	}
	page := parts("<html><head><meta charset=3Dgb2312><title>The page</title></head><body><h2>Head</h2><p>=D6=D0=CE=C4=C4=DA=C8=DD=B2=E2=CA=D4</p></body></html>")
	for name, top := range map[string]string{
		"page.mhtml": "From: <Saved by Blink>\r\nSnapshot-Content-Location: https://x.example/\r\nSubject: The page\r\n",
		"word.mht":   "",
		"export.doc": "Date: Tue, 1 Dec 2026 10:00:00 +0000\r\nMessage-ID: <1@x.example>\r\nSubject: Exported From Confluence\r\n",
	} {
		ex, lines, err := readFile(t, name, top+related+page)
		require.NoError(t, err)
		require.Equal(t, []string{"## Head", "p 中文内容测试", "p in a frame"}, lines, name)
		require.Equal(t, "The page", ex.Title)
		require.Equal(t, document.TypeMHTML, ex.MediaType)
		require.Empty(t, ex.Warnings)
	}
	for _, top := range []string{"From: Ann <a@example.org>\r\n", "To: b@example.org\r\nX-Unsent: 1\r\n"} { // messages all the same
		ex, _, err := readFile(t, "a.eml", top+"Subject: s\r\n"+related+page)
		require.NoError(t, err)
		require.Equal(t, document.TypeEML, ex.MediaType)
	}
	_, _, err := readFile(t, "page.mht", related+"\r\n--XX\r\nContent-Type: image/png\r\n\r\npng\r\n--XX--\r\n")
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
}
