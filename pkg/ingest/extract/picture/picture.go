// Package picture reads pictures by text recognition.
package picture

import (
	"bufio"
	"context"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// decodedBytes bounds the memory of a decoded picture.
	decodedBytes = 128 << 20
	// jpegBytes is what a pixel takes while a JPEG is decoded that is sent in several passes.
	jpegBytes = 8
)

// Read decodes a picture, in this process, and sends what the recognition finds on it. Of a file of several pictures it reads the first.
// Errors: NEEDS_OCR where there is no recognition, CORRUPT, LIMIT_EXCEEDED.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Recognize == nil {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeNeedsOCR, document.RemedyOCR, "a picture: this installation recognises no text (EXTRACT_OCR)")
	}
	cfg, format, err := image.DecodeConfig(bufio.NewReader(in.Stream()))
	if err != nil {
		return ingest.Extraction{}, document.Corrupt("read the picture: %w", err)
	}
	if need := int64(cfg.Width) * int64(cfg.Height); cfg.Width > document.MaxPictureSide || cfg.Height > document.MaxPictureSide ||
		need*pixelBytes(cfg.ColorModel, format) > decodedBytes {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeLimitExceeded, "Make the picture smaller and upload it again.",
			"the picture has %d × %d points, more than can be read", cfg.Width, cfg.Height)
	}
	picture, _, err := image.Decode(bufio.NewReader(in.Stream()))
	if err != nil {
		return ingest.Extraction{}, document.Corrupt("read the picture: %w", err)
	}
	if picture.Bounds().Empty() {
		return ingest.Extraction{}, document.Corrupt("the picture has no points")
	}
	text, err := in.Recognize(grey(picture))
	if err != nil {
		return ingest.Extraction{}, ingest.Transient(ingest.CodeExtractCrashed, "read the picture: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return ingest.Extraction{}, err
	}
	for _, paragraph := range document.Paragraphs(text) {
		if err := out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: paragraph, Page: 1}); err != nil {
			return ingest.Extraction{}, err
		}
	}
	return ingest.Extraction{Pages: 1}, nil
}

// pixelBytes is what a pixel takes while a picture is decoded.
func pixelBytes(m color.Model, format string) int64 {
	if format == "jpeg" {
		return jpegBytes
	}
	switch m {
	case color.GrayModel:
		return 1
	case color.Gray16Model:
		return 2
	case color.RGBA64Model, color.NRGBA64Model:
		return 8
	}
	return 4
}

// grey draws a picture on white paper.
func grey(picture image.Image) *image.Gray {
	if g, ok := picture.(*image.Gray); ok && g.Stride == g.Rect.Dx() {
		return g
	}
	b := picture.Bounds()
	paper := image.NewGray(image.Rect(0, 0, b.Dx(), b.Dy()))
	draw.Draw(paper, paper.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(paper, paper.Rect, picture, b.Min, draw.Over)
	return paper
}
