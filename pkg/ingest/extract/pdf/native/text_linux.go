package native

import (
	"unsafe"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
	"github.com/klippa-app/go-pdfium/structs"
)

// doubles and floats are where the library writes numbers of floating point.
func (l *library) double(i int) uintptr { return uintptr(unsafe.Pointer(&l.out.doubles[i])) }
func (l *library) float(i int) uintptr  { return uintptr(unsafe.Pointer(&l.out.floats[i])) }

// matrix is what a call wrote.
func (l *library) matrix() structs.FPDF_FS_MATRIX {
	m := l.out.floats
	return structs.FPDF_FS_MATRIX{A: m[0], B: m[1], C: m[2], D: m[3], E: m[4], F: m[5]}
}

// FPDFText_LoadPage implements pdf.Library.
func (l *library) FPDFText_LoadPage(r *requests.FPDFText_LoadPage) (*responses.FPDFText_LoadPage, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	text := l.call(l.fn.textLoad, page)
	if text == 0 {
		return nil, errCall
	}
	l.texts[text] = true
	return &responses.FPDFText_LoadPage{TextPage: references.FPDF_TEXTPAGE(reference(text))}, nil
}

// FPDFText_ClosePage implements pdf.Library.
func (l *library) FPDFText_ClosePage(r *requests.FPDFText_ClosePage) (*responses.FPDFText_ClosePage, error) {
	text := handle(r.TextPage)
	if !l.texts[text] {
		return nil, errHandle
	}
	delete(l.texts, text)
	l.call(l.fn.textClose, text)
	return &responses.FPDFText_ClosePage{}, nil
}

// FPDFText_CountChars implements pdf.Library.
func (l *library) FPDFText_CountChars(r *requests.FPDFText_CountChars) (*responses.FPDFText_CountChars, error) {
	n := l.number(l.fn.textCount, handle(r.TextPage))
	if n < 0 {
		return nil, errCall
	}
	return &responses.FPDFText_CountChars{Count: n}, nil
}

// FPDFText_GetText implements pdf.Library.
func (l *library) FPDFText_GetText(r *requests.FPDFText_GetText) (*responses.FPDFText_GetText, error) {
	b := l.room(2 * (r.Count + 1)) // a zero ends the text
	n := l.number(l.fn.textGet, handle(r.TextPage), uintptr(r.StartIndex), uintptr(r.Count), address(b))
	return &responses.FPDFText_GetText{Text: decoded(b[:2*min(max(n, 0), r.Count+1)])}, nil
}

// FPDFText_GetCharIndexFromTextIndex implements pdf.Library.
func (l *library) FPDFText_GetCharIndexFromTextIndex(r *requests.FPDFText_GetCharIndexFromTextIndex) (*responses.FPDFText_GetCharIndexFromTextIndex, error) {
	n := l.number(l.fn.textIndex, handle(r.TextPage), uintptr(r.NTextIndex))
	if n < 0 {
		return nil, errCall
	}
	return &responses.FPDFText_GetCharIndexFromTextIndex{CharIndex: n}, nil
}

// FPDFText_GetCharOrigin implements pdf.Library.
func (l *library) FPDFText_GetCharOrigin(r *requests.FPDFText_GetCharOrigin) (*responses.FPDFText_GetCharOrigin, error) {
	ok := l.number(l.fn.textOrigin, handle(r.TextPage), uintptr(r.Index), l.double(0), l.double(1))
	if ok == 0 {
		return nil, errCall
	}
	return &responses.FPDFText_GetCharOrigin{Index: r.Index, X: l.out.doubles[0], Y: l.out.doubles[1]}, nil
}

// FPDFText_GetCharBox implements pdf.Library.
func (l *library) FPDFText_GetCharBox(r *requests.FPDFText_GetCharBox) (*responses.FPDFText_GetCharBox, error) {
	ok := l.number(l.fn.textBox, handle(r.TextPage), uintptr(r.Index), l.double(0), l.double(1), l.double(2), l.double(3))
	if ok == 0 {
		return nil, errCall
	}
	d := l.out.doubles
	return &responses.FPDFText_GetCharBox{Index: r.Index, Left: d[0], Right: d[1], Bottom: d[2], Top: d[3]}, nil
}

// FPDFText_GetFontSize implements pdf.Library.
func (l *library) FPDFText_GetFontSize(r *requests.FPDFText_GetFontSize) (*responses.FPDFText_GetFontSize, error) {
	return &responses.FPDFText_GetFontSize{Index: r.Index, FontSize: l.fn.fontSize(handle(r.TextPage), int32(r.Index))}, nil
}

// FPDFText_GetFontInfo implements pdf.Library.
func (l *library) FPDFText_GetFontInfo(r *requests.FPDFText_GetFontInfo) (*responses.FPDFText_GetFontInfo, error) {
	text, flags := handle(r.TextPage), uintptr(unsafe.Pointer(&l.out.number))
	l.out.number = 0
	name, err := l.bytesOf(func(at, size uintptr) uintptr {
		return l.call(l.fn.textFont, text, uintptr(r.Index), at, size, flags) & 0xFFFFFFFF
	})
	if err != nil {
		return nil, err
	}
	return &responses.FPDFText_GetFontInfo{Index: r.Index, FontName: string(name[:len(name)-1]), Flags: int(l.out.number)}, nil
}

// FPDFText_GetMatrix implements pdf.Library.
func (l *library) FPDFText_GetMatrix(r *requests.FPDFText_GetMatrix) (*responses.FPDFText_GetMatrix, error) {
	ok := l.number(l.fn.textMatrix, handle(r.TextPage), uintptr(r.Index), l.float(0))
	if ok == 0 {
		return nil, errCall
	}
	return &responses.FPDFText_GetMatrix{Matrix: l.matrix()}, nil
}
