package workflows

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// IngestArchive is the id of the workflow that takes each file of an archive in.
const IngestArchive = "ingest.archive"

const archiveSchema = `{"type": "object", "additionalProperties": false, "required": ["file"], "properties": {
	"file": ` + fileSchema + `, "knowledgeBase": {"type": "string", "maxLength": 128}, "metadata": {"type": "object"}, "force": {"type": "boolean"}}}`

// Unpacking is the payload of ingest.archive. The task is made with the archive's file (tasks.Request).
type Unpacking struct {
	File          *TaskFile       `json:"file"`
	KnowledgeBase string          `json:"knowledgeBase,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"` // of each document
	Force         bool            `json:"force,omitempty"`
}

// Unpacked is the result of ingest.archive.
type Unpacked struct {
	Files      int            `json:"files"` // in the archive, without folders and what programs leave in archives
	Accepted   int            `json:"accepted"`
	Duplicates int            `json:"duplicates"`
	Refused    int            `json:"refused"`
	Entries    []UnpackedFile `json:"entries"` // in the archive's order, as many as have room; those that were refused come first
	More       int            `json:"more,omitempty"`
}

// UnpackedFile is one file of an archive: a document's task, or why it was refused.
type UnpackedFile struct {
	Name       string       `json:"name"` // with its folders
	TaskID     string       `json:"taskId,omitempty"`
	DocumentID string       `json:"documentId,omitempty"`
	Duplicate  bool         `json:"duplicate,omitempty"` // the same bytes were there: the task is the document's last one
	Error      *UnpackError `json:"error,omitempty"`
}

// UnpackError is why a file was refused.
type UnpackError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

const (
	// maxArchiveFiles bounds the files of an archive, as the zip directory that is read is bounded.
	maxArchiveFiles = archive.MaxEntries
	// maxExpansion is how many times its own size an archive may become, beyond expansionFree bytes; more than maxExpanded none may.
	maxExpansion  = 100
	expansionFree = 64 << 20
	maxExpanded   = 8 << 30
	// maxEntriesJSON bounds the entries of a result, in bytes of JSON.
	maxEntriesJSON = workflow.MaxResult - 16<<10
	maxEntryName   = 300 // characters
)

// entry is a file of an archive.
type entry struct {
	name string // with its folders
	open func() (io.Reader, error)
}

// unpacking is one attempt.
type unpacking struct {
	*doors
	run    workflow.Run
	caller ingest.Caller
	asked  Unpacking
	left   int64 // bytes that may still come out of the archive
	result Unpacked
	fine   []UnpackedFile
}

// unpack takes the files of an archive in, one after the other; each is a document of its own from then on. An attempt that follows
// another finds by their keys what that one has taken in.
func (d *doors) unpack(ctx context.Context, r workflow.Run, c ingest.Caller, p Unpacking) (Unpacked, error) {
	f, err := d.fileOf(r.Task)
	if err != nil {
		return Unpacked{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return Unpacked{}, err
	}
	u := &unpacking{doors: d, run: r, caller: c, asked: p, left: min(max(info.Size()*maxExpansion, expansionFree), maxExpanded), result: Unpacked{Entries: []UnpackedFile{}}}
	err = entriesOf(f, info.Size(), p.File, func(e entry) error { return u.one(ctx, e) })
	if failure, ok := errors.AsType[*ingest.Failure](err); ok && failure.Code == ingest.CodeCorrupt && u.result.Files > 0 {
		u.refused(UnpackedFile{Name: shortened(p.File.Name), Error: refusalOf(err)}) // the rest of it; what stood before is taken in
		err = nil
	}
	if err != nil {
		return Unpacked{}, err
	}
	if u.result.Files == 0 {
		return Unpacked{}, ingest.Permanent(ingest.CodeEmpty, "Send an archive that has files in it.", "the archive holds no file")
	}
	u.result.Entries, u.result.More = bounded(append(u.result.Entries, u.fine...))
	d.app.Drop(ctx, r.Task.ID)
	return u.result, nil
}

// entriesOf calls visit for the files of an archive, in its order. Damage is permanent.
func entriesOf(f *os.File, size int64, file *TaskFile, visit func(entry) error) error {
	switch file.MediaType {
	case ingest.TypeZIP:
		return zipEntries(f, size, visit)
	case ingest.TypeTAR:
		return tarEntries(bufio.NewReader(f), visit)
	case ingest.TypeGZIP:
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return damaged(err)
		}
		plain := bufio.NewReaderSize(z, 1<<10)
		head, err := plain.Peek(1 << 9)
		if err != nil && !errors.Is(err, io.EOF) {
			return damaged(err)
		}
		if ingest.ArchiveType(head, "x.tar") != "" {
			return tarEntries(plain, visit)
		}
		name := strings.TrimSuffix(file.Name, path.Ext(file.Name))
		return visit(entry{name: name, open: func() (io.Reader, error) { return plain, nil }})
	}
	return ingest.Permanent(ingest.CodeUnsupportedType, "Send a ZIP, TAR or GZIP file.", "%s is no archive", file.MediaType)
}

