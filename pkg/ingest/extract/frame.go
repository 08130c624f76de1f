package extract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/millweir/millweir/pkg/ingest"
)

// A frame is one byte of type, four bytes of length (big endian) and the payload.
const (
	frameSetup    = 'S' // parent → child, once: setup
	frameHello    = 'H' // child → parent, once: hello
	frameJob      = 'J' // parent → child: job; the document's descriptor travels with its first byte
	frameBlock    = 'B' // child → parent: block, binary
	frameProgress = 'P' // child → parent: done, total
	frameDone     = 'D' // child → parent: verdict
)

const (
	// childArg is the argument by which a process knows that it is a child.
	childArg = "extract-child"
	// outBytes is what a child gathers before it writes.
	outBytes = 32 << 10
	// maxMessage bounds each text of a verdict.
	maxMessage = 2000

	frameHeadBytes = 5
	// blockHeadBytes is kind, level and page before a block's text.
	blockHeadBytes = 6
	// maxFrameBytes bounds what a child can make the parent hold.
	maxFrameBytes = maxBlockBytes + blockHeadBytes
)

var errBadFrame = errors.New("malformed frame")

// job is one document.
type job struct {
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
	Limits    limits `json:"limits"`
}

// verdict ends a job.
type verdict struct {
	Extraction ingest.Extraction `json:"extraction"`
	Code       ingest.Code       `json:"code,omitempty"`
	Permanent  bool              `json:"permanent,omitempty"`
	Remedy     string            `json:"remedy,omitempty"`
	Error      string            `json:"error,omitempty"`
	Stack      string            `json:"stack,omitempty"` // of a panic, for the log
	Recycle    bool              `json:"recycle,omitempty"`
}

// writeFrame writes one frame.
func writeFrame(w io.Writer, kind byte, payload []byte) error {
	if len(payload) > maxFrameBytes {
		return fmt.Errorf("%w: %d bytes of payload", errBadFrame, len(payload))
	}
	var head [frameHeadBytes]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// writeJSON writes one frame of JSON.
func writeJSON(w io.Writer, kind byte, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, kind, raw)
}

// readFrame reads one frame into buf, which grows to at most maxFrameBytes.
func readFrame(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [frameHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrameBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes of payload", errBadFrame, n)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	payload = buf[:n]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	return head[0], payload, nil
}

// blockKinds are the kinds of block by their number on the wire.
var blockKinds = []ingest.BlockKind{ingest.BlockHeading, ingest.BlockParagraph, ingest.BlockTable, ingest.BlockCode, ingest.BlockList}

// encodeBlock appends a block's payload to buf.
func encodeBlock(buf []byte, b ingest.Block) []byte {
	kind := byte(len(blockKinds))
	for i, k := range blockKinds {
		if k == b.Kind {
			kind = byte(i)
		}
	}
	buf = append(buf, kind, byte(b.Level))
	buf = binary.BigEndian.AppendUint32(buf, uint32(b.Page))
	return append(buf, b.Text...)
}

// decodeBlock reads and checks a block's payload, which an attacker may have written.
func decodeBlock(payload []byte) (ingest.Block, error) {
	if len(payload) < blockHeadBytes || int(payload[0]) >= len(blockKinds) {
		return ingest.Block{}, fmt.Errorf("%w: block", errBadFrame)
	}
	page := binary.BigEndian.Uint32(payload[2:])
	if page > 1<<30 {
		return ingest.Block{}, fmt.Errorf("%w: block on page %d", errBadFrame, page)
	}
	b := ingest.Block{Kind: blockKinds[payload[0]], Level: int(payload[1]), Page: int(page), Text: string(payload[blockHeadBytes:])}
	if err := checkBlock(b); err != nil {
		return ingest.Block{}, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	return b, nil
}

// encodeProgress is the payload of a progress frame.
func encodeProgress(done, total int) []byte {
	buf := binary.BigEndian.AppendUint32(nil, uint32(done))
	return binary.BigEndian.AppendUint32(buf, uint32(total))
}

// decodeProgress reads a progress payload.
func decodeProgress(payload []byte) (done, total int, err error) {
	if len(payload) != 8 {
		return 0, 0, fmt.Errorf("%w: progress", errBadFrame)
	}
	done, total = int(binary.BigEndian.Uint32(payload)), int(binary.BigEndian.Uint32(payload[4:]))
	if done > total || total > 1<<31 {
		return 0, 0, fmt.Errorf("%w: progress %d of %d", errBadFrame, done, total)
	}
	return done, total, nil
}

// shorten cuts a text of a verdict to maxMessage bytes.
func shorten(s string) string { return s[:min(len(s), maxMessage)] }
