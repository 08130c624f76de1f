package picture_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

// pagesTIFF joins TIFFs of one picture each (little-endian) to one of several.
func pagesTIFF(t testing.TB, pictures ...image.Image) []byte {
	t.Helper()
	out := []byte("II*\x00\x00\x00\x00\x00")
	link := 4 // where the place of the next directory is written
	for _, picture := range pictures {
		var one bytes.Buffer
		require.NoError(t, tiff.Encode(&one, picture, nil))
		data, base := one.Bytes(), uint32(len(out))
		at := binary.LittleEndian.Uint32(data[4:])
		entries := int(binary.LittleEndian.Uint16(data[at:]))
		for i := range entries { // places within the file move
			e := data[int(at)+2+12*i:]
			tag, kind, count := binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]), binary.LittleEndian.Uint32(e[4:])
			size := map[uint16]uint32{3: 2, 4: 4, 5: 8}[kind] * count
			if size > 4 || tag == 273 {
				binary.LittleEndian.PutUint32(e[8:], binary.LittleEndian.Uint32(e[8:])+base)
			}
		}
		out = append(out, data...)
		binary.LittleEndian.PutUint32(out[link:], base+at)
		link = int(base+at) + 2 + 12*entries
	}
	return out
}

// square is a picture of one grey whose side says which one it is.
func square(side int) image.Image { return image.NewGray(image.Rect(0, 0, side, side)) }

func TestAllPagesOfATIFFAreRead(t *testing.T) {
	t.Parallel()
	read := readWith(func(g *image.Gray) (string, error) { return fmt.Sprint(g.Rect.Dx(), " wide"), nil })
	file := pagesTIFF(t, square(3), square(5), square(4))
	found, blocks, err := extracttest.ReadBytes(read, file, "image/tiff")
	require.NoError(t, err)
	require.Equal(t, 3, found.Pages)
	require.Empty(t, found.Unread)
	want := []ingest.Block{{Kind: ingest.BlockParagraph, Text: "3 wide", Page: 1}, {Kind: ingest.BlockParagraph, Text: "5 wide", Page: 2}, {Kind: ingest.BlockParagraph, Text: "4 wide", Page: 3}}
	require.Equal(t, want, blocks)

	// The last directory leads back to the first.
	loop := bytes.Clone(file)
	first := binary.LittleEndian.Uint32(loop[4:])
	last := first
	for next := last; next != 0; {
		last = next
		next = binary.LittleEndian.Uint32(loop[last+2+12*uint32(binary.LittleEndian.Uint16(loop[last:])):])
	}
	binary.LittleEndian.PutUint32(loop[last+2+12*uint32(binary.LittleEndian.Uint16(loop[last:])):], first)
	_, blocks, err = extracttest.ReadBytes(read, loop, "image/tiff")
	require.NoError(t, err)
	require.Equal(t, want, blocks)

	// One page of three is broken, then two are.
	second := binary.LittleEndian.Uint32(loop[first+2+12*uint32(binary.LittleEndian.Uint16(loop[first:])):])
	bad := bytes.Clone(file)
	binary.LittleEndian.PutUint16(bad[second+2+2:], 9) // the kind of the width's number
	found, blocks, err = extracttest.ReadBytes(read, bad, "image/tiff")
	require.NoError(t, err)
	require.Equal(t, []int{2}, found.Unread)
	require.Equal(t, []ingest.Block{want[0], want[2]}, blocks)
	binary.LittleEndian.PutUint16(bad[first+2+2:], 9)
	_, _, err = extracttest.ReadBytes(read, bad, "image/tiff")
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)

	// A smaller copy of a page is none. The encoder's first entry is the width: it becomes the kind of picture, and a picture without a
	// width is never decoded.
	thumb := bytes.Clone(file)
	binary.LittleEndian.PutUint16(thumb[second+2:], 254)
	binary.LittleEndian.PutUint32(thumb[second+2+8:], 1)
	found, blocks, err = extracttest.ReadBytes(read, thumb, "image/tiff")
	require.NoError(t, err)
	require.Equal(t, 2, found.Pages)
	require.Equal(t, "4 wide", blocks[1].Text)
}

func TestATIFFOfTooManyPagesIsRefused(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Limits.MaxPages = 2
		return readWith(func(*image.Gray) (string, error) { return "", nil })(ctx, in, out)
	}
	_, _, err := extracttest.ReadBytes(read, pagesTIFF(t, square(3), square(5), square(4)), "image/tiff")
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	require.ErrorContains(t, err, "more than 2 pages")
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
	f.Add(pagesTIFF(f, square(3), square(5)))
	extracttest.FuzzReader(f, readWith(func(g *image.Gray) (string, error) {
		if len(g.Pix) < g.Rect.Dx()*g.Rect.Dy() {
			return "", errors.New("pixels are missing")
		}
		return "text", nil
	}), "image/png", "scan.png")
}
