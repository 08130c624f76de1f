package upload

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

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
)

const (
	headBytes    = 64 << 10 // what Detect is shown of a file's beginning
	maxNameChars = 255
	nameless     = "document"
)

// copyBuffers are larger than most uploads: one for each request would be most of what a small one allocates.
var copyBuffers = sync.Pool{New: func() any { return new([files.CopyBuffer]byte) }}

// Receive streams one upload to disk: temp file, hash on the way, type check, fsync, rename, folder fsync (design D11).
// Nothing is left behind when it fails.
// Errors: those of Admit, ErrTooLarge, ErrDiskFull, ErrNoResources, *Failure (empty file, unsupported type, encrypted …), r's own error.
func (a *Uploads) Receive(ctx context.Context, r io.Reader, name string) (ingest.ReceivedFile, error) {
	return a.receive(ctx, r, name, a.d.Detect)
}

// unreadable is the media type of an attachment that no reader takes.
const unreadable = "application/octet-stream"

// ReceiveAttachment is Receive for an attachment. One that no reader takes is received too: its own task says why it cannot be read.
func (a *Uploads) ReceiveAttachment(ctx context.Context, r io.Reader, name string) (ingest.ReceivedFile, error) {
	return a.receive(ctx, r, name, func(head []byte, r io.ReaderAt, size int64, name string) (string, error) {
		mediaType, err := a.d.Detect(head, r, size, name)
		if failure, ok := errors.AsType[*ingest.Failure](err); ok && failure.Permanent {
			return unreadable, nil
		}
		return mediaType, err
	})
}

func (a *Uploads) receive(ctx context.Context, r io.Reader, name string, detect ingest.DetectFunc) (ingest.ReceivedFile, error) {
	if err := a.Admit(ctx); err != nil {
		return ingest.ReceivedFile{}, fmt.Errorf("receive upload: %w", err)
	}
	out := ingest.ReceivedFile{ID: ingest.NewID(), Name: CleanName(name)}
	f, err := a.mount.Folder.Create(out.ID)
	if err != nil {
		return ingest.ReceivedFile{}, fmt.Errorf("receive upload: %w", files.ResourceError(err))
	}
	err = a.receiveInto(ctx, f, r, &out, detect)
	if closeErr := f.Close(); err == nil && closeErr != nil { // a full disk may only be told here
		err = fmt.Errorf("close upload: %w", files.ResourceError(closeErr))
	}
	if err == nil {
		crash.Point("api.after_fsync")
		if err = a.mount.Folder.Keep(ctx, out.ID); err != nil {
			err = fmt.Errorf("keep upload: %w", files.ResourceError(err))
		}
	}
	if err != nil {
		a.mount.Drop(ctx, files.TempPrefix+out.ID)
		a.mount.Drop(ctx, out.ID)
		return ingest.ReceivedFile{}, err
	}
	crash.Point("api.after_folder_fsync")
	return out, nil
}

// receiveInto copies r into the temp file, makes it durable and tells its type.
func (a *Uploads) receiveInto(ctx context.Context, f *os.File, r io.Reader, out *ingest.ReceivedFile, detect ingest.DetectFunc) error {
	w := &hashedWriter{f: f, h: sha256.New()}
	limited := io.LimitReader(files.NewContextReader(ctx, r), a.cfg.MaxUploadBytes+1)
	buffer := copyBuffers.Get().(*[files.CopyBuffer]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	defer copyBuffers.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, limited, buffer[:])
	switch {
	case w.err != nil:
		return fmt.Errorf("write upload: %w", files.ResourceError(w.err))
	case err != nil:
		return err
	case w.n > a.cfg.MaxUploadBytes:
		return fmt.Errorf("%w: more than %d bytes", ingest.ErrTooLarge, a.cfg.MaxUploadBytes)
	case w.n == 0:
		return ingest.Permanent(ingest.CodeEmpty, "Send a file that has content.", "the file is empty")
	}
	out.Bytes, out.SHA256 = w.n, hex.EncodeToString(w.h.Sum(nil))
	if out.MediaType, err = detect(w.head, f, w.n, out.Name); err != nil {
		archive := ingest.ArchiveType(w.head, out.Name)
		if archive == "" || ingest.AsFailure(err).Code != ingest.CodeUnsupportedType {
			return err
		}
		out.MediaType = archive
	}
	if err := crash.Fault("api.after_temp_write"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync upload: %w", files.ResourceError(err))
	}
	return nil
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
