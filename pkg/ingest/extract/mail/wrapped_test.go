package mail_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/mail"
)

// letter is a message with parts, each of them a head, an empty line and a body.
func letter(subject string, parts ...string) []byte {
	s := "From: a@x.example\r\nSubject: " + subject + "\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=XX\r\n"
	for _, p := range parts {
		s += "\r\n--XX\r\n" + p + "\r\n"
	}
	return []byte(s + "--XX--\r\n")
}

// file is a part of a message.
func file(kind, name string, data []byte) string {
	return fmt.Sprintf("Content-Type: %s; name=%q\r\nContent-Disposition: attachment; filename=%q\r\nContent-Transfer-Encoding: base64\r\n\r\n%s", kind, name, name, base64.StdEncoding.EncodeToString(data))
}

const plainText = "Content-Type: text/plain; charset=utf-8\r\n\r\n"

// attribute is one of a winmail.dat.
func attribute(level byte, id uint32, value string) string {
	b := binary.LittleEndian.AppendUint32([]byte{level}, id)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return string(b) + value + "\x00\x00"
}

// property is one of a list, with a value for each of values.
func property(kind, id uint16, named string, values ...string) string {
	b := binary.LittleEndian.AppendUint16(nil, kind)
	b = binary.LittleEndian.AppendUint16(b, id)
	text := func(s string) {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s+strings.Repeat("\x00", -len(s)&3)...)
	}
	if id >= 0x8000 {
		b = append(b, make([]byte, 16)...)
		b = binary.LittleEndian.AppendUint32(b, 1)
		text(named)
	}
	switch kind {
	case 0x03, 0x40:
		return string(b) + values[0]
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(values)))
	for _, v := range values {
		text(v)
	}
	return string(b)
}

func list(properties ...string) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(len(properties)))) + strings.Join(properties, "")
}

const winmailHead = "\x78\x9f\x3e\x22\x01\x00"

// winmail has two files and a message, which has a file.
func winmail() string {
	const object = "\x07\x03\x02\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x46"
	inner := winmailHead + attribute(1, 0x69003, list(property(0x1F, 0x0037, "", wide("inner")), property(0x1F, 0x1000, "", wide("of the inner message")))) +
		attribute(2, 0x69002, "") + attribute(2, 0x18010, "deep.txt\x00") + attribute(2, 0x6800F, "deepest")
	return winmailHead + attribute(1, 0x69007, "\xe2\x04\x00\x00\x00\x00\x00\x00") + attribute(1, 0x18004, "caf\xe9\x00") +
		attribute(1, 0x69003, list(property(0x1F, 0x8001, "a name", wide("one"), wide("of several")), property(0x40, 0x0039, "", "\x00\x80\x3e\xd5\xde\xb1\x9d\x01"),
			property(0x102, 0x1009, "", rich("what Outlook\\'92s text says")))) +
		attribute(2, 0x69002, "") + attribute(2, 0x18010, "LONGNA~1.CSV\x00") + attribute(2, 0x6800F, "a,b") +
		attribute(2, 0x69005, list(property(0x03, 0x3705, "", "\x01\x00\x00\x00"), property(0x1F, 0x3707, "", wide("long name.csv")))) +
		attribute(2, 0x69002, "") + attribute(2, 0x6800F, "second") + attribute(2, 0x18010, "two.txt\x00") +
		attribute(2, 0x69002, "") + attribute(2, 0x69005, list(property(0x0D, 0x3701, "", object+inner)))
}

// rich is a rich text as Outlook stores it.
func rich(text string) string {
	text = "{\\rtf1\\ansi\\ansicpg1252\\fromhtml1 {\\*\\htmltag64 <p>}" + text + "}"
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)+12))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	return string(b) + "MELA\x00\x00\x00\x00" + text
}

