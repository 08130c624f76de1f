package docx

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/text/transform"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// maxXMLDepth bounds nesting: real documents stay below 60.
	maxXMLDepth = 512
	// maxXMLToken bounds one tag or one run of text, which the parser holds whole.
	maxXMLToken = 4 << 20
	// maxArchiveBytes bounds all parts of one archive together after decompression.
	maxArchiveBytes = 512 << 20
)

// officeArchive is an opened OOXML package. Its parts are read by name from memory; nothing is unpacked to
// disk.
type officeArchive struct {
	parts map[string]*zip.File
	read  int64 // bytes decompressed so far
}

func openOffice(in *document.Input) (*officeArchive, error) {
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
	a := &officeArchive{parts: make(map[string]*zip.File, len(z.File))}
	for _, f := range z.File {
		name := strings.TrimPrefix(strings.ReplaceAll(f.Name, `\`, "/"), "/")
		if _, twice := a.parts[name]; !twice {
			a.parts[name] = f
		}
	}
	return a, nil
}

// open starts reading a part; nil when the archive has none of that name.
func (a *officeArchive) open(name string) (*part, error) {
	f := a.parts[name]
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
	return &part{archive: a, file: f, src: r}, nil
}

// part is one member being read: it counts what really comes out, whatever the directory declares.
type part struct {
	archive *officeArchive
	file    *zip.File
	src     io.ReadCloser
	read    int64
	token   int // bytes since the last "<"
}

// Read implements io.Reader under the limits for size, ratio and token.
func (p *part) Read(buf []byte) (int, error) {
	n, err := p.src.Read(buf)
	p.read += int64(n)
	p.archive.read += int64(n)
	if at := bytes.LastIndexByte(buf[:n], '<'); at >= 0 {
		p.token = n - at
	} else {
		p.token += n
	}
	switch {
	case p.read > archive.MaxPartBytes, p.archive.read > maxArchiveBytes:
		return 0, document.OverLimit("%s: more than %d bytes", p.file.Name, min(p.read, p.archive.read)-1)
	case p.read > archive.RatioFreeBytes && uint64(p.read) > archive.MaxRatio*max(p.file.CompressedSize64, 1):
		return 0, document.OverLimit("%s is compressed more than %d-fold", p.file.Name, archive.MaxRatio)
	case p.token > maxXMLToken:
		return 0, document.OverLimit("%s: a single element of more than %d bytes", p.file.Name, maxXMLToken)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = document.Corrupt("read %s: %w", p.file.Name, err)
	}
	return n, err
}

func (p *part) close() { _ = p.src.Close() }

// xmlVisitor is told what a part holds, in order. Names are local: prefixes differ between programs.
type xmlVisitor interface {
	start(name string, attrs []xml.Attr) error
	end(name string) error
	text(data []byte) error
}

// walk reads a part to its end. DTDs are refused, so that no entity can be defined.
// Errors: CORRUPT, LIMIT_EXCEEDED, or the visitor's.
func (p *part) walk(v xmlVisitor) error {
	dec := xml.NewDecoder(p)
	dec.CharsetReader = func(label string, r io.Reader) (io.Reader, error) {
		c, ok := charset.Named(label)
		if !ok {
			return nil, fmt.Errorf("unknown charset %q", label)
		}
		if c.Enc == nil {
			return r, nil
		}
		return transform.NewReader(r, c.Enc.NewDecoder()), nil
	}
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
			err = v.start(tok.Name.Local, tok.Attr)
		case xml.EndElement:
			if depth--; depth < 0 {
				return document.Corrupt("read %s: an end tag without a start", p.file.Name)
			}
			err = v.end(tok.Name.Local)
		case xml.CharData:
			err = v.text(tok)
		case xml.Directive:
			return document.Corrupt("read %s: document type declarations are not allowed", p.file.Name)
		}
		if err != nil {
			return err
		}
	}
}

// syntax marks the parser's own errors as damage; limits met while reading pass as they are.
func (p *part) syntax(err error) error {
	_, syntax := errors.AsType[*xml.SyntaxError](err)
	if _, limit := errors.AsType[*ingest.Failure](err); limit && !syntax && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return document.Corrupt("read %s: %w", p.file.Name, err)
}

// visit walks the part of that name; a missing part is no error.
func (a *officeArchive) visit(name string, v xmlVisitor) error {
	p, err := a.open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.close()
	return p.walk(v)
}

// attr is the value of an attribute by its local name.
func attr(attrs []xml.Attr, name string) string {
	for _, a := range attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// relations reads a part's relationships: the last word of the type → targets, resolved.
type relations struct {
	base    string
	targets map[string]string
}

func (a *officeArchive) relationsOf(name string) (map[string]string, error) {
	dir, file := path.Split(name)
	r := &relations{base: dir, targets: map[string]string{}}
	return r.targets, a.visit(path.Join(dir, "_rels", file+".rels"), r)
}

func (r *relations) start(name string, attrs []xml.Attr) error {
	if name != "Relationship" || strings.EqualFold(attr(attrs, "TargetMode"), "External") || len(r.targets) >= archive.MaxEntries {
		return nil
	}
	target := attr(attrs, "Target")
	if !strings.HasPrefix(target, "/") {
		target = path.Join("/", r.base, target)
	}
	kind := path.Base(attr(attrs, "Type"))
	if _, twice := r.targets[kind]; !twice {
		r.targets[kind] = strings.TrimPrefix(path.Clean(target), "/")
	}
	return nil
}

func (*relations) end(string) error  { return nil }
func (*relations) text([]byte) error { return nil }
