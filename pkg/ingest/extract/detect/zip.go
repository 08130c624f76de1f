package detect

import (
	"bytes"
	"cmp"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// zipTypes name the type of an archive by a member that only this type has.
var zipTypes = map[string]string{
	"META-INF/container.xml": document.TypeEPUB,
	"content.xml":            document.TypeODT, // or the type that the member mimetype says
}

// officeTypes are those of Microsoft's, whose names are folded (archive.Fold).
var officeTypes = map[string]string{"xl/workbook.xml": document.TypeXLSX, "ppt/presentation.xml": document.TypePPTX}

// zipKinds name other archives in the same way.
var zipKinds = []struct{ member, kind string }{
	{"xl/workbook.bin", "an Excel workbook (XLSB)"},
	{"visio/document.xml", "a Visio drawing"},
	{"Index/Document.iwa", "an Apple Pages, Numbers or Keynote document"},
	{"AndroidManifest.xml", "an Android app"},
	{"META-INF/MANIFEST.MF", "a Java archive"},
}

// detectZip looks into an archive's directory.
func detectZip(head []byte, r io.ReaderAt, size int64, ext string) (string, error) {
	dir, err := archive.ReadDirectory(r, size)
	if err != nil {
		return "", document.Corrupt("%w", err)
	}
	if err := dir.CheckLimits(); err != nil {
		return "", err
	}
	kind, mediaType := "a zip archive", ""
	var bad error
	err = dir.Each(r, func(m archive.Member) bool {
		name := archive.Fold(m.Name)
		found := cmp.Or(zipTypes[m.Name], officeTypes[name])
		if isDocumentPart(name) {
			found = document.TypeDOCX
		}
		if found != "" {
			if mediaType == "" || found != document.TypeODT { // an office file may embed others, below their own folders
				mediaType = found
			}
			if m.Encrypted {
				bad = document.Encrypted("%s is encrypted", m.Name)
			} else {
				bad = m.CheckLimits()
			}
			return bad == nil
		}
		for _, k := range zipKinds {
			if m.Name == k.member {
				kind = k.kind
			}
		}
		return true
	})
	switch {
	case err != nil:
		return "", document.Corrupt("%w", err)
	case bad != nil:
		return "", bad
	case mediaType == document.TypeODT:
		return openDocument(head)
	case mediaType != "":
		return mediaType, nil
	case kind == "a zip archive" && ext == ".docx":
		return "", document.Corrupt("the archive has no word/document.xml: this is no Word document")
	}
	return "", document.Unsupported("%s, which is not supported%s", kind, misnamed(ext))
}

// openDocument tells the kinds of OpenDocument apart by the member mimetype, which stands first and is not compressed.
func openDocument(head []byte) (string, error) {
	const at, prefix = 30, "mimetypeapplication/vnd.oasis.opendocument."
	if len(head) > at && bytes.HasPrefix(head[at:], []byte(prefix)) {
		kind := head[at+len(prefix):]
		switch {
		case bytes.HasPrefix(kind, []byte("spreadsheet")):
			return document.TypeODS, nil
		case bytes.HasPrefix(kind, []byte("presentation")):
			return document.TypeODP, nil
		case !bytes.HasPrefix(kind, []byte("text")):
			return "", document.Unsupported("an OpenDocument drawing, formula or database, which is not supported")
		}
	}
	return document.TypeODT, nil
}

// isDocumentPart tells the main part of a Word document by its folded name: document.xml, or document2.xml as some programs
// write.
func isDocumentPart(name string) bool {
	base, ok := strings.CutPrefix(name, "word/document")
	if !ok {
		return false
	}
	digits, ok := strings.CutSuffix(base, ".xml")
	return ok && strings.Trim(digits, "0123456789") == ""
}
