package native

import (
	"errors"
	"unsafe"

	"github.com/klippa-app/go-pdfium/enums"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
)

// FPDF_GetFormType implements pdf.Library.
func (l *library) FPDF_GetFormType(_ *requests.FPDF_GetFormType) (*responses.FPDF_GetFormType, error) {
	return &responses.FPDF_GetFormType{FormType: enums.FPDF_FORMTYPE(l.number(l.fn.formType, l.doc))}, nil
}

// FPDF_GetPageCount implements pdf.Library.
func (l *library) FPDF_GetPageCount(_ *requests.FPDF_GetPageCount) (*responses.FPDF_GetPageCount, error) {
	return &responses.FPDF_GetPageCount{PageCount: l.number(l.fn.pageCount, l.doc)}, nil
}

// FPDF_GetMetaText implements pdf.Library.
func (l *library) FPDF_GetMetaText(r *requests.FPDF_GetMetaText) (*responses.FPDF_GetMetaText, error) {
	tag := key(r.Tag)
	value, err := l.textOf(func(at, size uintptr) uintptr {
		return l.call(l.fn.metaText, l.doc, address(tag), at, size) & 0xFFFFFFFF
	})
	if err != nil {
		return nil, err
	}
	return &responses.FPDF_GetMetaText{Tag: r.Tag, Value: value}, nil
}

// FPDF_LoadPage implements pdf.Library.
func (l *library) FPDF_LoadPage(r *requests.FPDF_LoadPage) (*responses.FPDF_LoadPage, error) {
	page := l.call(l.fn.loadPage, l.doc, uintptr(r.Index))
	if page == 0 {
		return nil, pdferrors.ErrPage
	}
	l.pages[page] = true
	return &responses.FPDF_LoadPage{Page: references.FPDF_PAGE(reference(page))}, nil
}

// FPDF_ClosePage implements pdf.Library.
func (l *library) FPDF_ClosePage(r *requests.FPDF_ClosePage) (*responses.FPDF_ClosePage, error) {
	page := handle(r.Page)
	if !l.pages[page] {
		return nil, errHandle
	}
	delete(l.pages, page)
	l.call(l.fn.closePage, page)
	l.forget()
	return &responses.FPDF_ClosePage{}, nil
}

// FPDFPage_Flatten implements pdf.Library.
func (l *library) FPDFPage_Flatten(r *requests.FPDFPage_Flatten) (*responses.FPDFPage_Flatten, error) {
	page := pageHandle(r.Page)
	if page == 0 {
		return nil, errHandle
	}
	return &responses.FPDFPage_Flatten{Result: responses.FPDFPage_FlattenResult(l.number(l.fn.flatten, page, uintptr(r.Usage)))}, nil
}

// FPDFBookmark_GetFirstChild implements pdf.Library.
func (l *library) FPDFBookmark_GetFirstChild(r *requests.FPDFBookmark_GetFirstChild) (*responses.FPDFBookmark_GetFirstChild, error) {
	parent := uintptr(0)
	if r.Bookmark != nil {
		parent = handle(*r.Bookmark)
	}
	return &responses.FPDFBookmark_GetFirstChild{Bookmark: bookmark(l.call(l.fn.firstChild, l.doc, parent))}, nil
}

// FPDFBookmark_GetNextSibling implements pdf.Library.
func (l *library) FPDFBookmark_GetNextSibling(r *requests.FPDFBookmark_GetNextSibling) (*responses.FPDFBookmark_GetNextSibling, error) {
	return &responses.FPDFBookmark_GetNextSibling{Bookmark: bookmark(l.call(l.fn.nextSibling, l.doc, handle(r.Bookmark)))}, nil
}

func bookmark(at uintptr) *references.FPDF_BOOKMARK {
	if at == 0 {
		return nil
	}
	return new(references.FPDF_BOOKMARK(reference(at)))
}

// FPDFBookmark_GetAction implements pdf.Library.
func (l *library) FPDFBookmark_GetAction(r *requests.FPDFBookmark_GetAction) (*responses.FPDFBookmark_GetAction, error) {
	at := l.call(l.fn.action, handle(r.Bookmark))
	if at == 0 {
		return &responses.FPDFBookmark_GetAction{}, nil
	}
	return &responses.FPDFBookmark_GetAction{Action: new(references.FPDF_ACTION(reference(at)))}, nil
}

// FPDFAction_GetDest implements pdf.Library.
func (l *library) FPDFAction_GetDest(r *requests.FPDFAction_GetDest) (*responses.FPDFAction_GetDest, error) {
	at := l.call(l.fn.actionDest, l.doc, handle(r.Action))
	if at == 0 {
		return &responses.FPDFAction_GetDest{}, nil
	}
	return &responses.FPDFAction_GetDest{Dest: new(references.FPDF_DEST(reference(at)))}, nil
}

