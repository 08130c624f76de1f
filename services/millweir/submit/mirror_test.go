package submit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// library is a gateway that keeps documents as the real one does: the same bytes are one document, a key is one task.
type library struct {
	mu      sync.Mutex
	texts   map[string]string // by document
	keys    map[string]string // the document of each key
	refuse  map[string]int    // status by file name
	made    int
	strange int // what a proxy returns in the place of every deletion; 0: there is none
	changed chan struct{}
}

func (b *bundle) library() *library {
	l := &library{texts: map[string]string{}, keys: map[string]string{}, refuse: map[string]int{}, changed: make(chan struct{}, 1000)}
	take := func(w http.ResponseWriter, r *http.Request) {
		file, head, err := r.FormFile("file")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		text, _ := io.ReadAll(file)
		l.mu.Lock()
		defer l.mu.Unlock()
		if status := l.refuse[head.Filename]; status != 0 {
			reply(w, status, map[string]any{"code": "REFUSED", "message": "no"})
			return
		}
		id, key, duplicate := r.PathValue("id"), r.Header.Get("Idempotency-Key"), false
		for other, its := range l.texts {
			if id == "" && its == string(text) {
				id, duplicate = other, true
			}
		}
		if before, replayed := l.keys[key]; replayed {
			id, duplicate = before, false
		} else if _, there := l.texts[id]; r.PathValue("id") != "" && !there {
			reply(w, http.StatusNotFound, map[string]any{"code": "DOCUMENT_NOT_FOUND", "message": "no"})
			return
		} else {
			if id == "" {
				l.made++
				id = fmt.Sprintf("doc%d", l.made)
			}
			l.texts[id], l.keys[key] = string(text), id
		}
		task := aTask("task-"+key[:12], "QUEUED")
		task["documentId"], task["duplicate"] = id, duplicate
		reply(w, http.StatusAccepted, task)
		l.changed <- struct{}{}
	}
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", take)
	b.mux.HandleFunc("PUT /api/knowledge/documents/{id}", take)
	b.mux.HandleFunc("DELETE /api/knowledge/documents/{id}", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.strange != 0 {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(l.strange)
			_, _ = io.WriteString(w, "<html>a page</html>")
			return
		}
		delete(l.texts, r.PathValue("id"))
		w.WriteHeader(http.StatusNoContent)
		l.changed <- struct{}{}
	})
	return l
}

// has are all texts.
func (l *library) has() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.texts {
		texts = append(texts, text)
	}
	return texts
}

// put writes a file, later than it was before.
func put(t *testing.T, path, text string) {
	t.Helper()
	at := time.Now()
	if info, err := os.Stat(path); err == nil {
		at = info.ModTime().Add(time.Second)
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, at, at))
}

// A base has what a folder has, through edits, copies, renames and deletions, each seen by a run of its own.
func TestWatchMirrorsAFolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cache = t.TempDir()
	l := b.library()
	dir := tree(t, "a.txt", "b/c.txt", ".hidden")
	a := filepath.Join(dir, "a.txt")
	step := func(what string, want ...string) {
		t.Helper()
		require.Zero(t, b.run(t.Context(), "watch", dir, "--once", "--delete"), b.err.String()+b.out.String())
		require.ElementsMatch(t, want, l.has(), "%s: %s", what, b.out.String())
		said := b.out.String()
		require.Zero(t, b.run(t.Context(), "watch", dir, "--once", "--delete"))
		require.Equal(t, "ACTION  FILE  TASK  ERROR\n", b.out.String(), "%s: nothing is left to do after %s", what, said)
	}
	step("first", "text of a.txt", "text of b/c.txt")
	put(t, a, "A2")
	step("edited", "A2", "text of b/c.txt")
	put(t, a, "text of a.txt")
	step("edited back", "text of a.txt", "text of b/c.txt")
	put(t, a, "A2")
	step("edited as before", "A2", "text of b/c.txt")
	require.Equal(t, 2, l.made, "an edit makes a version, no document")
	put(t, filepath.Join(dir, "copy.txt"), "A2")
	step("copied", "A2", "text of b/c.txt")
	put(t, filepath.Join(dir, "copy.txt"), "A3")
	step("the copy edited", "A2", "A3", "text of b/c.txt")
	require.NoError(t, os.Rename(a, filepath.Join(dir, "z.txt")))
	step("renamed", "A2", "A3", "text of b/c.txt")
	require.NoError(t, os.Remove(filepath.Join(dir, "z.txt")))
	step("deleted", "A3", "text of b/c.txt")
	put(t, filepath.Join(dir, "z.txt"), "A2")
	step("there again", "A2", "A3", "text of b/c.txt")
	l.mu.Lock()
	l.texts = map[string]string{}
	l.mu.Unlock()
	put(t, filepath.Join(dir, "z.txt"), "A4")
	step("edited after its document was deleted by others", "A4")
}

