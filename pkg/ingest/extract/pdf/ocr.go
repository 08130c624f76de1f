package pdf

import (
	"fmt"
	"image"
	"strings"

	"github.com/klippa-app/go-pdfium/requests"
)

const (
	// renderDPI is the resolution at which a page is rendered for the text recognition, and renderSide the most points of a side.
	renderDPI  = 300
	renderSide = 4000
	// pointsPerInch is PDF's unit of length.
	pointsPerInch = 72
)

// recognized returns the text of a page (0-based) that is a picture, by text recognition. Without one the page is noted for the warning.
func (p *pdfDocument) recognized(index int, page requests.Page) (string, error) {
	if p.in.Recognize == nil {
		p.pictures = append(p.pictures, index+1)
		return "", nil
	}
	picture, done, err := p.render(page)
	if err != nil {
		return "", err
	}
	defer done()
	found, err := p.in.Recognize(picture)
	if err != nil {
		p.out.Warn("page %d is a picture whose text was not recognised: %v", index+1, err)
		return "", nil
	}
	return found, nil
}

// render draws a page in grey; done frees it.
func (p *pdfDocument) render(ref requests.Page) (picture *image.Gray, done func(), err error) {
	size, err := p.instance.GetPageSize(&requests.GetPageSize{Page: ref})
	if err != nil {
		return nil, nil, err
	}
	side := max(size.Width, size.Height, 1)
	dpi := max(int(min(renderDPI, renderSide*pointsPerInch/side)), 1)
	drawn, err := p.instance.RenderPageInDPI(&requests.RenderPageInDPI{Page: ref, DPI: dpi, ImageFormat: requests.RenderImageFormatGrayscale})
	if err != nil {
		return nil, nil, err
	}
	picture, ok := drawn.Result.RenderedImage.(*image.Gray)
	if !ok || picture.Rect.Empty() {
		drawn.Cleanup()
		return nil, nil, fmt.Errorf("the page was rendered as %T", drawn.Result.RenderedImage)
	}
	return picture, drawn.Cleanup, nil
}

// warnPictures names the pages that are pictures and were not read, as runs: 3, 5–9.
func (p *pdfDocument) warnPictures() {
	if len(p.pictures) == 0 {
		return
	}
	var runs []string
	for len(p.pictures) > 0 && len(runs) < 20 {
		first, n := p.pictures[0], 1
		for n < len(p.pictures) && p.pictures[n] == first+n {
			n++
		}
		run := fmt.Sprint(first)
		if n > 1 {
			run = fmt.Sprintf("%d–%d", first, first+n-1)
		}
		runs, p.pictures = append(runs, run), p.pictures[n:]
	}
	if len(p.pictures) > 0 {
		runs = append(runs, "…")
	}
	p.out.Warn("pages that are pictures without text were not read: %s", strings.Join(runs, ", "))
}
