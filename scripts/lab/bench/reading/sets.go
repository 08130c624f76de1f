package reading

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

// What is read: the test documents of Tika's parsers (Maven) and those of two PDF libraries (PyPI), which nobody here wrote.
var (
	tikaModules = []string{"microsoft", "pdf", "html", "text", "mail", "miscoffice"}
	sources     = map[string]string{"pypdf": "7.1.1", "pdfminer.six": "20260107"}
)

const (
	tikaVersion = "3.2.2"
	maxFile     = 5 << 20 // bytes of a document; a larger one is left out
)

// formats are the ends of names of the documents by the format that a figure names. Formats of which there are only one or two files are
// left out, and those that we refuse (DOC, XLS, PPT).
var formats = map[string]string{
	".pdf": "PDF", ".docx": "DOCX", ".xlsx": "XLSX", ".pptx": "PPTX", ".odt": "ODF", ".ods": "ODF", ".odp": "ODF", ".rtf": "RTF",
	".html": "HTML", ".eml": "mail", ".msg": "mail", ".epub": "EPUB",
}

// fetch puts the documents into a folder, flat and each once, and returns their names in order.
func fetch(ctx context.Context, dir string) (names []string, err error) {
	packages := filepath.Join(dir, "packages")
	into := filepath.Join(dir, "documents")
	if err := errors.Join(os.MkdirAll(packages, 0o755), os.MkdirAll(into, 0o755)); err != nil {
		return nil, err
	}
	for _, m := range tikaModules {
		if err := maven(ctx, packages, "org.apache.tika:tika-parser-"+m+"-module:"+tikaVersion+":jar:tests"); err != nil {
			return nil, err
		}
	}
	interpreter, err := figure.Python()
	if err != nil {
		return nil, err
	}
	for name, version := range sources {
		if err := run(exec.CommandContext(ctx, interpreter, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", packages, name+"=="+version)); err != nil {
			return nil, err
		}
	}
	archives, err := os.ReadDir(packages)
	if err != nil {
		return nil, err
	}
	seen := map[[sha256.Size]byte]bool{}
	keep := func(name string, r io.Reader) error {
		end := strings.ToLower(filepath.Ext(name))
		if formats[end] == "" {
			return nil
		}
		data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
		if sum := sha256.Sum256(data); err == nil && len(data) > 0 && len(data) <= maxFile && !seen[sum] {
			seen[sum] = true
			name = fmt.Sprintf("%03d-%s%s", len(seen), strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), end)
			names = append(names, name)
			err = os.WriteFile(filepath.Join(into, name), data, 0o600)
		}
		return err
	}
	for _, a := range archives {
		data, err := os.ReadFile(filepath.Join(packages, a.Name()))
		if err == nil && strings.HasSuffix(a.Name(), ".jar") {
			err = unzip(data, keep)
		} else if err == nil {
			err = untar(data, keep)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name(), err)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maven copies an artifact into a folder.
func maven(ctx context.Context, dir, artifact string) error {
	c := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy", "-Dartifact="+artifact, "-DoutputDirectory="+dir)
	c.Dir = dir
	return run(c)
}

// run runs a command; its error has what it said.
func run(c *exec.Cmd) error {
	if said, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, said)
	}
	return nil
}

func unzip(data []byte, each func(name string, r io.Reader) error) error {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return err
		}
		err = each(f.Name, r)
		_ = r.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}

func untar(data []byte, each func(name string, r io.Reader) error) error {
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	for t := tar.NewReader(plain); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = each(h.Name, t)
		}
		if err != nil {
			return err
		}
	}
}
