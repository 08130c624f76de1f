// Package ole takes the files out of the objects (OLE) that other documents embed, and reads them in their place.
package ole

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/richardlehane/mscfb"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// MaxBytes bounds one embedded object, which is held.
const MaxBytes = 16 << 20

var compound = []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")

// File is a file that an object holds.
type File struct {
	Name  string
	Named bool   // by a person; else by the program
	Data  []byte // none where the object is damaged: whoever reads it says so
}

// Unpack returns the file that an object holds; part is the name of the part that the object is. ok is false for an object that no
// reader knows, such as a formula or a drawing: the document shows a picture of it.
func Unpack(part string, data []byte) (f File, ok bool) {
	f = File{Name: path.Base(part), Data: data}
	if len(data) == 0 {
		return File{}, false
	}
	if !bytes.HasPrefix(data, compound) {
		return f, true
	}
	box, err := mscfb.New(bytes.NewReader(data))
	if err != nil {
		return f, true // its reader says what is wrong with it
	}
	for entry, err := box.Next(); err == nil; entry, err = box.Next() {
		if len(entry.Path) > 0 || entry.FileInfo().IsDir() {
			continue
		}
		switch entry.Name {
		case "Package", "EmbeddedOdf":
			f.Data = stream(entry)
			return f, true
		case "CONTENTS":
			if inner := stream(entry); bytes.HasPrefix(inner, []byte("%PDF-")) {
				f.Data = inner
				return f, true
			}
		case "Ole10Native":
			if inner := stream(entry); len(inner) > 4 {
				return packaged(inner[4:])
			}
		case "WordDocument", "Workbook", "Book", "PowerPoint Document", "__properties_version1.0":
			return f, true
		}
	}
	return File{}, false
}

// stream is the content of a stream. One that is damaged is read up to there.
func stream(entry *mscfb.File) []byte {
	data, _ := io.ReadAll(io.LimitReader(entry, MaxBytes))
	return data
}

// UnpackOld returns the file of an object as programs before OLE 2 have it, and RTF still ([MS-OLEDS] 2.2.5).
func UnpackOld(data []byte) (f File, ok bool) {
	r := reader{left: data}
	r.number() // version
	const embedded = 2
	if r.number() != embedded {
		return File{}, false
	}
	class := r.sized()
	r.sized() // topic
	r.sized() // item
	native := r.sized()
	if string(bytes.TrimRight(class, "\x00")) == "Package" {
		return packaged(native)
	}
	return Unpack(string(bytes.TrimRight(class, "\x00")), native)
}

// packaged returns the file of Windows' packager: its label, the path that it came from, and its bytes ([MS-OLEDS] 2.3.6 has the sizes only).
func packaged(data []byte) (f File, ok bool) {
	r := reader{left: data}
	r.take(2)
	label, from := r.text(), r.text()
	r.take(4)
	r.sized() // the path of the copy that the packager made
	f = File{Name: base(label), Named: true, Data: r.sized()}
	if f.Name == "" {
		f.Name = base(from)
	}
	if len(f.Data) == 0 {
		return File{}, false
	}
	return f, true
}

// base is the name of a file without the folders of Windows and of others.
func base(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	return document.CleanTitle(strings.ToValidUTF8(name, "?"))
}

// reader reads little-endian records. What is beyond the end is zero and empty.
type reader struct{ left []byte }

func (r *reader) take(n uint32) []byte {
	n = min(n, uint32(len(r.left)))
	out := r.left[:n]
	r.left = r.left[n:]
	return out
}

func (r *reader) number() uint32 {
	var four [4]byte
	copy(four[:], r.take(4))
	return binary.LittleEndian.Uint32(four[:])
}

// sized is a record behind its size.
func (r *reader) sized() []byte { return r.take(r.number()) }

// text is a record that ends with NUL.
func (r *reader) text() string {
	n := bytes.IndexByte(r.left, 0)
	if n < 0 {
		n = len(r.left)
	}
	out := string(r.take(uint32(n)))
	r.take(1)
	return out
}

// Read reads a file in the place where a document embeds it, on that page, below its name where a person gave it one. A file that cannot be read is a warning.
func (f File) Read(ctx context.Context, in *document.Input, out *document.Sink, page int) error {
	level := 0
	if f.Named {
		level = 1
	}
	return Inside(ctx, in, out, f.Name, f.Data, level, out.Inside(page))
}

// Inside reads a file that a document carries and passes its blocks to emit; out is told what it lacks and which readers there were.
func Inside(ctx context.Context, in *document.Input, out *document.Sink, name string, data []byte, level int, emit func(ingest.Block) error) error {
	if in.Inner == nil {
		return nil
	}
	held := document.NewSink(in.Limits, emit)
	err := in.Inner(ctx, name, data, held, level)
	for _, w := range held.Warnings {
		out.Warn("%s", w)
	}
	for _, r := range held.Readers {
		out.ReadBy(r)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
