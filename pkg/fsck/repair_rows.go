package fsck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/millweir/millweir/pkg/taskstate"
)

// upload is what a document's task says of the file that it was accepted with.
type upload struct {
	FileName  string `json:"fileName"`
	MediaType string `json:"mediaType"`
	SHA256    string `json:"sha256"`
}

// leave notes a document that a repair cannot mend.
func (r *repair) leave(document, reason string) {
	r.done.Left = append(r.done.Left, fmt.Sprintf("document %s: %s", document, reason))
}

// mendRows mends documents whose rows, or whose files' rows, are wrong. Each is read again first; a row is changed only when
// all other witnesses agree against it.
func (r *repair) mendRows(ctx context.Context, suspects []Suspect) error {
	for _, s := range suspects {
		before, err := r.holdings(ctx, s.Document)
		if err != nil {
			return err
		}
		for _, mend := range []func(context.Context, documentRow, []versionRow) error{r.mendOwner, r.mendFiles, r.mendBytes} {
			d, vs, err := r.look(ctx, s.Document)
			if err == nil && d.id != "" {
				err = mend(ctx, d, vs)
			}
			if err != nil {
				return fmt.Errorf("document %s: %w", s.Document, err)
			}
		}
		after, err := r.holdings(ctx, s.Document)
		if err != nil {
			return err
		}
		for _, f := range after {
			r.leave(s.Document, f.text)
		}
		if len(after) < len(before) {
			r.done.Rows++
			r.done.Mended += min(s.Flaws, int64(len(before)-len(after)))
		}
	}
	return nil
}

// look reads a document with its versions; an empty one when it is gone.
func (r *repair) look(ctx context.Context, id string) (documentRow, []versionRow, error) {
	found, err := r.documents(ctx, r.q.List("DocumentsByID", 1), id)
	if err != nil || len(found) == 0 {
		return documentRow{}, nil, err
	}
	versions, err := r.versionsOf(ctx, []string{id})
	return found[0], versions[id], err
}

// holdings are what is wrong with a document's holdings now.
func (r *repair) holdings(ctx context.Context, id string) ([]flaw, error) {
	d, vs, err := r.look(ctx, id)
	if err != nil || d.id == "" {
		return nil, err
	}
	return holdings(d, vs), nil
}

// mendFiles makes the rows of stored files again whose bytes are in the upload folder and are those that the version's task
// was accepted with.
func (r *repair) mendFiles(ctx context.Context, d documentRow, vs []versionRow) error {
	made := map[string]bool{}
	for _, v := range vs {
		if v.fileID == "" || v.file != "" || made[v.fileID] {
			continue
		}
		sum, size, err := r.onDisk(v.fileID)
		if err != nil {
			return err
		}
		var text string
		if err := r.db.QueryRowContext(ctx, r.q.Get("UploadOf"), v.task).Scan(&text); err != nil {
			return err
		}
		var u upload
		if json.Unmarshal([]byte(text), &u) != nil || sum == "" || u.SHA256 != sum {
			continue
		}
		made[v.fileID] = true
		if err := r.exec(ctx, "FileInsert", v.fileID, d.user, sum, size, u.FileName, u.MediaType, v.fileID, v.created.Time); err != nil {
			return err
		}
	}
	return nil
}

// mendOwner gives a document back to the user whose base it is in, when all its tasks and files are that user's.
func (r *repair) mendOwner(ctx context.Context, d documentRow, vs []versionRow) error {
	owner := d.baseUser
	other := func(user string) bool { return user != "" && user != owner }
	if owner == "" || owner == d.user || slices.ContainsFunc(vs, func(v versionRow) bool { return other(v.taskUser) || other(v.fileUser) }) {
		return nil
	}
	return r.exec(ctx, "DocumentOwner", owner, d.id, d.user)
}

// mendBytes gives a document the SHA-256 of its newest upload, when the file on disk has it too.
func (r *repair) mendBytes(ctx context.Context, d documentRow, vs []versionRow) error {
	i := slices.IndexFunc(vs, func(v versionRow) bool { return v.upload == d.lastUpload && v.sha != "" })
	if i < 0 || vs[i].sha == d.sha && (d.same == "" || d.same == d.sha) {
		return nil
	}
	v := vs[i]
	sum, _, err := r.onDisk(v.fileID)
	if err != nil || sum != v.sha {
		return err
	}
	return r.exec(ctx, "DocumentBytes", sum, sum, d.id, d.sha, d.latest)
}

// onDisk reads a stored file; an empty sum when it is not there.
func (r *repair) onDisk(name string) (sum string, size int64, err error) {
	if r.e.Files == nil {
		return "", 0, nil
	}
	h, err := r.e.Files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer h.Close() //nolint:errcheck // only read
	all := sha256.New()
	if size, err = io.Copy(all, h); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(all.Sum(nil)), size, nil
}

// exec changes a row, where the database can be written.
func (r *repair) exec(ctx context.Context, statement string, args ...any) error {
	w, ok := r.e.DB.(Writer)
	if !ok {
		return nil // only looked at
	}
	return w.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, r.q.Get(statement), args...)
		return err
	})
}
