// Package office opens documents that are zip archives of XML parts (OOXML, OpenDocument, EPUB), under limits of
// size, ratio, depth and token, and walks their parts.
package office

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// openOffice begins the names of the document types that OpenOffice 1 and 2 wrote into each part.
const openOffice = `"-//OpenOffice.org//DTD `

const (
	// maxXMLDepth bounds nesting: real documents stay below 60.
	maxXMLDepth = 512
	// maxXMLToken bounds one tag or one run of text, which the parser holds whole.
	maxXMLToken = 4 << 20
	// maxArchiveBytes bounds all parts of one archive together after decompression.
	maxArchiveBytes = 512 << 20
)

// Archive is an opened document. Its parts are read by name from memory; nothing is unpacked to
// disk.
type Archive struct {
	parts map[string]*zip.File // by name, and by folded name
	read  int64                // bytes decompressed so far
}

// Open opens the archive of a document. Errors: CORRUPT, LIMIT_EXCEEDED.
func Open(in *document.Input) (*Archive, error) {
	dir, err := archive.ReadDirectory(in.File, in.Size)
	if err != nil {
		return nil, document.Corrupt("open the archive: %w", err)
	}
	if err := dir.CheckLimits(); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(in.File, in.Size)
	if err != nil {
		return nil, document.Corrupt("open the archive: %w", err)
	}
	a := &Archive{parts: make(map[string]*zip.File, len(z.File))}
	for _, named := range []func(string) string{archive.Slashed, archive.Fold} {
		for _, f := range z.File {
			if name := named(f.Name); a.parts[name] == nil {
				a.parts[name] = f
			}
		}
	}
	return a, nil
}

// part is the member of a name, in whichever case where there is none in that; nil: there is none.
func (a *Archive) part(name string) *zip.File {
	if f := a.parts[name]; f != nil {
		return f
	}
	return a.parts[archive.Fold(name)]
}

// Has reports whether the archive has a part of that name.
func (a *Archive) Has(name string) bool { return a.part(name) != nil }

