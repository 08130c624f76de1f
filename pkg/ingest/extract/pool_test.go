package extract

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// maxChildBytes is what a child may reach on any file.
const maxChildBytes = sandbox.MemoryFactor * 300 << 20

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, nil))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func newPool(t testing.TB, change func(*Config)) *Pool {
	t.Helper()
	cfg := NewDefaultConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := NewPool(cfg, testLog(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestCorpusInChildren(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Sandbox = sandbox.Require })
	require.NoError(t, p.Warm(t.Context()))
	for _, s := range extracttest.Samples(t) {
		t.Run(s.File, func(t *testing.T) {
			ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", s.File))
			requireSample(t, s, ex, blocks, err)
			if strings.HasPrefix(ex.MediaType, document.TypePDF) {
				require.Positive(t, ex.Pages)
				require.Positive(t, blocks[0].Page)
			}
		})
	}
	require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
	t.Logf("stats %+v", p.Stats())
}

// A stop that waited for the compiler took a minute on a slow machine.
func TestWarmEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.CacheDir = t.TempDir() })
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Warm(soon), context.DeadlineExceeded, "a cold compilation takes seconds")
	p.warm <- struct{}{} // somebody else compiles
	soon, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Warm(soon), context.DeadlineExceeded)
	<-p.warm
	require.NoError(t, p.Warm(t.Context()), "the next one begins again")
	readPDF1(t, p)
}

func readText1(t testing.TB, p *Pool) {
	t.Helper()
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "txt_utf8.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, blocks)
}

func readPDF1(t testing.TB, p *Pool) {
	t.Helper()
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "pdf_cid_noembed.pdf"))
	require.NoError(t, err)
	require.Equal(t, 3, ex.Pages)
	require.Equal(t, 3, blocks[len(blocks)-1].Page)
}

func TestPDFChildReadsEverythingAndReplacesAPlainOne(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	readText1(t, p)
	readPDF1(t, p)
	readText1(t, p)
	readPDF1(t, p)
	require.Equal(t, 2, p.Stats().Started)
	require.Equal(t, 1, p.Stats().Live)
}

// idlePID is the first idle child's.
func idlePID(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle[0].cmd.Process.Pid
}

func TestIdleChildrenEnd(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.IdleTimeout = 4 * time.Second })
	readText1(t, p)
	pid := idlePID(p)
	require.Eventually(t, func() bool { return p.Stats().Live == 0 }, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return residentBytes(pid) == 0 }, time.Minute, 20*time.Millisecond)
	readText1(t, p)
}

