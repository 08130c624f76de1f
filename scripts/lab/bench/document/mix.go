package document

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

const (
	mixDocs      = 200
	mixLeast     = 2_000  // bytes of text of the smallest generated document
	mixMost      = 60_000 // and of the largest; most are small, as in real folders
	mixMostPages = 16
)

// mix is 200 documents unlike those of any other round: the sample files, and generated PDF, DOCX, HTML, Markdown and text.
func mix(root string, round int) ([]apiclient.Doc, error) {
	samples, _, err := figure.Corpus(root)
	if err != nil {
		return nil, err
	}
	var docs []apiclient.Doc
	for _, d := range samples { // one of them is another one's bytes under a false name: the same document
		if !slices.ContainsFunc(docs, func(o apiclient.Doc) bool { return bytes.Equal(o.Body, d.Body) }) {
			docs = append(docs, d)
		}
	}
	random := rand.New(rand.NewPCG(uint64(round), 0x646f6373)) //nolint:gosec // sample text, no secret
	for i := range docs {
		docs[i].Name = fmt.Sprintf("r%d-%s", round, docs[i].Name)
	}
	for len(docs) < mixDocs {
		d, err := generated(random, len(docs), round*mixDocs+len(docs))
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	random.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	return docs, nil
}

// generated is the document of that number; kind goes around the formats.
func generated(random *rand.Rand, kind, number int) (apiclient.Doc, error) {
	share := random.Float64()
	size := int(mixLeast * math.Pow(mixMost/mixLeast, share))
	name := fmt.Sprintf("mix-%d", number)
	if kind%5 == 0 {
		pages := 1 + int(math.Pow(mixMostPages, share)) - 1
		return apiclient.Doc{Name: name + ".pdf", Body: pdfgen.Text(pages, int64(number))}, nil
	}
	text := string(apiclient.Text(number, size).Body)
	switch kind % 5 {
	case 1:
		body, err := docx(text)
		return apiclient.Doc{Name: name + ".docx", Body: body}, err
	case 2:
		return apiclient.Doc{Name: name + ".html", Body: page(text)}, nil
	case 3:
		return apiclient.Doc{Name: name + ".md", Body: markdown(text)}, nil
	}
	return apiclient.Doc{Name: name + ".txt", Body: []byte(text)}, nil
}

// page is HTML with a heading before every fifth paragraph.
func page(text string) []byte {
	var b bytes.Buffer
	b.WriteString("<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>Report</title></head><body>")
	for i, p := range strings.Split(text, "\n\n") {
		if i%5 == 0 {
			fmt.Fprintf(&b, "<h2>Part %d</h2>", i/5+1)
		}
		fmt.Fprintf(&b, "<p>%s</p>", html.EscapeString(p))
	}
	b.WriteString("</body></html>")
	return b.Bytes()
}

// markdown has a heading before every fifth paragraph.
func markdown(text string) []byte {
	var b bytes.Buffer
	for i, p := range strings.Split(text, "\n\n") {
		if i%5 == 0 {
			fmt.Fprintf(&b, "## Part %d\n\n", i/5+1)
		}
		b.WriteString(p + "\n\n")
	}
	return b.Bytes()
}

// docx has one paragraph for each of the text's.
func docx(text string) ([]byte, error) {
	var body strings.Builder
	for p := range strings.SplitSeq(text, "\n\n") {
		fmt.Fprintf(&body, `<w:p><w:r><w:t xml:space="preserve">%s</w:t></w:r></w:p>`, html.EscapeString(p))
	}
	return apiclient.Docx(strings.NewReader(body.String()))
}