// Open starts reading a part; nil when the archive has none of that name.
func (a *Archive) Open(name string) (*Part, error) {
	f := a.part(name)
	if f == nil {
		return nil, nil
	}
	if f.Flags&1 != 0 {
		return nil, document.Encrypted("%s is encrypted", name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, document.Corrupt("open %s: %w", name, err)
	}
	return &Part{archive: a, file: f, src: r}, nil
}

// Part is one member being read: it counts what really comes out, whatever the directory declares.
type Part struct {
	archive *Archive
	file    *zip.File
	src     io.ReadCloser
	read    int64
	token   int  // bytes since the last "<"
	binary  bool // the part is no XML, or in UTF-16
}

// Read implements io.Reader under the limits for size, ratio and token.
func (p *Part) Read(buf []byte) (int, error) {
	n, err := p.src.Read(buf)
	p.read += int64(n)
	p.archive.read += int64(n)
	if !p.binary {
		if err := p.bound(buf[:n]); err != nil {
			return 0, err
		}
	}
	switch {
	case p.read > archive.MaxPartBytes, p.archive.read > maxArchiveBytes:
		return 0, document.OverLimit("%s: more than %d bytes", p.file.Name, min(p.read, p.archive.read)-1)
	case p.read > archive.RatioFreeBytes && uint64(p.read) > archive.MaxRatio*max(p.file.CompressedSize64, 1):
		return 0, document.OverLimit("%s is compressed more than %d-fold", p.file.Name, archive.MaxRatio)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = document.Corrupt("read %s: %w", p.file.Name, err)
	}
	return n, err
}

// bound counts the bytes of one tag or one run of text.
func (p *Part) bound(text []byte) error {
	if at := bytes.LastIndexByte(text, '<'); at >= 0 {
		p.token = len(text) - at
	} else {
		p.token += len(text)
	}
	if p.token > maxXMLToken {
		return document.OverLimit("%s: a single element of more than %d bytes", p.file.Name, maxXMLToken)
	}
	return nil
}

// wide is a part in UTF-16 as UTF-8.
type wide struct {
	src  io.Reader
	part *Part
}

// Read implements io.Reader under the limit for tokens.
func (w *wide) Read(buf []byte) (int, error) {
	n, err := w.src.Read(buf)
	if limit := w.part.bound(buf[:n]); limit != nil {
		return 0, limit
	}
	return n, err
}

// decoded is the part's text, and what its declaration says of it (XML, 4.3.3 and F). UTF-16 is known by its mark, or by the zero beside the
// first "<".
func (p *Part) decoded() (io.Reader, func(label string, r io.Reader) (io.Reader, error)) {
	src := bufio.NewReader(p)
	head, _ := src.Peek(2) // an error comes again
	var order unicode.Endianness
	switch string(head) {
	case "\xff\xfe", "<\x00":
		order = unicode.LittleEndian
	case "\xfe\xff", "\x00<":
		order = unicode.BigEndian
	default:
		return src, declared
	}
	p.binary, p.token = true, 0
	return &wide{transform.NewReader(src, unicode.UTF16(order, unicode.UseBOM).NewDecoder()), p}, func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
}

// declared reads what is in the charset that it declares.
func declared(label string, r io.Reader) (io.Reader, error) {
	c, ok := charset.Named(label)
	if !ok {
		return nil, fmt.Errorf("unknown charset %q", label)
	}
	if c.Enc == nil {
		return r, nil
	}
	return transform.NewReader(r, c.Enc.NewDecoder()), nil
}

// Advance tells how much of the part was read, if it is time, and returns ctx's error then.
func (p *Part) Advance(ctx context.Context, in *document.Input) error {
	return in.Advance(ctx, p.read, max(int64(p.file.UncompressedSize64), p.read))
}

// Close ends the reading of the part.
func (p *Part) Close() { _ = p.src.Close() }

// Bytes reads a part that is no XML whole; nil when the archive has none of that name. Errors: LIMIT_EXCEEDED above most bytes, CORRUPT.
func (a *Archive) Bytes(name string, most int64) ([]byte, error) {
	p, err := a.Open(name)
	if err != nil || p == nil {
		return nil, err
	}
	defer p.Close()
	p.binary = true
	data, err := io.ReadAll(io.LimitReader(p, most+1))
	if err == nil && int64(len(data)) > most {
		err = document.OverLimit("%s has more than %d bytes", name, most)
	}
	return data, err
}

// Visitor is told what a part holds, in order. Names are local: prefixes differ between programs.
type Visitor interface {
	Start(name string, attrs []xml.Attr) error
	End(name string) error
	Text(data []byte) error
}

// Attributes is a Visitor that a part's text says nothing to: one that embeds it looks at elements as they start.
type Attributes struct{}

// End implements Visitor.
func (Attributes) End(string) error { return nil }

// Text implements Visitor.
func (Attributes) Text([]byte) error { return nil }

// Walk reads a part to its end. DTDs are refused, so that no entity can be defined, but the names of OpenOffice's.
// Errors: CORRUPT, LIMIT_EXCEEDED, or the visitor's.
func (p *Part) Walk(v Visitor) error {
	src, declares := p.decoded()
	dec := xml.NewDecoder(src)
	dec.CharsetReader = declares
	depth := 0
	for {
		tok, err := dec.RawToken()
		if errors.Is(err, io.EOF) {
			if depth > 0 {
				return document.Corrupt("read %s: the part ends inside an element", p.file.Name)
			}
			return nil
		}
		if err != nil {
			return p.syntax(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if depth++; depth > maxXMLDepth {
				return document.OverLimit("read %s: elements nested deeper than %d", p.file.Name, maxXMLDepth)
			}
			err = v.Start(tok.Name.Local, tok.Attr)
		case xml.EndElement:
			if depth--; depth < 0 {
				return document.Corrupt("read %s: an end tag without a start", p.file.Name)
			}
			err = v.End(tok.Name.Local)
		case xml.CharData:
			err = v.Text(tok)
		case xml.Directive:
			if bytes.ContainsRune(tok, '[') || !bytes.Contains(tok, []byte(openOffice)) {
				return document.Corrupt("read %s: document type declarations are not allowed", p.file.Name)
			}
		}
		if err != nil {
			return err
		}
	}
}

// syntax marks the parser's own errors as damage; limits met while reading pass as they are.
func (p *Part) syntax(err error) error {
	_, syntax := errors.AsType[*xml.SyntaxError](err)
	if _, limit := errors.AsType[*ingest.Failure](err); limit && !syntax && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return document.Corrupt("read %s: %w", p.file.Name, err)
}

// Visit walks the part of that name; a missing part is no error.
func (a *Archive) Visit(name string, v Visitor) error {
	p, err := a.Open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	return p.Walk(v)
}

// Attr is the value of an attribute by its local name.
func Attr(attrs []xml.Attr, name string) string {
	for _, a := range attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// Main finds the main part of an OOXML document by the package's relationships, else by its usual names, and reads its relationships.
// Errors: CORRUPT, when there is none; those of reading.
func (a *Archive) Main(usual ...string) (name string, rels *Relations, err error) {
	pack, err := a.RelationsOf("")
	if err != nil {
		return "", nil, err
	}
	for _, name := range append([]string{pack.ByKind["officeDocument"]}, usual...) {
		if name != "" && a.Has(name) { // a member may have an empty name
			rels, err := a.RelationsOf(name)
			return name, rels, err
		}
	}
	return "", nil, document.Corrupt("the archive has no %s", usual[0])
}

// Relations are a part's relationships to other parts; targets are resolved names.
type Relations struct {
	Attributes
	ByKind map[string]string // the last word of the type → the first target of that type
	ByID   map[string]string
	// Objects are the parts that are files of other formats, by id.
	Objects map[string]string
	base    string
}

// RelationsOf reads the relationships of an OOXML part; "": those of the package.
func (a *Archive) RelationsOf(name string) (*Relations, error) {
	dir, file := path.Split(name)
	r := &Relations{base: dir, ByKind: map[string]string{}, ByID: map[string]string{}, Objects: map[string]string{}}
	return r, a.Visit(path.Join(dir, "_rels", file+".rels"), r)
}

// Start implements Visitor.
func (r *Relations) Start(name string, attrs []xml.Attr) error {
	if name != "Relationship" || strings.EqualFold(Attr(attrs, "TargetMode"), "External") || len(r.ByID) >= archive.MaxEntries {
		return nil
	}
	target := Attr(attrs, "Target")
	if !strings.HasPrefix(target, "/") {
		target = path.Join("/", r.base, target)
	}
	target = strings.TrimPrefix(path.Clean(target), "/")
	kind := path.Base(Attr(attrs, "Type"))
	if _, twice := r.ByKind[kind]; !twice {
		r.ByKind[kind] = target
	}
	r.ByID[Attr(attrs, "Id")] = target
	if kind == "package" || kind == "oleObject" {
		r.Objects[Attr(attrs, "Id")] = target
	}
	return nil
}

// Title is the first title element of a part that describes the document; "": it has none.
func (a *Archive) Title(name string) (string, error) {
	t := &TitleReader{}
	err := a.Visit(name, t)
	return t.Title(), err
}

// TitleReader is a Visitor that keeps the text of the first title element.
type TitleReader struct {
	text   strings.Builder
	inside bool
}

// Title is what was read; "": there is none.
func (t *TitleReader) Title() string { return t.text.String() }

// Start implements Visitor.
func (t *TitleReader) Start(name string, _ []xml.Attr) error {
	t.inside = name == "title" && t.text.Len() == 0
	return nil
}

// End implements Visitor.
func (t *TitleReader) End(string) error {
	t.inside = false
	return nil
}

// Text implements Visitor.
func (t *TitleReader) Text(data []byte) error {
	if t.inside && t.text.Len() < 4*document.MaxTitleRunes {
		t.text.Write(data[:min(len(data), 4*document.MaxTitleRunes)])
	}
	return nil
}

// Dropped follows elements whose whole content is left out. Of the alternatives in an mc:AlternateContent it leaves the first: the others say
// the same for older programs. A Visitor asks it at each Start, End and Text.
type Dropped struct {
	depth   int    // inside of dropped elements
	choices []bool // for each open mc:AlternateContent: an alternative was taken
}

// Start reports whether an element is dropped: the visitor drops it, it lies in one that is, or it is a later alternative.
func (d *Dropped) Start(name string, drop bool) bool {
	if d.depth == 0 {
		switch n := len(d.choices); {
		case name == "AlternateContent" && !drop:
			d.choices = append(d.choices, false)
		case (name == "Choice" || name == "Fallback") && n > 0:
			drop, d.choices[n-1] = drop || d.choices[n-1], true
		}
	}
	if d.depth > 0 || drop {
		d.depth++
	}
	return d.depth > 0
}

// End reports whether the element that ends is dropped.
func (d *Dropped) End(name string) bool {
	if d.depth > 0 {
		d.depth--
		return true
	}
	if n := len(d.choices); name == "AlternateContent" && n > 0 {
		d.choices = d.choices[:n-1]
	}
	return false
}

// Now reports whether what is read now is dropped.
func (d *Dropped) Now() bool { return d.depth > 0 }
