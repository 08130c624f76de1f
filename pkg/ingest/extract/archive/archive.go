// Package archive looks at a zip archive before anything of it is opened: how many members it declares, and
// how large they say that they become.
//
// The directory is walked here and not by archive/zip, because detection runs in the process that serves
// requests. zip.NewReader is not bounded by the end record: it reads entries until a bad one, compares their
// number modulo 65,536 and keeps them all (measured: 70,000 in 4 MiB, declared as 4,464, take 19 MB). Here an
// entry is looked at and forgotten. Members are *opened* by archive/zip, in the child, behind
// Directory.CheckLimits.
package archive

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	endRecordBytes   = 22
	zip64LocatorSize = 20
	zip64RecordSize  = 56
	entryBytes       = 46
	// MaxEntries bounds the members of an archive: an office file has dozens.
	MaxEntries = 10_000
	// maxDirectoryBytes bounds the directory that is read.
	maxDirectoryBytes = 4 << 20
	// MaxPartBytes bounds one member after decompression.
	MaxPartBytes = 256 << 20
	// MaxRatio bounds how much a member above ratioFreeBytes may grow: real documents stay below 30.
	MaxRatio       = 100
	RatioFreeBytes = 1 << 20
)

// Directory is what an archive's end record says.
type Directory struct {
	entries uint64
	size    uint64
	offset  uint64
	base    int64 // bytes put before the archive
}

var errNoEndRecord = errors.New("the zip archive has no end: the file is cut off")

// ReadDirectory finds the end record without looking at any entry.
func ReadDirectory(r io.ReaderAt, size int64) (Directory, error) {
	tail := make([]byte, min(size, endRecordBytes+0xFFFF))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return Directory{}, err
	}
	at := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if at < 0 || at+endRecordBytes > len(tail) {
		return Directory{}, errNoEndRecord
	}
	end := tail[at:]
	d := Directory{
		entries: uint64(binary.LittleEndian.Uint16(end[10:])),
		size:    uint64(binary.LittleEndian.Uint32(end[12:])),
		offset:  uint64(binary.LittleEndian.Uint32(end[16:])),
	}
	endAt := size - int64(len(tail)) + int64(at)
	if d.entries == 0xFFFF || d.size == 0xFFFFFFFF || d.offset == 0xFFFFFFFF {
		big, recordAt, err := readZip64(r, endAt)
		if err != nil {
			return d, err
		}
		if big != nil {
			d, endAt = *big, recordAt
		}
	}
	if d.size > uint64(endAt) {
		return d, errNoEndRecord
	}
	d.base = endAt - int64(d.size)
	return d, nil
}

// readZip64 reads the 64-bit end record before the end record; nil when there is none.
func readZip64(r io.ReaderAt, endAt int64) (*Directory, int64, error) {
	locator := make([]byte, zip64LocatorSize)
	if endAt < zip64LocatorSize {
		return nil, 0, nil
	}
	if _, err := r.ReadAt(locator, endAt-zip64LocatorSize); err != nil {
		return nil, 0, err
	}
	if !bytes.HasPrefix(locator, []byte("PK\x06\x07")) {
		return nil, 0, nil
	}
	at := binary.LittleEndian.Uint64(locator[8:])
	record := make([]byte, zip64RecordSize)
	if at > uint64(endAt) {
		return nil, 0, errNoEndRecord
	}
	if _, err := r.ReadAt(record, int64(at)); err != nil || !bytes.HasPrefix(record, []byte("PK\x06\x06")) {
		return nil, 0, errNoEndRecord
	}
	return &Directory{
		entries: binary.LittleEndian.Uint64(record[32:]),
		size:    binary.LittleEndian.Uint64(record[40:]),
		offset:  binary.LittleEndian.Uint64(record[48:]),
	}, int64(at), nil
}

// Member is one entry of the directory, as it declares itself.
type Member struct {
	Name       string
	Encrypted  bool
	compressed uint64
	size       uint64
}

// Slashed is a member's name with slashes, where programs on Windows wrote backslashes, and without one before it.
func Slashed(name string) string { return strings.TrimPrefix(strings.ReplaceAll(name, `\`, "/"), "/") }

// Fold is Slashed in lower case, as the names of parts are compared (OPC, 7.2.3.5).
func Fold(name string) string { return strings.ToLower(Slashed(name)) }

// Each calls visit for the directory's entries, in order, until it returns false.
func (d Directory) Each(r io.ReaderAt, visit func(Member) bool) error {
	src := bufio.NewReaderSize(io.NewSectionReader(r, d.base, int64(d.size)), 32<<10)
	head := make([]byte, entryBytes)
	for range d.entries {
		if _, err := io.ReadFull(src, head); err != nil || !bytes.HasPrefix(head, []byte("PK\x01\x02")) {
			return errors.New("the zip archive's directory is damaged")
		}
		name := make([]byte, binary.LittleEndian.Uint16(head[28:]))
		if _, err := io.ReadFull(src, name); err != nil {
			return errors.New("the zip archive's directory is damaged")
		}
		m := Member{
			Name:       string(name),
			Encrypted:  binary.LittleEndian.Uint16(head[8:])&1 != 0,
			compressed: uint64(binary.LittleEndian.Uint32(head[20:])),
			size:       uint64(binary.LittleEndian.Uint32(head[24:])),
		}
		if !visit(m) {
			return nil
		}
		skip := int(binary.LittleEndian.Uint16(head[30:])) + int(binary.LittleEndian.Uint16(head[32:]))
		if _, err := src.Discard(skip); err != nil {
			return errors.New("the zip archive's directory is damaged")
		}
	}
	return nil
}

// CheckLimits refuses archives that are too large to look through.
func (d Directory) CheckLimits() error {
	if d.entries > MaxEntries {
		return document.OverLimit("the archive has %d entries, more than %d", d.entries, MaxEntries)
	}
	if d.size > maxDirectoryBytes {
		return document.OverLimit("the archive's directory takes %d bytes, more than %d", d.size, maxDirectoryBytes)
	}
	return nil
}

// CheckLimits refuses a member whose own declaration is beyond the limits.
func (m Member) CheckLimits() error {
	if m.size > MaxPartBytes {
		return document.OverLimit("%s declares %d bytes, more than %d", m.Name, m.size, MaxPartBytes)
	}
	if m.size > RatioFreeBytes && m.size > MaxRatio*max(m.compressed, 1) {
		return document.OverLimit("%s is compressed %d-fold, more than %d", m.Name, m.size/max(m.compressed, 1), MaxRatio)
	}
	return nil
}