// FPDFDest_GetDestPageIndex implements pdf.Library.
func (l *library) FPDFDest_GetDestPageIndex(r *requests.FPDFDest_GetDestPageIndex) (*responses.FPDFDest_GetDestPageIndex, error) {
	return &responses.FPDFDest_GetDestPageIndex{Index: l.number(l.fn.destPage, l.doc, handle(r.Dest))}, nil
}

// GetBookmarks implements pdf.Library. Its caller has counted the bookmarks: the outline ends.
func (l *library) GetBookmarks(*requests.GetBookmarks) (*responses.GetBookmarks, error) {
	all, err := l.bookmarksUnder(0)
	if err != nil {
		return nil, err
	}
	return &responses.GetBookmarks{Bookmarks: all}, nil
}

// errOutline says that the outline is another one than was counted.
var errOutline = errors.New("the outline has no end")

// maxBookmarks is beyond what the caller lets through.
const maxBookmarks = 100_000

func (l *library) bookmarksUnder(parent uintptr) (all []responses.GetBookmarksBookmark, err error) {
	for at := l.call(l.fn.firstChild, l.doc, parent); at != 0; at = l.call(l.fn.nextSibling, l.doc, at) {
		if len(all) > maxBookmarks {
			return nil, errOutline
		}
		b := responses.GetBookmarksBookmark{Reference: *bookmark(at)}
		if b.Title, err = l.textOf(func(to, size uintptr) uintptr { return l.call(l.fn.title, at, to, size) & 0xFFFFFFFF }); err != nil {
			return nil, err
		}
		if dest := l.call(l.fn.dest, l.doc, at); dest != 0 {
			b.DestInfo = &responses.DestInfo{Reference: references.FPDF_DEST(reference(dest)), PageIndex: l.number(l.fn.destPage, l.doc, dest)}
		}
		if b.Children, err = l.bookmarksUnder(at); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// FPDFDoc_GetAttachmentCount implements pdf.Library.
func (l *library) FPDFDoc_GetAttachmentCount(*requests.FPDFDoc_GetAttachmentCount) (*responses.FPDFDoc_GetAttachmentCount, error) {
	return &responses.FPDFDoc_GetAttachmentCount{AttachmentCount: l.number(l.fn.attachments, l.doc)}, nil
}

// FPDFDoc_GetAttachment implements pdf.Library.
func (l *library) FPDFDoc_GetAttachment(r *requests.FPDFDoc_GetAttachment) (*responses.FPDFDoc_GetAttachment, error) {
	at := l.call(l.fn.attachment, l.doc, uintptr(r.Index))
	if at == 0 {
		return nil, errCall
	}
	return &responses.FPDFDoc_GetAttachment{Index: r.Index, Attachment: references.FPDF_ATTACHMENT(reference(at))}, nil
}

// FPDFAnnot_GetFileAttachment implements pdf.Library.
func (l *library) FPDFAnnot_GetFileAttachment(r *requests.FPDFAnnot_GetFileAttachment) (*responses.FPDFAnnot_GetFileAttachment, error) {
	if l.fn.annotFile == 0 {
		return nil, errCall
	}
	at := l.call(l.fn.annotFile, handle(r.Annotation))
	if at == 0 {
		return nil, errCall
	}
	return &responses.FPDFAnnot_GetFileAttachment{Attachment: references.FPDF_ATTACHMENT(reference(at))}, nil
}

// FPDFAttachment_GetName implements pdf.Library.
func (l *library) FPDFAttachment_GetName(r *requests.FPDFAttachment_GetName) (*responses.FPDFAttachment_GetName, error) {
	name, err := l.textOf(func(at, size uintptr) uintptr {
		return l.call(l.fn.attachmentName, handle(r.Attachment), at, size) & 0xFFFFFFFF
	})
	if err != nil {
		return nil, err
	}
	return &responses.FPDFAttachment_GetName{Name: name}, nil
}

// maxFile is beyond what the caller reads.
const maxFile = 64 << 20

// FPDFAttachment_GetFile implements pdf.Library.
func (l *library) FPDFAttachment_GetFile(r *requests.FPDFAttachment_GetFile) (*responses.FPDFAttachment_GetFile, error) {
	size := uintptr(unsafe.Pointer(&l.out.size))
	if l.out.size = 0; l.number(l.fn.attachmentFile, handle(r.Attachment), 0, 0, size) == 0 || l.out.size == 0 {
		return &responses.FPDFAttachment_GetFile{}, nil
	}
	if l.out.size > maxFile {
		return nil, errCall
	}
	data := make([]byte, l.out.size)
	if l.number(l.fn.attachmentFile, handle(r.Attachment), address(data), uintptr(len(data)), size) == 0 || l.out.size != uintptr(len(data)) {
		return nil, errCall
	}
	return &responses.FPDFAttachment_GetFile{Contents: data}, nil
}
