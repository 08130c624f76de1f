package native

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf16"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/klippa-app/go-pdfium/requests"
	"golang.org/x/sys/unix"
)

// library is one open document.
type library struct {
	fn         *functions
	data       []byte // of the document; the library reads it until it is closed
	mapped     bool
	doc        uintptr
	pages      map[uintptr]bool // that are open
	texts      map[uintptr]bool
	form       *formFillInfo
	formHandle uintptr
	out        results
	buf        []byte // what the library writes a text into
}

// results are where the library writes numbers. They lie in the heap: a goroutine's stack may move between the call and its end.
type results struct {
	doubles [4]float64
	floats  [6]float32
	number  int32
	size    uintptr
}

// formFillInfo is FPDF_FORMFILLINFO of version 1, with room for a later one's fields. Its callbacks are asked for what is drawn, which
// nothing here is: those that must be there return 0.
type formFillInfo struct {
	version   int32
	callbacks [40]uintptr
}

// requiredCallbacks are FFI_Invalidate, SetCursor, SetTimer, KillTimer, GetLocalTime, GetPage, GetRotation and ExecuteNamedAction.
var requiredCallbacks = []int{1, 3, 4, 5, 6, 8, 10, 11}

var (
	errCall   = errors.New("pdfium could not say")
	errHandle = errors.New("pdfium was given no handle")
)

// call calls a function whose arguments and result are integers and addresses. What an address points to must lie in the heap.
func (l *library) call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// number is a call's result of C's type int, whose upper half is nothing.
func (l *library) number(fn uintptr, args ...uintptr) int { return int(int32(l.call(fn, args...))) }

// reference is an address as go-pdfium's references are: a string. It never leaves this process, and no document can write one.
func reference(at uintptr) string { return string(binary.NativeEndian.AppendUint64(nil, uint64(at))) }

// handle is the address of a reference; 0: it is none.
func handle[S ~string](ref S) uintptr {
	if len(ref) != 8 {
		return 0
	}
	return uintptr(binary.NativeEndian.Uint64([]byte(ref)))
}

// pageHandle is the address of an open page.
func pageHandle(page requests.Page) uintptr {
	if page.ByReference == nil {
		return 0
	}
	return handle(*page.ByReference)
}

// address is where bytes lie.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// key is a string as C has it.
func key(name string) []byte { return append([]byte(name), 0) }

// room returns a buffer of at least n bytes.
func (l *library) room(n int) []byte {
	if cap(l.buf) < n {
		l.buf = make([]byte, max(n, 4096))
	}
	return l.buf[:n]
}

// maxText bounds a text that is no page's: titles, values of fields.
const maxText = 16 << 20

// bytesOf calls a function that writes a text into a buffer and returns its length in bytes. ask is called without one first.
func (l *library) bytesOf(ask func(at, size uintptr) uintptr) ([]byte, error) {
	n := ask(0, 0)
	if n == 0 || n > maxText {
		return nil, errCall
	}
	b := l.room(int(n))
	clear(b)
	ask(address(b), n)
	return b, nil
}

// textOf is the same of a text in UTF-16.
func (l *library) textOf(ask func(at, size uintptr) uintptr) (string, error) {
	b, err := l.bytesOf(ask)
	if err != nil {
		return "", err
	}
	return decoded(b), nil
}

// decoded is the text of UTF-16 in the order of small machines, as go-pdfium has it: without a mark of the order, and without the zero at
// its end.
func decoded(b []byte) string {
	b = b[:len(b)&^1]
	if len(b) >= 2 && b[0] == 0xFF && b[1] == 0xFE {
		b = b[2:]
	}
	var s strings.Builder
	s.Grow(len(b) / 2)
	for i := 0; i < len(b); i += 2 {
		r := rune(binary.LittleEndian.Uint16(b[i:]))
		if utf16.IsSurrogate(r) {
			next := rune(0)
			if i+4 <= len(b) {
				next = rune(binary.LittleEndian.Uint16(b[i+2:]))
			}
			if r = utf16.DecodeRune(r, next); r != '\uFFFD' {
				i += 2
			}
		}
		s.WriteRune(r)
	}
	return strings.TrimSuffix(s.String(), "\x00")
}

// largeFile is the size from which the pages of a mapped file are given back after each page of the document: they count as the process's.
const largeFile = 16 << 20

// forget gives what was read of a large file back to the system's cache.
func (l *library) forget() {
	if l.mapped && len(l.data) > largeFile {
		_ = unix.Madvise(l.data, unix.MADV_DONTNEED)
	}
}
