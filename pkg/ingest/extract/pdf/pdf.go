// Package pdf reads PDFs with PDFium. Packages wasm and native have PDFium itself; a program links one of them.
package pdf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/klippa-app/go-pdfium/enums"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// maxFailedPages in a row end the reading: a file that claims a million pages would go on for ever.
	maxFailedPages = 50
	// maxTraps is how many times an instance may die in one document before the document is given up.
	maxTraps = 3
	// ocrChars is the number of characters per page below which a page is taken for a picture.
	ocrChars = 10
	// maxPageChars bounds the text of one page.
	maxPageChars = 4 << 20
)

// Read reads a PDF page by page with PDFium's bulk text call, then the files that are attached to it.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	engine, ok := in.Engine.(Engine)
	if !ok {
		return ingest.Extraction{}, errors.New("read pdf: this process has not loaded the pdf reader")
	}
	p := &pdfDocument{in: in, out: out, engine: engine}
	if err := p.open(); err != nil {
		return ingest.Extraction{}, err
	}
	defer p.close()
	if p.pages > in.Limits.MaxPages {
		return ingest.Extraction{}, document.OverLimit("the document has %d pages, more than %d", p.pages, in.Limits.MaxPages)
	}
	p.flow = newPageFlow(out)
	p.flow.outline = p.outline()
	title := p.title()
	if err := p.readPages(ctx); err != nil {
		return ingest.Extraction{}, err
	}
	if err := p.flow.close(); err != nil {
		return ingest.Extraction{}, err
	}
	files := p.attachments()
	p.close() // a file may be a PDF: there is one instance at a time
	if err := p.readAttachments(ctx, files); err != nil {
		return ingest.Extraction{}, err
	}
	return ingest.Extraction{Title: title, Pages: p.pages, Unread: p.unread}, nil
}

const remedyXFA = "Open the form in Adobe's reader, print it into a new PDF, and upload that."

// pdfDocument is one open document and the instance that belongs to it alone.
type pdfDocument struct {
	in       *document.Input
	out      *document.Sink
	engine   Engine
	instance Library
	doc      references.FPDF_DOCUMENT
	form     *references.FPDF_FORMHANDLE // nil: not asked for yet; empty: there is none
	pages    int
	flow     *pageFlow

	traps    int
	paths    int   // drawings that were looked at
	failed   int   // pages that could not be read
	unread   []int // the first of them, from 1
	inRow    int
	trap     error // of the page that is read
	lastErr  error
	chars    int   // without white space
	pictures []int // pages that are pictures and were not read
	images   bool  // some page with hardly any text shows a picture

	withFiles []int // pages (0-based) that show files
}

// open starts a fresh instance and opens the document in it.
// Errors: ENCRYPTED, CORRUPT, UNSUPPORTED_TYPE.
func (p *pdfDocument) open() error {
	instance, doc, err := p.engine.Open(p.in.File, p.in.Size)
	switch {
	case errors.Is(err, ErrEngine):
		return err
	case errors.Is(err, pdferrors.ErrPassword) || errors.Is(err, pdferrors.ErrSecurity):
		return document.Encrypted("open the pdf: %w", err)
	case err != nil:
		return document.Corrupt("open the pdf: %w", err)
	}
	p.instance, p.doc = instance, doc
	// Such a form has one page, which tells the reader to wait.
	if form, err := instance.FPDF_GetFormType(&requests.FPDF_GetFormType{Document: p.doc}); err == nil && form.FormType == enums.FPDF_FORMTYPE_XFA_FULL {
		p.close()
		return ingest.Permanent(ingest.CodeUnsupportedType, remedyXFA, "the pdf is a dynamic form (XFA), whose text is not in its pages")
	}
	count, err := instance.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: p.doc})
	if err != nil {
		p.close()
		return document.Corrupt("count the pdf's pages: %w", err)
	}
	if p.pages = count.PageCount; p.pages == 0 {
		p.close()
		return document.Corrupt("the pdf has no pages")
	}
	return nil
}

// close throws the instance away: it read a file of unknown intent.
func (p *pdfDocument) close() {
	if p.instance != nil {
		p.closeForm()
		_ = p.instance.Close()
		p.instance = nil
	}
}

