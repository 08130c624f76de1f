package pdf

import (
	"strings"

	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/structs"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// maxAnnotations bounds how many annotations of a page are looked at.
	maxAnnotations = 5000
	// hiddenAnnotation are the flags of an annotation that nobody sees: hidden, and not on a screen.
	hiddenAnnotation = 1<<1 | 1<<5
	// passwordField is the flag of a text field that shows no character.
	passwordField = 1 << 13
)

// annotations are what a page shows over its content.
type annotations struct {
	drawn  bool     // some have a picture of their text: flattening makes it part of the page
	values []string // the texts of those without one
	files  bool     // some carry a file
}

// annotationsOf looks at the form fields, free texts, stamps and files of a page. Any error ends it: the page itself can be read.
func (p *pdfDocument) annotationsOf(page requests.Page) (found annotations) {
	p.eachAnnotation(page, func(annot references.FPDF_ANNOTATION, kind enums.FPDF_ANNOTATION_SUBTYPE) {
		if kind == enums.FPDF_ANNOT_SUBTYPE_FILEATTACHMENT {
			found.files = true
			return
		}
		if has, err := p.instance.FPDFAnnot_HasKey(&requests.FPDFAnnot_HasKey{Annotation: annot, Key: "AP"}); !p.refused(err) && has.HasKey {
			found.drawn = true
			return
		}
		if value := p.annotationText(annot, kind); value != "" {
			found.values = append(found.values, value)
		}
	})
	return found
}

// eachAnnotation visits the annotations of a page that are not hidden.
func (p *pdfDocument) eachAnnotation(page requests.Page, visit func(references.FPDF_ANNOTATION, enums.FPDF_ANNOTATION_SUBTYPE)) {
	count, err := p.instance.FPDFPage_GetAnnotCount(&requests.FPDFPage_GetAnnotCount{Page: page})
	if p.refused(err) {
		return
	}
	for i := range min(count.Count, maxAnnotations) {
		a, err := p.instance.FPDFPage_GetAnnot(&requests.FPDFPage_GetAnnot{Page: page, Index: i})
		if p.refused(err) {
			continue // null, or no dictionary
		}
		if kind, err := p.instance.FPDFAnnot_GetSubtype(&requests.FPDFAnnot_GetSubtype{Annotation: a.Annotation}); !p.refused(err) && p.seen(a.Annotation, kind.Subtype) {
			visit(a.Annotation, kind.Subtype)
		}
		if _, err := p.instance.FPDFPage_CloseAnnot(&requests.FPDFPage_CloseAnnot{Annotation: a.Annotation}); p.refused(err) {
			return
		}
	}
}

// seen tells whether an annotation is of a kind that is read, and not hidden.
func (p *pdfDocument) seen(annot references.FPDF_ANNOTATION, kind enums.FPDF_ANNOTATION_SUBTYPE) bool {
	switch kind {
	case enums.FPDF_ANNOT_SUBTYPE_WIDGET, enums.FPDF_ANNOT_SUBTYPE_FREETEXT, enums.FPDF_ANNOT_SUBTYPE_STAMP, enums.FPDF_ANNOT_SUBTYPE_FILEATTACHMENT:
	default:
		return false
	}
	flags, err := p.instance.FPDFAnnot_GetFlags(&requests.FPDFAnnot_GetFlags{Annotation: annot})
	return !p.refused(err) && flags.Flags&hiddenAnnotation == 0
}

// annotationText is the text of an annotation without a picture of it; of a field, what was filled in.
func (p *pdfDocument) annotationText(annot references.FPDF_ANNOTATION, kind enums.FPDF_ANNOTATION_SUBTYPE) string {
	if kind != enums.FPDF_ANNOT_SUBTYPE_WIDGET {
		text, err := p.instance.FPDFAnnot_GetStringValue(&requests.FPDFAnnot_GetStringValue{Annotation: annot, Key: "Contents"})
		if p.refused(err) {
			return ""
		}
		return strings.Trim(text.Value, "\x00")
	}
	form, ok := p.formHandle()
	if !ok {
		return ""
	}
	field, err := p.instance.FPDFAnnot_GetFormFieldType(&requests.FPDFAnnot_GetFormFieldType{FormHandle: form, Annotation: annot})
	if p.refused(err) {
		return ""
	}
	switch field.FormFieldType {
	case enums.FPDF_FORMFIELD_TYPE_TEXTFIELD, enums.FPDF_FORMFIELD_TYPE_COMBOBOX, enums.FPDF_FORMFIELD_TYPE_LISTBOX:
	default:
		return "" // the value of a button is a name
	}
	flags, err := p.instance.FPDFAnnot_GetFormFieldFlags(&requests.FPDFAnnot_GetFormFieldFlags{FormHandle: form, Annotation: annot})
	if p.refused(err) || int(flags.Flags)&passwordField != 0 {
		return ""
	}
	value, err := p.instance.FPDFAnnot_GetFormFieldValue(&requests.FPDFAnnot_GetFormFieldValue{FormHandle: form, Annotation: annot})
	if p.refused(err) {
		return ""
	}
	return strings.Trim(value.FormFieldValue, "\x00")
}

// formHandle opens the document's form at its first use: fields inherit their values. Nothing of it is drawn or run.
func (p *pdfDocument) formHandle() (references.FPDF_FORMHANDLE, bool) {
	if p.form == nil {
		p.form = new(references.FPDF_FORMHANDLE)
		env, err := p.instance.FPDFDOC_InitFormFillEnvironment(&requests.FPDFDOC_InitFormFillEnvironment{Document: p.doc, FormFillInfo: structs.FPDF_FORMFILLINFO{
			FFI_Invalidate:         func(references.FPDF_PAGE, float64, float64, float64, float64) {},
			FFI_SetCursor:          func(enums.FXCT) {},
			FFI_SetTimer:           func(int, func(int)) int { return 0 },
			FFI_KillTimer:          func(int) {},
			FFI_GetLocalTime:       func() structs.FPDF_SYSTEMTIME { return structs.FPDF_SYSTEMTIME{} },
			FFI_GetPage:            func(references.FPDF_DOCUMENT, int) *references.FPDF_PAGE { return nil },
			FFI_GetRotation:        func(references.FPDF_PAGE) enums.FPDF_PAGE_ROTATION { return 0 },
			FFI_ExecuteNamedAction: func(string) {},
		}})
		if !p.refused(err) {
			*p.form = env.FormHandle
		}
	}
	return *p.form, *p.form != ""
}

// closeForm gives back what formHandle opened: the library keeps it for the whole process.
func (p *pdfDocument) closeForm() {
	if p.form != nil && *p.form != "" {
		_, _ = p.instance.FPDFDOC_ExitFormFillEnvironment(&requests.FPDFDOC_ExitFormFillEnvironment{FormHandle: *p.form})
	}
	p.form = nil
}

// writeFields sends the texts of annotations that stand on no page's content.
func (f *pageFlow) writeFields(page int, values []string) error {
	for _, v := range values {
		if err := f.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Page: page, Text: document.CleanText(v, false)}); err != nil {
			return err
		}
	}
	return nil
}
