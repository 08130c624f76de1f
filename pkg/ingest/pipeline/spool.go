package pipeline

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/files"
)

const (
	spoolBuffer = 64 << 10
	// maxSegments bounds a document; a plan keeps about 150 bytes in memory for each.
	maxSegments = 500_000
)

// spooled says where a segment lies in the spool.
type spooled struct {
	hash   embedcache.TextHash
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

// newSpool makes an empty spool in the system's temporary folder.
func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "millweir-spool-*")
	if err != nil {
		return nil, fmt.Errorf("make spool: %w", files.SpaceError(err))
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("unlink spool: %w", err)
	}
	return &spool{f: f, w: bufio.NewWriterSize(f, spoolBuffer)}, nil
}

// add appends the next segment. Segments must come in the order of their index, from 0.
func (s *spool) add(seg ingest.Segment) error {
	if seg.Index != len(s.items) {
		return ingest.Permanent(ingest.CodeInternal, "", "split: segment %d came where %d was due", seg.Index, len(s.items))
	}
	if len(s.items) >= maxSegments {
		return ingest.Permanent(ingest.CodeLimitExceeded, "Split the document into smaller ones.", "split: more than %d segments", maxSegments)
	}
	text := seg.Text
	seg.Text = "" // it stands in front of the rest, so that it can be read alone
	rest, err := json.Marshal(seg)
	if err != nil {
		return fmt.Errorf("spool segment %d: %w", seg.Index, err)
	}
	record := append([]byte(text), rest...)
	if _, err := s.w.Write(record); err != nil {
		return fmt.Errorf("spool segment %d: %w", seg.Index, files.SpaceError(err))
	}
	s.items = append(s.items, spooled{
		hash: sha256.Sum256(record[:len(text)]), offset: s.at, length: int32(len(record)), text: int32(len(text)),
	})
	s.at += int64(len(record))
	return nil
}

// get reads segment i. It is safe for concurrent use once everything was added and flushed.
func (s *spool) get(i int) (ingest.Segment, error) {
	record, err := s.read(i, s.items[i].length)
	if err != nil {
		return ingest.Segment{}, err
	}
	var seg ingest.Segment
	text := s.items[i].text
	if err := json.Unmarshal(record[text:], &seg); err != nil {
		return ingest.Segment{}, fmt.Errorf("read segment %d from the spool: %w", i, err)
	}
	seg.Text = string(record[:text])
	return seg, nil
}

// text reads the text of segment i, as get does.
func (s *spool) text(i int) (string, error) {
	text, err := s.read(i, s.items[i].text)
	return string(text), err
}

// read reads the first bytes of segment i's record.
func (s *spool) read(i int, length int32) ([]byte, error) {
	record := make([]byte, length)
	if _, err := s.f.ReadAt(record, s.items[i].offset); err != nil {
		return nil, fmt.Errorf("read segment %d from the spool: %w", i, err)
	}
	return record, nil
}

// flush makes everything added readable.
func (s *spool) flush() error {
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("write spool: %w", files.SpaceError(err))
	}
	return nil
}

// close frees the disk space.
func (s *spool) close() { _ = s.f.Close() }

// vectorID is hash(birth version, text hash, occurrence), 64 hex characters (design D8).
func vectorID(version string, h embedcache.TextHash, occurrence int) string {
	d := sha256.New()
	d.Write([]byte(version))
	d.Write(h[:])
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(occurrence))
	d.Write(n[:])
	return hex.EncodeToString(d.Sum(nil))
}
