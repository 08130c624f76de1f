package formats_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

var limits = document.Limits{MaxTextBytes: 1 << 20, MaxPages: 10}

func input(mediaType, text string) *document.Input {
	return &document.Input{
		File: strings.NewReader(text), Size: int64(len(text)), MediaType: mediaType, Limits: limits, Progress: func(int, int) {},
	}
}

func read(mediaType, text string) (ingest.Extraction, []ingest.Block, error) {
	var blocks []ingest.Block
	ex, err := formats.ReadGuarded(context.Background(), input(mediaType, text), func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	return ex, blocks, err
}

func TestEveryTypeHasOneReader(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, r := range formats.Registry {
		require.Positive(t, r.Version)
		for _, mediaType := range r.Types {
			require.Empty(t, seen[mediaType], "%s has two readers", mediaType)
			seen[mediaType] = r.Name
			found, ok := formats.For(mediaType)
			require.True(t, ok)
			require.Equal(t, r.Name, found.Name)
		}
		require.Contains(t, formats.Fingerprint(), r.String())
	}
	for _, mediaType := range []string{
		document.TypePDF, document.TypeDOCX, document.TypeHTML, document.TypeMarkdown, document.TypeText, document.TypeCSV, document.TypeJSON,
	} {
		require.NotEmpty(t, seen[mediaType], mediaType)
	}
	_, ok := formats.For("application/x-msdownload")
	require.False(t, ok)
}

func TestReadingSaysWhatWasRead(t *testing.T) {
	t.Parallel()
	ex, blocks, err := read(document.TypeMarkdown, "# The *title*\n\ntext 中\n")
	require.NoError(t, err)
	require.Equal(t, "The title", ex.Title, "the first heading, when the document names none")
	require.Equal(t, document.TypeMarkdown, ex.MediaType)
	require.Equal(t, "markdown/3", ex.Reader)
	require.Equal(t, "utf-8", ex.Charset)
	require.EqualValues(t, 9+6, ex.Chars)
	require.Len(t, blocks, 2)
	ex, _, err = read(document.TypeHTML, "<html><title> A\n title </title><h1>Heading</h1>")
	require.NoError(t, err)
	require.Equal(t, "A title", ex.Title)
	ex, _, err = read(document.TypeText, "only text")
	require.NoError(t, err)
	require.Empty(t, ex.Title)
}

func TestADocumentWithoutTextIsEmpty(t *testing.T) {
	t.Parallel()
	for mediaType, text := range map[string]string{
		document.TypeText: "\x00\n \n", document.TypeHTML: "<html><script>x</script><img src=x>", document.TypeMarkdown: "---\ntitle: x\n---\n", document.TypeCSV: "\n\n",
	} {
		_, blocks, err := read(mediaType, text)
		extracttest.RequirePermanent(t, err, ingest.CodeEmpty)
		require.Empty(t, blocks)
	}
	_, _, err := read("application/x-unknown", "x")
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
}

// A panic of a reader is its file's failure, and one that a later attempt may cure.
func TestAPanicIsACrashOfTheReader(t *testing.T) {
	t.Parallel()
	_, err := formats.ReadGuarded(t.Context(), input(document.TypeText, "text"), func(ingest.Block) error { panic("boom") })
	f := ingest.AsFailure(err)
	require.Equal(t, ingest.CodeExtractCrashed, f.Code)
	require.False(t, f.Permanent)
	require.ErrorContains(t, err, "boom")
	var crash *formats.CrashError
	require.ErrorAs(t, err, &crash)
	require.Contains(t, string(crash.Stack), "TestAPanicIsACrashOfTheReader")
	require.NotContains(t, err.Error(), "goroutine", "the stack is for the log")
}

func TestTheReceiversErrorAndTheContextEndIt(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	for _, mediaType := range []string{document.TypeText, document.TypeHTML, document.TypeMarkdown} {
		_, err := formats.ReadGuarded(t.Context(), input(mediaType, "one\n\ntwo"), func(ingest.Block) error { return full })
		require.ErrorIs(t, err, full, mediaType)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = formats.ReadGuarded(ctx, input(mediaType, strings.Repeat("<p>some text\n\n", 100_000)), func(ingest.Block) error { return nil })
		require.ErrorIs(t, err, context.Canceled, mediaType)
	}
}

func TestTheTextLimitHoldsForEveryFormat(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("more than is allowed ", 60_000)
	docx := string(extracttest.DocxOf(t, strings.NewReader("<w:p><w:r><w:t>"+strings.Repeat("x", 1<<20)+"</w:t></w:r></w:p><w:p><w:r><w:t>y</w:t></w:r></w:p>")))
	for mediaType, text := range map[string]string{
		document.TypeText: long, document.TypeHTML: "<p>" + long, document.TypeMarkdown: long, document.TypeCSV: long, document.TypeDOCX: docx,
	} {
		_, _, err := read(mediaType, text)
		extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	}
}

func TestFirstHeadingIsTheTitle(t *testing.T) {
	t.Parallel()
	ex, blocks, err := read(document.TypeMarkdown, "# One\n\ntwo\n")
	require.NoError(t, err)
	require.Equal(t, []string{"# One", "p two"}, extracttest.Lines(blocks))
	require.Equal(t, "One", ex.Title)
}

func TestPDFsAreReadElsewhereWithoutTheirReader(t *testing.T) {
	t.Parallel()
	_, _, err := read(document.TypePDF, string(extracttest.SimplePDF("", "")))
	require.ErrorIs(t, err, ingest.ErrElsewhere, "this program links no reader of PDFs: another one does it")
	require.ErrorIs(t, err, formats.ErrNoPDF)
}
