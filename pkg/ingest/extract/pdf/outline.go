package pdf

import (
	"strings"
	"unicode"

	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
)

const (
	// maxBookmarks bounds the outline that is read; a hostile one may be endless.
	maxBookmarks = 5000
	// maxOutlineDepth is the deepest level that counts as a heading.
	maxOutlineDepth = 6
)

// bookmark is an entry of the document's outline: the one reliable sign of a heading in a PDF.
type bookmark struct {
	key   string // the title as headingKey sees it
	level int
}

// outline reads the bookmarks by page (1-based). Any error ends it: headings are a help, not a need.
func (p *pdfDocument) outline() map[int][]bookmark {
	marks := map[int][]bookmark{}
	left := maxBookmarks
	p.outlineUnder(nil, 1, marks, &left)
	return marks
}

func (p *pdfDocument) outlineUnder(parent *references.FPDF_BOOKMARK, level int, marks map[int][]bookmark, left *int) {
	if level > maxOutlineDepth {
		return
	}
	first, err := p.instance.FPDFBookmark_GetFirstChild(&requests.FPDFBookmark_GetFirstChild{Document: p.doc, Bookmark: parent})
	if err != nil {
		return
	}
	for mark := first.Bookmark; mark != nil && *left > 0; *left-- {
		if page, key, ok := p.bookmark(*mark); ok {
			marks[page] = append(marks[page], bookmark{key: key, level: level})
		}
		p.outlineUnder(mark, level+1, marks, left)
		next, err := p.instance.FPDFBookmark_GetNextSibling(&requests.FPDFBookmark_GetNextSibling{Document: p.doc, Bookmark: *mark})
		if err != nil {
			return
		}
		mark = next.Bookmark
	}
}

// bookmark finds an entry's page (1-based) and title.
func (p *pdfDocument) bookmark(mark references.FPDF_BOOKMARK) (page int, key string, ok bool) {
	title, err := p.instance.FPDFBookmark_GetTitle(&requests.FPDFBookmark_GetTitle{Bookmark: mark})
	if err != nil {
		return 0, "", false
	}
	dest := p.destination(mark)
	if dest == nil {
		return 0, "", false
	}
	index, err := p.instance.FPDFDest_GetDestPageIndex(&requests.FPDFDest_GetDestPageIndex{Document: p.doc, Dest: *dest})
	if err != nil || index.Index < 0 {
		return 0, "", false
	}
	key = headingKey(title.Title)
	return index.Index + 1, key, key != ""
}

// destination is where an entry leads: named directly, or by an action as TeX writes it.
func (p *pdfDocument) destination(mark references.FPDF_BOOKMARK) *references.FPDF_DEST {
	dest, err := p.instance.FPDFBookmark_GetDest(&requests.FPDFBookmark_GetDest{Document: p.doc, Bookmark: mark})
	if err != nil {
		return nil
	}
	if dest.Dest != nil {
		return dest.Dest
	}
	action, err := p.instance.FPDFBookmark_GetAction(&requests.FPDFBookmark_GetAction{Bookmark: mark})
	if err != nil || action.Action == nil {
		return nil
	}
	target, err := p.instance.FPDFAction_GetDest(&requests.FPDFAction_GetDest{Document: p.doc, Action: *action.Action})
	if err != nil {
		return nil
	}
	return target.Dest
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
