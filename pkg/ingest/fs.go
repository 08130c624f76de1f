package ingest

import (
	"fmt"
	"io/fs"
)

// fsSub is fs.Sub with the folder named in its error.
func fsSub(fsys fs.FS, dir string) (fs.FS, error) {
	sub, err := fs.Sub(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return sub, nil
}
