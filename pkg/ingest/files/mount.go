package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
)

// Mount is the upload folder together with the database whose rows name its files.
type Mount struct {
	Folder *Folder
	d      ingest.Deps
	q      sqldb.Queries
}

// NewMount makes a Mount; q are the catalog's statements.
func NewMount(d ingest.Deps, q sqldb.Queries, folder *Folder) *Mount {
	return &Mount{Folder: folder, d: d, q: q}
}

const (
	// MarkerName is the file that says whose an upload folder is: the epoch of the database whose rows name its files.
	MarkerName  = ".timeline"
	markerBytes = 64
	// folderSample is how many of the newest and of the oldest stored files are looked for in a folder without the right marker.
	folderSample = 20
)

// CheckFolder returns nil while the upload folder carries the marker of the database's epoch.
//
// A folder without it, or with an older one, belongs to the database all the same when files that its rows name lie there:
// it is marked then (after an upgrade, or after `timeline renew` where the folder was not mounted), unless it is read-only.
// An empty folder is marked only by a process that takes uploads, and only while no row names a file: a worker whose volume is
// not mounted sees an empty folder too.
// Errors: ErrFolder with the remedy; taskstate.ErrUnavailable; what keeps the folder from being read.
func (a *Mount) CheckFolder(ctx context.Context) error {
	m, err := a.d.Store.Moment(ctx)
	if err != nil {
		return fmt.Errorf("compare the upload folder with the database: %w", err)
	}
	seen, err := a.Folder.marker()
	if err == nil && seen == m.Epoch {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: read the marker of %s: %w", ingest.ErrFolder, a.Folder.dir, err)
	}
	return a.adoptFolder(ctx, m.Epoch, seen)
}

// adoptFolder marks a folder that belongs to the database; seen is the marker that it has, 0: none.
func (a *Mount) adoptFolder(ctx context.Context, epoch, seen int64) error {
	rows, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("FilesSample"), folderSample, folderSample)
	if err != nil {
		return fmt.Errorf("compare the upload folder with the database: %w", err)
	}
	held := 0
	for _, name := range rows {
		if _, err := a.Folder.WrittenAt(name); err == nil {
			held++
		}
	}
	switch {
	case held > 0:
		if err := a.Folder.mark(epoch); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("mark the upload folder: %w", SpaceError(err))
		}
		return nil // what it holds proves it, marked or not
	case len(rows) > 0:
		return fmt.Errorf("%w: UPLOAD_DIR %s holds none of the files that the database names; mount the folder of the uploads, "+
			"or if its files are lost, run `millweir timeline mark --yes` where the new folder is", ingest.ErrFolder, a.Folder.dir)
	case !a.d.Adopts:
		return fmt.Errorf("%w: UPLOAD_DIR %s has no marker (%s) yet; ingest-api makes it when it starts: "+
			"check that both see the same folder", ingest.ErrFolder, a.Folder.dir, MarkerName)
	case seen != 0 && a.Folder.any():
		return fmt.Errorf("%w: UPLOAD_DIR %s holds files of another database; use another folder, or empty this one", ingest.ErrFolder, a.Folder.dir)
	}
	if err := a.Folder.mark(epoch); err != nil {
		return fmt.Errorf("mark the upload folder: %w", SpaceError(err))
	}
	return nil
}

// Mark writes the marker into a folder: the operator says that it is the database's.
func Mark(dir string, epoch int64) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("UPLOAD_DIR: %w", err)
	}
	files, err := Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(files.mark(epoch), files.Close())
}

// Timeline returns the epoch of the database that the folder belongs to, by its marker; 0: it has none.
func (f *Folder) Timeline() (int64, error) {
	epoch, err := f.marker()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return epoch, err
}

// marker reads the marker: the epoch of the database that the folder belongs to. fs.ErrNotExist when there is none.
// A folder that was mounted over the one that was opened is found by its name.
func (f *Folder) marker() (int64, error) {
	epoch, err := markerIn(f.root())
	if err == nil || !f.reopen() {
		return epoch, err
	}
	return markerIn(f.root())
}

// reopen takes the folder that has the name now; it reports whether that is another one.
func (f *Folder) reopen() bool {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return false
	}
	was, wasErr := f.root().Stat(".")
	now, nowErr := root.Stat(".")
	if nowErr != nil || (wasErr == nil && os.SameFile(was, now)) {
		_ = root.Close()
		return false
	}
	f.swap(root)
	return true
}

// markerIn reads the marker of a folder; one that is not a number is none.
func markerIn(root *os.Root) (int64, error) {
	h, err := root.Open(MarkerName)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }()
	text := make([]byte, markerBytes)
	n, err := h.Read(text)
	if ignoreEOF(err) != nil {
		return 0, err
	}
	epoch, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a timeline: %w", MarkerName, fs.ErrNotExist)
	}
	return epoch, nil
}

// mark writes the marker, whole or not at all; several processes may do it at once.
func (f *Folder) mark(epoch int64) error {
	root, temp := f.root(), MarkerName+"."+rand.Text()
	h, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(h, epoch)
	err = errors.Join(err, h.Sync(), h.Close())
	if err == nil {
		err = root.Rename(temp, MarkerName)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return f.sync()
}

// any reports whether the folder holds a stored file.
func (f *Folder) any() bool {
	found := false
	err := f.Older(time.Now().Add(time.Hour), func(names []string) error {
		found = true
		return fs.SkipAll
	})
	return found || (err != nil && !errors.Is(err, fs.SkipAll))
}
