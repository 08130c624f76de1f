package ingest

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

const (
	spoolBuffer = 64 << 10
	// maxSegments bounds a document; a plan keeps about 150 bytes in memory for each.
	maxSegments = 500_000
)

// textHash is the sha256 of a segment's text: the key of the ledger.
type textHash [sha256.Size]byte

// String is the hash as the tables keep it.
func (h textHash) String() string { return hex.EncodeToString(h[:]) }

// spooled says where a segment lies in the spool.
type spooled struct {
	hash   textHash
	offset int64
	length int32
	text   int32 // bytes of its text, for the size of statements and requests
}

// spool keeps a run's segments on disk, so that a document's size does not count in memory.
// Its file has no name any more when the run works with it: a crash leaves nothing.
type spool struct {
	f     *os.File
	w     *bufio.Writer
	at    int64
	items []spooled
}

// newSpool makes an empty spool in dir; empty: the system's temporary folder.
func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "millweir-spool-*")
	if err != nil {
		return nil, fmt.Errorf("make spool: %w", spaceError(err))
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("unlink spool: %w", err)
	}
	return &spool{f: f, w: bufio.NewWriterSize(f, spoolBuffer)}, nil
}

// add appends the next segment. Segments must come in the order of their index, from 0.
func (s *spool) add(seg Segment) error {
	if seg.Index != len(s.items) {
		return Permanent(CodeInternal, "", "split: segment %d came where %d was due", seg.Index, len(s.items))
	}
	if len(s.items) >= maxSegments {
		return Permanent(CodeLimitExceeded, "Split the document into smaller ones.", "split: more than %d segments", maxSegments)
	}
	line, err := json.Marshal(seg)
	if err != nil {
		return fmt.Errorf("spool segment %d: %w", seg.Index, err)
	}
	if _, err := s.w.Write(line); err != nil {
		return fmt.Errorf("spool segment %d: %w", seg.Index, spaceError(err))
	}
	s.items = append(s.items, spooled{
		hash: sha256.Sum256([]byte(seg.Text)), offset: s.at, length: int32(len(line)), text: int32(len(seg.Text)),
	})
	s.at += int64(len(line))
	return nil
}

// get reads segment i. It is safe for concurrent use once everything was added and flushed.
func (s *spool) get(i int) (Segment, error) {
	var seg Segment
	line := make([]byte, s.items[i].length)
	if _, err := s.f.ReadAt(line, s.items[i].offset); err != nil {
		return seg, fmt.Errorf("read segment %d from the spool: %w", i, err)
	}
	if err := json.Unmarshal(line, &seg); err != nil {
		return seg, fmt.Errorf("read segment %d from the spool: %w", i, err)
	}
	return seg, nil
}

// flush makes everything added readable.
func (s *spool) flush() error {
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("write spool: %w", spaceError(err))
	}
	return nil
}

// close frees the disk space.
func (s *spool) close() { _ = s.f.Close() }

// vectorID is hash(birth version, text hash, occurrence), 64 hex characters (design D8).
func vectorID(version string, h textHash, occurrence int) string {
	d := sha256.New()
	d.Write([]byte(version))
	d.Write(h[:])
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(occurrence))
	d.Write(n[:])
	return hex.EncodeToString(d.Sum(nil))
}
