// Package native has PDFium as a library of the system, libpdfium.so, loaded by purego without cgo. It is two to four times as fast as the
// WebAssembly one, and a hostile document that breaks it has broken the process: only cmd pdf-reader links it, whose process is
// confined before it reads. What a document opened is closed with it.
package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/pdf"
)

// Register makes the library at path the process's reader of PDFs. It is loaded when the child starts.
func Register(path string) {
	formats.RegisterPDF(formats.PDF{
		Compile: func(string, int) (any, error) {
			e, err := Load(path)
			if err != nil {
				return nil, err
			}
			return e, e.init()
		},
		Read: pdf.Read,
	})
}

// Engine is the loaded library.
type Engine struct {
	fn      functions
	started bool
}

var _ pdf.Engine = (*Engine)(nil)

// functions are the addresses of PDFium's functions, by their names without "FPDF". Numbers of floating point are returned in other
// registers than addresses are: these two are called by their type.
type functions struct {
	init, lastError, loadMem, closeDoc, pageCount, formType, metaText, loadPage, closePage uintptr

	textLoad, textClose, textCount, textGet, textIndex, textOrigin, textBox, textFont, textMatrix uintptr

	objects, object, objectType, objectBounds, objectMatrix, segments, segment, segmentType, segmentPoint uintptr

	annots, annot, closeAnnot, flatten, annotType, annotFlags, annotHasKey, annotString, fieldType, fieldFlags, fieldValue uintptr

	formInit, formExit uintptr

	firstChild, nextSibling, title, dest, action, actionDest, destPage uintptr

	attachments, attachment, attachmentName, attachmentFile uintptr
	annotFile                                               uintptr // 0: the library is older than it

	bitmap, destroyBitmap, fill, render uintptr

	nothing uintptr // a callback that returns 0

	fontSize              func(text uintptr, index int32) float64
	pageWidth, pageHeight func(page uintptr) float64
}

// Load loads the library and finds its functions.
// Errors: what the system's loader says; a function that is missing.
func Load(path string) (*Engine, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load libpdfium: %w", err)
	}
	e := &Engine{}
	f := &e.fn
	var missing []error
	find := func(name string) uintptr {
		at, err := purego.Dlsym(lib, name)
		if err != nil {
			missing = append(missing, err)
		}
		return at
	}
	for name, at := range map[string]*uintptr{
		"FPDF_InitLibraryWithConfig": &f.init, "FPDF_GetLastError": &f.lastError, "FPDF_LoadMemDocument64": &f.loadMem,
		"FPDF_CloseDocument": &f.closeDoc, "FPDF_GetPageCount": &f.pageCount, "FPDF_GetFormType": &f.formType, "FPDF_GetMetaText": &f.metaText,
		"FPDF_LoadPage": &f.loadPage, "FPDF_ClosePage": &f.closePage,
		"FPDFText_LoadPage": &f.textLoad, "FPDFText_ClosePage": &f.textClose, "FPDFText_CountChars": &f.textCount,
		"FPDFText_GetText": &f.textGet, "FPDFText_GetCharIndexFromTextIndex": &f.textIndex, "FPDFText_GetCharOrigin": &f.textOrigin,
		"FPDFText_GetCharBox": &f.textBox, "FPDFText_GetFontInfo": &f.textFont, "FPDFText_GetMatrix": &f.textMatrix,
		"FPDFPage_CountObjects": &f.objects, "FPDFPage_GetObject": &f.object, "FPDFPageObj_GetType": &f.objectType,
		"FPDFPageObj_GetBounds": &f.objectBounds, "FPDFPageObj_GetMatrix": &f.objectMatrix, "FPDFPath_CountSegments": &f.segments,
		"FPDFPath_GetPathSegment": &f.segment, "FPDFPathSegment_GetType": &f.segmentType, "FPDFPathSegment_GetPoint": &f.segmentPoint,
		"FPDFPage_GetAnnotCount": &f.annots, "FPDFPage_GetAnnot": &f.annot, "FPDFPage_CloseAnnot": &f.closeAnnot, "FPDFPage_Flatten": &f.flatten,
		"FPDFAnnot_GetSubtype": &f.annotType, "FPDFAnnot_GetFlags": &f.annotFlags, "FPDFAnnot_HasKey": &f.annotHasKey,
		"FPDFAnnot_GetStringValue": &f.annotString, "FPDFAnnot_GetFormFieldType": &f.fieldType, "FPDFAnnot_GetFormFieldFlags": &f.fieldFlags,
		"FPDFAnnot_GetFormFieldValue":     &f.fieldValue,
		"FPDFDOC_InitFormFillEnvironment": &f.formInit, "FPDFDOC_ExitFormFillEnvironment": &f.formExit,
		"FPDFBookmark_GetFirstChild": &f.firstChild, "FPDFBookmark_GetNextSibling": &f.nextSibling, "FPDFBookmark_GetTitle": &f.title,
		"FPDFBookmark_GetDest": &f.dest, "FPDFBookmark_GetAction": &f.action, "FPDFAction_GetDest": &f.actionDest,
		"FPDFDest_GetDestPageIndex":  &f.destPage,
		"FPDFDoc_GetAttachmentCount": &f.attachments, "FPDFDoc_GetAttachment": &f.attachment,
		"FPDFAttachment_GetName": &f.attachmentName, "FPDFAttachment_GetFile": &f.attachmentFile,
		"FPDFBitmap_CreateEx": &f.bitmap, "FPDFBitmap_Destroy": &f.destroyBitmap, "FPDFBitmap_FillRect": &f.fill, "FPDF_RenderPageBitmap": &f.render,
	} {
		*at = find(name)
	}
	for name, fn := range map[string]any{
		"FPDFText_GetFontSize": &f.fontSize, "FPDF_GetPageWidth": &f.pageWidth, "FPDF_GetPageHeight": &f.pageHeight,
	} {
		if at := find(name); at != 0 {
			purego.RegisterFunc(fn, at)
		}
	}
	f.annotFile, _ = purego.Dlsym(lib, "FPDFAnnot_GetFileAttachment")
	if err := errors.Join(missing...); err != nil {
		return nil, fmt.Errorf("load libpdfium: %s is none that can be used: %w", path, err)
	}
	return e, nil
}

