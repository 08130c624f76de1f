package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/millweir/millweir/pkg/ingest"
)

// A file is a header and records.
//
//	header: magic(8) dim(u32) crc(u32, of magic and dim)
//	record: length(u32, of the payload) crc(u32, of the payload) crc(u32, of the two before) payload
//	payload: operations, one after the other
//	upsert: 'U' idLen(u16) docLen(u16) birthLen(u16) id doc birth dim*f32
//	delete: 'D' idLen(u16) id
//
// All numbers are little-endian; checksums are CRC-32C.
const (
	magic        = "MWVEC\x00\x00\x01"
	headerBytes  = 16
	recordHeader = 12
	// maxRecord bounds a record, bytes; a length above it is damage.
	maxRecord = 1 << 30
	// groupBytes is where a group of callers is cut, so that a commit does not grow without bound.
	groupBytes = 8 << 20

	opUpsert = 'U'
	opDelete = 'D'
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errTorn    = errors.New("torn record")
	errOp      = errors.New("operation that makes no sense")
)

func encodeHeader(dim int) []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(dim))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHeader(b []byte) (dim int, err error) {
	if len(b) != headerBytes || string(b[:8]) != magic ||
		binary.LittleEndian.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return 0, fmt.Errorf("%w: header", ErrDamaged)
	}
	dim = int(binary.LittleEndian.Uint32(b[8:]))
	if dim < 1 || dim > 1<<20 {
		return 0, fmt.Errorf("%w: %d dimensions", ErrDamaged, dim)
	}
	return dim, nil
}

func appendUpsert(b []byte, row ingest.Vector) []byte {
	b = append(b, opUpsert)
	for _, s := range [3]string{row.ID, row.DocumentID, row.Birth} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	}
	b = append(append(append(b, row.ID...), row.DocumentID...), row.Birth...)
	for _, v := range row.Values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func appendDelete(b []byte, id string) []byte {
	b = append(b, opDelete)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)))
	return append(b, id...)
}

// sealRecord fills the header in front of the payload; b begins with recordHeader free bytes.
func sealRecord(b []byte) []byte {
	payload := b[recordHeader:]
	binary.LittleEndian.PutUint32(b[0:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	return b
}

// recordLength checks a record's header alone.
func recordLength(header []byte) (length int64, ok bool) {
	if binary.LittleEndian.Uint32(header[8:]) != crc32.Checksum(header[:8], castagnoli) {
		return 0, false
	}
	length = int64(binary.LittleEndian.Uint32(header))
	return length, length > 0 && length <= maxRecord
}

// readRecord reads the record at offset into buf, which it may replace. Errors: errTorn for anything that is not a
// whole record; io.EOF at the end; what reading brought.
func readRecord(r io.ReaderAt, offset, size int64, buf []byte) ([]byte, error) {
	if offset == size {
		return buf, io.EOF
	}
	if size-offset < recordHeader {
		return buf, errTorn
	}
	var header [recordHeader]byte
	if _, err := r.ReadAt(header[:], offset); err != nil {
		return buf, err
	}
	length, ok := recordLength(header[:])
	if !ok || length > size-offset-recordHeader {
		return buf, errTorn
	}
	if int64(cap(buf)) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	if _, err := r.ReadAt(buf, offset+recordHeader); err != nil {
		return buf, err
	}
	if crc32.Checksum(buf, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return buf, errTorn
	}
	return buf, nil
}

// intactAfter looks for a whole record at any byte behind offset. One there means that the record at offset is not
// the last and so was not torn by a crash.
func intactAfter(r io.ReaderAt, offset, size int64) (bool, error) {
	const window = 1 << 20
	buf := make([]byte, window+recordHeader)
	for at := offset + 1; at+recordHeader <= size; at += window {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		for i := 0; i+recordHeader <= n && i < window; i++ {
			length, ok := recordLength(buf[i:])
			if !ok || length > size-at-int64(i)-recordHeader {
				continue
			}
			if _, err := readRecord(r, at+int64(i), size, nil); err == nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// replay calls the functions for each operation of a payload. The values given to upsert are the caller's to keep.
func replay(payload []byte, dim int, upsert func(id, doc, birth string, values []float32), remove func(id string)) error {
	for len(payload) > 0 {
		var ok bool
		switch payload[0] {
		case opUpsert:
			payload, ok = replayUpsert(payload[1:], dim, upsert)
		case opDelete:
			payload, ok = replayDelete(payload[1:], remove)
		}
		if !ok {
			return errOp
		}
	}
	return nil
}

func replayUpsert(b []byte, dim int, upsert func(id, doc, birth string, values []float32)) (rest []byte, ok bool) {
	if len(b) < 6 {
		return nil, false
	}
	id, doc := int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	birth := int(binary.LittleEndian.Uint16(b[4:]))
	b = b[6:]
	if len(b) < id+doc+birth+4*dim {
		return nil, false
	}
	values := make([]float32, dim)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[id+doc+birth+4*i:]))
	}
	upsert(string(b[:id]), string(b[id:id+doc]), string(b[id+doc:id+doc+birth]), values)
	return b[id+doc+birth+4*dim:], true
}

func replayDelete(b []byte, remove func(id string)) (rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, false
	}
	id := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if len(b) < id {
		return nil, false
	}
	remove(string(b[:id]))
	return b[id:], true
}
