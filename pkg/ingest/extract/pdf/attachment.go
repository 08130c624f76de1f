package pdf

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

// Bounds of the files that a document carries; what is beyond them is not read, with a warning.
const (
	maxAttachments  = 100
	attachmentBytes = 2 * ole.MaxBytes // of all together, which are held
)

// attachment is a file that a document carries.
type attachment struct {
	name string
	data []byte
	page int // that shows it, or the last one
}

// attachments takes the files out of the document and then out of the annotations of its pages, as far as there is room for them. (PDFium
// unpacks one as a whole: a file that exhausts it ends its instance.)
func (p *pdfDocument) attachments() []attachment {
	p.trap = nil
	files := &carried{p: p}
	count, err := p.instance.FPDFDoc_GetAttachmentCount(&requests.FPDFDoc_GetAttachmentCount{Document: p.doc})
	if p.refused(err) {
		return nil
	}
	for i := 0; i < min(count.AttachmentCount, maxAttachments) && p.trap == nil; i++ {
		found, err := p.instance.FPDFDoc_GetAttachment(&requests.FPDFDoc_GetAttachment{Document: p.doc, Index: i})
		if p.refused(err) {
			files.lost(files.next())
			continue
		}
		files.take(found.Attachment, p.pages)
	}
	files.left += max(count.AttachmentCount-maxAttachments, 0)
	for _, index := range p.withFiles {
		page, err := p.loadPage(index)
		if p.refused(err) || p.trap != nil {
			break
		}
		p.eachAnnotation(page, func(annot references.FPDF_ANNOTATION, kind enums.FPDF_ANNOTATION_SUBTYPE) {
			if kind != enums.FPDF_ANNOT_SUBTYPE_FILEATTACHMENT {
				return
			}
			found, err := p.instance.FPDFAnnot_GetFileAttachment(&requests.FPDFAnnot_GetFileAttachment{Document: p.doc, Annotation: annot})
			if !p.refused(err) {
				files.take(found.Attachment, index+1)
			}
		})
		p.closePage(page)
	}
	if files.left > 0 {
		p.out.Warn("%d attached files were not read: at most %d are", files.left, maxAttachments)
	}
	p.in.Tainted = p.in.Tainted || p.trap != nil
	return files.all
}

// carried collects the files of a document.
type carried struct {
	p     *pdfDocument
	all   []attachment
	tried int
	left  int // that are too many
	size  int
}

// next is the name of the next file, if it has none of its own.
func (c *carried) next() string {
	c.tried++
	return fmt.Sprintf("attachment-%d", c.tried)
}

// lost warns of a file that PDFium does not give.
func (c *carried) lost(name string) {
	c.p.out.Warn("the attached file %q could not be read", name)
}

// take takes one file out. One that stands in the document and in an annotation too is taken once.
func (c *carried) take(handle references.FPDF_ATTACHMENT, page int) {
	if c.p.trap != nil {
		return
	}
	if c.tried == maxAttachments {
		c.left++
		return
	}
	f := attachment{name: c.next(), page: page}
	if named, err := c.p.instance.FPDFAttachment_GetName(&requests.FPDFAttachment_GetName{Attachment: handle}); !c.p.refused(err) {
		f.name = cmp.Or(document.CleanTitle(named.Name), f.name)
	}
	file, err := c.p.instance.FPDFAttachment_GetFile(&requests.FPDFAttachment_GetFile{Attachment: handle})
	if c.p.refused(err) {
		c.lost(f.name)
		return
	}
	f.data = file.Contents
	switch {
	case len(f.data) > ole.MaxBytes || len(f.data) > attachmentBytes-c.size:
		c.p.out.Warn("the attached file %q was not read: at most %d bytes of one are read, and %d of all together", f.name, ole.MaxBytes, attachmentBytes)
	case len(f.data) > 0 && !slices.ContainsFunc(c.all, func(o attachment) bool { return o.name == f.name && bytes.Equal(o.data, f.data) }):
		c.size += len(f.data)
		c.all = append(c.all, f)
	}
}

// readAttachments reads the files that the document carries behind its last page, each below its name. One that cannot be read is a warning.
func (p *pdfDocument) readAttachments(ctx context.Context, files []attachment) error {
	for _, f := range files {
		if err := ole.Inside(ctx, p.in, p.out, f.name, f.data, 1, func(b ingest.Block) error {
			b.Page = f.page
			return p.out.Block(b)
		}); err != nil {
			return err
		}
	}
	return nil
}
