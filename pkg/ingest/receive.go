package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/crash"
)

const (
	headBytes    = 64 << 10 // what Detect is shown of a file's beginning
	copyBuffer   = 128 << 10
	maxNameChars = 255
	nameless     = "document"
)

// copyBuffers are larger than most uploads: one for each request would be most of what a small one allocates.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// Receive streams one upload to disk: temp file, hash on the way, type check, fsync, rename, folder fsync (design D11).
// Nothing is left behind when it fails.
// Errors: those of Admit, ErrTooLarge, ErrDiskFull, ErrNoResources, *Failure (empty file, unsupported type, encrypted …), r's own error.
func (a *App) Receive(ctx context.Context, r io.Reader, name string) (ReceivedFile, error) {
	if err := a.Admit(ctx); err != nil {
		return ReceivedFile{}, fmt.Errorf("receive upload: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return ReceivedFile{}, fmt.Errorf("make an id: %w", err)
	}
	out := ReceivedFile{ID: id.String(), Name: CleanName(name)}
	f, err := a.d.Files.create(out.ID)
	if err != nil {
		return ReceivedFile{}, fmt.Errorf("receive upload: %w", resourceError(err))
	}
	err = a.receiveInto(ctx, f, r, &out)
	if closeErr := closed(f); err == nil {
		err = closeErr
	}
	if err == nil {
		crash.Point("api.after_fsync")
		if err = a.d.Files.keep(ctx, out.ID); err != nil {
			err = fmt.Errorf("keep upload: %w", resourceError(err))
		}
	}
	if err != nil {
		a.drop(ctx, tempPrefix+out.ID)
		a.drop(ctx, out.ID)
		return ReceivedFile{}, err
	}
	crash.Point("api.after_folder_fsync")
	return out, nil
}

// receiveInto copies r into the temp file, makes it durable and tells its type.
func (a *App) receiveInto(ctx context.Context, f *os.File, r io.Reader, out *ReceivedFile) error {
	w := &hashedWriter{f: f, h: sha256.New()}
	limited := io.LimitReader(contextReader{ctx, r}, a.cfg.MaxUploadBytes+1)
	buffer := copyBuffers.Get().(*[copyBuffer]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	defer copyBuffers.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, limited, buffer[:])
	switch {
	case w.err != nil:
		return fmt.Errorf("write upload: %w", resourceError(w.err))
	case err != nil:
		return err
	case w.n > a.cfg.MaxUploadBytes:
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, a.cfg.MaxUploadBytes)
	case w.n == 0:
		return Permanent(CodeEmpty, "Send a file that has content.", "the file is empty")
	}
	out.Bytes, out.SHA256 = w.n, hex.EncodeToString(w.h.Sum(nil))
	out.MediaType, err = a.d.Detect(w.head, f, w.n, out.Name)
	if err != nil {
		return err
	}
	if err := crash.Fault("api.after_temp_write"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync upload: %w", resourceError(err))
	}
	return nil
}

// drop removes a file of ours and logs what prevents it: the sweeper tries again in a day.
func (a *App) drop(ctx context.Context, name string) {
	if err := a.d.Files.remove(name); err != nil {
		a.d.Log.WarnContext(ctx, "ingest: remove file", "file", name, "error", err.Error())
	}
}

// CleanName makes a user's file name harmless for display: the last path part, valid UTF-8,
// no control or invisible formatting characters, at most 255 characters with its extension kept; never empty.
// It is never used as a path.
func CleanName(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if cut := strings.LastIndexAny(name, `/\`); cut >= 0 {
		name = name[cut+1:]
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, name)
	name = strings.TrimSpace(name)
	if strings.Trim(name, ".") == "" {
		return nameless
	}
	return shortName(name)
}

// shortName cuts a name to maxNameChars and keeps a short extension.
func shortName(name string) string {
	runes := []rune(name)
	if len(runes) <= maxNameChars {
		return name
	}
	ext := ""
	if dot := strings.LastIndexByte(name, '.'); dot > 0 && utf8.RuneCountInString(name[dot:]) <= 16 {
		ext = name[dot:]
	}
	return string(runes[:maxNameChars-utf8.RuneCountInString(ext)]) + ext
}

// hashedWriter writes a file, hashes what it writes and keeps the head.
type hashedWriter struct {
	f    *os.File
	h    hash.Hash
	head []byte
	n    int64
	err  error // of the file, apart from the reader's
}

// Write implements io.Writer.
func (w *hashedWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.h.Write(p[:n])
	if room := headBytes - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(n, room)]...)
	}
	w.n += int64(n)
	w.err = err
	return n, err
}

// contextReader ends a copy when its request ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// closed closes f; a full disk may only be told here.
func closed(f *os.File) error {
	if err := f.Close(); err != nil {
		return fmt.Errorf("close upload: %w", resourceError(err))
	}
	return nil
}

// ignoreEOF is err, but nil for the end of a listing.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
