package mail_test

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/mail"
)

const (
	fixed = "__properties_version1.0"
	text  = "__substg1.0_"
)

// properties is a stream of properties of fixed size, behind a head.
func properties(head int, tagsAndValues ...uint64) string {
	data := make([]byte, head)
	for i := 0; i < len(tagsAndValues); i += 2 {
		data = binary.LittleEndian.AppendUint64(data, tagsAndValues[i])
		data = binary.LittleEndian.AppendUint64(data, tagsAndValues[i+1])
	}
	return string(data)
}

// wide is a text in UTF-16.
func wide(s string) string {
	var data []byte
	for _, u := range utf16.Encode([]rune(s)) {
		data = binary.LittleEndian.AppendUint16(data, u)
	}
	return string(data)
}

// recipient is the streams of one.
func recipient(n string, kind uint64, name, address string) []string {
	at := "__recip_version1.0_#0000000" + n + "/"
	return []string{at + fixed, properties(8, 0x0C150003, kind), at + text + "3001001F", wide(name), at + text + "39FE001F", wide(address)}
}

func TestOutlooksTextsAreOfTheirCodePage(t *testing.T) {
	t.Parallel()
	big5 := "\xae\xe6\xa6\xa1\xb4\xfa\xb8\xd5" // 格式測試
	for name, pages := range map[string][]uint64{
		"of the message": {0x3FFD0003, 950, 0x3FDE0003, 65001},
		"of its HTML":    {0x3FDE0003, 950},
	} {
		file := extracttest.OLEStreams(fixed, properties(32, pages...), text+"0037001E", big5, text+"0C1A001E", big5, text+"1000001E", "body "+big5)
		ex := extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, file, "# 格式測試", "p From: 格式測試", "p body 格式測試")
		require.Equal(t, "格式測試", ex.Title, name)
	}
	// A code page that its text is not of: it is guessed.
	file := extracttest.OLEStreams(fixed, properties(32, 0x3FFD0003, 932), text+"0037001E", "caf\xe9 au lait", text+"1000001E", "x")
	extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, file, "# café au lait", "p x")
}

func TestOutlooksRecipientsHaveTheirAddresses(t *testing.T) {
	t.Parallel()
	streams := []string{fixed, properties(32), text + "0037001F", wide("s"), text + "0C1A001F", wide("Ada"), text + "0C1F001F", wide("/O=X/CN=ADA"), text + "5D01001F", wide("ada@a.example")}
	streams = append(streams, recipient("0", 1, "Bob", "bob@b.example")...)
	streams = append(streams, recipient("1", 1, "Bob", "bob@b.example")...)
	streams = append(streams, recipient("2", 1, "Eve", "")...)
	streams = append(streams, recipient("3", 2, "c@c.example", "c@c.example")...)
	streams = append(streams, recipient("4", 3, "Hidden", "bcc@c.example")...)
	file := extracttest.OLEStreams(append(streams, text+"0E04001F", wide("Bob; Eve"), text+"1000001F", wide("x"))...)
	extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, file,
		"# s", "p From: Ada <ada@a.example>\nTo: Bob <bob@b.example>, Eve\nCc: c@c.example", "p x")
}

// carried are the attachments of a message, name and content.
func carried(t *testing.T, read func(context.Context, *document.Input, *document.Sink) (ingest.Extraction, error), file []byte) (files [][2]string) {
	t.Helper()
	_, _, err := extracttest.ReadBytes(func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Carry = func(name string, data []byte) error {
			files = append(files, [2]string{name, string(data)})
			return nil
		}
		return read(ctx, in, out)
	}, file, document.TypeMSG)
	require.NoError(t, err)
	return files
}

func TestAMessageAttachedToOneOfOutlooksIsAnEML(t *testing.T) {
	t.Parallel()
	inner := "__attach_version1.0_#00000000/__substg1.0_3701000D/"
	deeper := inner + "__attach_version1.0_#00000001/__substg1.0_3701000D/"
	streams := []string{
		fixed, properties(32), text + "0037001F", wide("outer"), text + "1000001F", wide("the outer text"),
		inner + fixed, properties(24, 0x00390040, 129_000_000_000_000_000), inner + text + "0037001F", wide("grüße: \r\nBcc: x@y.example"), inner + text + "0C1A001F", wide("Ada"),
		inner + text + "1000001F", wide("the inner text, 格式"),
		inner + "__attach_version1.0_#00000000/" + text + "3707001F", wide("naïve notes.txt"),
		inner + "__attach_version1.0_#00000000/" + text + "37010102", strings.Repeat("a note.\n", 512),
		deeper + fixed, properties(24), deeper + text + "0037001F", wide("deepest"), deeper + text + "1000001F", wide("the deepest text"),
	}
	file := extracttest.OLEStreams(streams...)
	extracttest.RequireLines(t, mail.ReadMSG, document.TypeMSG, file, "# outer", "p Attachments: grüße: Bcc: x@y.example.eml", "p the outer text")

	files := carried(t, mail.ReadMSG, file)
	require.Len(t, files, 1)
	require.Equal(t, "grüße: Bcc: x@y.example.eml", files[0][0])
	require.Equal(t, files, carried(t, mail.ReadMSG, file), "the same message has the same bytes")
	eml := []byte(files[0][1])
	extracttest.RequireLines(t, mail.Read, document.TypeEML, eml,
		"# grüße: Bcc: x@y.example", "p From: Ada\nDate: Wed, 14 Oct 2009 13:20:00 +0000\nAttachments: naïve notes.txt, deepest.eml", "p the inner text, 格式")
	files = carried(t, mail.Read, eml)
	require.Equal(t, [2]string{"naïve notes.txt", strings.Repeat("a note.\n", 512)}, files[0])
	extracttest.RequireLines(t, mail.Read, document.TypeEML, []byte(files[1][1]), "# deepest", "p the deepest text")
}

func TestMessagesNestedTooDeepAreRefused(t *testing.T) {
	t.Parallel()
	at := strings.Repeat("__attach_version1.0_#00000000/__substg1.0_3701000D/", 17)
	_, _, err := extracttest.ReadBytes(mail.ReadMSG, extracttest.OLEStreams(fixed, properties(32), at+text+"0037001F", wide("deep")), document.TypeMSG)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

func FuzzMSG(f *testing.F) {
	inner := "__attach_version1.0_#00000000/__substg1.0_3701000D/"
	f.Add(extracttest.OLEStreams(fixed, properties(32, 0x3FFD0003, 950), text+"0037001E", "s", text+"1000001E", "x", inner+text+"0037001F", wide("y")))
	extracttest.FuzzReader(f, mail.ReadMSG, document.TypeMSG, ".msg")
}
