package extract

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const wordXMLNS = `xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"`

// docxOf builds a Word document of a body and further parts (name, content, …).
func docxOf(t testing.TB, body io.Reader, parts ...string) []byte {
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
	rels := `<Relationships>`
	for i := 0; i < len(parts); i += 2 {
		add("word/"+parts[i]+".xml", strings.NewReader(parts[i+1]))
		rels += `<Relationship Type="http://x/` + parts[i] + `" Target="` + parts[i] + `.xml"/>`
	}
	add("word/_rels/document.xml.rels", strings.NewReader(rels+`</Relationships>`))
	if body != nil {
		add("word/document.xml", io.MultiReader(strings.NewReader(`<?xml version="1.0" encoding="UTF-8"?><w:document `+wordXMLNS+`><w:body>`), body, strings.NewReader(`</w:body></w:document>`)))
	}
	require.NoError(t, z.Close())
	return buf.Bytes()
}

// repeated is a reader of n times the same text.
func repeated(text string, n int) io.Reader {
	return io.LimitReader(&loop{text: text}, int64(n)*int64(len(text)))
}

type loop struct {
	text string
	at   int
}

func (l *loop) Read(buf []byte) (int, error) {
	n := copy(buf, l.text[l.at:])
	l.at = (l.at + n) % len(l.text)
	return n, nil
}
