package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	official  = "https://vuln.go.dev"
	waitLimit = 10 * time.Second
	inRepo    = "data/osv" // where a clone of golang/vulndb keeps its entries
)

// find returns the address of the database for govulncheck, and what it is in words.
// Errors: dir is no database, or (dir "") the official one does not answer.
func find(ctx context.Context, dir, work string) (address, what string, err error) {
	if dir == "" {
		return official, official, reachable(ctx, official+"/index/db.json.gz")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", "", err
	}
	switch {
	case exists(filepath.Join(dir, "index", "modules.json")):
		return fileURL(dir), "the index " + dir, nil
	case hasEntries(dir):
		return fileURL(dir), "the entries in " + dir, nil
	case hasEntries(filepath.Join(dir, inRepo)):
		return fileURL(filepath.Join(dir, inRepo)), "the checkout " + dir, nil
	}
	for _, git := range []string{dir, filepath.Join(dir, "repo")} {
		if !exists(filepath.Join(git, "HEAD")) {
			continue
		}
		date, err := takeOut(ctx, git, work)
		if err != nil {
			return "", "", err
		}
		work, err = filepath.Abs(work)
		return fileURL(work), "golang/vulndb of " + date, err
	}
	return "", "", errors.New("neither an index, nor OSV files, nor a clone of golang/vulndb")
}

// reachable asks for the head of a page.
func reachable(ctx context.Context, page string) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, page, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: waitLimit}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", official, err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("%s answers %s", official, answer.Status), err)
	}
	return nil
}

// takeOut writes the entries of a repository's newest commit into work, and returns the commit's date.
func takeOut(ctx context.Context, git, work string) (date string, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", git, "log", "-1", "--format=%cs", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git log: %w", err)
	}
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o750)); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "-C", git, "archive", "HEAD:"+inRepo)
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", work)
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err := archive.Start(); err != nil {
		return "", err
	}
	if err := errors.Join(unpack.Run(), archive.Wait()); err != nil {
		return "", fmt.Errorf("take the entries out of the clone: %w", err)
	}
	if !hasEntries(work) {
		return "", errors.New("the clone has no entries in " + inRepo)
	}
	return strings.TrimSpace(string(out)), nil
}

// hasEntries reports whether dir holds OSV files of Go's database.
func hasEntries(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "GO-*.json"))
	return err == nil && len(found) > 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func fileURL(dir string) string { return (&url.URL{Scheme: "file", Path: dir}).String() }
