// Package epub reads e-books (EPUB 2 and 3).
package epub

import (
	"context"
	"encoding/xml"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// chapterBytes bounds one chapter, which is held whole.
const chapterBytes = 32 << 20

// fontMasks are the ways in which fonts alone are made unreadable; anything else that is encrypted is a copy protection.
var fontMasks = []string{"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}

// Read reads the chapters in the order of the book's spine, each as a web page.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	lock := &encryption{}
	if err := a.Visit("META-INF/encryption.xml", lock); err != nil {
		return ingest.Extraction{}, err
	}
	if lock.locked {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeEncrypted, "Upload a copy without copy protection.", "the book has a copy protection (DRM)")
	}
	box := &container{}
	if err := a.Visit("META-INF/container.xml", box); err != nil {
		return ingest.Extraction{}, err
	}
	if !a.Has(box.book) {
		return ingest.Extraction{}, document.Corrupt("the archive has no e-book description")
	}
	book := &description{files: map[string]string{}}
	if err := a.Visit(box.book, book); err != nil {
		return ingest.Extraction{}, err
	}
	for i, id := range book.spine {
		if err := ctx.Err(); err != nil {
			return ingest.Extraction{}, err
		}
		if err := chapter(ctx, a, memberOf(box.book, book.files[id]), in, out); err != nil {
			return ingest.Extraction{}, err
		}
		in.Progress(i+1, len(book.spine))
	}
	return ingest.Extraction{Title: book.Title()}, nil
}

// memberOf is the archive's name of a file that the description names.
func memberOf(base, href string) string {
	if plain, err := url.PathUnescape(href); err == nil {
		href = plain
	}
	href, _, _ = strings.Cut(href, "#")
	if href == "" {
		return ""
	}
	return strings.TrimPrefix(path.Join("/", path.Dir(base), href), "/")
}

// chapter reads one file of the spine; one that is missing is passed over, as reading programs do.
func chapter(ctx context.Context, a *office.Archive, name string, in *document.Input, out *document.Sink) error {
	p, err := a.Open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	data, err := io.ReadAll(io.LimitReader(p, chapterBytes+1))
	switch {
	case err != nil:
		return err
	case len(data) > chapterBytes:
		return document.OverLimit("%s has more than %d bytes", name, chapterBytes)
	case len(data) == 0:
		return nil
	}
	_, err = html.Read(ctx, in.Part(document.TypeHTML, data), out)
	return err
}

// encryption tells whether something besides fonts is encrypted.
type encryption struct {
	office.Attributes
	locked bool
}

// Start implements office.Visitor.
func (e *encryption) Start(name string, attrs []xml.Attr) error {
	if name == "EncryptionMethod" {
		how := office.Attr(attrs, "Algorithm")
		e.locked = e.locked || (how != fontMasks[0] && how != fontMasks[1])
	}
	return nil
}

// container names the description of the book.
type container struct {
	office.Attributes
	book string
}

// Start implements office.Visitor.
func (c *container) Start(name string, attrs []xml.Attr) error {
	if name == "rootfile" && c.book == "" {
		c.book = strings.TrimPrefix(path.Clean("/"+office.Attr(attrs, "full-path")), "/")
	}
	return nil
}

// description has the book's title, lists its files and their order.
type description struct {
	office.TitleReader
	files map[string]string // id → name, of those that are text
	spine []string
}

// Start implements office.Visitor.
func (d *description) Start(name string, attrs []xml.Attr) error {
	switch {
	case len(d.spine) > archive.MaxEntries || len(d.files) > archive.MaxEntries:
		return document.OverLimit("the book has more than %d files", archive.MaxEntries)
	case name == "item" && strings.Contains(office.Attr(attrs, "media-type"), "html"):
		d.files[office.Attr(attrs, "id")] = office.Attr(attrs, "href")
	case name == "itemref":
		d.spine = append(d.spine, office.Attr(attrs, "idref"))
	}
	return d.TitleReader.Start(name, attrs)
}
