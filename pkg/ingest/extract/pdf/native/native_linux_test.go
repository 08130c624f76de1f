package native

import (
	"bytes"
	"fmt"
	"image"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/klippa-app/go-pdfium/requests"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// loaded is the engine of this test process: the library is started once.
var loaded = sync.OnceValues(func() (any, error) {
	path, err := installed.PDFium()
	if err != nil {
		return nil, err
	}
	Register(path)
	p, _ := formats.LinkedPDF()
	return p.Compile("", 0)
})

// one is held while the library is called: it has no locks of its own.
var one sync.Mutex

func engine(t testing.TB) *Engine {
	t.Helper()
	e, err := loaded()
	require.NoError(t, err)
	one.Lock()
	t.Cleanup(one.Unlock)
	return e.(*Engine)
}

// read reads a PDF in this process.
func read(t testing.TB, e *Engine, data []byte, change func(*document.Input)) (ex ingest.Extraction, blocks []ingest.Block, err error) {
	t.Helper()
	f, err := os.Open(extracttest.WriteTemp(t, "a.pdf", data))
	require.NoError(t, err)
	defer f.Close()
	in := &document.Input{
		File: f, Size: int64(len(data)), MediaType: document.TypePDF, Engine: e, Progress: func(int, int) {},
		Limits: document.Limits{MaxTextBytes: 64 << 20, MaxPages: 10_000},
	}
	if change != nil {
		change(in)
	}
	ex, err = formats.ReadGuarded(t.Context(), in, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	return ex, blocks, err
}

// Its text equals the WebAssembly one's: package extract reads all its PDFs with both.
func TestALibraryReadsDocuments(t *testing.T) {
	t.Parallel()
	e := engine(t)
	marks := []pdfgen.Mark{{Title: "The first chapter", Page: 1}, {Title: "The second", Page: 2}}
	page := func(title string) []string {
		return []string{title, "This is the text of the chapter, and it is longer than its title is."}
	}
	_, blocks, err := read(t, e, pdfgen.Outlined([][]string{page("The first chapter"), page("The second")}, marks, false), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"# The first chapter", "p This is the text of the chapter, and it is longer than its title is."}, extracttest.Lines(blocks)[:2])
	require.Equal(t, 2, blocks[len(blocks)-1].Page)

	ex, _, err := read(t, e, pdfgen.Text(40, 3), func(in *document.Input) {
		in.File = bytes.NewReader(pdfgen.Text(40, 3)) // as the attachments of messages come
		in.Size = int64(len(pdfgen.Text(40, 3)))
	})
	require.NoError(t, err)
	require.Equal(t, 40, ex.Pages)

	for name, code := range map[string]ingest.Code{"pdf_enc_user.pdf": ingest.CodeEncrypted, "pdf_truncated.pdf": ingest.CodeCorrupt, "pdf_scanned.pdf": ingest.CodeNeedsOCR} {
		_, _, err := read(t, e, extracttest.CorpusFile(t, name), nil)
		extracttest.RequirePermanent(t, err, code)
	}
	_, _, err = read(t, e, nil, nil)
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
}

func TestAPictureOfAPageIsDrawn(t *testing.T) {
	t.Parallel()
	e := engine(t)
	dark := 0
	_, blocks, err := read(t, e, extracttest.CorpusFile(t, "pdf_scanned.pdf"), func(in *document.Input) {
		in.Recognize = func(picture *image.Gray) (string, error) {
			require.Equal(t, picture.Rect.Dx(), picture.Stride)
			for _, p := range picture.Pix {
				if p < 255 {
					dark++
				}
			}
			return "what was recognised", nil
		}
	})
	require.NoError(t, err)
	require.Positive(t, dark)
	require.Equal(t, []string{"p what was recognised"}, extracttest.Lines(blocks))
}

func TestFieldsWithAndWithoutAPictureAreRead(t *testing.T) {
	t.Parallel()
	e := engine(t)
	data := pdfgen.Objects(
		"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R 7 0 R]/DR<</Font<</F1 4 0 R>>>>/DA(/F1 10 Tf)>>>>",
		"<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R/Annots[6 0 R 7 0 R 8 0 R]>>",
		"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
		pdfgen.Stream("", "BT /F1 12 Tf 72 700 Td (The page.) Tj ET"),
		"<</Type/Annot/Rect[72 300 400 330]/F 4/Subtype/Widget/FT/Tx/T(f)/V(filled in)>>",
		"<</Type/Annot/Rect[72 500 400 530]/F 4/Subtype/Widget/FT/Tx/T(g)/V(x)/AP<</N 9 0 R>>>>",
		"<</Type/Annot/Rect[72 400 400 430]/F 4/Subtype/FreeText/DA(/F1 10 Tf)/Contents(a note)>>",
		pdfgen.Stream("/Type/XObject/Subtype/Form/BBox[0 0 328 30]/Resources<</Font<</F1 4 0 R>>>>", "BT /F1 10 Tf 2 10 Td (drawn) Tj ET"),
	)
	_, blocks, err := read(t, e, data, nil)
	require.NoError(t, err)
	text := extracttest.Joined(blocks)
	for _, want := range []string{"The page.", "filled in", "drawn", "a note"} {
		require.Contains(t, text, want)
	}
}

// What a document opened is closed with it, and nothing else can be closed.
func TestADocumentClosesWhatItOpened(t *testing.T) {
	t.Parallel()
	e := engine(t)
	data := pdfgen.Text(3, 1)
	lib, _, err := e.Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	page, err := lib.FPDF_LoadPage(&requests.FPDF_LoadPage{Index: 0})
	require.NoError(t, err)
	text, err := lib.FPDFText_LoadPage(&requests.FPDFText_LoadPage{Page: requests.Page{ByReference: &page.Page}})
	require.NoError(t, err)
	other, _, err := e.Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	_, err = other.FPDF_ClosePage(&requests.FPDF_ClosePage{Page: page.Page})
	require.ErrorIs(t, err, errHandle, "it is another document's")
	_, err = other.FPDFText_ClosePage(&requests.FPDFText_ClosePage{TextPage: text.TextPage})
	require.ErrorIs(t, err, errHandle)
	_, err = other.FPDF_LoadPage(&requests.FPDF_LoadPage{Index: 3})
	require.Error(t, err, "there are three")
	require.NoError(t, other.Close())
	require.NoError(t, lib.Close())
	require.ErrorContains(t, e.init(), "started already")
}

// Hundreds of documents in one process leave no memory behind.
func TestDocumentsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	e := engine(t)
	data := pdfgen.Text(20, 1)
	resident := func() (kib int) {
		raw, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(raw), "RssAnon:")
		_, err = fmt.Sscan(after, &kib)
		require.NoError(t, err)
		return kib
	}
	before := 0
	for i := range 150 {
		_, _, err := read(t, e, data, nil)
		require.NoError(t, err)
		if i == 50 {
			before = resident()
		}
	}
	require.Less(t, resident()-before, 16<<10, "KiB")
}

func TestAnUnusableLibraryIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Load("/nowhere/libpdfium.so")
	require.ErrorContains(t, err, "load libpdfium: ")
	_, err = Load("libm.so.6")
	require.ErrorContains(t, err, "is none that can be used")
}

func TestTextIsDecodedAsGoPdfiumDoes(t *testing.T) {
	t.Parallel()
	for want, units := range map[string][]byte{
		"ab":      {'a', 0, 'b', 0, 0, 0},
		"é中":      {0xE9, 0, 0x2D, 0x4E},
		"😀":       {0x3D, 0xD8, 0x00, 0xDE},
		"\uFFFDa": {0x3D, 0xD8, 'a', 0},
		"\uFFFD":  {0x00, 0xDE, 0, 0},
		"c":       {0xFF, 0xFE, 'c', 0, 0},
		"":        {},
	} {
		require.Equal(t, want, decoded(units))
	}
	require.Zero(t, handle("short"))
	require.Equal(t, uintptr(77), handle(reference(77)))
}