func TestAWinmailIsOpened(t *testing.T) {
	t.Parallel()
	text := letter("s", plainText+"The text.", file("application/ms-tnef", "winmail.dat", []byte(winmail())), file("text/csv", "own.csv", []byte("x")))
	extracttest.RequireLines(t, mail.Read, document.TypeEML, text, "# s", "p From: a@x.example\nAttachments: long name.csv, two.txt, inner.eml, own.csv", "p The text.")
	files := carried(t, mail.Read, text)
	require.Len(t, files, 4)
	require.Equal(t, [][2]string{{"long name.csv", "a,b"}, {"two.txt", "second"}}, files[:2])
	extracttest.RequireLines(t, mail.Read, document.TypeEML, []byte(files[2][1]), "# inner", "p Attachments: deep.txt", "p of the inner message")
	require.Equal(t, [][2]string{{"deep.txt", "deepest"}}, carried(t, mail.Read, []byte(files[2][1])))

	// Without a text around it, and as a file of its own.
	alone := letter("s", file("application/octet-stream", "WinMail.DAT", []byte(winmail())))
	extracttest.RequireLines(t, mail.Read, document.TypeEML, alone, "# s", "p From: a@x.example\nAttachments: long name.csv, two.txt, inner.eml", "p what Outlook’s text says")
	extracttest.RequireLines(t, mail.ReadTNEF, document.TypeTNEF, []byte(winmail()),
		"# café", "p Date: Thu, 01 Jan 1970 00:00:00 +0000\nAttachments: long name.csv, two.txt, inner.eml", "p what Outlook’s text says")

	// One that is none is a file like others, and one that is cut off is read as far as it goes.
	require.Equal(t, [][2]string{{"winmail.dat", "no such file"}}, carried(t, mail.Read, letter("s", plainText+"t", file("application/ms-tnef", "winmail.dat", []byte("no such file")))))
	for n := range winmail() {
		_, _, err := extracttest.ReadBytes(mail.ReadTNEF, []byte(winmail()[:n]), document.TypeTNEF)
		if n < 6 {
			extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestWinmailsTooDeepOrTooManyAreRefused(t *testing.T) {
	t.Parallel()
	_, _, err := extracttest.ReadBytes(mail.ReadTNEF, []byte(winmailHead+strings.Repeat(attribute(2, 0x69002, ""), 10_001)), document.TypeTNEF)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	deep := winmailHead
	for range 17 {
		deep = winmailHead + attribute(2, 0x69002, "") + attribute(2, 0x69005, list(property(0x0D, 0x3701, "", "\x07\x03\x02\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x46"+deep)))
	}
	_, _, err = extracttest.ReadBytes(mail.ReadTNEF, []byte(deep), document.TypeTNEF)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

// Object identifiers of S/MIME.
const (
	oidData       = "06092a864886f70d010701"
	oidSigned     = "06092a864886f70d010702"
	oidEnveloped  = "06092a864886f70d010703"
	oidAuthorized = "060b2a864886f70d0109100117"
)

// ber is an element of a length that is told, or of one that ends with zeros.
func ber(tag byte, indefinite bool, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	switch {
	case indefinite:
		return append(append([]byte{tag, 0x80}, body...), 0, 0)
	case len(body) < 128:
		return append([]byte{tag, byte(len(body))}, body...)
	}
	return append([]byte{tag, 0x82, byte(len(body) >> 8), byte(len(body))}, body...)
}

// wrapped is what S/MIME makes of a content: signed, or encrypted.
func wrapped(t *testing.T, kind string, content []byte, indefinite bool) []byte {
	t.Helper()
	oid := func(s string) []byte {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	octets := ber(0x04, false, content)
	if indefinite {
		octets = ber(0x24, true, ber(0x04, false, content[:10]), ber(0x04, false), ber(0x04, false, content[10:]))
	}
	fields := ber(0x30, indefinite, []byte{2, 1, 1}, ber(0x31, false, ber(0x30, false, []byte{5, 0})), ber(0x30, indefinite, oid(oidData), ber(0xA0, indefinite, octets)), ber(0x31, false))
	return ber(0x30, indefinite, oid(kind), ber(0xA0, indefinite, fields))
}

func TestAMessageSignedAsAWholeIsOpened(t *testing.T) {
	t.Parallel()
	inside := []byte("Content-Type: multipart/mixed; boundary=YY\r\n\r\n--YY\r\n" + plainText + "The signed text.\r\n--YY\r\n" + file("text/csv", "in.csv", []byte("a,b")) + "\r\n--YY--\r\n")
	for _, indefinite := range []bool{false, true} {
		p7 := wrapped(t, oidSigned, inside, indefinite)
		twice := wrapped(t, oidSigned, []byte(file("application/x-pkcs7-mime", "smime.p7m", p7)), indefinite)
		for name, text := range map[string][]byte{
			"the message":         []byte("From: a@x.example\r\nSubject: s\r\n" + file("application/pkcs7-mime; smime-type=signed-data", "smime.p7m", p7)),
			"by its name":         []byte("From: a@x.example\r\nSubject: s\r\n" + file("application/octet-stream", "smime.p7m", p7)),
			"signed twice":        []byte("From: a@x.example\r\nSubject: s\r\n" + file("application/pkcs7-mime", "smime.p7m", twice)),
			"a part of a message": letter("s", file("application/pkcs7-mime", "smime.p7m", p7)),
		} {
			extracttest.RequireLines(t, mail.Read, document.TypeEML, text, "# s", "p From: a@x.example\nAttachments: in.csv", "p The signed text.")
			require.Equal(t, [][2]string{{"in.csv", "a,b"}}, carried(t, mail.Read, text), name)
		}
		list := letter("s", file("application/pkcs7-mime", "smime.p7m", p7), plainText+"The footer of a list.")
		extracttest.RequireLines(t, mail.Read, document.TypeEML, list, "# s", "p From: a@x.example\nAttachments: in.csv", "p The signed text.", "p The footer of a list.")
		for n := range p7 { // cut off: it is read as far as it goes, or is a file like others
			_, _, err := extracttest.ReadBytes(mail.Read, letter("s", plainText+"t", file("application/pkcs7-mime", "smime.p7m", p7[:n])), document.TypeEML)
			require.NoError(t, err)
		}
	}
	// As Outlook stores them.
	at := "__attach_version1.0_#00000000/" + text
	for kind, data := range map[string]string{"multipart/signed": string(inside), "application/pkcs7-mime": string(wrapped(t, oidSigned, inside, false))} {
		msg := extracttest.OLEStreams(fixed, properties(32), text+"0037001F", wide("s"), at+"3707001F", wide("smime.p7m"), at+"370E001F", wide(kind), at+"37010102", data)
		extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, msg, "# s", "p Attachments: in.csv", "p The signed text.")
		require.Equal(t, [][2]string{{"in.csv", "a,b"}}, carried(t, mail.ReadMSG, msg))
	}
}

func TestAnEncryptedMessageSaysSo(t *testing.T) {
	t.Parallel()
	const armor = "-----BEGIN PGP MESSAGE-----\r\n\r\nhQEM\r\n-----END PGP MESSAGE-----"
	part := file("application/pkcs7-mime", "smime.p7m", wrapped(t, oidEnveloped, []byte("0123456789 secret"), false))
	pgp := "Content-Type: multipart/encrypted; boundary=YY\r\n\r\n--YY\r\nContent-Type: application/pgp-encrypted\r\n\r\nVersion: 1\r\n--YY\r\n" +
		"Content-Type: application/octet-stream; name=encrypted.asc\r\n\r\n" + armor + "\r\n--YY--\r\n"
	for by, texts := range map[string][]string{
		"S/MIME": {part, file("application/pkcs7-mime", "smime.p7m", wrapped(t, oidAuthorized, []byte("0123456789 secret"), true))},
		"PGP":    {pgp, plainText + armor},
	} {
		for _, one := range texts {
			alone := []byte("From: a@x.example\r\nSubject: s\r\n" + one)
			_, _, err := extracttest.ReadBytes(mail.Read, alone, document.TypeEML)
			extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
			require.ErrorContains(t, err, "the message is encrypted with "+by)

			box := []byte("From a\n" + string(alone) + "\n\nFrom b\n" + string(letter("open", plainText+"t")))
			extracttest.RequireLines(t, mail.ReadBox, document.TypeMBOX, box, "# open", "p From: a@x.example", "p t")

			extracttest.RequireLines(t, mail.Read, document.TypeEML, letter("s", one, plainText+"The footer of a list."), "# s", "p From: a@x.example", "p The footer of a list.")
			require.Empty(t, carried(t, mail.Read, letter("s", one, plainText+"t")))
		}
	}
	at := "__attach_version1.0_#00000000/" + text
	msg := extracttest.OLEStreams(fixed, properties(32), text+"0037001F", wide("s"), at+"3707001F", wide("smime.p7m"),
		at+"37010102", string(wrapped(t, oidEnveloped, []byte("0123456789 secret"), false)))
	_, _, err := extracttest.ReadBytes(mail.ReadMSG, msg, document.TypeMSG)
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
	// Attached to another one, it is the attachment's document that says so.
	inner := "__attach_version1.0_#00000000/__substg1.0_3701000D/"
	outer := extracttest.OLEStreams(fixed, properties(32), text+"0037001F", wide("outer"), text+"1000001F", wide("t"), inner+fixed, properties(24), inner+text+"0037001F", wide("inner"),
		inner+at+"3707001F", wide("smime.p7m"), inner+at+"37010102", string(wrapped(t, oidEnveloped, []byte("0123456789 secret"), false)))
	files := carried(t, mail.ReadMSG, outer)
	require.Len(t, files, 1)
	require.Equal(t, "inner.eml", files[0][0])
	_, _, err = extracttest.ReadBytes(mail.Read, []byte(files[0][1]), document.TypeEML)
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
}

// Outlook stores some texts as rich text alone.
func TestOutlooksRichTextIsRead(t *testing.T) {
	t.Parallel()
	msg := extracttest.OLEStreams(fixed, properties(32), text+"0037001F", wide("s"), text+"10090102", rich("one\\par two"))
	extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, msg, "# s", "p one", "p two")
	both := extracttest.OLEStreams(fixed, properties(32), text+"0037001F", wide("s"), text+"1000001F", wide("plain"), text+"10090102", rich("one\\par two"))
	extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, both, "# s", "p plain")
	part := []byte("Subject: s\r\nContent-Type: multipart/alternative; boundary=XX\r\n\r\n--XX\r\nContent-Type: text/rtf\r\n\r\n{\\rtf1 one\\par two}\r\n--XX--\r\n")
	extracttest.RequireLines(t, mail.Read, document.TypeEML, part, "# s", "p one", "p two")
	none := letter("s", "Content-Type: text/rtf\r\n\r\nno rich text")
	extracttest.RequireLines(t, mail.Read, document.TypeEML, none, "# s", "p From: a@x.example", "p no rich text")
}

func FuzzTNEF(f *testing.F) {
	f.Add([]byte(winmail()))
	extracttest.FuzzReader(f, mail.ReadTNEF, document.TypeTNEF, ".dat")
}

func FuzzWebArchive(f *testing.F) {
	f.Add([]byte("MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=XX\r\n\r\n--XX\r\nContent-Type: text/html\r\n\r\n<p>x\r\n--XX--\r\n"))
	extracttest.FuzzReader(f, mail.ReadWebArchive, document.TypeMHTML, ".mht", ".mhtml")
}

func FuzzSMIME(f *testing.F) {
	f.Add([]byte{0x30, 0x80, 0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x02, 0xA0, 0x80, 0x30, 0x80, 0x02, 0x01, 0x01, 0x31, 0x00, 0x30, 0x80, 0x06, 0x00, 0xA0, 0x80, 0x24, 0x80, 0x04, 0x02, 'x', '\n', 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, err := extracttest.ReadBytes(mail.Read, letter("s", plainText+"t", file("application/pkcs7-mime", "smime.p7m", data)), document.TypeEML)
		if err != nil {
			extracttest.RequirePermanent(t, err)
		}
	})
}
