package pdf

import (
	"fmt"
	"image"

	"github.com/klippa-app/go-pdfium/requests"

	"github.com/millweir/millweir/pkg/ingest"
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

// maxPictures is the most runs of pages in the warning about pictures: it stays below ingest.MaxWarningRunes with the largest numbers.
const maxPictures = 20

// warnPictures names the pages that are pictures and were not read.
func (p *pdfDocument) warnPictures() {
	if len(p.pictures) > 0 {
		p.out.Warn("pages that are pictures without text were not read: %s", ingest.PageRanges(p.pictures, maxPictures))
	}
}
