package picture_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/picture"
)

// readWith reads a picture with a text recognition of the test's own.
func readWith(recognize func(*image.Gray) (string, error)) func(context.Context, *document.Input, *document.Sink) (ingest.Extraction, error) {
	return func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Recognize = recognize
		return picture.Read(ctx, in, out)
	}
}

func TestAPictureIsGreyOnWhitePaper(t *testing.T) {
	t.Parallel()
	drawn := image.NewNRGBA(image.Rect(3, 4, 6, 6)) // transparent
	drawn.Set(3, 4, color.Black)
	drawn.Set(5, 5, color.NRGBA{A: 128})
	var seen *image.Gray
	read := readWith(func(g *image.Gray) (string, error) {
		seen = g
		return "One\nline.\n\nTwo\f", nil
	})
	for name, encode := range map[string]func(*bytes.Buffer) error{
		"PNG":  func(b *bytes.Buffer) error { return png.Encode(b, drawn) },
		"TIFF": func(b *bytes.Buffer) error { return tiff.Encode(b, drawn, nil) },
	} {
		var file bytes.Buffer
		require.NoError(t, encode(&file), name)
		extracttest.RequireLines(t, read, "image/png", file.Bytes(), "p One line.", "p Two")
		require.Equal(t, []byte{0, 255, 255, 255, 255, 127}, seen.Pix, name)
	}
}

func TestPicturesThatAreNotRead(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	require.NoError(t, bmp.Encode(&file, image.NewGray(image.Rect(0, 0, 4, 4))))
	huge := bytes.Clone(file.Bytes())
	binary.LittleEndian.PutUint32(huge[18:], 19_000)
	binary.LittleEndian.PutUint32(huge[22:], 19_000)
	_, _, err := extracttest.ReadBytes(picture.Read, file.Bytes(), "image/bmp")
	extracttest.RequirePermanent(t, err, ingest.CodeNeedsOCR)
	nothing := readWith(func(*image.Gray) (string, error) { return "", nil })
	_, _, err = extracttest.ReadBytes(nothing, huge, "image/bmp")
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	_, _, err = extracttest.ReadBytes(nothing, file.Bytes()[:60], "image/bmp")
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	broken := readWith(func(*image.Gray) (string, error) { return "", errors.New("too slow") })
	_, _, err = extracttest.ReadBytes(broken, file.Bytes(), "image/bmp")
	require.ErrorContains(t, err, "too slow")
	require.False(t, ingest.AsFailure(err).Permanent)
}

func FuzzPicture(f *testing.F) {
	for _, encode := range []func(*bytes.Buffer, image.Image) error{
		func(b *bytes.Buffer, m image.Image) error { return bmp.Encode(b, m) },
		func(b *bytes.Buffer, m image.Image) error { return tiff.Encode(b, m, nil) },
		func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) },
	} {
		var file bytes.Buffer
		require.NoError(f, encode(&file, image.NewGray(image.Rect(0, 0, 4, 4))))
		f.Add(file.Bytes())
	}
	extracttest.FuzzReader(f, readWith(func(g *image.Gray) (string, error) {
		if len(g.Pix) < g.Rect.Dx()*g.Rect.Dy() {
			return "", errors.New("pixels are missing")
		}
		return "text", nil
	}), "image/png", "scan.png")
}
