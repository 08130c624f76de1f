package mail

import (
	"bytes"
	"context"
	"encoding/asn1"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const remedySealed = "Open the message in the program that can decrypt it, save it there without encryption, and upload that."

// pgpText begins a text that PGP encrypted.
const pgpText = "-----BEGIN PGP MESSAGE-----"

const typeSMIME = "application/pkcs7-mime"

// The ways in which messages are encrypted.
const (
	bySMIME = "S/MIME"
	byPGP   = "PGP"
)

// encrypted is a part of a message.
type encrypted struct {
	by   string
	data []byte
}

// unwrap adds to m what a part wraps, and reports whether it wraps anything: a message that was signed or encrypted as a whole, or the one of
// Outlook's winmail.dat, whose text the e-mail around it has already.
func (m *message) unwrap(ctx context.Context, kind, name string, data []byte, depth int) bool {
	if depth >= maxNested {
		return false
	}
	var inner *message
	text := len(m.said) == 0
	switch kindOfWrap(kind, strings.ToLower(name)) {
	case document.TypeTNEF:
		n, err := readTNEF(data, depth)
		if err != nil {
			return false
		}
		inner = n.message(ctx, depth+1)
	case typeSMIME:
		content, sealed := signed(data)
		if sealed {
			m.sealed = append(m.sealed, encrypted{bySMIME, data})
			return true
		}
		inner, text = parsed(ctx, content, depth), true
	case "multipart/signed": // Outlook keeps such a message in one part
		inner = parsed(ctx, data, depth)
	}
	if inner == nil {
		return false
	}
	if text {
		m.said = slices.Concat(inner.said, m.said)
	}
	m.parts, m.files = append(m.parts, inner.parts...), append(m.files, inner.files...)
	m.lost, m.sealed = append(m.lost, inner.lost...), append(m.sealed, inner.sealed...)
	return true
}

// parsed is a message that lies in another one; nil: it is none.
func parsed(ctx context.Context, data []byte, depth int) *message {
	if len(data) == 0 {
		return nil
	}
	m, err := parse(ctx, bytes.NewReader(data), depth+1)
	if err != nil {
		return nil
	}
	return m
}

// kindOfWrap is a media type that unwrap knows, by one of the names that programs give it, or by the file's.
func kindOfWrap(kind, name string) string {
	switch kind {
	case "application/ms-tnef":
		return document.TypeTNEF
	case "application/x-pkcs7-mime":
		return typeSMIME
	case "", "application/octet-stream":
		switch {
		case name == "winmail.dat":
			return document.TypeTNEF
		case strings.HasSuffix(name, ".p7m"):
			return typeSMIME
		}
	}
	return kind
}

// withoutSealed takes away texts that are encrypted, and warns of what is. Error: ENCRYPTED, if nothing else is in the message.
func (m *message) withoutSealed() error {
	m.said = slices.DeleteFunc(m.said, func(s said) bool {
		sealed := strings.HasPrefix(strings.TrimSpace(s.text), pgpText)
		if sealed {
			m.sealed = append(m.sealed, encrypted{by: byPGP})
		}
		return sealed
	})
	for _, e := range m.sealed {
		if len(m.said) == 0 && len(m.files) == 0 {
			return ingest.Permanent(ingest.CodeEncrypted, remedySealed, "the message is encrypted with %s", e.by)
		}
		m.lost = append(m.lost, "a part of the message is not read: it is encrypted with "+e.by)
	}
	return nil
}

// What S/MIME's messages are, as the bytes of their object identifiers (RFC 5652).
var (
	signedData = []byte{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x02}
	sealedData = [][]byte{
		{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x03},             // enveloped
		{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x06},             // encrypted
		{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x09, 0x10, 0x01, 0x17}, // authenticated and enveloped
	}
)

// signed returns the content of a message that S/MIME signed as a whole, whoever signed it; sealed: it is encrypted.
// encoding/asn1 reads DER, but programs that sign while they read write BER of indefinite lengths.
func signed(data []byte) (content []byte, sealed bool) {
	info := inside(&data, asn1.TagSequence)
	kind := inside(&info, asn1.TagOID)
	if slices.ContainsFunc(sealedData, func(one []byte) bool { return bytes.Equal(kind, one) }) {
		return nil, true
	}
	if !bytes.Equal(kind, signedData) {
		return nil, false
	}
	explicit := inside(&info, 0)
	fields := inside(&explicit, asn1.TagSequence)
	inside(&fields, asn1.TagInteger) // version
	inside(&fields, asn1.TagSet)     // algorithms
	wrapped := inside(&fields, asn1.TagSequence)
	inside(&wrapped, asn1.TagOID)
	explicit = inside(&wrapped, 0)
	tag, value, _, ok := element(explicit)
	if !ok || tag&0x1F != asn1.TagOctetString {
		return nil, false
	}
	if tag&constructed == 0 {
		return value, false
	}
	for { // in pieces
		piece := inside(&value, asn1.TagOctetString)
		if piece == nil {
			return content, false
		}
		content = append(content, piece...)
	}
}

// constructed is the bit of elements that hold others.
const constructed = 0x20

// inside takes the next element from the front and returns what is in it; nil: it is none with that number.
func inside(data *[]byte, number byte) []byte {
	tag, value, rest, ok := element(*data)
	if !ok || tag&0x1F != number {
		return nil
	}
	*data = rest
	return value
}

// element is the one at the front, and what follows it. One of indefinite length holds whatever follows: its end is found by whoever
// reads on, and nothing that is read stands behind such a one.
func element(data []byte) (tag byte, value, rest []byte, ok bool) {
	if len(data) < 2 || data[0] == 0 {
		return 0, nil, nil, false
	}
	tag, size, data := data[0], int(data[1]), data[2:]
	if size == 0x80 {
		return tag, data, nil, true
	}
	if size > 0x80 {
		n := size & 0x7F
		if n > 4 || n > len(data) {
			return 0, nil, nil, false
		}
		var long [4]byte
		copy(long[4-n:], data[:n])
		size, data = int(binary.BigEndian.Uint32(long[:])), data[n:]
	}
	size = min(size, len(data))
	return tag, data[:size], data[size:], true
}
