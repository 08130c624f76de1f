package extract

import (
	"io"
	"strings"
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
	dir, err := readZipDirectory(r, size)
	if err != nil {
		return "", corrupt("%w", err)
	}
	if err := dir.zipLimits(); err != nil {
		return "", err
	}
	kind, isWord := "a zip archive", false
	var bad error
	err = dir.eachMember(r, func(m zipMember) bool {
		if isDocumentPart(m.name) {
			isWord = true
			if m.encrypted {
				bad = encrypted("%s is encrypted", m.name)
			} else {
				bad = m.declaredLimits()
			}
			return bad == nil
		}
		for _, k := range zipKinds {
			if m.name == k.member {
				kind = k.kind
			}
		}
		return true
	})
	switch {
	case err != nil:
		return "", corrupt("%w", err)
	case bad != nil:
		return "", bad
	case isWord:
		return typeDOCX, nil
	case kind == "a zip archive" && ext == ".docx":
		return "", corrupt("the archive has no word/document.xml: this is no Word document")
	}
	return "", unsupported("%s, which is not supported%s", kind, misnamed(ext))
}

// isDocumentPart tells the main part of a Word document: document.xml, or document2.xml as some programs write.
func isDocumentPart(name string) bool {
	base, ok := strings.CutPrefix(strings.ReplaceAll(name, `\`, "/"), "word/document")
	if !ok {
		return false
	}
	digits, ok := strings.CutSuffix(base, ".xml")
	return ok && strings.Trim(digits, "0123456789") == ""
}
