package detect

import (
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// zipKinds name what an archive is by a member that only this kind has.
var zipKinds = []struct{ member, kind string }{
	{"xl/workbook.xml", "an Excel workbook (XLSX)"},
	{"xl/workbook.bin", "an Excel workbook (XLSB)"},
	{"ppt/presentation.xml", "a PowerPoint presentation (PPTX)"},
	{"META-INF/container.xml", "an e-book (EPUB)"},
	{"content.xml", "an OpenDocument file"},
	{"visio/document.xml", "a Visio drawing"},
	{"AndroidManifest.xml", "an Android app"},
	{"META-INF/MANIFEST.MF", "a Java archive"},
}

// detectZip looks into an archive's directory.
func detectZip(r io.ReaderAt, size int64, ext string) (string, error) {
	dir, err := archive.ReadDirectory(r, size)
	if err != nil {
		return "", document.Corrupt("%w", err)
	}
	if err := dir.CheckLimits(); err != nil {
		return "", err
	}
	kind, isWord := "a zip archive", false
	var bad error
	err = dir.Each(r, func(m archive.Member) bool {
		if isDocumentPart(m.Name) {
			isWord = true
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
	case isWord:
		return document.TypeDOCX, nil
	case kind == "a zip archive" && ext == ".docx":
		return "", document.Corrupt("the archive has no word/document.xml: this is no Word document")
	}
	return "", document.Unsupported("%s, which is not supported%s", kind, misnamed(ext))
}

// isDocumentPart tells the main part of a Word document: document.xml, or document2.xml as some programs
// write.
func isDocumentPart(name string) bool {
	base, ok := strings.CutPrefix(strings.ReplaceAll(name, `\`, "/"), "word/document")
	if !ok {
		return false
	}
	digits, ok := strings.CutSuffix(base, ".xml")
	return ok && strings.Trim(digits, "0123456789") == ""
}
