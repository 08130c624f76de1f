package extract

import (
	"context"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
)

// reader turns documents of some types into blocks.
type reader struct {
	name    string
	version int // goes up whenever equal bytes may give other blocks: part of the fingerprint
	types   []string
	// read sends all blocks to out and returns what it found; MediaType, Chars and Reader are filled in by the caller.
	read func(ctx context.Context, in *input, out *sink) (ingest.Extraction, error)
}

// registry holds the readers: a new format is one line here and one file beside it.
var registry = []reader{
	{name: "pdf", version: 1, types: []string{typePDF}, read: readPDF},
	{name: "docx", version: 1, types: []string{typeDOCX}, read: readDOCX},
	{name: "html", version: 1, types: []string{typeHTML}, read: readHTML},
	{name: "markdown", version: 1, types: []string{typeMarkdown}, read: readMarkdown},
	{name: "text", version: 1, types: []string{typeText, typeCSV, typeJSON}, read: readText},
}

// readerFor finds the reader of a media type.
func readerFor(mediaType string) (reader, bool) {
	for _, r := range registry {
		for _, t := range r.types {
			if t == mediaType {
				return r, true
			}
		}
	}
	return reader{}, false
}

// String is the reader's name and version, e.g. "pdf/1".
func (r reader) String() string { return fmt.Sprintf("%s/%d", r.name, r.version) }

// fingerprint names all readers and their versions.
func fingerprint() string {
	names := make([]string, 0, 8)
	for _, r := range registry {
		names = append(names, r.String())
	}
	return strings.Join(names, " ")
}

// runReader reads one document in this process: in the child, and in tests.
func runReader(ctx context.Context, in *input, emit func(ingest.Block) error) (ingest.Extraction, error) {
	r, ok := readerFor(in.mediaType)
	if !ok {
		return ingest.Extraction{}, unsupported("no reader for %s", in.mediaType)
	}
	out := newSink(in.limits, emit)
	ex, err := r.read(ctx, in, out)
	if err != nil {
		return ingest.Extraction{}, err
	}
	if out.chars == 0 {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeEmpty,
			"The document holds no text. Check the file and upload it again.", "read %s: no text found", in.mediaType)
	}
	ex.MediaType, ex.Reader, ex.Chars = in.mediaType, r.String(), out.chars
	// A PDF's first heading is that of its outline: a chapter, not the whole.
	if ex.Title == "" && in.mediaType != typePDF {
		ex.Title = out.firstHeading
	}
	ex.Title = cleanTitle(ex.Title)
	return ex, nil
}
