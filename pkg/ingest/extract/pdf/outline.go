package pdf

import (
	"strings"
	"unicode"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
)

const (
	// maxBookmarks bounds the outline that is read; a hostile one may be endless.
	maxBookmarks = 5000
	// maxOutlineLevels bounds how deep an outline may be nested.
	maxOutlineLevels = 64
	// maxOutlineDepth is the deepest level that counts as a heading.
	maxOutlineDepth = 6
)

// bookmark is an entry of the document's outline: the one reliable sign of a heading in a PDF.
type bookmark struct {
	key   string // the title as headingKey sees it
	level int
}

// outline reads the bookmarks by page (1-based). Any error ends it: headings are a help, not a need. An outline of more than maxBookmarks, or
// one that goes round in a circle, is left out.
//
// FPDFBookmark_GetDest of go-pdfium 1.19.8 calls FPDFBookmark_Find instead, which searches the whole outline for a title that is none: no
// destination, and quadratic time (2,500 bookmarks took 28.8 s). GetBookmarks reads all of an outline, and destinations as they should be read.
// It has no bound of its own: the bookmarks are counted first.
func (p *pdfDocument) outline() map[int][]bookmark {
	marks := map[int][]bookmark{}
	left := maxBookmarks
	if !p.countBookmarks(nil, 1, &left) {
		return marks
	}
	if all, err := p.instance.GetBookmarks(&requests.GetBookmarks{Document: p.doc}); err == nil {
		p.outlineUnder(all.Bookmarks, 1, marks)
	}
	if found := maxBookmarks - left; 2*countMarks(marks) < found {
		return nil // of pages that were taken out
	}
	return marks
}

func countMarks(marks map[int][]bookmark) (n int) {
	for _, m := range marks {
		n += len(m)
	}
	return n
}

// countBookmarks takes the bookmarks below parent from left, and reports whether some are left.
func (p *pdfDocument) countBookmarks(parent *references.FPDF_BOOKMARK, level int, left *int) bool {
	first, err := p.instance.FPDFBookmark_GetFirstChild(&requests.FPDFBookmark_GetFirstChild{Document: p.doc, Bookmark: parent})
	if err != nil || level > maxOutlineLevels {
		return false
	}
	for mark := first.Bookmark; mark != nil; {
		if *left--; *left <= 0 || !p.countBookmarks(mark, level+1, left) {
			return false
		}
		next, err := p.instance.FPDFBookmark_GetNextSibling(&requests.FPDFBookmark_GetNextSibling{Document: p.doc, Bookmark: *mark})
		if err != nil {
			return false
		}
		mark = next.Bookmark
	}
	return true
}

func (p *pdfDocument) outlineUnder(all []responses.GetBookmarksBookmark, level int, marks map[int][]bookmark) {
	if level > maxOutlineDepth {
		return
	}
	for _, mark := range all {
		key := headingKey(mark.Title)
		if page := p.pageOf(mark); page > 0 && key != "" {
			marks[page] = append(marks[page], bookmark{key: key, level: level})
		}
		p.outlineUnder(mark.Children, level+1, marks)
	}
}

// pageOf is the page (1-based) to which a bookmark leads: named directly, or by an action as TeX writes it. 0: none.
func (p *pdfDocument) pageOf(mark responses.GetBookmarksBookmark) int {
	if mark.DestInfo != nil {
		return mark.DestInfo.PageIndex + 1
	}
	action, err := p.instance.FPDFBookmark_GetAction(&requests.FPDFBookmark_GetAction{Bookmark: mark.Reference})
	if err != nil || action.Action == nil {
		return 0
	}
	target, err := p.instance.FPDFAction_GetDest(&requests.FPDFAction_GetDest{Document: p.doc, Action: *action.Action})
	if err != nil || target.Dest == nil {
		return 0
	}
	index, err := p.instance.FPDFDest_GetDestPageIndex(&requests.FPDFDest_GetDestPageIndex{Document: p.doc, Dest: *target.Dest})
	if err != nil {
		return 0
	}
	return index.Index + 1
}

// headingKey is what a title and the line that shows it have in common: letters only, lower case.
// Numbers differ ("1.2" stands before the line, not in the bookmark).
func headingKey(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