// A proxy's "not found" and a portal's page do not come from the gateway: the document is still there, and is deleted later.
func TestWatchBelievesNoStranger(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusOK} {
		b := setup(t)
		b.cache = t.TempDir()
		l := b.library()
		dir := tree(t, "a.txt", "b.txt")
		require.Zero(t, b.run(t.Context(), "watch", dir, "--once", "--delete"), b.err.String())
		require.NoError(t, os.Remove(filepath.Join(dir, "a.txt")))
		l.strange = status
		require.Equal(t, 1, b.run(t.Context(), "watch", dir, "--once", "--delete"), b.out.String())
		require.Contains(t, b.out.String(), "not from a millweir gateway")
		require.Len(t, l.has(), 2)
		l.strange = 0
		require.Zero(t, b.run(t.Context(), "watch", dir, "--once", "--delete"), b.err.String())
		require.Equal(t, []string{"text of b.txt"}, l.has())
	}
}

// Nothing is deleted that was not made of the folder, nor because a folder cannot be seen.
func TestWatchDeletesWithCare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cache = t.TempDir()
	l := b.library()
	l.texts["older"] = "text of a.txt"
	dir := tree(t, "a.txt", "b.txt", "c/d.txt")
	run := func(want int, args ...string) string {
		t.Helper()
		require.Equal(t, want, b.run(t.Context(), append([]string{"watch", dir, "--once"}, args...)...), b.err.String()+b.out.String())
		return b.out.String()
	}
	run(0, "--delete")
	require.NoError(t, os.Remove(filepath.Join(dir, "a.txt")))
	require.Contains(t, run(0, "--delete"), "kept")
	require.Contains(t, l.has(), "text of a.txt", "it was there before")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.txt")))
	require.NotContains(t, run(0), "deleted", "nobody asked for it")
	require.Contains(t, l.has(), "text of b.txt")
	require.NoError(t, os.Rename(filepath.Join(dir, "c"), filepath.Join(t.TempDir(), "c")))
	require.Contains(t, run(cli.ExitFailed, "--delete"), "the folder is empty")
	require.Len(t, l.has(), 3)
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "watch", dir, "--once", "--delete"))
	require.Len(t, l.has(), 3)

	other := tree(t, "x.txt")
	require.Zero(t, b.run(t.Context(), "watch", other, "--once", "--delete"))
	require.Len(t, l.has(), 4, "another folder of the same base")
	for _, wrong := range [][]string{{"--interval=1ms"}, {"--parallel=0"}, {"-o", "json"}} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), append([]string{"watch", other}, wrong...)...), wrong)
	}
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "watch", filepath.Join(other, "x.txt")))
	b.cache = ""
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "watch", other))
}

// What fails is told; what can never succeed is not sent again until it changes.
func TestWatchTellsWhatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cache = t.TempDir()
	l := b.library()
	l.refuse["bad.exe"], l.refuse["later.txt"] = http.StatusUnsupportedMediaType, http.StatusBadGateway
	dir := tree(t, "bad.exe", "later.txt", "good.txt")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "watch", dir, "--once", "-o", "jsonl"))
	require.Equal(t, 2, strings.Count(b.out.String(), `"action":"failed"`))
	require.Contains(t, b.err.String(), "2 changes failed")
	require.Equal(t, []string{"text of good.txt"}, l.has())
	delete(l.refuse, "later.txt")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "watch", dir, "--once"))
	require.ElementsMatch(t, []string{"text of good.txt", "text of later.txt"}, l.has())
	l.refuse["bad.exe"] = http.StatusUnauthorized
	require.Equal(t, cli.ExitAuth, b.run(t.Context(), "watch", dir, "--interval", "100ms"), "it ends by itself")
	l.refuse["bad.exe"] = http.StatusNotFound // NOT_FOUND of something else: it goes on
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "watch", dir, "--once"))
}

// It goes on until Ctrl-C, and sees a file that is written while it looks.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cache = t.TempDir()
	l := b.library()
	dir := tree(t, "a.txt")
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- b.run(ctx, "watch", dir, "--delete", "--interval", "100ms") }()
	<-l.changed
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.txt"), []byte("new"), 0o600))
	<-l.changed
	require.NoError(t, os.Remove(filepath.Join(dir, "a.txt")))
	<-l.changed
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.txt"), []byte("last"), 0o600))
	<-l.changed // a later look: what was deleted before it was told
	interrupt()
	require.Equal(t, cli.ExitInterrupted, <-ended)
	require.ElementsMatch(t, []string{"new", "last"}, l.has())
	require.Contains(t, b.out.String(), "deleted  "+dir)
}