func TestConcurrentDocumentsNeverExceedTheChildren(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel, c.ChildFiles = 2, 5 })
	var g errgroup.Group
	for i := range 24 {
		g.Go(func() error {
			if i%3 == 0 {
				readPDF1(t, p)
			} else {
				readText1(t, p)
			}
			if live := p.Stats().Live; live > 2 {
				return fmt.Errorf("%d children", live)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func TestDeadIdleChildIsNotUsed(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	readText1(t, p)
	w := p.idle[0]
	w.signal()
	<-w.exited
	readText1(t, p)
	require.Equal(t, 2, p.Stats().Started)
	require.Equal(t, 1, p.Stats().Live)
}

func TestClosedPoolRefuses(t *testing.T) {
	t.Parallel()
	p, err := NewPool(NewDefaultConfig(), testLog(t))
	require.NoError(t, err)
	readText1(t, p)
	pid := idlePID(p)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.Zero(t, residentBytes(pid), "no child survives the pool")
	_, _, err = extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "txt_utf8.txt"))
	require.ErrorIs(t, err, ErrClosed)
}

func TestSlowReceiverIsNoSlowReader(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second // far above what a child needs, also on a machine that stalls
	p := newPool(t, func(c *Config) { c.TimeoutSmall = limit })
	readText1(t, p) // the child has started
	f, err := os.Open(filepath.Join("testdata", "corpus", "txt_utf8.txt"))
	require.NoError(t, err)
	defer f.Close()
	var once sync.Once
	_, err = p.Extract(t.Context(), ingest.Source{File: f, Name: "a.txt"}, nil, func(ingest.Block) error {
		once.Do(func() { <-time.After(limit + time.Second) })
		return nil
	})
	require.NoError(t, err)
}

func TestCacheFolderOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	_, _, err := cacheFolder(dir)
	require.ErrorContains(t, err, "EXTRACT_CACHE_DIR")
}

func TestUnreadPagesAreNamed(t *testing.T) {
	t.Parallel()
	pdf := extracttest.SimplePDF("", "BT /F1 9 Tf 9 50 Td (readable text) Tj ET")
	pdf = bytes.Replace(pdf, []byte("/Kids[3 0 R]/Count 1"), []byte("/Kids[3 0 R 8 0 R 3 0 R 9 0 R 3 0 R]/Count 5"), 1)
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), newPool(t, nil), extracttest.WriteTemp(t, "gaps.pdf", pdf))
	require.NoError(t, err)
	require.Equal(t, 5, ex.Pages)
	require.Equal(t, []int{2, 4}, ex.Unread)
	require.Equal(t, 3, strings.Count(extracttest.Joined(blocks), "readable text"))
}

// A PDF that a Word document embeds is read: by a child that has the reader of PDFs, which other Word documents do not need.
func TestAnEmbeddedPDFIsRead(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	letter := func(objects ...string) []byte {
		return extracttest.ZipOf(t, append([]string{
			"_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`,
			"word/document.xml", `<w:document ` + extracttest.WordXMLNS + `><w:body><w:p><w:r><w:t>before</w:t><w:object><o:OLEObject r:id="o"/></w:object></w:r></w:p></w:body></w:document>`,
			"word/_rels/document.xml.rels", `<Relationships><Relationship Id="o" Type="http://x/oleObject" Target="embeddings/o.bin"/></Relationships>`,
		}, objects...)...)
	}
	pdf := string(extracttest.SimplePDF("", "BT /F1 9 Tf 9 50 Td (readable text) Tj ET"))
	for _, c := range []struct {
		objects []string
		want    string
		pdf     bool
	}{
		{nil, "before", false},
		{[]string{"word/embeddings/o.bin", string(extracttest.OLEStreams("CONTENTS", pdf))}, "before\n\nreadable text", true},
	} {
		_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.docx", letter(c.objects...)))
		require.NoError(t, err)
		require.Equal(t, c.want, strings.TrimSpace(extracttest.Joined(blocks)))
		require.Equal(t, c.pdf, p.idle[0].has == wasmPDF)
	}
}

