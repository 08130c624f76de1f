package pipeline

import (
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
	// spoolBuffer is how much of a spool stays in memory: most documents need no file.
	spoolBuffer = 128 << 10
	// maxSegments bounds a document; a plan keeps about 150 bytes in memory for each.
	maxSegments = 500_000
)

// spooled says where a segment lies in the spool.
type spooled struct {
	hash   embedcache.TextHash
	offset int64
	length int32
	text   int32 // bytes of its text, for the size of statements and requests
	around [2]int32
}

// spool keeps a run's segments, what does not fit into its buffer on disk, so that a document's size does not count in memory.
// Its file has no name any more when the run works with it: a crash leaves nothing.
type spool struct {
	f      *os.File // nil while the buffer has everything
	buffer []byte   // records that are not in the file
	filed  int64    // bytes that are
	items  []spooled
}

// newFile makes the file in the system's temporary folder.
func (s *spool) newFile() error {
	f, err := os.CreateTemp("", "millweir-spool-*")
	if err != nil {
		return fmt.Errorf("make spool: %w", files.SpaceError(err))
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return fmt.Errorf("unlink spool: %w", err)
	}
	s.f = f
	return nil
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
	length := len(text) + len(rest)
	if len(s.buffer)+length > spoolBuffer {
		if err := s.spill(); err != nil {
			return err
		}
	}
	at := len(s.buffer)
	s.buffer = append(append(s.buffer, text...), rest...)
	s.items = append(s.items, spooled{
		hash: sha256.Sum256(s.buffer[at : at+len(text)]), offset: s.filed + int64(at), length: int32(length), text: int32(len(text)),
		around: [2]int32{int32(seg.Around[0]), int32(seg.Around[1])},
	})
	return nil
}

// spill moves what the buffer has into the file.
func (s *spool) spill() error {
	if s.f == nil {
		if err := s.newFile(); err != nil {
			return err
		}
	}
	if _, err := s.f.Write(s.buffer); err != nil {
		return fmt.Errorf("write spool: %w", files.SpaceError(err))
	}
	s.filed += int64(len(s.buffer))
	s.buffer = s.buffer[:0]
	return nil
}

// get reads segment i. It is safe for concurrent use once everything was added.
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

// read reads the first bytes of segment i's record; they are not to be written to.
func (s *spool) read(i int, length int32) ([]byte, error) {
	at := s.items[i].offset
	if at >= s.filed {
		return s.buffer[at-s.filed:][:length], nil
	}
	record := make([]byte, length)
	if _, err := s.f.ReadAt(record, at); err != nil {
		return nil, fmt.Errorf("read segment %d from the spool: %w", i, err)
	}
	return record, nil
}

// close frees the disk space.
func (s *spool) close() {
	if s.f != nil {
		_ = s.f.Close()
	}
}

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
