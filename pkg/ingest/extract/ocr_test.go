package extract

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// newOCRPool needs tesseract with two languages, which `make deps` installs.
func newOCRPool(t testing.TB) *Pool {
	return newPool(t, func(c *Config) {
		c.Accept.OCR, c.Languages, c.Sandbox = detect.Tesseract, "chi_sim+eng", sandbox.Require
	})
}

// scan is the page that scan.png shows.
func scan(t testing.TB) image.Image {
	picture, err := png.Decode(bytes.NewReader(extracttest.CorpusFile(t, "scan.png")))
	require.NoError(t, err)
	return picture
}

// scannedPDF has a page of text and one that is a picture.
func scannedPDF(t testing.TB) []byte {
	picture := scan(t)
	b := picture.Bounds()
	var pixels bytes.Buffer
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			grey, _, _, _ := picture.At(x, y).RGBA()
			pixels.WriteByte(byte(grey >> 8))
		}
	}
	words, show := "BT /F1 12 Tf 20 700 Td (A page of text that is not short.) Tj ET", fmt.Sprintf("q %d 0 0 %d 0 0 cm /I Do Q", b.Dx()/4, b.Dy()/4)
	stream := func(head, data string) string {
		return fmt.Sprintf("<<%s/Length %d>>stream\n%s\nendstream", head, len(data), data)
	}
	var file strings.Builder
	file.WriteString("%PDF-1.7\n")
	for i, object := range []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 5 0 R/Resources<</Font<</F1 8 0 R>>>>>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 6 0 R/Resources<</XObject<</I 7 0 R>>>>>>",
		stream("", words), stream("", show),
		stream(fmt.Sprintf("/Type/XObject/Subtype/Image/ColorSpace/DeviceGray/BitsPerComponent 8/Width %d/Height %d", b.Dx(), b.Dy()), pixels.String()),
		"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
	} {
		fmt.Fprintf(&file, "%d 0 obj%s\nendobj\n", i+1, object)
	}
	return []byte(file.String() + "trailer<</Size 9/Root 1 0 R>>\nstartxref\n0\n%%EOF")
}

func requireScan(t testing.TB, blocks []ingest.Block) {
	t.Helper()
	text := extracttest.Joined(blocks)
	require.Contains(t, text, "INVOICE 20260301")
	require.Contains(t, text, "死信队列")
}

func TestPicturesAreReadByTextRecognition(t *testing.T) {
	t.Parallel()
	p := newOCRPool(t)
	for name, encode := range map[string]func(*bytes.Buffer) error{
		"a.png":  func(b *bytes.Buffer) error { return png.Encode(b, scan(t)) },
		"a.jpg":  func(b *bytes.Buffer) error { return jpeg.Encode(b, scan(t), nil) },
		"a.tiff": func(b *bytes.Buffer) error { return tiff.Encode(b, scan(t), nil) },
		"a.gif": func(b *bytes.Buffer) error {
			picture := scan(t)
			page := image.NewPaletted(picture.Bounds(), color.Palette{color.Black, color.White})
			draw.Draw(page, page.Bounds(), picture, picture.Bounds().Min, draw.Src)
			return gif.Encode(b, page, nil)
		},
		"a.bmp": func(b *bytes.Buffer) error { return bmp.Encode(b, scan(t)) },
	} {
		var file bytes.Buffer
		require.NoError(t, encode(&file), name)
		ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, name, file.Bytes()))
		require.NoError(t, err, name)
		requireScan(t, blocks)
		require.Equal(t, "picture/2 tesseract=chi_sim+eng", ex.Reader)
	}
}

func TestScannedPagesAreReadByTextRecognition(t *testing.T) {
	t.Parallel()
	p := newOCRPool(t)
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "pdf_scanned.pdf"))
	require.NoError(t, err)
	requireScan(t, blocks)
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "mixed.pdf", scannedPDF(t)))
	require.NoError(t, err)
	requireScan(t, blocks)
	require.Equal(t, 2, blocks[len(blocks)-1].Page)
	require.Empty(t, ex.Warnings)
}

func TestScannedPagesAreNamedWithoutTextRecognition(t *testing.T) {
	t.Parallel()
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), newPool(t, nil), extracttest.WriteTemp(t, "mixed.pdf", scannedPDF(t)))
	require.NoError(t, err)
	require.Equal(t, "A page of text that is not short.", extracttest.Joined(blocks))
	require.Equal(t, []string{"pages that are pictures without text were not read: 2"}, ex.Warnings)
}

// program is a script in place of tesseract.
func program(t testing.TB, script string) string {
	path := filepath.Join(t.TempDir(), "tesseract")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
	return path
}

func TestARecognitionThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	p := newOCRPool(t)
	p.ocr.path, p.ocr.timeout = program(t, "cat >/dev/null\nsleep 100\n"), 300*time.Millisecond
	_, _, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "scan.png"))
	require.ErrorContains(t, err, "took too long")
	require.False(t, ingest.AsFailure(err).Permanent)
	ex, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "mixed.pdf", scannedPDF(t)))
	require.NoError(t, err)
	require.Equal(t, []string{"page 2 is a picture whose text was not recognised: the text recognition took too long"}, ex.Warnings)
}

func TestARecognitionThatFailsOrSaysTooMuch(t *testing.T) {
	t.Parallel()
	p := newOCRPool(t)
	p.ocr.path = program(t, "echo 'no data' >&2\nexit 3\n") // it reads nothing of what it is sent
	_, _, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "scan.png"))
	require.ErrorContains(t, err, "no data")
	p.ocr.path = program(t, "cat >/dev/null\nyes 'words of a page' | head -c 1000000\n")
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "scan.png"))
	require.NoError(t, err)
	require.Less(t, len(extracttest.Joined(blocks)), 64<<10)
	p.ocr.path = program(t, "cat >/dev/null\necho '持久 化 异 步 ab 入 库 ， x'\n")
	_, blocks, err = extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "scan.png"))
	require.NoError(t, err)
	require.Equal(t, "持久化异步 ab 入库， x", extracttest.Joined(blocks))
}

// waitLimit is for what must happen on a loaded machine; no test waits for it in full when it passes.
const waitLimit = 2 * time.Minute

func TestARecognitionEndsWithItsDocument(t *testing.T) {
	t.Parallel()
	p := newOCRPool(t)
	begun := filepath.Join(t.TempDir(), "begun")
	require.NoError(t, os.WriteFile(begun, nil, 0o600))
	p.ocr.path = program(t, "cat >/dev/null\necho yes >"+begun+"\nsleep 100\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := extracttest.ExtractPath(t, ctx, p, filepath.Join("testdata", "corpus", "scan.png"))
		done <- err
	}()
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(begun)
		return err == nil && len(data) > 0 || len(done) > 0
	}, waitLimit, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestLanguagesThatAreNotInstalled(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	cfg.Accept.OCR, cfg.Languages = detect.Tesseract, "eng+xxx"
	_, err := NewPool(cfg, testLog(t))
	require.ErrorContains(t, err, "EXTRACT_OCR_LANGUAGES")
	require.ErrorContains(t, err, `"xxx"`)
	cfg.Languages = "-c; x"
	require.ErrorContains(t, cfg.Validate(), "EXTRACT_OCR_LANGUAGES")
	cfg.Accept.OCR = "other"
	require.ErrorContains(t, cfg.Validate(), "EXTRACT_OCR:")
}