func TestProgressCountsPages(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	f, err := os.Open(extracttest.WriteTemp(t, "x.pdf", pdfgen.Text(40, 3)))
	require.NoError(t, err)
	defer f.Close()
	last, text := [2]int{}, strings.Builder{}
	ex, err := p.Extract(t.Context(), ingest.Source{File: f, Name: "x.pdf"}, func(done, total int) { last = [2]int{done, total} }, func(b ingest.Block) error {
		text.WriteString(b.Text + "\n")
		if i := strings.Index(b.Text, "PAGEMARK"); i >= 0 {
			require.True(t, strings.HasPrefix(b.Text[i:], fmt.Sprintf("PAGEMARK%dX3", b.Page)))
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, [2]int{40, 40}, last)
	require.Equal(t, 40, ex.Pages)
	require.Equal(t, 40, strings.Count(text.String(), "PAGEMARK"))
}

// attached is a PDF of one page that carries files (name, content, …).
func attached(files ...string) []byte {
	names, objects := "", ""
	for i := 0; i < len(files); i += 2 {
		spec, stream := 6+i, 7+i
		names += fmt.Sprintf("(%02d) %d 0 R", i, spec)
		objects += fmt.Sprintf("%d 0 obj<</Type/Filespec/F(%s)/UF(%s)/EF<</F %d 0 R>>>>endobj\n%d 0 obj<</Type/EmbeddedFile/Length %d>>stream\n%s\nendstream endobj\n",
			spec, files[i], files[i], stream, stream, len(files[i+1]), files[i+1])
	}
	pdf := extracttest.SimplePDF("/Names<</EmbeddedFiles<</Names["+names+"]>>>>", "BT /F1 9 Tf 9 50 Td (the page) Tj ET")
	return bytes.Replace(pdf, []byte("trailer"), []byte(objects+"trailer"), 1)
}

// A file that the document lists and does not have is a warning, and the next one is read.
func TestAListedFileThatIsMissingIsAWarning(t *testing.T) {
	t.Parallel()
	pdf := bytes.Replace(attached("lost.txt", "lost text", "there.txt", "there text"), []byte("(00) 6 0 R"), []byte("(00) 99 0 R"), 1)
	ex, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", pdf))
	require.NoError(t, err)
	require.Equal(t, []string{"p the page", "# there.txt", "p there text"}, extracttest.Lines(blocks))
	require.Equal(t, []string{`the attached file "attachment-1" could not be read`}, ex.Warnings)
}

// Files that notes on a page carry are read too, unless they are hidden; one that the document lists as well is read once.
func TestFilesPinnedToAPageOfAPDFAreRead(t *testing.T) {
	t.Parallel()
	pdf := attached("listed.txt", "listed text", "pinned.txt", "pinned text", "hidden.txt", "hidden text")
	pdf = bytes.Replace(pdf, []byte("(02) 8 0 R(04) 10 0 R"), nil, 1) // all but the first are only pinned
	note := func(more string, file int) string {
		return fmt.Sprintf("<</Type/Annot/Subtype/FileAttachment/Rect[0 0 9 9]%s/FS %d 0 R>>", more, file)
	}
	pdf = bytes.Replace(pdf, []byte("/Type/Page/Parent"), []byte("/Type/Page/Annots["+note("", 6)+note("/Contents(seen)", 8)+note("/F 2", 10)+note("", 99)+"]/Parent"), 1)
	ex, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", pdf))
	require.NoError(t, err)
	require.Equal(t, []string{"p the page", "# listed.txt", "p listed text", "# pinned.txt", "p pinned text"}, extracttest.Lines(blocks))
	require.Empty(t, ex.Warnings)
}

// The files that a PDF carries are read behind its pages, by both engines: a portfolio has nothing else to read.
func TestFilesAttachedToAPDFAreRead(t *testing.T) {
	t.Parallel()
	inner := string(attached("deep.txt", "deep text"))
	ex, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", attached(
		"invoice.xml", `<?xml version="1.0"?><invoice><total>17 euro</total></invoice>`, "notes.md", "# Head\n\ntext", "inner.pdf", inner, "data.bin", "\x00\x01\x02", "empty.txt", "",
		"large.txt", strings.Repeat("a line of text\n", 20<<20/15))))
	require.NoError(t, err)
	lines := extracttest.Lines(blocks)
	require.Equal(t, []string{"p the page", "# invoice.xml"}, lines[:2])
	require.Contains(t, lines[2], "17 euro")
	require.Equal(t, []string{"# notes.md", "# Head", "p text", "# inner.pdf", "p the page", "# deep.txt", "p deep text"}, lines[len(lines)-7:])
	require.Len(t, ex.Warnings, 2)
	require.Contains(t, ex.Warnings[0]+ex.Warnings[1], `"data.bin" was not read`)
	require.Contains(t, ex.Warnings[0]+ex.Warnings[1], `"large.txt" was not read`)
	for _, b := range blocks {
		require.Equal(t, 1, b.Page, b.Text)
	}
}
