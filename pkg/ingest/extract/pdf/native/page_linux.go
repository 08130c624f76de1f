package native

import (
	"image"
	"math"

	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
)

// FPDFPage_CountObjects implements pdf.Library.
func (l *library) FPDFPage_CountObjects(r *requests.FPDFPage_CountObjects) (*responses.FPDFPage_CountObjects, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	return &responses.FPDFPage_CountObjects{Count: l.number(l.fn.objects, page)}, nil
}

// FPDFPage_GetObject implements pdf.Library.
func (l *library) FPDFPage_GetObject(r *requests.FPDFPage_GetObject) (*responses.FPDFPage_GetObject, error) {
	object := l.call(l.fn.object, pageHandle(r.Page), uintptr(r.Index))
	if object == 0 {
		return nil, errCall
	}
	return &responses.FPDFPage_GetObject{PageObject: references.FPDF_PAGEOBJECT(reference(object))}, nil
}

// FPDFPageObj_GetType implements pdf.Library.
func (l *library) FPDFPageObj_GetType(r *requests.FPDFPageObj_GetType) (*responses.FPDFPageObj_GetType, error) {
	return &responses.FPDFPageObj_GetType{Type: enums.FPDF_PAGEOBJ(l.number(l.fn.objectType, handle(r.PageObject)))}, nil
}

// FPDFPageObj_GetBounds implements pdf.Library.
func (l *library) FPDFPageObj_GetBounds(r *requests.FPDFPageObj_GetBounds) (*responses.FPDFPageObj_GetBounds, error) {
	ok := l.number(l.fn.objectBounds, handle(r.PageObject), l.float(0), l.float(1), l.float(2), l.float(3))
	if ok == 0 {
		return nil, errCall
	}
	f := l.out.floats
	return &responses.FPDFPageObj_GetBounds{Left: f[0], Bottom: f[1], Right: f[2], Top: f[3]}, nil
}

// FPDFPageObj_GetMatrix implements pdf.Library.
func (l *library) FPDFPageObj_GetMatrix(r *requests.FPDFPageObj_GetMatrix) (*responses.FPDFPageObj_GetMatrix, error) {
	ok := l.number(l.fn.objectMatrix, handle(r.PageObject), l.float(0))
	if ok == 0 {
		return nil, errCall
	}
	return &responses.FPDFPageObj_GetMatrix{Matrix: l.matrix()}, nil
}

// FPDFPath_CountSegments implements pdf.Library.
func (l *library) FPDFPath_CountSegments(r *requests.FPDFPath_CountSegments) (*responses.FPDFPath_CountSegments, error) {
	n := l.number(l.fn.segments, handle(r.PageObject))
	if n < 0 {
		return nil, errCall
	}
	return &responses.FPDFPath_CountSegments{Count: n}, nil
}

// FPDFPath_GetPathSegment implements pdf.Library.
func (l *library) FPDFPath_GetPathSegment(r *requests.FPDFPath_GetPathSegment) (*responses.FPDFPath_GetPathSegment, error) {
	segment := l.call(l.fn.segment, handle(r.PageObject), uintptr(r.Index))
	if segment == 0 {
		return nil, errCall
	}
	return &responses.FPDFPath_GetPathSegment{PathSegment: references.FPDF_PATHSEGMENT(reference(segment))}, nil
}

// FPDFPathSegment_GetType implements pdf.Library.
func (l *library) FPDFPathSegment_GetType(r *requests.FPDFPathSegment_GetType) (*responses.FPDFPathSegment_GetType, error) {
	return &responses.FPDFPathSegment_GetType{Type: enums.FPDF_SEGMENT(l.number(l.fn.segmentType, handle(r.PathSegment)))}, nil
}

// FPDFPathSegment_GetPoint implements pdf.Library.
func (l *library) FPDFPathSegment_GetPoint(r *requests.FPDFPathSegment_GetPoint) (*responses.FPDFPathSegment_GetPoint, error) {
	ok := l.number(l.fn.segmentPoint, handle(r.PathSegment), l.float(0), l.float(1))
	if ok == 0 {
		return nil, errCall
	}
	return &responses.FPDFPathSegment_GetPoint{X: l.out.floats[0], Y: l.out.floats[1]}, nil
}

// GetPageSize implements pdf.Library.
func (l *library) GetPageSize(r *requests.GetPageSize) (*responses.GetPageSize, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	return &responses.GetPageSize{Width: l.fn.pageWidth(page), Height: l.fn.pageHeight(page)}, nil
}

// Of FPDFBitmap_CreateEx and FPDFBitmap_FillRect.
const (
	formatGray = 1
	white      = 0xFFFFFFFF
	// maxSide bounds a picture's side: its caller asks for less.
	maxSide = 20_000
)

// RenderPageInDPI implements pdf.Library: it draws a page in grey on white, whatever the format that is asked for.
func (l *library) RenderPageInDPI(r *requests.RenderPageInDPI) (*responses.RenderPageInDPI, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	scale := float64(r.DPI) / 72
	width, height := int(math.Ceil(l.fn.pageWidth(page)*scale)), int(math.Ceil(l.fn.pageHeight(page)*scale))
	if width < 1 || height < 1 || width > maxSide || height > maxSide {
		return nil, errCall
	}
	picture := image.NewGray(image.Rect(0, 0, width, height))
	w, h := uintptr(width), uintptr(height)
	bitmap := l.call(l.fn.bitmap, w, h, formatGray, address(picture.Pix), uintptr(picture.Stride))
	if bitmap == 0 {
		return nil, errCall
	}
	l.call(l.fn.fill, bitmap, 0, 0, w, h, white)
	l.call(l.fn.render, bitmap, page, 0, 0, w, h, 0, uintptr(r.RenderFlags|enums.FPDF_RENDER_FLAG_GRAYSCALE))
	l.call(l.fn.destroyBitmap, bitmap)
	return &responses.RenderPageInDPI{Result: responses.RenderPage{RenderedImage: picture, Width: width, Height: height}}, nil
}
