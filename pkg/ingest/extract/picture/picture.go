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

// Read decodes pictures, in this process, and sends what the recognition finds on them: all pages of a TIFF, else the first picture of a
// file. Pages that cannot be read are named, unless they are more than half.
// Errors: NEEDS_OCR where there is no recognition, CORRUPT, LIMIT_EXCEEDED.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Recognize == nil {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeNeedsOCR, document.RemedyOCR, "a picture: this installation recognises no text (EXTRACT_OCR)")
	}
	pages := tiffPages(in.File, in.Size, in.Limits.MaxPages)
	if len(pages) > in.Limits.MaxPages {
		return ingest.Extraction{}, document.OverLimit("the picture has more than %d pages", in.Limits.MaxPages)
	}
	if len(pages) == 0 {
		pages = []page{plain{in}}
	}
	found := ingest.Extraction{Pages: len(pages)}
	var last error
	failed := 0
	for n, one := range pages {
		text, err := read(one, in.Recognize)
		if ctx.Err() != nil {
			return ingest.Extraction{}, ctx.Err()
		}
		if err != nil {
			if last = err; failed < ingest.MaxUnread {
				found.Unread = append(found.Unread, n+1)
			}
			failed++
		}
		for _, paragraph := range document.Paragraphs(text) {
			if err := out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: paragraph, Page: n + 1}); err != nil {
				return ingest.Extraction{}, err
			}
		}
		in.Progress(n+1, len(pages))
	}
	if 2*failed > len(pages) {
		return ingest.Extraction{}, last
	}
	return found, nil
}

// page is a picture of a file.
type page interface {
	config() (image.Config, string, error)
	decode() (image.Image, error)
}

// plain is the only picture of a file, or its first one.
type plain struct{ in *document.Input }

func (p plain) config() (image.Config, string, error) {
	return image.DecodeConfig(bufio.NewReader(p.in.Stream()))
}

func (p plain) decode() (image.Image, error) {
	picture, _, err := image.Decode(bufio.NewReader(p.in.Stream()))
	return picture, err
}

// read returns the text on a picture.
func read(p page, recognize func(*image.Gray) (string, error)) (string, error) {
	cfg, format, err := p.config()
	if err != nil {
		return "", document.Corrupt("read the picture: %w", err)
	}
	if need := int64(cfg.Width) * int64(cfg.Height); cfg.Width > document.MaxPictureSide || cfg.Height > document.MaxPictureSide ||
		need*pixelBytes(cfg.ColorModel, format) > decodedBytes {
		return "", ingest.Permanent(ingest.CodeLimitExceeded, "Make the picture smaller and upload it again.",
			"the picture has %d × %d points, more than can be read", cfg.Width, cfg.Height)
	}
	picture, err := p.decode()
	if err != nil {
		return "", document.Corrupt("read the picture: %w", err)
	}
	if picture.Bounds().Empty() {
		return "", document.Corrupt("the picture has no points")
	}
	text, err := recognize(grey(picture))
	if err != nil {
		return "", ingest.Transient(ingest.CodeExtractCrashed, "read the picture: %w", err)
	}
	return text, nil
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
