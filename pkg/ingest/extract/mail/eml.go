package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// encodedLine is the length of a line of base64 (RFC 2045).
const encodedLine = 76

// asFile is a message as the EML that it would have been sent as. The same message has the same bytes.
func (m *message) asFile() part {
	var parts []string
	for _, s := range m.said {
		parts = append(parts, encoded([]byte(s.text), "Content-Type: text/"+string(s.kind)+"; charset=utf-8"))
	}
	for _, p := range m.parts {
		parts = append(parts, encoded(p.data, "Content-Type: application/octet-stream", disposition("inline", p.name), "Content-ID: <"+oneLine(p.id)+">"))
	}
	for _, f := range named(m.files) {
		parts = append(parts, encoded(f.data, "Content-Type: application/octet-stream", disposition("attachment", f.name)))
	}
	for _, e := range m.sealed {
		kind := typeSMIME
		if e.by == byPGP {
			kind = "text/plain"
		}
		parts = append(parts, encoded(e.data, "Content-Type: "+kind))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	boundary := hex.EncodeToString(sum[:16]) // base64 has no hyphen, so it stands in no part

	var file bytes.Buffer
	for _, h := range [][2]string{{"Subject", m.subject}, {"From", m.from}, {"To", m.to}, {"Cc", m.cc}, {"Date", m.date}} {
		if h[1] != "" {
			fmt.Fprintf(&file, "%s: %s\r\n", h[0], oneLine(h[1]))
		}
	}
	fmt.Fprintf(&file, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=%s\r\n", boundary)
	for _, p := range parts {
		fmt.Fprintf(&file, "\r\n--%s\r\n%s", boundary, p)
	}
	fmt.Fprintf(&file, "\r\n--%s--\r\n", boundary)
	name := document.Squeeze(m.subject)
	if name == "" {
		name = "message"
	}
	return part{name: name + ".eml", data: file.Bytes()}
}

// oneLine is a header's value.
func oneLine(value string) string { return mime.QEncoding.Encode("utf-8", document.Squeeze(value)) }

func disposition(kind, name string) string {
	return "Content-Disposition: " + mime.FormatMediaType(kind, map[string]string{"filename": name})
}

// encoded is a part of a message: its head, and its content in base64.
func encoded(data []byte, head ...string) string {
	var out strings.Builder
	out.WriteString(strings.Join(append(head, "Content-Transfer-Encoding: base64"), "\r\n") + "\r\n\r\n")
	text := base64.StdEncoding.EncodeToString(data)
	for len(text) > encodedLine {
		out.WriteString(text[:encodedLine] + "\r\n")
		text = text[encodedLine:]
	}
	out.WriteString(text)
	return out.String()
}