func (p *pdfDocument) readPages(ctx context.Context) error {
	reported := time.Time{}
	for page := range p.pages {
		if err := ctx.Err(); err != nil {
			return err
		}
		content, err := p.readPage(page)
		if err != nil {
			if err := p.pageFailed(page, err); err != nil {
				return err
			}
		} else {
			p.inRow = 0
			if err := p.flow.page(page+1, content); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(reported) > document.ProgressEvery || page+1 == p.pages {
			reported = now
			p.in.Progress(page+1, p.pages)
		}
	}
	return p.verdict()
}

// verdict judges the document as a whole.
func (p *pdfDocument) verdict() error {
	switch {
	case p.failed == p.pages:
		return document.Corrupt("none of the pdf's %d pages can be read: %w", p.pages, p.lastErr)
	case 2*p.failed > p.pages:
		return document.Corrupt("%d of the pdf's %d pages cannot be read: %w", p.failed, p.pages, p.lastErr)
	case p.images && p.in.Recognize == nil && p.chars < ocrChars*(p.pages-p.failed):
		return ingest.Permanent(ingest.CodeNeedsOCR, document.RemedyOCR, "the pdf's %d pages hold %d characters of text: they are pictures", p.pages, p.chars)
	}
	p.warnPictures()
	return nil
}

// pageFailed counts a page that could not be read; an error ends the document.
func (p *pdfDocument) pageFailed(page int, err error) error {
	p.failed++
	if len(p.unread) < ingest.MaxUnread {
		p.unread = append(p.unread, page+1)
	}
	p.inRow++
	// A trap's message goes on with the guest's stack, which nobody can read.
	cause, _, _ := strings.Cut(err.Error(), "\n")
	p.lastErr = fmt.Errorf("page %d: %s", page+1, cause)
	if p.inRow >= maxFailedPages {
		return document.Corrupt("%d pages in a row cannot be read: %w", p.inRow, p.lastErr)
	}
	if pdfiumRefusal(err) {
		return nil
	}
	// Anything else is a trap: the instance is in no defined state.
	p.in.Tainted = true
	if p.traps++; p.traps > maxTraps {
		return document.OverLimit("the pdf exhausts its reader on %d pages: %w", p.traps, p.lastErr)
	}
	p.close()
	return p.open()
}

// pdfiumRefusal tells PDFium's own answers from a trap.
func pdfiumRefusal(err error) bool {
	known := []error{
		pdferrors.ErrUnknown, pdferrors.ErrFile, pdferrors.ErrFormat, pdferrors.ErrPassword, pdferrors.ErrSecurity, pdferrors.ErrPage,
		pdferrors.ErrUnexpected, pdferrors.ErrSuccess,
	}
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }) || !strings.Contains(err.Error(), "wasm")
}

// pageContent is what was read of a page.
type pageContent struct {
	lines  []textLine // in PDFium's order
	grids  []grid     // that are drawn around tables
	fields []string   // texts of annotations that are drawn nowhere
}

// readPage reads a page (0-based). One that has form fields, free texts or stamps is read after these became part of it.
func (p *pdfDocument) readPage(index int) (pageContent, error) {
	p.trap = nil
	page, err := p.loadPage(index)
	if err != nil {
		return pageContent{}, err
	}
	defer func() { p.closePage(page) }()
	shown := p.annotationsOf(page)
	picture := shown.drawn && p.hasImage(page) // asked before the fields become pictures
	if shown.drawn {
		if _, err := p.instance.FPDFPage_Flatten(&requests.FPDFPage_Flatten{Page: page}); err != nil {
			return pageContent{}, err
		}
		// PDFium sees what it drew once it reads the page again.
		p.closePage(page)
		if page, err = p.loadPage(index); err != nil {
			return pageContent{}, err
		}
	}
	content, chars, err := p.pageContent(index, page)
	if err = cmp.Or(err, p.trap); err != nil {
		return pageContent{}, err
	}
	content.fields = shown.values
	if chars < ocrChars && (picture || !shown.drawn && p.hasImage(page)) {
		p.images = true
		found, err := p.recognized(index, page)
		if err != nil {
			return pageContent{}, err
		}
		lines, _ := cutLines(found)
		content.lines, chars = append(content.lines, lines...), chars+visible(found)
	}
	p.chars += chars
	for _, v := range shown.values {
		p.chars += visible(v)
	}
	if shown.files && len(p.withFiles) < maxAttachments {
		p.withFiles = append(p.withFiles, index)
	}
	return content, nil
}

