package detect

import (
	"bytes"
	"strings"
)

// mailFields are the header fields that tell a message from other text that begins with words and colons.
var mailFields = []string{
	"from", "to", "cc", "subject", "date", "message-id", "mime-version", "content-type", "content-transfer-encoding", "received", "return-path", "delivered-to",
	"reply-to", "in-reply-to", "references", "sender", "dkim-signature", "list-id", "x-mailer",
}

// Least numbers of known fields: a file that is called .eml needs fewer.
const (
	fieldsOfMail  = 3
	fieldsOfNamed = 1
)

// isMail tells whether text is an e-mail message: its first lines are header fields, and enough of them are known. Fields that only
// programs write count twice.
func isMail(head []byte, ext string) bool {
	need := fieldsOfMail
	if ext == ".eml" {
		need = fieldsOfNamed
	}
	return knownFields(head) >= need
}

// isMailbox tells whether text begins as a mailbox does: "From someone date", then a message.
func isMailbox(head []byte) bool {
	if !bytes.HasPrefix(head, []byte("From ")) {
		return false
	}
	_, rest, found := bytes.Cut(head, []byte("\n"))
	return found && knownFields(rest) >= fieldsOfMail-1
}

// knownFields counts the known fields up to the first line that is no header line; 0: the header ends in something that no header has.
func knownFields(head []byte) int {
	seen := map[string]bool{}
	n := 0
	for len(head) > 0 {
		line, rest, whole := bytes.Cut(head, []byte("\n"))
		head = rest
		line = bytes.TrimRight(line, "\r")
		switch {
		case len(line) == 0:
			return n
		case (line[0] == ' ' || line[0] == '\t') && len(seen) > 0:
			continue
		}
		name, _, ok := strings.Cut(string(line[:min(len(line), 100)]), ":")
		if !ok || name == "" || strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
			if !whole {
				return n // the head ends inside a line
			}
			return 0
		}
		name = strings.ToLower(name)
		for i, known := range mailFields {
			if name == known && !seen[name] {
				n++
				if i > 4 { // nobody writes these by hand
					n++
				}
			}
		}
		seen[name] = true
	}
	return n
}
