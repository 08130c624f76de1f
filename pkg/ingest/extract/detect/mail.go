package detect

import (
	"bytes"
	"net/mail"
	"strings"
)

// mailFields are the header fields that tell a message from other text that begins with words and colons, and how much each counts: people
// write the first five by hand too, programs alone the others.
var mailFields = map[string]int{
	"from": 1, "to": 1, "cc": 1, "subject": 1, "date": 1,
	"message-id": 2, "mime-version": 2, "content-type": 2, "content-transfer-encoding": 2, "received": 2, "return-path": 2, "delivered-to": 2,
	"reply-to": 2, "in-reply-to": 2, "references": 2, "sender": 2, "dkim-signature": 2, "list-id": 2, "x-mailer": 2,
}

// What the known fields of a message count at least: a file that is called .eml needs fewer.
const (
	fieldsOfMail  = 3
	fieldsOfNamed = 1
)

// isMail tells whether text is an e-mail message: its first lines are header fields, and enough of them are known.
func isMail(head []byte, ext string) bool {
	need := fieldsOfMail
	if ext == ".eml" {
		need = fieldsOfNamed
	}
	return knownFields(head) >= need
}

// isWebArchive tells whether a message is a web page with its files (MHTML, RFC 2557), which nobody sent: a browser or Word saved it.
func isWebArchive(head []byte) bool {
	m, err := mail.ReadMessage(bytes.NewReader(head))
	if err != nil || !strings.HasPrefix(strings.ToLower(m.Header.Get("Content-Type")), "multipart/related") {
		return false
	}
	if from := m.Header.Get("From"); from != "" {
		return strings.HasPrefix(from, "<Saved by ")
	}
	return m.Header.Get("To") == "" && m.Header.Get("Received") == ""
}

// isMailbox tells whether text begins as a mailbox does: "From someone date", then a message.
func isMailbox(head []byte) bool {
	if !bytes.HasPrefix(head, []byte("From ")) {
		return false
	}
	_, rest, found := bytes.Cut(head, []byte("\n"))
	return found && knownFields(rest) >= fieldsOfMail-1
}

// knownFields adds up what the known fields count, up to the first line that is no header line; 0: the header ends in something that no header has.
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
		if name = strings.ToLower(name); !seen[name] {
			n += mailFields[name]
		}
		seen[name] = true
	}
	return n
}
