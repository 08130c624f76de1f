package rtf

import (
	"encoding/binary"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	compressedHead = 16
	compressed     = 0x75465A4C // "LZFu"
	plain          = 0x414C454D // "MELA"
	window         = 4096
	// maxCompressed bounds what a compressed text becomes.
	maxCompressed = 32 << 20
)

// known is what the window holds before the first byte of a text.
const known = "{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor MS Sans SerifSymbolArialTimes New RomanCourier" +
	"{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"

// Decompress returns the rich text that Outlook stores compressed (MS-OXRTFCP), as far as it is there. Errors: CORRUPT, LIMIT_EXCEEDED.
func Decompress(data []byte) ([]byte, error) {
	if len(data) < compressedHead {
		return nil, document.Corrupt("compressed rich text of %d bytes", len(data))
	}
	size := int(binary.LittleEndian.Uint32(data[4:]))
	kind := binary.LittleEndian.Uint32(data[8:])
	data = data[compressedHead:]
	switch {
	case size > maxCompressed:
		return nil, document.OverLimit("the compressed rich text has %d bytes, more than %d", size, maxCompressed)
	case kind == plain:
		return data[:min(size, len(data))], nil
	case kind != compressed:
		return nil, document.Corrupt("rich text compressed in an unknown way (%08x)", kind)
	}
	var past [window]byte
	at := copy(past[:], known)
	var out []byte
	put := func(b byte) {
		out, past[at] = append(out, b), b
		at = (at + 1) % window
	}
	for len(data) > 0 && len(out) < size {
		flags := data[0]
		data = data[1:]
		for bit := 0; bit < 8 && len(data) > 0; bit++ {
			if flags>>bit&1 == 0 {
				put(data[0])
				data = data[1:]
				continue
			}
			if len(data) < 2 {
				return out, nil
			}
			from, n := int(binary.BigEndian.Uint16(data)>>4), int(data[1]&0xF)+2
			data = data[2:]
			if from == at { // the end
				return out, nil
			}
			for i := range n {
				put(past[(from+i)%window])
			}
		}
	}
	return out[:min(size, len(out))], nil
}
