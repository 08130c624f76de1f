// Package mail reads e-mail: single messages (EML, Outlook's MSG) and mailboxes (MBOX).
package mail

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"

	"github.com/jhillyerd/enmime/v2"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
	"github.com/millweir/millweir/pkg/ingest/extract/rtf"
)

const (
	// messageBytes bounds one message, which is held whole, more than once.
	messageBytes = 32 << 20
	// maxParts bounds the files that are read in their place in a message, and maxFiles those of a file that become documents.
	maxParts = 1000
	maxFiles = 1000
	// stub is how many times more characters a page has than a plain text that stands for nothing.
	stub = 4
	// maxNamed bounds the names of attachments in the text of their message.
	maxNamed = 100
)

// message is one e-mail, whichever file it came from.
type message struct {
	subject, from, to, cc, date string
	said                        []said   // its text, in its order
	lost                        []string // warnings
	sealed                      []encrypted
	parts                       []part // that belong to its text: pictures, mostly
	files                       []part // its attachments, which are documents of their own
}

// said is a piece of a message's text.
type said struct {
	text string
	kind textKind
}

// textKind is the kind of a text: the second half of its media type.
type textKind string

const (
	plain    textKind = "plain"
	page     textKind = "html"
	richText textKind = "rtf"
)

// part is a file that a message carries.
type part struct {
	name     string
	data     []byte
	id, kind string // of Outlook's messages: Content-ID and media type
}

// Read reads one message: its subject as a heading, who wrote it to whom and when, its text, then the files that belong to that. Its
// attachments are documents of their own: in.Carry takes them instead, if there is one.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if err := fits(in); err != nil {
		return ingest.Extraction{}, err
	}
	m, err := parse(ctx, in.Stream(), 0)
	if err != nil {
		return ingest.Extraction{}, err
	}
	return m.sendAll(ctx, in, out)
}

// fits bounds a file of one message. Error: LIMIT_EXCEEDED.
func fits(in *document.Input) error {
	if in.Size > messageBytes {
		return document.OverLimit("the message has %d bytes, more than %d", in.Size, messageBytes)
	}
	return nil
}

// sendAll sends a message that is a file of its own.
func (m *message) sendAll(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if err := m.withoutSealed(); err != nil {
		return ingest.Extraction{}, err
	}
	room := maxFiles
	return ingest.Extraction{Title: m.subject}, m.send(ctx, in, out, &room)
}

var parser = enmime.NewParser(enmime.MaxStoredPartErrors(8), enmime.DisableTextConversion(true), enmime.SkipMalformedParts(true),
	enmime.MultipartWOBoundaryAsSinglePart(true), enmime.StripMediaTypeInvalidCharacters(true), enmime.SetReadPartErrorPolicy(enmime.AllowCorruptTextPartErrorPolicy))

// parse reads a message as it is sent, whatever of it is encrypted. Errors: CORRUPT.
func parse(ctx context.Context, src io.Reader, depth int) (*message, error) {
	e, err := parser.ReadEnvelope(src)
	if err != nil {
		return nil, document.Corrupt("read the message: %w", err)
	}
	m := &message{
		subject: e.GetHeader("Subject"), from: e.GetHeader("From"), to: e.GetHeader("To"), cc: e.GetHeader("Cc"), date: e.GetHeader("Date"),
		said: oneOf(ctx, e.Text, e.HTML),
	}
	if e.Root != nil && e.Root.FirstChild != nil {
		m.said = textsOf(ctx, e.Root, false)
	}
	seen := map[*enmime.Part]bool{} // an inline part of no known type is an attachment too
	for _, some := range [][]*enmime.Part{e.Attachments, e.Inlines, e.OtherParts} {
		for _, p := range some {
			if len(p.Content) == 0 || seen[p] || noFile(p) {
				continue
			}
			seen[p] = true
			name := p.FileName
			if name == "" { // the parser looks for it only where there is a type
				_, said, _ := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
				name = said["filename"]
			}
			if name == "" && strings.EqualFold(p.ContentType, "message/rfc822") {
				name = "message.eml"
			}
			switch {
			case p.Parent != nil && kindOf(p.Parent) == "multipart/encrypted":
				if kindOf(p) != "application/pgp-encrypted" {
					m.sealed = append(m.sealed, encrypted{byPGP, p.Content})
				}
			case m.unwrap(ctx, kindOf(p), name, p.Content, depth):
			case inline(p):
				m.parts = append(m.parts, part{name: name, data: p.Content})
			default:
				m.files = append(m.files, part{name: name, data: p.Content})
			}
		}
	}
	return m, nil
}

