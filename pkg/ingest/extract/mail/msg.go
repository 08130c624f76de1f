package mail

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/richardlehane/mscfb"
	"golang.org/x/text/encoding/unicode"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/rtf"
)

// Properties of a message (MS-OXPROPS), the first half of their streams' names.
const (
	propSubject      = "0037"
	propSender       = "0C1A"
	propSenderMail   = "5D01" // by SMTP
	propSenderOwn    = "0C1F" // of the sender's own system, which may be SMTP
	propTo           = "0E04"
	propCc           = "0E03"
	propBody         = "1000"
	propHTML         = "1013"
	propRTF          = "1009" // compressed
	propFileName     = "3704"
	propLongFileName = "3707"
	propData         = "3701"
	propContentID    = "3712"
	propMIME         = "370E"
	propName         = "3001" // of a recipient
	propMail         = "39FE" // of a recipient, by SMTP
	propOwnMail      = "3003" // of a recipient, of its own system
)

const (
	streamPrefix    = "__substg1.0_"
	attachPrefix    = "__attach_version1.0_#"
	recipientPrefix = "__recip_version1.0_#"
	innerStorage    = streamPrefix + propData + "000D" // an attached message
	fixedStream     = "__properties_version1.0"
	// fixedBytes is what a property of fixed size takes; its tag stands first. Before them is a head (MS-OXMSG, section 2.4).
	fixedBytes = 16
	headOfFile = 32
	headInside = 24 // of an attached message
	headOfPart = 8  // of a recipient or an attachment
	// maxNested bounds messages in messages; a file of Outlook's nests each two storages deeper.
	maxNested = 16
)

// Properties of fixed size, with their types.
const (
	tagSubmit        = 0x00390040 // PidTagClientSubmitTime
	tagArrived       = 0x0E060040 // PidTagMessageDeliveryTime
	tagRecipientType = 0x0C150003
	tagMessagePage   = 0x3FFD0003 // code page of texts of type 001E
	tagInternetPage  = 0x3FDE0003 // code page of the HTML, and of texts where the message names none for them
)

// The kinds of recipients.
const (
	recipientTo = 1
	recipientCc = 2
)

// node is a storage of Outlook's: a message, a recipient, or an attachment.
type node struct {
	head        int               // bytes before the properties of fixed size
	texts       map[string][]byte // content of a stream by its tag: property and type
	fixed       map[uint32]uint64 // properties of fixed size by their tags
	recipients  []*node
	attachments []*node
	inner       *node // of an attachment: the message that it is
	children    map[string]*node
}

func newNode(head int) *node {
	return &node{head: head, texts: map[string][]byte{}, fixed: map[uint32]uint64{}, children: map[string]*node{}}
}

// child is the storage of a name within this one; nil: nothing that is read.
func (n *node) child(name string) *node {
	if known := n.children[name]; known != nil {
		return known
	}
	c := newNode(headOfPart)
	switch {
	case strings.HasPrefix(name, attachPrefix):
		n.attachments = append(n.attachments, c)
	case strings.HasPrefix(name, recipientPrefix):
		n.recipients = append(n.recipients, c)
	case strings.EqualFold(name, innerStorage):
		n.inner, c.head = c, headInside
	default:
		return nil
	}
	n.children[name] = c
	return c
}

// ReadMSG reads a message that Outlook stored: a compound file with a stream for each property. A message that is attached to it is an
// attachment like others, as an EML.
func ReadMSG(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if err := fits(in); err != nil {
		return ingest.Extraction{}, err
	}
	box, err := mscfb.New(in.File)
	if err != nil {
		return ingest.Extraction{}, document.Corrupt("open the message: %w", err)
	}
	root := newNode(headOfFile)
	read := int64(0)
	for entry, err := box.Next(); err == nil; entry, err = box.Next() {
		if entry.FileInfo().IsDir() {
			continue
		}
		if read += entry.Size; read > 2*messageBytes {
			return ingest.Extraction{}, document.OverLimit("the message's parts have more than %d bytes", 2*messageBytes)
		}
		if len(entry.Path) > 2*maxNested {
			return ingest.Extraction{}, document.OverLimit("the message holds messages nested deeper than %d", maxNested)
		}
		at := root
		for _, storage := range entry.Path {
			if at = at.child(storage); at == nil {
				break
			}
		}
		if at != nil {
			at.take(entry)
		}
	}
	return root.message(ctx, 0).sendAll(ctx, in, out)
}

