package picture

import (
	"encoding/binary"
	"image"
	"io"

	"golang.org/x/image/tiff"
)

// What a TIFF consists of (TIFF 6.0, section 2): a head with the place of the first directory, and for each picture a directory: a number
// of entries, these, and the place of the next directory, or 0.
const (
	tiffHead        = 8
	tiffEntry       = 12
	tiffMostEntries = 1000
	// tagSubfile tells of a picture, among others, whether it is a smaller copy of another one.
	tagSubfile = 254
	smaller    = 1
)

// byteOrder reads and writes numbers.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// tiffPage is a file whose first picture is a page. The decoder reads what it needs of it, and keeps none of the rest in memory.
type tiffPage struct{ *io.SectionReader }

func (p tiffPage) config() (image.Config, string, error) {
	cfg, err := tiff.DecodeConfig(p.SectionReader)
	return cfg, "tiff", err
}

func (p tiffPage) decode() (image.Image, error) { return tiff.Decode(p.SectionReader) }

// tiffPages are the pictures of a TIFF: those of at most most+1 directories, without smaller copies of others. A chain that leads back or
// out of the file ends there. Nothing else has any.
func tiffPages(file io.ReaderAt, size int64, most int) (pages []page) {
	head := make([]byte, tiffHead)
	if _, err := file.ReadAt(head, 0); err != nil {
		return nil
	}
	var order byteOrder
	switch string(head[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return nil
	}
	seen := map[uint32]bool{}
	for at := order.Uint32(head[4:]); at != 0 && !seen[at] && len(seen) <= most; {
		seen[at] = true
		directory, next, ok := readDirectory(file, order, at)
		if !ok && len(pages) > 0 {
			return pages
		}
		if !isSmaller(order, directory) {
			first := order.AppendUint32(append([]byte(nil), head[:4]...), at)
			pages = append(pages, tiffPage{io.NewSectionReader(beginning{first, file}, 0, size)})
		}
		at = next
	}
	return pages
}

// readDirectory reads the entries of a directory and the place of the next one.
func readDirectory(file io.ReaderAt, order byteOrder, at uint32) (entries []byte, next uint32, ok bool) {
	count := make([]byte, 2)
	if _, err := file.ReadAt(count, int64(at)); err != nil || order.Uint16(count) > tiffMostEntries {
		return nil, 0, false
	}
	entries = make([]byte, int(order.Uint16(count))*tiffEntry+4)
	if _, err := file.ReadAt(entries, int64(at)+2); err != nil {
		return nil, 0, false
	}
	end := len(entries) - 4
	return entries[:end], order.Uint32(entries[end:]), true
}

// isSmaller reports whether a directory is that of a smaller copy of another picture.
func isSmaller(order byteOrder, entries []byte) bool {
	for ; len(entries) >= tiffEntry; entries = entries[tiffEntry:] {
		if order.Uint16(entries) == tagSubfile {
			return order.Uint32(entries[8:])&smaller != 0
		}
	}
	return false
}

// beginning is a file that begins with other bytes.
type beginning struct {
	first []byte
	rest  io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (b beginning) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.rest.ReadAt(p, off)
	if off < int64(len(b.first)) {
		copy(p[:n], b.first[off:])
	}
	return n, err
}