// oneOf is what a message says that has a plain text and a page.
func oneOf(ctx context.Context, text, web string) []said {
	var texts, pages []said
	if strings.TrimSpace(text) != "" {
		texts = []said{{text, plain}}
	}
	if web != "" {
		pages = []said{{web, page}}
	}
	return choose(ctx, texts, pages)
}

// choose returns the plain text, which the writer's program made of the page, or the page where it says much more: a text such as "open this in
// your browser" stands for nothing.
func choose(ctx context.Context, texts, pages []said) []said {
	if len(texts) == 0 || len(pages) > 0 && chars(ctx, pages) > stub*chars(ctx, texts) {
		return pages
	}
	return texts
}

// chars is how many characters are read of texts, as far as they can be read.
func chars(ctx context.Context, texts []said) int64 {
	sink := document.NewSink(document.Limits{MaxTextBytes: messageBytes}, func(ingest.Block) error { return nil })
	_ = send(ctx, texts, sink) // whoever reads them in earnest tells what is wrong
	return sink.Chars
}

// textsOf is what a part and those within it say. Of alternatives it is the first without a page or the last with one.
func textsOf(ctx context.Context, p *enmime.Part, alternative bool) (out []said) {
	kind := kindOf(p)
	if p.FirstChild == nil {
		text := string(p.Content)
		switch {
		case !strings.HasPrefix(kind, "text/") || !noFile(p) || strings.TrimSpace(text) == "":
			return nil
		case kind == "text/html":
			return []said{{text, page}}
		case kind == "text/rtf" && isRichText(text):
			return []said{{text, richText}}
		case kind == "text/plain", !alternative && !slices.Contains(noText, kind):
			return []said{{text, plain}}
		}
		return nil
	}
	var texts []said
	alternative = kind == "multipart/alternative"
	for c := p.FirstChild; c != nil; c = c.NextSibling {
		one := textsOf(ctx, c, alternative)
		switch pages := slices.ContainsFunc(one, func(s said) bool { return s.kind != plain }); {
		case !alternative:
			out = append(out, one...)
		case !pages && texts == nil:
			texts = one
		case pages:
			out = one
		}
	}
	if alternative {
		return choose(ctx, texts, out)
	}
	return out
}

// isRichText reports whether a text begins as rich text does.
func isRichText(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), `{\rtf`) }

// noText are kinds of text that nobody wrote to be read.
var noText = []string{"text/calendar", "text/css", "text/rfc822-headers", "text/x-amp-html"}

// kindOf is a part's media type; without one it is plain text (RFC 2045, 5.2).
func kindOf(p *enmime.Part) string { return cmp.Or(strings.ToLower(p.ContentType), "text/plain") }

// noFile reports whether a part is no file that a person has attached: a part of the text, or a signature.
func noFile(p *enmime.Part) bool {
	kind := kindOf(p)
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		return true
	case strings.HasPrefix(kind, "text/"):
		// The parser looks at the disposition only where there is a type.
		return p.FileName == "" && p.Disposition != "attachment" && (p.ContentType != "" || p.Header.Get("Content-Disposition") == "")
	}
	return kind == "application/pgp-signature" || kind == "application/pkcs7-signature" || kind == "application/x-pkcs7-signature"
}

// inline reports whether a part belongs to the text, which names it by its Content-ID or its Content-Location.
func inline(p *enmime.Part) bool {
	related := p.Parent != nil && strings.EqualFold(p.Parent.ContentType, "multipart/related")
	return p.ContentID != "" && (related || p.Disposition != "attachment") || related && p.Header.Get("Content-Location") != ""
}

// named gives files without a name one by their number.
func named(files []part) []part {
	for i := range files {
		if files[i].name == "" {
			files[i].name = fmt.Sprintf("attachment-%d", i+1)
		}
	}
	return files
}