func damaged(err error) error {
	return ingest.Permanent(ingest.CodeCorrupt, "Make the archive anew and upload it again.", "read the archive: %w", err)
}

func zipEntries(f *os.File, size int64, visit func(entry) error) error {
	directory, err := archive.ReadDirectory(f, size)
	if err != nil {
		return damaged(err)
	}
	if err := directory.CheckLimits(); err != nil {
		return err
	}
	z, err := zip.NewReader(f, size)
	if err != nil {
		return damaged(err)
	}
	for _, m := range z.File {
		if m.FileInfo().IsDir() || !m.Mode().IsRegular() {
			continue
		}
		name := m.Name
		if m.NonUTF8 && !utf8.ValidString(name) {
			if c, ok := charset.Guess([]byte(name)); ok && c.Enc != nil {
				if text, err := c.Enc.NewDecoder().String(name); err == nil {
					name = text
				}
			}
		}
		open := func() (io.Reader, error) {
			if m.Flags&1 != 0 {
				return nil, ingest.Permanent(ingest.CodeEncrypted, "Remove the archive's password and upload it again.", "the file is encrypted")
			}
			r, err := m.Open()
			if err != nil {
				return nil, damaged(err)
			}
			return r, nil
		}
		if err := visit(entry{name: name, open: open}); err != nil {
			return err
		}
	}
	return nil
}

func tarEntries(r io.Reader, visit func(entry) error) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return damaged(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := visit(entry{name: h.Name, open: func() (io.Reader, error) { return t, nil }}); err != nil {
			return err
		}
	}
}

// litter is what programs and systems leave in archives.
func litter(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "._") || base == ".DS_Store" || strings.EqualFold(base, "Thumbs.db") || strings.EqualFold(base, "desktop.ini") ||
		strings.HasPrefix(name, "__MACOSX/")
}

