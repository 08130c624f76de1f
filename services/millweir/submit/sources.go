package submit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millweir/millweir/services/millweir/cli"
)

// source is one thing to be taken in.
type source struct {
	name string // as people know it: the path as it was given or found, or the address
	path string // of the file that is read; empty: name is an address
	as   string // file name under which it is sent; empty: the path's own
	err  error  // it cannot be read at all
}

// maxSpool bounds what is kept of standard input in a temporary file.
const maxSpool = 1 << 30

// Why a folder's entries are left out.
const (
	skipHidden = "hidden"
	skipSystem = "left by systems"
	skipOther  = "neither file nor folder"
	skipLink   = "links to folders"
)

// sources are the files that args name, one by one: files as they are, folders with all below them, patterns that the shell left,
// and addresses. skips counts what folders have that is no document, by reason.
func sources(args []string, skips map[string]int) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, arg := range args {
			if !expand(arg, skips, yield) {
				return
			}
		}
	}
}

// isURL reports whether an argument is an address.
func isURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}

// expand yields what one argument names; false: no more is wanted.
func expand(arg string, skips map[string]int, yield func(source) bool) bool {
	if isURL(arg) {
		return yield(source{name: arg})
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return walk(arg, skips, yield)
	case err == nil || errors.Is(err, fs.ErrPermission) || !strings.ContainsAny(arg, "*?["): // to Windows a pattern is no name that could be there
		return yield(source{name: arg, path: arg, err: err})
	}
	found, err := filepath.Glob(arg)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: %w: no file matches", arg, fs.ErrNotExist)
	}
	if err != nil {
		return yield(source{name: arg, path: arg, err: cli.BadInput(err)})
	}
	for _, path := range found {
		if hidden(filepath.Base(path)) && !hidden(filepath.Base(arg)) { // as shells do
			skips[skipHidden]++
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			if !walk(path, skips, yield) {
				return false
			}
			continue
		case err == nil && !info.Mode().IsRegular():
			skips[skipOther]++
			continue
		}
		if !yield(source{name: path, path: path}) {
			return false
		}
	}
	return true
}

// walk yields the files below a folder, in order of their names.
func walk(root string, skips map[string]int, yield func(source) bool) bool {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil { // a folder that cannot be read does not hold up the others
			if !yield(source{name: path, path: path, err: err}) {
				return filepath.SkipAll
			}
			return nil
		}
		reason := ""
		if path != root {
			reason = skipped(path, d)
		}
		switch {
		case reason != "":
			skips[reason]++
			if d.IsDir() {
				return filepath.SkipDir
			}
		case d.IsDir():
		case !yield(source{name: path, path: path}):
			return errStop
		}
		return nil
	})
	return err == nil
}

// errStop ends a walk whose reader wants no more.
var errStop = errors.New("no more is wanted")

// skipped says why an entry of a folder is no document; empty: it is one, or a folder.
func skipped(path string, d fs.DirEntry) string {
	name := d.Name()
	switch {
	case hidden(name):
		return skipHidden
	case systemFile(name):
		return skipSystem
	case d.Type()&fs.ModeSymlink != 0:
		switch info, err := os.Stat(path); {
		case err != nil:
			return "" // a link to nothing: sending it says so
		case info.IsDir():
			return skipLink // a circle has no end
		case !info.Mode().IsRegular():
			return skipOther
		}
	case !d.IsDir() && !d.Type().IsRegular():
		return skipOther
	}
	return ""
}

// hidden reports whether a file name is one that folders do not show.
func hidden(name string) bool { return strings.HasPrefix(name, ".") && name != "." && name != ".." }

// systemFiles are names of what systems, synchronizers and NAS boxes leave in folders, in lower case.
var systemFiles = []string{
	"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "system volume information", "@eadir", "#recycle", "lost+found", "icon\r",
}

// systemFile reports whether a name is of something that no person wrote: leavings, lock files and downloads that are not whole.
func systemFile(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(systemFiles, name) || strings.HasPrefix(name, "~$") || strings.HasSuffix(name, "~") ||
		slices.Contains([]string{".tmp", ".part", ".crdownload", ".partial", ".swp"}, filepath.Ext(name))
}

// spool keeps standard input in a temporary file, which the caller removes: it has to be sent again when the gateway says so.
func spool(in io.Reader) (path string, err error) {
	f, err := os.CreateTemp("", "millweir-stdin-*")
	if err != nil {
		return "", err
	}
	n, err := io.Copy(f, io.LimitReader(in, maxSpool+1))
	if err == nil && n > maxSpool {
		err = cli.BadInput(fmt.Errorf("standard input has more than %d bytes: write it into a file and submit that", maxSpool))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
