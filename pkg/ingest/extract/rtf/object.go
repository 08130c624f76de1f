package rtf

import (
	"cmp"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

// raw takes or passes over bytes that are no text.
func (r *reader) raw(n int) error {
	taken := 0
	if r.to == toObject {
		room := max(min(n, ole.MaxBytes+1-len(r.object)), 0)
		piece, err := io.ReadAll(io.LimitReader(r.src, int64(room)))
		r.object, taken = append(r.object, piece...), len(piece)
		if err != nil || taken < room {
			r.read += int64(taken)
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	skipped, err := r.src.Discard(n - taken)
	r.read += int64(taken + skipped)
	return err
}

// hex takes one digit of an embedded object.
func (r *reader) hex(c byte) {
	digit := strings.IndexByte("0123456789abcdef", c|0x20)
	if digit < 0 || len(r.object) > ole.MaxBytes {
		return
	}
	if r.half = 1 - r.half; r.half == 1 {
		r.object = append(r.object, byte(digit)<<4)
		return
	}
	r.object[len(r.object)-1] |= byte(digit)
}

// maxObjects bounds the objects of one paragraph or table, which are held.
const maxObjects = 16

// embedded ends an embedded object.
func (r *reader) embedded() {
	data := r.object
	r.object, r.half = nil, 0
	if r.hidden {
		return
	}
	held := 0
	for _, f := range r.objects {
		held += len(f.Data)
	}
	if f, ok := ole.UnpackOld(data); ok && len(data) <= ole.MaxBytes && held <= ole.MaxBytes && len(r.objects) < maxObjects {
		r.objects = append(r.objects, f)
	} else if ok {
		r.out.Warn("the embedded file %q was not read: at most %d files of %d bytes together are read in one place", f.Name, maxObjects, ole.MaxBytes)
	}
}