// refused reports whether a call of PDFium failed. A call that ended its instance is kept for the end of the page.
func (p *pdfDocument) refused(err error) bool {
	if err != nil && p.trap == nil && !pdfiumRefusal(err) {
		p.trap = err
	}
	return err != nil
}

func (p *pdfDocument) loadPage(index int) (requests.Page, error) {
	page, err := p.instance.FPDF_LoadPage(&requests.FPDF_LoadPage{Document: p.doc, Index: index})
	if err != nil {
		return requests.Page{}, err
	}
	return requests.Page{ByReference: &page.Page}, nil
}

// closePage closes a page that loadPage opened; one that failed to open is none.
func (p *pdfDocument) closePage(page requests.Page) {
	if page.ByReference != nil {
		_, _ = p.instance.FPDF_ClosePage(&requests.FPDF_ClosePage{Page: *page.ByReference})
	}
}

// pageContent is the text of a page (0-based), and how many of its characters are no white space.
func (p *pdfDocument) pageContent(index int, page requests.Page) (content pageContent, chars int, err error) {
	text, err := p.instance.FPDFText_LoadPage(&requests.FPDFText_LoadPage{Page: page})
	if err != nil {
		return content, 0, err
	}
	defer func() { _, _ = p.instance.FPDFText_ClosePage(&requests.FPDFText_ClosePage{TextPage: text.TextPage}) }()
	count, err := p.instance.FPDFText_CountChars(&requests.FPDFText_CountChars{TextPage: text.TextPage})
	if err != nil {
		return content, 0, err
	}
	if count.Count > maxPageChars {
		return content, 0, document.OverLimit("page %d has %d characters, more than %d", index+1, count.Count, maxPageChars)
	}
	if count.Count == 0 {
		return content, 0, nil
	}
	all, err := p.instance.FPDFText_GetText(&requests.FPDFText_GetText{TextPage: text.TextPage, Count: count.Count})
	if err != nil {
		return content, 0, err
	}
	lines, units := cutLines(all.Text)
	m := measurer{p: p, text: text.TextPage, exact: units == count.Count}
	content.lines = lines
	content.grids = m.measure(lines, page)
	return content, visible(all.Text), nil
}

// visible counts characters that are not white space, up to what matters here.
func visible(text string) int {
	n := 0
	for _, r := range text {
		if !unicode.IsSpace(r) && r != 0 {
			n++
		}
	}
	return n
}

// maxObjects bounds the search for a picture on a page.
const maxObjects = 64

// hasImage tells whether a page shows a picture (directly; a form may hold one too).
func (p *pdfDocument) hasImage(page requests.Page) bool {
	count, err := p.instance.FPDFPage_CountObjects(&requests.FPDFPage_CountObjects{Page: page})
	if err != nil {
		return false
	}
	for i := range min(count.Count, maxObjects) {
		object, err := p.instance.FPDFPage_GetObject(&requests.FPDFPage_GetObject{Page: page, Index: i})
		if err != nil {
			return false
		}
		kind, err := p.instance.FPDFPageObj_GetType(&requests.FPDFPageObj_GetType{PageObject: object.PageObject})
		if err == nil && (kind.Type == enums.FPDF_PAGEOBJ_IMAGE || kind.Type == enums.FPDF_PAGEOBJ_FORM) {
			return true
		}
	}
	return false
}

// title is that of the document's information, unless a program left its own words there.
func (p *pdfDocument) title() string {
	meta, err := p.instance.FPDF_GetMetaText(&requests.FPDF_GetMetaText{Document: p.doc, Tag: "Title"})
	if err != nil {
		return ""
	}
	title := strings.TrimSpace(meta.Value)
	switch strings.ToLower(title) {
	case "untitled", "(unspecified)", "unspecified":
		return ""
	}
	return strings.TrimPrefix(title, "Microsoft Word - ")
}
