package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/millweir/millweir/pkg/sqldb"
)

// OpenUnnamed opens a received file that no row names, for reading. Whoever asks shows that it is theirs with the hash of its bytes.
// fs.ErrNotExist when there is no such file, a row names it, or it has other bytes.
func (a *Mount) OpenUnnamed(ctx context.Context, id, sum string) (*os.File, error) {
	if named, err := a.named(ctx, id); err != nil {
		return nil, err
	} else if named {
		return nil, fmt.Errorf("%w: %s belongs to a document", fs.ErrNotExist, id)
	}
	f, err := a.Folder.Open(id)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	if _, err = io.CopyBuffer(h, NewContextReader(ctx, f), make([]byte, CopyBuffer)); err == nil {
		if hex.EncodeToString(h.Sum(nil)) == sum {
			_, err = f.Seek(0, io.SeekStart)
		} else {
			err = fmt.Errorf("%w: %s has other bytes", fs.ErrNotExist, id)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// DropUnnamed removes a received file unless a row names it. What fails is logged: the sweeper removes the file a day later.
func (a *Mount) DropUnnamed(ctx context.Context, id string) {
	if named, err := a.named(ctx, id); err == nil && !named && ownName(id) {
		a.Drop(ctx, id)
	}
}

// named reports whether a row names a file.
func (a *Mount) named(ctx context.Context, id string) (bool, error) {
	for _, query := range []string{"FilesKnown", "FilesNamed"} {
		rows, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.List(query, 1), id)
		if err != nil {
			return false, fmt.Errorf("look for the rows of file %s: %w", id, err)
		}
		if len(rows) > 0 {
			return true, nil
		}
	}
	return false, nil
}
