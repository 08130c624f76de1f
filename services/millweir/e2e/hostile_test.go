package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docx builds a Word document around a body.
func docx(t *testing.T, body io.Reader) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	add := func(name string, content io.Reader) {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = io.Copy(w, content)
		require.NoError(t, err)
	}
	add("_rels/.rels", strings.NewReader(`<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`))
	add("word/document.xml", io.MultiReader(
		strings.NewReader(`<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>`), body,
		strings.NewReader(`</w:body></w:document>`)))
	require.NoError(t, z.Close())
	return buf.Bytes()
}

// manyEntries is a Word document with 70,000 members.
func manyEntries(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for i := range 70_000 {
		_, err := z.Create(fmt.Sprintf("word/x%d.xml", i))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return buf.Bytes()
}

// encryptedDOCX is an OLE file with the streams of a Word document behind a password, as far as their names tell.
func encryptedDOCX() []byte {
	b := make([]byte, 4096)
	copy(b, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")
	copy(b[24:], "\x3e\x00\x03\x00\xfe\xff\x09\x00\x06\x00")
	b[44], b[48] = 1, 1 // one sector of the allocation table; the directory is sector 1
	copy(b[56:], "\x00\x10\x00\x00\xfe\xff\xff\xff")
	for i := 68; i < 512; i++ {
		b[i] = 0xff
	}
	copy(b[68:], "\xfe\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00") // the table is sector 0
	for i := 512; i < 1024; i++ {
		b[i] = 0xff
	}
	copy(b[512:], "\xfd\xff\xff\xff\xfe\xff\xff\xff")
	for i, name := range []string{"Root Entry", "EncryptionInfo", "EncryptedPackage"} {
		entry := b[1024+128*i:]
		for j, r := range name {
			entry[2*j] = byte(r)
		}
		entry[64] = byte(2 * (len(name) + 1))
		entry[66] = []byte{5, 2, 2}[i]
	}
	return b
}

// onePage is a PDF of one page with a content stream.
func onePage(catalog, content string) []byte {
	return fmt.Appendf(nil, "%%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R%s>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"+
		"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n"+
		"4 0 obj<</Length %d>>stream\n%s\nendstream endobj\n"+
		"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Size 6/Root 1 0 R>>\nstartxref\n0\n%%%%EOF",
		catalog, len(content), content)
}

// repeated is a reader of n times the same text, without holding it.
func repeated(text string, n int) io.Reader {
	return io.LimitReader(&loop{text: text}, int64(n)*int64(len(text)))
}

type loop struct {
	text string
	at   int
}

// Read implements io.Reader.
func (l *loop) Read(buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m := copy(buf[n:], l.text[l.at:])
		l.at = (l.at + m) % len(l.text)
		n += m
	}
	return n, nil
}
