package mail

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/richardlehane/mscfb"
	"golang.org/x/text/encoding/unicode"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// Properties of a message (MS-OXPROPS), the first half of their streams' names.
const (
	propSubject      = "0037"
	propSender       = "0C1A"
	propSenderMail   = "5D01"
	propTo           = "0E04"
	propCc           = "0E03"
	propBody         = "1000"
	propHTML         = "1013"
	propFileName     = "3704"
	propLongFileName = "3707"
	propData         = "3701"
	propContentID    = "3712"
	propMIME         = "370E"
)

const (
	streamPrefix = "__substg1.0_"
	attachPrefix = "__attach_version1.0_#"
	fixedStream  = "__properties_version1.0"
	// fixedHead is the head of the fixed properties of a message, each of which takes fixedBytes.
	fixedHead  = 32
	fixedBytes = 16
	tagSubmit  = 0x00390040 // PidTagClientSubmitTime
	tagArrived = 0x0E060040 // PidTagMessageDeliveryTime
)

// ReadMSG reads a message that Outlook stored: a compound file with a stream for each property.
func ReadMSG(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Size > messageBytes {
		return ingest.Extraction{}, document.OverLimit("the message has %d bytes, more than %d", in.Size, messageBytes)
	}
	box, err := mscfb.New(in.File)
	if err != nil {
		return ingest.Extraction{}, document.Corrupt("open the message: %w", err)
	}
	m := &message{}
	files := map[string]*part{} // by their storage
	var order []string
	read := int64(0)
	for entry, err := box.Next(); err == nil; entry, err = box.Next() {
		if entry.FileInfo().IsDir() {
			continue
		}
		if read += entry.Size; read > 2*messageBytes {
			return ingest.Extraction{}, document.OverLimit("the message's parts have more than %d bytes", 2*messageBytes)
		}
		storage := ""
		if len(entry.Path) > 0 {
			storage = entry.Path[0]
		}
		switch {
		case storage == "":
			m.property(entry)
		case strings.HasPrefix(storage, attachPrefix) && len(entry.Path) == 1:
			if files[storage] == nil {
				files[storage] = &part{}
				order = append(order, storage)
			}
			files[storage].property(entry)
		case strings.HasPrefix(storage, attachPrefix) && len(entry.Path) == 2 && strings.HasPrefix(entry.Name, streamPrefix+propSubject):
			m.lost = append(m.lost, fmt.Sprintf("the attached message %q is not read: it is stored in Outlook's own format", textOf(entry, strings.TrimPrefix(entry.Name, streamPrefix))))
		}
	}
	for _, storage := range order {
		switch f := files[storage]; {
		case len(f.data) == 0:
		case f.inline():
			m.parts = append(m.parts, *f)
		default:
			m.files = append(m.files, *f)
		}
	}
	room := maxFiles
	return ingest.Extraction{Title: m.subject}, m.send(ctx, in, out, &room)
}

// property takes one property of the message.
func (m *message) property(entry *mscfb.File) {
	if entry.Name == fixedStream {
		m.date = sentAt(streamOf(entry))
		return
	}
	tag, ok := strings.CutPrefix(entry.Name, streamPrefix)
	if !ok || len(tag) < 8 {
		return
	}
	switch tag[:4] {
	case propSubject:
		m.subject = textOf(entry, tag)
	case propSender, propSenderMail:
		if name := textOf(entry, tag); m.from == "" {
			m.from = name
		} else if !strings.Contains(m.from, name) {
			m.from += " <" + name + ">"
		}
	case propTo:
		m.to = textOf(entry, tag)
	case propCc:
		m.cc = textOf(entry, tag)
	case propBody:
		m.text = textOf(entry, tag)
	case propHTML:
		m.html = textOf(entry, tag)
	}
}

// property takes one property of an attachment.
func (p *part) property(entry *mscfb.File) {
	tag, ok := strings.CutPrefix(entry.Name, streamPrefix)
	if !ok || len(tag) < 8 {
		return
	}
	switch tag[:4] {
	case propLongFileName:
		p.name = textOf(entry, tag)
	case propFileName:
		if p.name == "" {
			p.name = textOf(entry, tag)
		}
	case propContentID:
		p.id = textOf(entry, tag)
	case propMIME:
		p.kind = textOf(entry, tag)
	case propData:
		if strings.EqualFold(tag[4:8], "0102") {
			p.data = streamOf(entry)
		}
	}
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

// textOf decodes a text: of type 001F it is UTF-16, of 001E and 0102 of a charset that the message does not name.
func textOf(entry *mscfb.File, tag string) string {
	data := streamOf(entry)
	if strings.EqualFold(tag[4:8], "001F") {
		text, _ := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(data)
		return strings.TrimRight(string(text), "\x00")
	}
	if c, ok := charset.Guess(data); ok && c.Enc != nil {
		if text, err := c.Enc.NewDecoder().Bytes(data); err == nil {
			data = text
		}
	}
	return strings.TrimRight(string(data), "\x00")
}

// sentAt finds when the message was sent among its properties of fixed size; "": it does not say.
func sentAt(data []byte) string {
	arrived := ""
	for at := fixedHead; at+fixedBytes <= len(data); at += fixedBytes {
		tag := binary.LittleEndian.Uint32(data[at:])
		if tag != tagSubmit && tag != tagArrived {
			continue
		}
		// 100 ns since 1601.
		ticks := binary.LittleEndian.Uint64(data[at+8:])
		const between = 11_644_473_600
		when := time.Unix(int64(ticks/10_000_000)-between, 0).UTC().Format(time.RFC1123Z)
		if tag == tagSubmit {
			return when
		}
		arrived = when
	}
	return arrived
}
