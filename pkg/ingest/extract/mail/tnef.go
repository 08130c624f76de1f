package mail

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// Attributes of the file (MS-OXTNEF, section 2.1.3.1), the lower half of their numbers.
const (
	tnefSubject     = 0x8004
	tnefBody        = 0x800C
	tnefFileData    = 0x800F
	tnefFileTitle   = 0x8010
	tnefFileBegins  = 0x9002 // of each attachment
	tnefMessage     = 0x9003 // properties
	tnefFile        = 0x9005 // properties
	tnefPage        = 0x9007 // code page of texts of type 001E
	tnefHead        = 4 + 2
	tnefFileAtLevel = 2
)

// Types of properties (MS-OXCDATA, section 2.11.1); multiValued is a bit beside them.
const (
	typeObject  = 0x0D
	typeText    = 0x1E
	typeWide    = 0x1F
	typeBytes   = 0x102
	multiValued = 0x1000
)

// fixedSizes are the bytes of values of fixed size as they stand in the file.
var fixedSizes = map[uint16]int{0x02: 4, 0x03: 4, 0x04: 4, 0x05: 8, 0x06: 8, 0x07: 8, 0x0A: 4, 0x0B: 4, 0x14: 8, 0x40: 8, 0x48: 16}

// firstNamed is the first property that has a name of its own instead of a number that all know.
const firstNamed = 0x8000

// maxAttachments bounds what is held in memory of a file; maxFiles of them become documents.
const maxAttachments = 10 * maxFiles

// interfaceBytes stand before an object: which interface it has. messageInterface is that of a message.
const (
	interfaceBytes   = 16
	messageInterface = "\x07\x03\x02\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x46"
)

// ReadTNEF reads a message as Outlook sends it to those who have no Outlook: winmail.dat (MS-OXTNEF). Its attachments are documents of their
// own, as those of other messages are.
func ReadTNEF(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if err := fits(in); err != nil {
		return ingest.Extraction{}, err
	}
	data, err := io.ReadAll(in.Stream())
	if err != nil {
		return ingest.Extraction{}, fmt.Errorf("read the message: %w", err)
	}
	n, err := readTNEF(data, 0)
	if err != nil {
		return ingest.Extraction{}, err
	}
	return n.message(ctx, 1).sendAll(ctx, in, out)
}

// readTNEF reads a winmail.dat as far as it is whole. Errors: CORRUPT, LIMIT_EXCEEDED.
func readTNEF(data []byte, depth int) (*node, error) {
	if depth >= maxNested {
		return nil, document.OverLimit("the message holds messages nested deeper than %d", maxNested)
	}
	if len(data) < tnefHead || !bytes.HasPrefix(data, []byte(document.TNEFHead)) {
		return nil, document.Corrupt("the file does not begin as Outlook's winmail.dat does")
	}
	root := newNode(0)
	at, src := root, &fields{data: data[tnefHead:]}
	for len(src.data) > 0 {
		level, id := src.bytes(1), src.number()
		value := src.bytes(int(src.number()))
		src.bytes(2) // the sum of the value's bytes
		if src.short {
			break
		}
		switch id = id & 0xFFFF; {
		case id == tnefPage && len(value) >= 4:
			root.fixed[tagMessagePage] = uint64(binary.LittleEndian.Uint32(value))
		case id == tnefSubject:
			root.texts[propSubject+"001E"] = value
		case id == tnefBody:
			root.texts[propBody+"001E"] = value
		case id == tnefMessage:
			if err := root.properties(value, depth); err != nil {
				return nil, err
			}
		case level[0] != tnefFileAtLevel:
		case id == tnefFileBegins:
			at = newNode(0)
			if root.attachments = append(root.attachments, at); len(root.attachments) > maxAttachments {
				return nil, document.OverLimit("the message has more than %d attachments", maxAttachments)
			}
		case at == root:
		case id == tnefFileTitle:
			at.texts[propFileName+"001E"] = value
		case id == tnefFileData:
			at.texts[propData+"0102"] = value
		case id == tnefFile:
			if err := at.properties(value, depth); err != nil {
				return nil, err
			}
		}
	}
	return root, nil
}

// properties takes the properties of a list, as far as it is whole.
func (n *node) properties(data []byte, depth int) error {
	src := &fields{data: data}
	for range src.number() {
		kind := binary.LittleEndian.Uint16(src.bytes(2))
		id := binary.LittleEndian.Uint16(src.bytes(2))
		if id >= firstNamed {
			src.bytes(interfaceBytes) // the set of names
			if named := src.number() == 1; named {
				src.padded(int(src.number()))
			} else {
				src.number()
			}
		}
		count, size := uint32(1), fixedSizes[kind&^multiValued]
		if size == 0 || kind&multiValued != 0 {
			count = src.number()
		}
		for range count {
			var value []byte
			if size > 0 {
				value = src.bytes(size)
			} else {
				value = src.padded(int(src.number()))
			}
			if src.short {
				return nil
			}
			if err := n.set(id, kind, value, depth); err != nil {
				return err
			}
		}
		if src.short {
			return nil
		}
	}
	return nil
}

// set keeps a property that is read.
func (n *node) set(id, kind uint16, value []byte, depth int) error {
	name := fmt.Sprintf("%04X", id)
	switch {
	case kind == typeText || kind == typeWide || kind == typeBytes:
		n.texts[fmt.Sprintf("%s%04X", name, kind)] = value
	case kind == typeObject && name == propData && len(value) > interfaceBytes:
		if !bytes.HasPrefix(value, []byte(messageInterface+document.TNEFHead)) {
			n.texts[propData+"0102"] = value[interfaceBytes:]
			return nil
		}
		inner, err := readTNEF(value[interfaceBytes:], depth+1)
		n.inner = inner
		return err
	case fixedSizes[kind] == 4:
		n.fixed[uint32(id)<<16|uint32(kind)] = uint64(binary.LittleEndian.Uint32(value))
	case fixedSizes[kind] == 8:
		n.fixed[uint32(id)<<16|uint32(kind)] = binary.LittleEndian.Uint64(value)
	}
	return nil
}

// fields are read one after the other. What is not there is zeros, and short says so.
type fields struct {
	data  []byte
	short bool
}

// bytes are the next n.
func (f *fields) bytes(n int) []byte {
	if n < 0 || n > len(f.data) {
		f.short, f.data = true, nil
		return make([]byte, min(max(0, n), interfaceBytes))
	}
	out := f.data[:n:n]
	f.data = f.data[n:]
	return out
}

// padded are the next n, behind which zeros fill up to four bytes.
func (f *fields) padded(n int) []byte {
	out := f.bytes(n)
	if fill := -n & 3; fill > 0 && len(f.data) > 0 {
		f.bytes(min(fill, len(f.data)))
	}
	return out
}

// number is the next one, of 32 bits.
func (f *fields) number() uint32 { return binary.LittleEndian.Uint32(f.bytes(4)) }