// one takes a file in. Errors end the attempt; what is wrong with this file alone stands in its line.
func (u *unpacking) one(ctx context.Context, e entry) error {
	name := strings.ToValidUTF8(strings.ReplaceAll(e.name, `\`, "/"), "\uFFFD")
	if litter(name) {
		return ctx.Err()
	}
	if u.result.Files++; u.result.Files > maxArchiveFiles {
		return ingest.Permanent(ingest.CodeLimitExceeded, "Split the archive into smaller ones.", "the archive has more than %d files", maxArchiveFiles)
	}
	u.run.Report(taskstate.Progress{Stage: taskstate.StageRun, Processed: u.result.Files - 1})
	line := UnpackedFile{Name: shortened(name)}
	t, duplicate, err := u.accept(ctx, e, path.Base(name), u.result.Files)
	if err != nil {
		refusal := refusalOf(err)
		if refusal == nil || ctx.Err() != nil {
			return err
		}
		line.Error = refusal
		u.refused(line)
		return nil
	}
	line.TaskID, line.DocumentID, line.Duplicate = t.ID, t.DocumentID, duplicate
	if u.result.Accepted++; duplicate {
		u.result.Accepted--
		u.result.Duplicates++
	}
	u.fine = append(u.fine, line)
	return nil
}

func (u *unpacking) refused(line UnpackedFile) {
	u.result.Refused++
	u.result.Entries = append(u.result.Entries, line)
}

// accept makes a document of a file, unless an earlier attempt has done so.
func (u *unpacking) accept(ctx context.Context, e entry, name string, number int) (taskstate.Task, bool, error) {
	key := tasks.UserKey{User: u.caller.Scope.UserID, Key: fmt.Sprintf("workflow:%s:%d", u.run.Key, number)}
	if u.run.Task.Fence > 1 {
		if t, made, err := u.earlier(ctx, key); made || err != nil {
			return t, false, err
		}
	}
	r, err := e.open()
	if err != nil {
		return taskstate.Task{}, false, err
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { _ = c.Close() }() // it was only read
	}
	source := &expanding{r: r, left: &u.left}
	file, err := u.app.Receive(ctx, source, name)
	if err != nil {
		if source.err != nil {
			err = source.err
		}
		return taskstate.Task{}, false, err
	}
	got, err := u.app.Accept(ctx, u.caller, ingest.Upload{
		File: file, Metadata: ingest.Metadata(u.asked.Metadata), Base: u.asked.KnowledgeBase, IdempotencyKey: key.Key, ChatID: u.run.Task.ChatID, Force: u.asked.Force,
	})
	if err != nil {
		u.app.Discard(file)
	}
	return got.Task, got.Duplicate, err
}

// expanding reads a file of an archive and counts what comes out.
type expanding struct {
	r    io.Reader
	left *int64
	err  error // of the archive
}

// Read ends with LIMIT_EXCEEDED when the archive becomes too large.
func (x *expanding) Read(p []byte) (int, error) {
	n, err := x.r.Read(p)
	if *x.left -= int64(n); *x.left < 0 {
		x.err = ingest.Permanent(ingest.CodeLimitExceeded, "Upload the files of the archive without it.",
			"the archive becomes more than %d times its size, or more than %d bytes", maxExpansion, int64(maxExpanded))
		return 0, x.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		x.err = damaged(err)
		err = x.err
	}
	return n, err
}

// refusalOf is why a file alone was refused; nil: the error is not about the file.
func refusalOf(err error) *UnpackError {
	failure, ok := errors.AsType[*ingest.Failure](err)
	switch {
	case ok && failure.Permanent:
		return &UnpackError{Code: string(failure.Code), Message: fmt.Sprintf("%s. %s", failure.Error(), failure.Remedy)}
	case errors.As(err, new(*ingest.TextError)):
		return &UnpackError{Code: workflow.CodePayload, Message: err.Error()}
	case errors.Is(err, ingest.ErrTooLarge):
		return &UnpackError{Code: string(ingest.CodeLimitExceeded), Message: "It is larger than a document may be."}
	}
	return nil
}

// shortened bounds a name in a result.
func shortened(name string) string {
	if runes := []rune(name); len(runes) > maxEntryName {
		return "…" + string(runes[len(runes)-maxEntryName+1:])
	}
	return name
}

// bounded keeps as many lines as have room in a result, and counts the others.
func bounded(lines []UnpackedFile) ([]UnpackedFile, int) {
	size := 0
	for i, line := range lines {
		text, _ := json.Marshal(line) // which cannot fail
		if size += len(text) + 1; size > maxEntriesJSON {
			return lines[:i], len(lines) - i
		}
	}
	return lines, 0
}
