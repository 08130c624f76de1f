package pdf

import (
	"errors"
	"io"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
)

// Engine is PDFium in one of its forms. Package wasm has it compiled to WebAssembly, package native loads it as a library of the system.
type Engine interface {
	// Open opens a document; Close of the Library closes it.
	// Errors: go-pdfium's own for a document that PDFium refuses; ErrEngine.
	Open(file io.ReaderAt, size int64) (Library, references.FPDF_DOCUMENT, error)
}

// ErrEngine says that PDFium itself could not be started, whatever the document is.
var ErrEngine = errors.New("the pdf reader")

// Library is what reading a document asks of PDFium, in the words of go-pdfium: the text and the places of its characters, drawings,
// annotations, the outline, attached files. Each method is a function of PDFium's, but for those that begin with a verb, which are go-pdfium's own.
// A Library serves one document and one goroutine.
type Library interface {
	io.Closer

	FPDF_GetPageCount(*requests.FPDF_GetPageCount) (*responses.FPDF_GetPageCount, error)
	FPDF_GetFormType(*requests.FPDF_GetFormType) (*responses.FPDF_GetFormType, error)
	FPDF_GetMetaText(*requests.FPDF_GetMetaText) (*responses.FPDF_GetMetaText, error)
	FPDF_LoadPage(*requests.FPDF_LoadPage) (*responses.FPDF_LoadPage, error)
	FPDF_ClosePage(*requests.FPDF_ClosePage) (*responses.FPDF_ClosePage, error)

	FPDFText_LoadPage(*requests.FPDFText_LoadPage) (*responses.FPDFText_LoadPage, error)
	FPDFText_ClosePage(*requests.FPDFText_ClosePage) (*responses.FPDFText_ClosePage, error)
	FPDFText_CountChars(*requests.FPDFText_CountChars) (*responses.FPDFText_CountChars, error)
	FPDFText_GetText(*requests.FPDFText_GetText) (*responses.FPDFText_GetText, error)
	FPDFText_GetCharIndexFromTextIndex(*requests.FPDFText_GetCharIndexFromTextIndex) (*responses.FPDFText_GetCharIndexFromTextIndex, error)
	FPDFText_GetCharOrigin(*requests.FPDFText_GetCharOrigin) (*responses.FPDFText_GetCharOrigin, error)
	FPDFText_GetCharBox(*requests.FPDFText_GetCharBox) (*responses.FPDFText_GetCharBox, error)
	FPDFText_GetFontSize(*requests.FPDFText_GetFontSize) (*responses.FPDFText_GetFontSize, error)
	FPDFText_GetFontInfo(*requests.FPDFText_GetFontInfo) (*responses.FPDFText_GetFontInfo, error)
	FPDFText_GetMatrix(*requests.FPDFText_GetMatrix) (*responses.FPDFText_GetMatrix, error)

	FPDFPage_CountObjects(*requests.FPDFPage_CountObjects) (*responses.FPDFPage_CountObjects, error)
	FPDFPage_GetObject(*requests.FPDFPage_GetObject) (*responses.FPDFPage_GetObject, error)
	FPDFPageObj_GetType(*requests.FPDFPageObj_GetType) (*responses.FPDFPageObj_GetType, error)
	FPDFPageObj_GetBounds(*requests.FPDFPageObj_GetBounds) (*responses.FPDFPageObj_GetBounds, error)
	FPDFPageObj_GetMatrix(*requests.FPDFPageObj_GetMatrix) (*responses.FPDFPageObj_GetMatrix, error)
	FPDFPath_CountSegments(*requests.FPDFPath_CountSegments) (*responses.FPDFPath_CountSegments, error)
	FPDFPath_GetPathSegment(*requests.FPDFPath_GetPathSegment) (*responses.FPDFPath_GetPathSegment, error)
	FPDFPathSegment_GetType(*requests.FPDFPathSegment_GetType) (*responses.FPDFPathSegment_GetType, error)
	FPDFPathSegment_GetPoint(*requests.FPDFPathSegment_GetPoint) (*responses.FPDFPathSegment_GetPoint, error)

	FPDFPage_GetAnnotCount(*requests.FPDFPage_GetAnnotCount) (*responses.FPDFPage_GetAnnotCount, error)
	FPDFPage_GetAnnot(*requests.FPDFPage_GetAnnot) (*responses.FPDFPage_GetAnnot, error)
	FPDFPage_CloseAnnot(*requests.FPDFPage_CloseAnnot) (*responses.FPDFPage_CloseAnnot, error)
	FPDFPage_Flatten(*requests.FPDFPage_Flatten) (*responses.FPDFPage_Flatten, error)
	FPDFAnnot_GetSubtype(*requests.FPDFAnnot_GetSubtype) (*responses.FPDFAnnot_GetSubtype, error)
	FPDFAnnot_GetFlags(*requests.FPDFAnnot_GetFlags) (*responses.FPDFAnnot_GetFlags, error)
	FPDFAnnot_HasKey(*requests.FPDFAnnot_HasKey) (*responses.FPDFAnnot_HasKey, error)
	FPDFAnnot_GetStringValue(*requests.FPDFAnnot_GetStringValue) (*responses.FPDFAnnot_GetStringValue, error)
	FPDFAnnot_GetFormFieldType(*requests.FPDFAnnot_GetFormFieldType) (*responses.FPDFAnnot_GetFormFieldType, error)
	FPDFAnnot_GetFormFieldFlags(*requests.FPDFAnnot_GetFormFieldFlags) (*responses.FPDFAnnot_GetFormFieldFlags, error)
	FPDFAnnot_GetFormFieldValue(*requests.FPDFAnnot_GetFormFieldValue) (*responses.FPDFAnnot_GetFormFieldValue, error)
	FPDFDOC_InitFormFillEnvironment(*requests.FPDFDOC_InitFormFillEnvironment) (*responses.FPDFDOC_InitFormFillEnvironment, error)
	FPDFDOC_ExitFormFillEnvironment(*requests.FPDFDOC_ExitFormFillEnvironment) (*responses.FPDFDOC_ExitFormFillEnvironment, error)

	GetBookmarks(*requests.GetBookmarks) (*responses.GetBookmarks, error)
	FPDFBookmark_GetFirstChild(*requests.FPDFBookmark_GetFirstChild) (*responses.FPDFBookmark_GetFirstChild, error)
	FPDFBookmark_GetNextSibling(*requests.FPDFBookmark_GetNextSibling) (*responses.FPDFBookmark_GetNextSibling, error)
	FPDFBookmark_GetAction(*requests.FPDFBookmark_GetAction) (*responses.FPDFBookmark_GetAction, error)
	FPDFAction_GetDest(*requests.FPDFAction_GetDest) (*responses.FPDFAction_GetDest, error)
	FPDFDest_GetDestPageIndex(*requests.FPDFDest_GetDestPageIndex) (*responses.FPDFDest_GetDestPageIndex, error)

	FPDFDoc_GetAttachmentCount(*requests.FPDFDoc_GetAttachmentCount) (*responses.FPDFDoc_GetAttachmentCount, error)
	FPDFDoc_GetAttachment(*requests.FPDFDoc_GetAttachment) (*responses.FPDFDoc_GetAttachment, error)
	FPDFAnnot_GetFileAttachment(*requests.FPDFAnnot_GetFileAttachment) (*responses.FPDFAnnot_GetFileAttachment, error)
	FPDFAttachment_GetName(*requests.FPDFAttachment_GetName) (*responses.FPDFAttachment_GetName, error)
	FPDFAttachment_GetFile(*requests.FPDFAttachment_GetFile) (*responses.FPDFAttachment_GetFile, error)

	GetPageSize(*requests.GetPageSize) (*responses.GetPageSize, error)
	RenderPageInDPI(*requests.RenderPageInDPI) (*responses.RenderPageInDPI, error)
}