// carry gives away the attachments, as many as there is room for.
func (m *message) carry(ctx context.Context, in *document.Input, room *int) error {
	for _, f := range named(m.files) {
		if *room--; *room < 0 {
			return nil // its document has the warning
		}
		if err := errors.Join(ctx.Err(), in.Carry(f.name, f.data)); err != nil {
			return err
		}
	}
	return nil
}

// attached names the attachments, and warns of those that there is no room for.
func (m *message) attached(out *document.Sink, room *int) string {
	var names []string
	for i, f := range named(m.files) {
		if *room--; *room < 0 {
			out.Warn("attachment %q is no document: there are more than %d", f.name, maxFiles)
		}
		if i < maxNamed {
			names = append(names, document.Squeeze(f.name))
		}
	}
	return strings.Join(names, ", ")
}

// send sends a message's blocks, or its attachments to in.Carry. room is how many attachments may still become documents.
func (m *message) send(ctx context.Context, in *document.Input, out *document.Sink, room *int) error {
	if in.Carry != nil {
		return m.carry(ctx, in, room)
	}
	for _, what := range m.lost {
		out.Warn("%s", what)
	}
	const level = 1
	if err := out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: level, Text: document.Squeeze(m.subject)}); err != nil {
		return err
	}
	var head []string
	for _, h := range [][2]string{{"From", m.from}, {"To", m.to}, {"Cc", m.cc}, {"Date", m.date}, {"Attachments", m.attached(out, room)}} {
		if h[1] != "" {
			head = append(head, h[0]+": "+document.Squeeze(h[1]))
		}
	}
	if err := out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: strings.Join(head, "\n")}); err != nil {
		return err
	}
	if err := send(ctx, m.said, out); err != nil {
		return err
	}
	if len(m.parts) > maxParts {
		return document.OverLimit("the text of a message has %d files, more than %d", len(m.parts), maxParts)
	}
	for i, p := range m.parts {
		if p.name == "" {
			p.name = fmt.Sprintf("part-%d", i+1)
		}
		if err := in.Inner(ctx, p.name, p.data, out, level+1); err != nil {
			return err
		}
	}
	return nil
}

// readers are of the texts that are not plain.
var readers = map[textKind]func(context.Context, string, *document.Sink) error{page: html.ReadPart, richText: rtf.ReadPart}

// send sends texts one after the other.
func send(ctx context.Context, texts []said, out *document.Sink) error {
	for _, s := range texts {
		if read := readers[s.kind]; read != nil {
			if err := read(ctx, s.text, out); err != nil {
				return err
			}
			continue
		}
		text := strings.ReplaceAll(s.text, "\r\n", "\n")
		for _, paragraph := range strings.Split(text, "\n\n") {
			if err := out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: paragraph}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadBox reads a mailbox: every message of it, in the order of the file. A message that cannot be read is named in the warnings.
func ReadBox(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	src := bufio.NewReaderSize(in.Stream(), 64<<10)
	var held bytes.Buffer
	done, count, room := int64(0), 0, maxFiles
	flush := func() error {
		defer held.Reset()
		if held.Len() == 0 {
			return nil
		}
		count++
		m, err := parse(ctx, bytes.NewReader(held.Bytes()), 0)
		if err == nil {
			err = m.withoutSealed()
		}
		if err != nil {
			out.Warn("message %d could not be read: %v", count, err)
			return nil
		}
		return m.send(ctx, in, out, &room)
	}
	blank := true // the line before was empty, or there was none
	for {
		line, err := src.ReadSlice('\n')
		done += int64(len(line))
		if blank && bytes.HasPrefix(line, []byte("From ")) {
			if err := errors.Join(flush(), ctx.Err()); err != nil {
				return ingest.Extraction{}, err
			}
			in.Progress(int(done>>10), int(in.Size>>10))
		} else {
			if bytes.HasPrefix(line, []byte(">From ")) { // as it was written into the box
				line = line[1:]
			}
			held.Write(line)
		}
		blank = len(bytes.TrimSpace(line)) == 0
		switch {
		case held.Len() > messageBytes:
			return ingest.Extraction{}, document.OverLimit("message %d of the mailbox has more than %d bytes", count+1, messageBytes)
		case errors.Is(err, io.EOF):
			return ingest.Extraction{}, flush()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return ingest.Extraction{}, err
		}
	}
}
