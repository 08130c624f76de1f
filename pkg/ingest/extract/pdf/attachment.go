package pdf

import (
	"cmp"
	"context"
	"fmt"

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
}

// attachments takes the files out of the document, as far as there is room for them. (PDFium unpacks one as a whole: a file that exhausts
// it ends its instance.)
func (p *pdfDocument) attachments() (files []attachment) {
	count, err := p.instance.FPDFDoc_GetAttachmentCount(&requests.FPDFDoc_GetAttachmentCount{Document: p.doc})
	if err != nil {
		return nil
	}
	room := attachmentBytes
	for i := range min(count.AttachmentCount, maxAttachments) {
		f, err := p.attachment(i)
		switch {
		case err != nil:
			p.out.Warn("the attached file %q could not be read", f.name)
			if !pdfiumRefusal(err) {
				p.in.Tainted = true
				return files
			}
		case len(f.data) > ole.MaxBytes || len(f.data) > room:
			p.out.Warn("the attached file %q was not read: at most %d bytes of one are read, and %d of all together", f.name, ole.MaxBytes, attachmentBytes)
		case len(f.data) > 0:
			room -= len(f.data)
			files = append(files, f)
		}
	}
	if left := count.AttachmentCount - maxAttachments; left > 0 {
		p.out.Warn("%d attached files were not read: at most %d are", left, maxAttachments)
	}
	return files
}

// attachment takes one file out.
func (p *pdfDocument) attachment(index int) (f attachment, err error) {
	f.name = fmt.Sprintf("attachment-%d", index+1)
	found, err := p.instance.FPDFDoc_GetAttachment(&requests.FPDFDoc_GetAttachment{Document: p.doc, Index: index})
	if err != nil {
		return f, err
	}
	if named, err := p.instance.FPDFAttachment_GetName(&requests.FPDFAttachment_GetName{Attachment: found.Attachment}); err == nil {
		f.name = cmp.Or(document.CleanTitle(named.Name), f.name)
	}
	file, err := p.instance.FPDFAttachment_GetFile(&requests.FPDFAttachment_GetFile{Attachment: found.Attachment})
	if err != nil {
		return f, err
	}
	f.data = file.Contents
	return f, nil
}

// readAttachments reads the files that the document carries behind its last page, each below its name. One that cannot be read is a warning.
func (p *pdfDocument) readAttachments(ctx context.Context, files []attachment) error {
	for _, f := range files {
		if err := ole.Inside(ctx, p.in, p.out, f.name, f.data, 1, func(b ingest.Block) error {
			b.Page = p.pages
			return p.out.Block(b)
		}); err != nil {
			return err
		}
	}
	return nil
}
