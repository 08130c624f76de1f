package ingest

import (
	"bytes"
	"strings"
)

// The media types of archives. An archive is no document: each file in it becomes one.
const (
	TypeZIP  = "application/zip"
	TypeTAR  = "application/x-tar"
	TypeGZIP = "application/gzip" // of a tar, or of one file
)

// IsArchive reports whether a media type is that of an archive.
func IsArchive(mediaType string) bool {
	return mediaType == TypeZIP || mediaType == TypeTAR || mediaType == TypeGZIP
}

// tarMagic stands in a tar's first header.
const tarMagic, tarMagicAt = "ustar", 257

// ArchiveType is the media type of an archive by its beginning and its name; empty: it is none. The name counts because other formats
// are archives too: programs, drawings.
func ArchiveType(head []byte, name string) string {
	ends := func(all ...string) bool {
		name := strings.ToLower(name)
		for _, end := range all {
			if strings.HasSuffix(name, end) {
				return true
			}
		}
		return false
	}
	switch {
	case (bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))) && ends(".zip"):
		return TypeZIP
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}) && ends(".gz", ".tgz"):
		return TypeGZIP
	case len(head) > tarMagicAt+len(tarMagic) && string(head[tarMagicAt:][:len(tarMagic)]) == tarMagic && ends(".tar"):
		return TypeTAR
	}
	return ""
}

// notADocument refuses an archive where a document has to be.
func notADocument(mediaType string) error {
	return Permanent(CodeUnsupportedType, "Upload the archive by itself: each file in it becomes a document. Or send the file that is in it.",
		"%s is an archive, not a document", mediaType)
}