// take keeps one stream.
func (n *node) take(entry *mscfb.File) {
	if tag, ok := strings.CutPrefix(entry.Name, streamPrefix); ok && len(tag) == 8 {
		n.texts[strings.ToUpper(tag)] = streamOf(entry)
		return
	}
	if entry.Name != fixedStream {
		return
	}
	data := streamOf(entry)
	for at := n.head; at+fixedBytes <= len(data); at += fixedBytes {
		n.fixed[binary.LittleEndian.Uint32(data[at:])] = binary.LittleEndian.Uint64(data[at+8:])
	}
}

// message is what the properties say. depth is how many messages lie around it.
func (n *node) message(ctx context.Context, depth int) *message {
	codePage := int(uint32(n.fixed[tagMessagePage]))
	webPage := int(uint32(n.fixed[tagInternetPage]))
	if codePage == 0 {
		codePage = webPage
	}
	text := func(property string) string { return n.text(property, codePage) }
	m := &message{subject: text(propSubject), to: text(propTo), cc: text(propCc), said: oneOf(ctx, text(propBody), n.text(propHTML, webPage)), date: n.sentAt()}
	m.from = addressed(text(propSender), text(propSenderMail), text(propSenderOwn))
	if raw := n.texts[propRTF+"0102"]; len(m.said) == 0 && len(raw) > 0 {
		if data, err := rtf.Decompress(raw); err == nil && isRichText(string(data)) {
			m.said = []said{{string(data), richText}}
		}
	}
	if to := n.listed(recipientTo, codePage); to != "" {
		m.to = to
	}
	if cc := n.listed(recipientCc, codePage); cc != "" {
		m.cc = cc
	}
	for _, a := range n.attachments {
		if a.inner != nil {
			if f := a.inner.message(ctx, depth+1).asFile(); len(f.data) <= messageBytes {
				m.files = append(m.files, f)
			} else {
				m.lost = append(m.lost, fmt.Sprintf("the attached message %q is not read: it has more than %d bytes", f.name, messageBytes))
			}
			continue
		}
		p := part{name: a.text(propLongFileName, codePage), id: a.text(propContentID, codePage), kind: a.text(propMIME, codePage), data: a.texts[propData+"0102"]}
		if p.name == "" {
			p.name = a.text(propFileName, codePage)
		}
		switch {
		case len(p.data) == 0 || m.unwrap(ctx, strings.ToLower(p.kind), p.name, p.data, depth):
		case p.inline():
			m.parts = append(m.parts, p)
		default:
			m.files = append(m.files, p)
		}
	}
	return m
}

// listed are the recipients of a kind with their addresses.
func (n *node) listed(kind uint64, page int) string {
	var all []string
	for _, r := range n.recipients {
		who := addressed(r.text(propName, page), r.text(propMail, page), r.text(propOwnMail, page))
		if r.fixed[tagRecipientType]&0xF == kind && who != "" && !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return strings.Join(all, ", ")
}

// addressed is a name with the first address that is one of SMTP.
func addressed(name string, addresses ...string) string {
	for _, a := range addresses {
		switch {
		case !strings.Contains(a, "@"):
		case name == "":
			return a
		case strings.Contains(name, a):
			return name
		default:
			return name + " <" + a + ">"
		}
	}
	return name
}

// text is a property's text: of type 001F it is UTF-16, of 001E and 0102 of a code page, which is guessed where it is not known.
func (n *node) text(property string, page int) string {
	if data, ok := n.texts[property+"001F"]; ok {
		text, _ := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(data)
		return strings.TrimRight(string(text), "\x00")
	}
	data, ok := n.texts[property+"001E"]
	if !ok {
		data = n.texts[property+"0102"]
	}
	data = bytes.TrimRight(data, "\x00")
	c, ok := charset.OfPage(page)
	if !ok || c.Enc != nil && len(data) > 0 && !charset.Decodes(c, data) {
		c, ok = charset.Guess(data)
	}
	if ok && c.Enc != nil {
		if text, err := c.Enc.NewDecoder().Bytes(data); err == nil {
			data = text
		}
	}
	return strings.ToValidUTF8(string(data), "\uFFFD")
}

// sentAt tells when the message was sent, else when it arrived; "": it does not say.
func (n *node) sentAt() string {
	ticks, ok := n.fixed[tagSubmit] // 100 ns since 1601
	if !ok {
		ticks, ok = n.fixed[tagArrived]
	}
	if !ok {
		return ""
	}
	const between = 11_644_473_600
	return time.Unix(int64(ticks/10_000_000)-between, 0).UTC().Format(time.RFC1123Z)
}

// inline reports whether an attachment is a picture that the text names by its Content-ID.
func (p *part) inline() bool {
	return p.id != "" && strings.HasPrefix(strings.ToLower(p.kind), "image/")
}

// streamOf is a stream's content as far as it can be read.
func streamOf(entry *mscfb.File) []byte {
	data, _ := io.ReadAll(io.LimitReader(entry, messageBytes))
	return data
}