// libraryConfig is FPDF_LIBRARY_CONFIG, version 2.
type libraryConfig struct {
	version   int32
	fontPaths *uintptr
	isolate   uintptr
	slot      uint32
}

// init starts the library, once in a process. It looks for no fonts of the system: the text does not depend on them, and the WebAssembly
// one sees none.
func (e *Engine) init() error {
	if e.started {
		return errors.New("libpdfium is started already")
	}
	e.started = true
	e.fn.nothing = purego.NewCallback(func() uintptr { return 0 })
	config := &libraryConfig{version: 2, fontPaths: new(uintptr)}
	purego.SyscallN(e.fn.init, uintptr(unsafe.Pointer(config)))
	runtime.KeepAlive(config)
	return nil
}

// loadErrors are PDFium's reasons by their number.
var loadErrors = []error{
	pdferrors.ErrSuccess, pdferrors.ErrUnknown, pdferrors.ErrFile, pdferrors.ErrFormat, pdferrors.ErrPassword, pdferrors.ErrSecurity, pdferrors.ErrPage,
}

// Open implements pdf.Engine. A stored file is mapped: its bytes are the system's page cache, not the process's memory.
func (e *Engine) Open(file io.ReaderAt, size int64) (pdf.Library, references.FPDF_DOCUMENT, error) {
	l := &library{fn: &e.fn, pages: map[uintptr]bool{}, texts: map[uintptr]bool{}}
	if err := l.hold(file, size); err != nil {
		return nil, "", fmt.Errorf("%w: hold the document: %w", pdf.ErrEngine, err)
	}
	if l.doc = l.call(l.fn.loadMem, address(l.data), uintptr(len(l.data)), 0); l.doc == 0 {
		err := pdferrors.ErrUnexpected
		if n := l.call(l.fn.lastError); n < uintptr(len(loadErrors)) {
			err = loadErrors[n]
		}
		_ = l.Close()
		return nil, "", err
	}
	return l, references.FPDF_DOCUMENT(reference(l.doc)), nil
}

// hold maps the document, or reads it when it lies in memory.
func (l *library) hold(file io.ReaderAt, size int64) (err error) {
	if f, ok := file.(*os.File); ok && size > 0 {
		l.mapped = true
		l.data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
		return err
	}
	l.data, err = io.ReadAll(io.NewSectionReader(file, 0, size))
	return err
}

// Close closes the document and what of it is still open.
func (l *library) Close() error {
	for text := range l.texts {
		l.call(l.fn.textClose, text)
	}
	for page := range l.pages {
		l.call(l.fn.closePage, page)
	}
	if l.form != nil {
		l.call(l.fn.formExit, l.formHandle)
	}
	if l.doc != 0 {
		l.call(l.fn.closeDoc, l.doc)
	}
	data := l.data
	l.texts, l.pages, l.form, l.doc, l.data = nil, nil, nil, 0, nil
	if l.mapped {
		return unix.Munmap(data)
	}
	runtime.KeepAlive(data)
	return nil
}
