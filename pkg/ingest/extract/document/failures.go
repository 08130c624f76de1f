package document

import "github.com/millweir/millweir/pkg/ingest"

// What the user is told to do about each kind of failure.
const (
	remedyUnsupported = "Upload a PDF, DOCX, HTML, Markdown or plain-text file."
	remedyEncrypted   = "Remove the password and upload the file again."
	remedyCorrupt     = "The file is damaged or incomplete. Open it in its own program, save it anew and upload it again."
	remedyLimit       = "The file is larger inside than is allowed. Split it into smaller documents."
	RemedyEncoding    = "Save the text as UTF-8 and upload it again."
	RemedyOCR         = "The document holds pictures of text only. Run it through a text recognition (OCR) first."
	RemedyEmpty       = "The file holds nothing to read. Check it and upload it again."
)

func Unsupported(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeUnsupportedType, remedyUnsupported, format, args...)
}

func Encrypted(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeEncrypted, remedyEncrypted, format, args...)
}

func Corrupt(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeCorrupt, remedyCorrupt, format, args...)
}

func OverLimit(format string, args ...any) error {
	return ingest.Permanent(ingest.CodeLimitExceeded, remedyLimit, format, args...)
}
