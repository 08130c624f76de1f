package submit

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/millweir/millweir/services/millweir/cli"
)

// journal remembers in a file which files a server has accepted: a line of JSON each, the last one of a path counts. It saves
// work; it promises nothing: without it the gateway finds the same bytes again.
type journal struct {
	file         string // empty: nothing is written
	server, base string // whose entries count
	run          string // goes into idempotency keys; that of the run which is resumed

	mu      sync.Mutex
	out     *os.File
	entries map[string]entry // by absolute path
	failed  error            // the first write that failed
}

// entry is a line of a journal.
type entry struct {
	Server   string `json:"server"`
	Base     string `json:"base"`
	Path     string `json:"path"` // absolute
	Size     int64  `json:"size"`
	MTime    int64  `json:"mtime"` // nanoseconds since 1970
	SHA256   string `json:"sha256"`
	Task     string `json:"task"`
	Document string `json:"document,omitempty"`
	Foreign  bool   `json:"foreign,omitempty"` // the document was there before the file: it is not ours to delete
	Gone     bool   `json:"gone,omitempty"`    // the file was deleted; the task goes into the key if it comes again
}

// journalHead begins a journal, so that no other file is taken for one and overwritten.
type journalHead struct {
	Version int    `json:"millweirJournal"`
	Run     string `json:"run"`
}

// maxJournalLine bounds a line: a path has at most 4 KiB on the systems that we know, and may be escaped.
const maxJournalLine = 1 << 20

// journalPath is where the journal of a server and base lies unless --journal says else; empty: nowhere.
func journalPath(a *cli.App, verb, base string) string {
	if a.CacheDir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(a.Server + "\x00" + base))
	return filepath.Join(a.CacheDir, "millweir", verb+"-"+hex.EncodeToString(sum[:8])+".jsonl")
}

// openJournal begins a journal; with resume it reads what is there and goes on.
func openJournal(file, server, base string, resume bool) (*journal, error) {
	j := &journal{file: file, server: server, base: base, run: rand.Text(), entries: map[string]entry{}}
	if file == "" {
		return j, nil
	}
	if err := j.read(resume); err != nil {
		return nil, cli.BadInput(fmt.Errorf("journal %s: %w", file, err))
	}
	if err := j.begin(); err != nil {
		return nil, cli.Failed(fmt.Errorf("journal %s: %w", file, err))
	}
	return j, nil
}

// read takes the entries of an earlier run; without resume it only looks whether the file is a journal.
func (j *journal) read(resume bool) error {
	f, err := os.Open(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a regular file"))
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxJournalLine)
	if !lines.Scan() {
		return lines.Err() // empty
	}
	var head journalHead
	if json.Unmarshal(lines.Bytes(), &head) != nil || head.Version != 1 {
		return errors.New("it is no journal of millweir; name another file")
	}
	if !resume {
		return nil
	}
	if head.Run != "" {
		j.run = head.Run
	}
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Path == "" {
			continue // a line that a crash cut off: its file is sent again
		}
		j.entries[j.key(e.Server, e.Base, e.Path)] = e
	}
	return lines.Err()
}

// key is an entry's place: the path, and before it whose it is when it is another server's or base's.
func (j *journal) key(server, base, path string) string {
	if server == j.server && base == j.base {
		return path
	}
	return server + "\x00" + base + "\x00" + path
}

// begin writes the journal anew with what is known, so that it does not grow from run to run, and keeps it open.
func (j *journal) begin() error {
	if err := os.MkdirAll(filepath.Dir(j.file), 0o700); err != nil {
		return err
	}
	err := cli.ReplaceFile(j.file, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		enc := json.NewEncoder(buffered)
		err := enc.Encode(journalHead{Version: 1, Run: j.run})
		for _, e := range j.entries {
			err = errors.Join(err, enc.Encode(e))
		}
		return errors.Join(err, buffered.Flush())
	})
	if err != nil {
		return err
	}
	j.out, err = os.OpenFile(j.file, os.O_WRONLY|os.O_APPEND, 0) // again: Windows renames no open file
	return err
}

// of is what is known of a path; known is false also for one that was there once and is gone.
func (j *journal) of(path string) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, known := j.entries[path]
	return e, known && !e.Gone
}

// all are the entries of this server and base by their paths.
func (j *journal) all() map[string]entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := maps.Clone(j.entries)
	maps.DeleteFunc(own, func(_ string, e entry) bool { return !j.own(e) })
	return own
}

// any reports whether one of the entries of this server and base is such a one.
func (j *journal) any(such func(entry) bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if j.own(e) && such(e) {
			return true
		}
	}
	return false
}

// own reports whether an entry is of this server and base, and of a file that is there.
func (j *journal) own(e entry) bool { return !e.Gone && e.Server == j.server && e.Base == j.base }

// accept notes a file. keep holds it in memory too, for who asks again.
func (j *journal) accept(e entry, keep bool) {
	e.Server, e.Base = j.server, j.base
	j.mu.Lock()
	defer j.mu.Unlock()
	if keep {
		j.entries[e.Path] = e
	}
	if j.out == nil {
		return
	}
	line, _ := json.Marshal(e) // texts and numbers
	if _, err := j.out.Write(append(line, '\n')); err != nil && j.failed == nil {
		j.failed = err
	}
}

// close ends it and says whether something could not be written.
func (j *journal) close() error {
	if j.out == nil {
		return nil
	}
	return errors.Join(j.failed, j.out.Close())
}

// unchanged reports whether a file is the one that an entry tells of: by size and time, else by its content.
func (e entry) unchanged(info fs.FileInfo) (bool, error) {
	if info.Size() != e.Size {
		return false, nil
	}
	if info.ModTime().UnixNano() == e.MTime {
		return true, nil
	}
	sum, err := hashFile(e.Path)
	return sum == e.SHA256, err
}

// hashFile is the SHA-256 of a regular file in hexadecimal digits.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// keyOf derives an idempotency key from what is sent: the same file in the same run is the same task, however often it is sent.
func (j *journal) keyOf(parts ...string) string {
	var b bytes.Buffer
	for _, p := range append([]string{j.run}, parts...) {
		fmt.Fprintf(&b, "%d:%s", len(p), p)
	}
	sum := sha256.Sum256(b.Bytes())
	return "cli-" + hex.EncodeToString(sum[:])
}
