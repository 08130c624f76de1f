// Package frame is the protocol between a pool of readers and its child processes. What a child writes is an
// attacker's data to the parent.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// A frame is one byte of type, four bytes of length (big endian) and the payload.
const (
	KindSetup    = 'S' // parent → child, once: setup
	KindHello    = 'H' // child → parent, once: hello
	KindJob      = 'J' // parent → child: job; the document's descriptor travels with its first byte
	KindBlock    = 'B' // child → parent: block, binary
	KindProgress = 'P' // child → parent: done, total
	KindDone     = 'D' // child → parent: verdict
	KindPicture  = 'I' // child → parent: width and height of a picture, whose text it waits for
	KindPixels   = 'X' // child → parent: the next of its pixels, a byte each, row by row
	KindFile     = 'A' // child → parent: size and name of a file that a message carries
	KindBytes    = 'C' // child → parent: the next of its bytes
	KindText     = 'T' // parent → child: 0 and the picture's text, or 1 and why there is none
)

const (
	// ChildArg is the argument by which a process knows that it is a child.
	ChildArg = "extract-child"
	// BufferBytes is what a child gathers before it writes.
	BufferBytes = 32 << 10
	// MaxMessage bounds each text of a verdict.
	MaxMessage = 2000

	headBytes = 5
	// blockHeadBytes is kind, level and page before a block's text.
	blockHeadBytes = 6
	// maxBytes bounds what a child can make the parent hold.
	maxBytes = document.MaxBlockBytes + blockHeadBytes
)

var ErrBad = errors.New("malformed frame")

// Job is one document.
type Job struct {
	MediaType string          `json:"mediaType"`
	Size      int64           `json:"size"`
	Limits    document.Limits `json:"limits"`
	Files     bool            `json:"files,omitempty"` // those that a message carries are wanted, not its text
}

// Verdict ends a job.
type Verdict struct {
	Extraction ingest.Extraction `json:"extraction"`
	Code       ingest.Code       `json:"code,omitempty"`
	Permanent  bool              `json:"permanent,omitempty"`
	Remedy     string            `json:"remedy,omitempty"`
	Error      string            `json:"error,omitempty"`
	Stack      string            `json:"stack,omitempty"` // of a panic, for the log
	Recycle    bool              `json:"recycle,omitempty"`
}

// Write writes one frame.
func Write(w io.Writer, kind byte, payload []byte) error {
	if len(payload) > maxBytes {
		return fmt.Errorf("%w: %d bytes of payload", ErrBad, len(payload))
	}
	var head [headBytes]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// WriteJSON writes one frame of JSON.
func WriteJSON(w io.Writer, kind byte, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(w, kind, raw)
}

// Read reads one frame into buf, which grows to at most maxFrameBytes.
func Read(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes of payload", ErrBad, n)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	payload = buf[:n]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	return head[0], payload, nil
}

// blockKinds are the kinds of block by their number on the wire.
var blockKinds = []ingest.BlockKind{ingest.BlockHeading, ingest.BlockParagraph, ingest.BlockTable, ingest.BlockCode, ingest.BlockList}

// EncodeBlock appends a block's payload to buf.
func EncodeBlock(buf []byte, b ingest.Block) []byte {
	// A kind that is none becomes 255, which DecodeBlock refuses.
	buf = append(buf, byte(slices.Index(blockKinds, b.Kind)), byte(b.Level))
	buf = binary.BigEndian.AppendUint32(buf, uint32(b.Page))
	return append(buf, b.Text...)
}

// DecodeBlock reads and checks a block's payload, which an attacker may have written.
func DecodeBlock(payload []byte) (ingest.Block, error) {
	if len(payload) < blockHeadBytes || int(payload[0]) >= len(blockKinds) {
		return ingest.Block{}, fmt.Errorf("%w: block", ErrBad)
	}
	page := binary.BigEndian.Uint32(payload[2:])
	if page > 1<<30 {
		return ingest.Block{}, fmt.Errorf("%w: block on page %d", ErrBad, page)
	}
	b := ingest.Block{Kind: blockKinds[payload[0]], Level: int(payload[1]), Page: int(page), Text: string(payload[blockHeadBytes:])}
	if err := document.CheckBlock(b); err != nil {
		return ingest.Block{}, fmt.Errorf("%w: %w", ErrBad, err)
	}
	return b, nil
}

// EncodeProgress is the payload of a progress frame.
func EncodeProgress(done, total int) []byte {
	buf := binary.BigEndian.AppendUint32(nil, uint32(done))
	return binary.BigEndian.AppendUint32(buf, uint32(total))
}

// DecodeProgress reads a progress payload.
func DecodeProgress(payload []byte) (done, total int, err error) {
	if len(payload) != 8 {
		return 0, 0, fmt.Errorf("%w: progress", ErrBad)
	}
	done, total = int(binary.BigEndian.Uint32(payload)), int(binary.BigEndian.Uint32(payload[4:]))
	if done > total || total > 1<<31 {
		return 0, 0, fmt.Errorf("%w: progress %d of %d", ErrBad, done, total)
	}
	return done, total, nil
}

// Shorten cuts a text of a verdict to maxMessage bytes.
func Shorten(s string) string { return s[:min(len(s), MaxMessage)] }

// Failure turns a child's words into a Failure; a code that is not a reader's becomes INTERNAL.
func (v Verdict) Failure() error {
	f := &ingest.Failure{Code: v.Code, Permanent: v.Permanent, Remedy: document.CleanTitle(v.Remedy), Err: errors.New(document.CleanText(Shorten(v.Error), false))}
	switch v.Code {
	case ingest.CodeEmpty, ingest.CodeEncrypted, ingest.CodeUnsupportedType, ingest.CodeCorrupt, ingest.CodeLimitExceeded,
		ingest.CodeNeedsOCR, ingest.CodeEncoding:
	case ingest.CodeExtractCrashed:
		f.Permanent = false
	default:
		f.Code, f.Permanent = ingest.CodeInternal, false
	}
	return f
}

// maxNameBytes bounds the name of a file that a message carries.
const maxNameBytes = 1000

// EncodeFile is the payload of KindFile; a long name keeps its end.
func EncodeFile(size int, name string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(size)), name[max(0, len(name)-maxNameBytes):]...)
}

// DecodeFile returns the size and the name that a child says, which is UTF-8.
func DecodeFile(payload []byte) (size int64, name string, err error) {
	if len(payload) < 8 || len(payload) > 8+maxNameBytes || binary.BigEndian.Uint64(payload) > 1<<40 {
		return 0, "", fmt.Errorf("%w: a file's head of %d bytes", ErrBad, len(payload))
	}
	return int64(binary.BigEndian.Uint64(payload)), strings.ToValidUTF8(string(payload[8:]), "\uFFFD"), nil
}

// EncodePicture is the payload of KindPicture.
func EncodePicture(width, height int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
}

// DecodePicture returns the size that a child says, within document.MaxPictureSide and MaxPicturePixels.
func DecodePicture(payload []byte) (width, height int, err error) {
	if len(payload) != 8 {
		return 0, 0, fmt.Errorf("%w: a picture's head of %d bytes", ErrBad, len(payload))
	}
	width, height = int(binary.BigEndian.Uint32(payload)), int(binary.BigEndian.Uint32(payload[4:]))
	if width < 1 || height < 1 || width > document.MaxPictureSide || height > document.MaxPictureSide || width*height > document.MaxPicturePixels {
		return 0, 0, fmt.Errorf("%w: a picture of %d × %d points", ErrBad, width, height)
	}
	return width, height, nil
}
