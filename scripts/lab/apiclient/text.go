package apiclient

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// words make sentences; none of them looks like a mark.
var words = strings.Fields(`the a worker claims durable task from its queue and renews lease while it makes progress when
expires another process takes over with new fence so that late writes change nothing document is split into segments
each segment gets vector version becomes visible as whole after crash lost because every promise kept in database`)

// Text is a document of about that many bytes of English sentences in paragraphs, unlike any with another number.
// Its mark stands in its first sentence and in no other document.
func Text(number, bytes int) Doc {
	random := rand.New(rand.NewPCG(uint64(number), 0x6c6162)) //nolint:gosec // sample text, no secret
	mark := fmt.Sprintf("qx%dzq", number)
	var b strings.Builder
	fmt.Fprintf(&b, "Report %s begins with its own name %s.", mark, mark)
	for sentence := 1; b.Len() < bytes; sentence++ {
		if sentence%8 == 0 {
			b.WriteString("\n\n")
		} else {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "Sentence %d of %d says:", sentence, number)
		for range 6 + random.IntN(8) {
			b.WriteByte(' ')
			b.WriteString(words[random.IntN(len(words))])
		}
		b.WriteByte('.')
	}
	return Doc{Name: fmt.Sprintf("report-%d.txt", number), Key: fmt.Sprintf("lab-%d", number), Body: []byte(b.String()), Mark: mark}
}

// Letter makes a message of a text, with attachments.
func Letter(d Doc, names ...string) Doc {
	var b strings.Builder
	fmt.Fprintf(&b, "From: a@example.org\r\nTo: b@example.org\r\nSubject: %s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=XX\r\n\r\n", d.Name)
	fmt.Fprintf(&b, "--XX\r\nContent-Type: text/plain\r\n\r\n%s\r\n", d.Body)
	for _, name := range names {
		fmt.Fprintf(&b, "--XX\r\nContent-Type: text/plain; name=%q\r\nContent-Disposition: attachment; filename=%q\r\n\r\nThis is %s.\r\n", name, name, name)
	}
	d.Name, d.Body = strings.TrimSuffix(d.Name, ".txt")+".eml", []byte(b.String()+"--XX--\r\n")
	return d
}

// Docx is the smallest package that word processors open, around the mark-up of its paragraphs.
func Docx(paragraphs io.Reader) ([]byte, error) {
	const (
		head   = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>`
		office = "http://schemas.openxmlformats.org/"
	)
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, part := range []struct {
		name string
		text io.Reader
	}{
		{"[Content_Types].xml", strings.NewReader(head + `<Types xmlns="` + office + `package/2006/content-types">` +
			`<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>` +
			`<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`)},
		{"_rels/.rels", strings.NewReader(head + `<Relationships xmlns="` + office + `package/2006/relationships"><Relationship Id="r1" ` +
			`Type="` + office + `officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>`)},
		{"word/document.xml", io.MultiReader(strings.NewReader(head+`<w:document xmlns:w="`+office+`wordprocessingml/2006/main"><w:body>`),
			paragraphs, strings.NewReader(`</w:body></w:document>`))},
	} {
		w, err := z.Create(part.name)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, part.text); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}
