package native

import (
	"unsafe"

	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
)

// FPDFPage_GetAnnotCount implements pdf.Library.
func (l *library) FPDFPage_GetAnnotCount(r *requests.FPDFPage_GetAnnotCount) (*responses.FPDFPage_GetAnnotCount, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	return &responses.FPDFPage_GetAnnotCount{Count: l.number(l.fn.annots, page)}, nil
}

// FPDFPage_GetAnnot implements pdf.Library.
func (l *library) FPDFPage_GetAnnot(r *requests.FPDFPage_GetAnnot) (*responses.FPDFPage_GetAnnot, error) {
	annot := l.call(l.fn.annot, pageHandle(r.Page), uintptr(r.Index))
	if annot == 0 {
		return nil, errCall
	}
	return &responses.FPDFPage_GetAnnot{Annotation: references.FPDF_ANNOTATION(reference(annot))}, nil
}

// FPDFPage_CloseAnnot implements pdf.Library.
func (l *library) FPDFPage_CloseAnnot(r *requests.FPDFPage_CloseAnnot) (*responses.FPDFPage_CloseAnnot, error) {
	l.call(l.fn.closeAnnot, handle(r.Annotation))
	return &responses.FPDFPage_CloseAnnot{}, nil
}

// FPDFAnnot_GetSubtype implements pdf.Library.
func (l *library) FPDFAnnot_GetSubtype(r *requests.FPDFAnnot_GetSubtype) (*responses.FPDFAnnot_GetSubtype, error) {
	return &responses.FPDFAnnot_GetSubtype{Subtype: enums.FPDF_ANNOTATION_SUBTYPE(l.number(l.fn.annotType, handle(r.Annotation)))}, nil
}

// FPDFAnnot_GetFlags implements pdf.Library.
func (l *library) FPDFAnnot_GetFlags(r *requests.FPDFAnnot_GetFlags) (*responses.FPDFAnnot_GetFlags, error) {
	return &responses.FPDFAnnot_GetFlags{Flags: enums.FPDF_ANNOT_FLAG(l.number(l.fn.annotFlags, handle(r.Annotation)))}, nil
}

// FPDFAnnot_HasKey implements pdf.Library.
func (l *library) FPDFAnnot_HasKey(r *requests.FPDFAnnot_HasKey) (*responses.FPDFAnnot_HasKey, error) {
	name := key(r.Key)
	return &responses.FPDFAnnot_HasKey{HasKey: l.number(l.fn.annotHasKey, handle(r.Annotation), address(name)) == 1}, nil
}

// FPDFAnnot_GetStringValue implements pdf.Library.
func (l *library) FPDFAnnot_GetStringValue(r *requests.FPDFAnnot_GetStringValue) (*responses.FPDFAnnot_GetStringValue, error) {
	name, annot := key(r.Key), handle(r.Annotation)
	value, err := l.textOf(func(at, size uintptr) uintptr {
		return l.call(l.fn.annotString, annot, address(name), at, size) & 0xFFFFFFFF
	})
	if err != nil {
		return nil, err
	}
	return &responses.FPDFAnnot_GetStringValue{Value: value}, nil
}

// FPDFAnnot_GetFormFieldType implements pdf.Library.
func (l *library) FPDFAnnot_GetFormFieldType(r *requests.FPDFAnnot_GetFormFieldType) (*responses.FPDFAnnot_GetFormFieldType, error) {
	kind := l.number(l.fn.fieldType, handle(r.FormHandle), handle(r.Annotation))
	if kind == 0 {
		return nil, errCall
	}
	return &responses.FPDFAnnot_GetFormFieldType{FormFieldType: enums.FPDF_FORMFIELD_TYPE(kind)}, nil
}

// FPDFAnnot_GetFormFieldFlags implements pdf.Library.
func (l *library) FPDFAnnot_GetFormFieldFlags(r *requests.FPDFAnnot_GetFormFieldFlags) (*responses.FPDFAnnot_GetFormFieldFlags, error) {
	return &responses.FPDFAnnot_GetFormFieldFlags{Flags: enums.FPDF_FORMFLAG(l.number(l.fn.fieldFlags, handle(r.FormHandle), handle(r.Annotation)))}, nil
}

// FPDFAnnot_GetFormFieldValue implements pdf.Library.
func (l *library) FPDFAnnot_GetFormFieldValue(r *requests.FPDFAnnot_GetFormFieldValue) (*responses.FPDFAnnot_GetFormFieldValue, error) {
	form, annot := handle(r.FormHandle), handle(r.Annotation)
	value, err := l.textOf(func(at, size uintptr) uintptr { return l.call(l.fn.fieldValue, form, annot, at, size) & 0xFFFFFFFF })
	if err != nil {
		return nil, err
	}
	return &responses.FPDFAnnot_GetFormFieldValue{FormFieldValue: value}, nil
}

// FPDFDOC_InitFormFillEnvironment implements pdf.Library.
func (l *library) FPDFDOC_InitFormFillEnvironment(*requests.FPDFDOC_InitFormFillEnvironment) (*responses.FPDFDOC_InitFormFillEnvironment, error) {
	if l.form != nil {
		return nil, errHandle
	}
	info := &formFillInfo{version: 1} // the library keeps its address
	for _, i := range requiredCallbacks {
		info.callbacks[i] = l.fn.nothing
	}
	form := l.call(l.fn.formInit, l.doc, uintptr(unsafe.Pointer(info)))
	if form == 0 {
		return nil, errCall
	}
	l.form, l.formHandle = info, form
	return &responses.FPDFDOC_InitFormFillEnvironment{FormHandle: references.FPDF_FORMHANDLE(reference(form))}, nil
}

// FPDFDOC_ExitFormFillEnvironment implements pdf.Library.
func (l *library) FPDFDOC_ExitFormFillEnvironment(*requests.FPDFDOC_ExitFormFillEnvironment) (*responses.FPDFDOC_ExitFormFillEnvironment, error) {
	if l.form == nil {
		return nil, errHandle
	}
	l.call(l.fn.formExit, l.formHandle)
	l.form = nil
	return &responses.FPDFDOC_ExitFormFillEnvironment{}, nil
}
