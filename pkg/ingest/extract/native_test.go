package extract

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// readerFolder is where pdf-reader is built; TestMain removes it.
var readerFolder string

// buildReader builds pdf-reader as the product is built. This program cannot be it: one that loads a C library confines itself otherwise.
var buildReader = sync.OnceValues(func() (path string, err error) {
	if readerFolder, err = os.MkdirTemp("", "millweir-reader-"); err != nil {
		return "", err
	}
	path = filepath.Join(readerFolder, readerName)
	build := exec.Command("go", "build", "-o", path, "github.com/millweir/millweir/services/millweir/pdf-reader")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pdf-reader: %w\n%s", err, out)
	}
	return path, nil
})

// natively has a pool read PDFs natively. A test fails where the library is missing: `make deps` installs it.
func natively(t testing.TB) func(*Config) {
	t.Helper()
	reader, err := buildReader()
	require.NoError(t, err)
	library, err := installed.PDFium()
	require.NoError(t, err)
	return func(c *Config) { c.PDFEngine, c.PDFReader, c.PDFLibrary = PDFNative, reader, library }
}

// readByBoth reads a PDF with each engine: they give the same, a failure too.
func readByBoth(t testing.TB, path string) (ingest.Extraction, []ingest.Block, error) {
	t.Helper()
	p, native := newPool(t, func(c *Config) { c.Parallel = 1 }), newPool(t, natively(t))
	require.True(t, native.Stats().Native)
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, path)
	ex2, blocks2, err2 := extracttest.ExtractPath(t, t.Context(), native, path)
	if err != nil {
		require.Error(t, err2)
		require.Equal(t, ingest.AsFailure(err).Code, ingest.AsFailure(err2).Code)
		return ex, blocks, err
	}
	require.NoError(t, err2)
	require.Equal(t, blocks, blocks2)
	require.Equal(t, ex.Reader+nativeMark, ex2.Reader)
	ex2.Reader = ex.Reader
	require.Equal(t, ex, ex2)
	return ex, blocks, err
}

func TestBothEnginesReadTheCorpusAlike(t *testing.T) {
	t.Parallel()
	for _, s := range extracttest.Samples(t) {
		if !strings.HasSuffix(s.File, ".pdf") || s.AtUpload || s.File == "docx_named.pdf" {
			continue
		}
		t.Run(s.File, func(t *testing.T) {
			ex, blocks, err := readByBoth(t, filepath.Join("testdata", "corpus", s.File))
			requireSample(t, s, ex, blocks, err)
		})
	}
}

func TestBothEnginesReadAlike(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"pages":              pdfgen.Text(40, 7),
		"a page without end": bytes.Replace(extracttest.SimplePDF("", "BT /F1 9 Tf 9 50 Td (x) Tj ET"), []byte("/Kids[3 0 R]/Count 1"), []byte("/Kids[3 0 R 8 0 R 3 0 R]/Count 3"), 1),
		"a mail":             []byte("From: a@b\r\nSubject: s\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\nbody\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := map[bool]string{true: "a.eml", false: "a.pdf"}[name == "a mail"]
			if name == "a mail" {
				_, blocks, err := extracttest.ExtractPath(t, t.Context(), newPool(t, natively(t)), extracttest.WriteTemp(t, file, data))
				require.NoError(t, err)
				require.NotEmpty(t, blocks)
				return
			}
			_, blocks, err := readByBoth(t, extracttest.WriteTemp(t, file, data))
			require.NoError(t, err)
			require.NotEmpty(t, blocks)
		})
	}
}

func TestHostilePDFsEndNatively(t *testing.T) {
	t.Parallel()
	p := newPool(t, natively(t))
	for _, h := range hostileFiles() {
		if !strings.HasSuffix(h.name, ".pdf") {
			continue
		}
		_, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, h.name, h.make(t)))
		if err != nil {
			extracttest.RequirePermanent(t, err, h.codes...)
		}
	}
	readPDF1(t, p)
	t.Logf("stats %+v", p.Stats())
}

func TestLimitsHoldNatively(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { natively(t)(c); c.MaxPages = 3 })
	_, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.pdf", pdfgen.Text(4, 1)))
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	readPDF1(t, p)
	require.Zero(t, p.Stats().Repeated, "a refusal is the document's, whoever reads it")
}

// The child is killed in the middle of a document: all of its text comes once, from the other engine.
func TestADocumentWhoseNativeReaderDiesIsReadAgain(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := NewDefaultConfig()
	natively(t)(&cfg)
	cfg.Parallel = 1
	p, err := NewPool(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	readPDF1(t, p)
	pid := idlePID(p)
	path := extracttest.WriteTemp(t, "a.pdf", pdfgen.Text(300, 5))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	killed := false
	var blocks []ingest.Block
	ex, err := p.Extract(t.Context(), ingest.Source{File: f, Name: "a.pdf"}, func(done, total int) {
		if !killed {
			killed = true
			require.Less(t, done, total, "in the middle")
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
	}, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	require.NoError(t, err)
	require.True(t, killed)
	require.Equal(t, 300, ex.Pages)
	_, want, err := extracttest.ExtractPath(t, t.Context(), newPool(t, nil), path)
	require.NoError(t, err)
	require.Equal(t, want, blocks)
	require.Equal(t, 1, p.Stats().Repeated)
	require.Equal(t, 1, strings.Count(log.String(), "reading the document again in WebAssembly"))
	require.NoError(t, testutil.CollectAndCompare(p.Collector(), strings.NewReader(`# HELP ingest_extract_pdf_repeated_total Documents that were read again in WebAssembly because the native reader ended abnormally.
# TYPE ingest_extract_pdf_repeated_total counter
ingest_extract_pdf_repeated_total 1
`), "ingest_extract_pdf_repeated_total"))
	readPDF1(t, p) // natively again
	require.Equal(t, 1, p.Stats().Repeated)
}

func TestOtherAbnormalEndsAreReadAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t, natively(t))
	p.starter.native.reader = "/bin/false" // ends before it greets
	readPDF1(t, p)
	require.Equal(t, 1, p.Stats().Repeated)

	slow := newPool(t, func(c *Config) {
		natively(t)(c)
		c.TimeoutSmall, c.TimeoutMedium = 100*time.Millisecond, 100*time.Millisecond
	})
	_, _, err := extracttest.ExtractPath(t, t.Context(), slow, extracttest.WriteTemp(t, "a.pdf", pdfgen.Text(1500, 1)))
	require.ErrorContains(t, err, "took longer than 100ms", "and so it does in WebAssembly")
	require.Equal(t, 1, slow.Stats().Repeated)
}

// pretend is a native child that a document took over: it greets, gets a document, and ends in one of the ways below.
func pretend(how string) int {
	conn := os.NewFile(3, "parent")
	in := bufio.NewReader(conn)
	_, _, err := frame.Read(in, nil)
	err = errors.Join(err, frame.WriteJSON(conn, frame.KindHello, sandbox.Hello{Landlock: 1, Seccomp: true, Readers: readers}))
	_, _, jobErr := frame.Read(in, nil)
	block := frame.EncodeBlock(nil, ingest.Block{Kind: ingest.BlockParagraph, Page: 1, Text: "what must not be passed on"})
	err = errors.Join(err, jobErr, frame.Write(conn, frame.KindBlock, block))
	switch how {
	case "nonsense":
		_, _ = conn.WriteString("no frame at all, but long enough for one")
	case "another page than there are":
		err = errors.Join(err, frame.WriteJSON(conn, frame.KindDone, frame.Verdict{Extraction: ingest.Extraction{Pages: -1}}))
	case "a panic":
		err = errors.Join(err, frame.WriteJSON(conn, frame.KindDone, frame.Verdict{Code: ingest.CodeExtractCrashed, Stack: "a stack"}))
	case "a refusal":
		err = errors.Join(err, frame.WriteJSON(conn, frame.KindDone, frame.Verdict{Code: ingest.CodeEncrypted, Permanent: true, Remedy: "r", Error: "e"}))
	case "a signal":
		err = errors.Join(err, unix.Kill(os.Getpid(), unix.SIGSEGV))
	}
	if err != nil {
		return 1
	}
	_, _ = in.ReadByte() // until the parent ends it
	return 0
}

// whenRepeated is called when a pool says that it reads a document again.
type whenRepeated func()

func (whenRepeated) Enabled(context.Context, slog.Level) bool { return true }
func (f whenRepeated) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f whenRepeated) WithGroup(string) slog.Handler          { return f }
func (f whenRepeated) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "reading the document again") {
		f()
	}
	return nil
}

func TestWhatAnAbnormalChildSaidIsNotPassedOn(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, how := range []string{"nonsense", "another page than there are", "a panic", "a signal", "silence"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, natively(t))
			p.starter.native = &nativeProgram{reader: self, library: how}
			if how == "silence" { // it says nothing more: the first reading ends by its time, and the second has as long as it needs
				p.cfg.TimeoutSmall = 500 * time.Millisecond
				p.log = slog.New(whenRepeated(func() { p.cfg.TimeoutSmall = time.Minute }))
			}
			ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.pdf", pdfgen.Text(1, 9)))
			require.NoError(t, err)
			require.Equal(t, 1, ex.Pages)
			require.NotContains(t, extracttest.Joined(blocks), "passed on")
			require.Contains(t, extracttest.Joined(blocks), "PAGEMARK1X9")
			require.Equal(t, 1, p.Stats().Repeated)
		})
	}
	p := newPool(t, natively(t))
	p.starter.native = &nativeProgram{reader: self, library: "a refusal"}
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.pdf", pdfgen.Text(1, 9)))
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
	require.Empty(t, blocks)
	require.Zero(t, p.Stats().Repeated)
}

// Where a layer is missing the native child refuses, and the pool says so once and reads in WebAssembly.
func TestNoNativeReaderWithoutASandbox(t *testing.T) {
	t.Parallel()
	for _, missing := range []sandbox.Layer{sandbox.Landlock, sandbox.Seccomp} {
		t.Run(string(missing), func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cfg := NewDefaultConfig()
			natively(t)(&cfg)
			p, err := newPoolWithout(cfg, slog.New(slog.NewTextHandler(&log, nil)), []sandbox.Layer{missing})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close()) }()
			require.False(t, p.Stats().Native)
			readPDF1(t, p)
			readPDF1(t, p)
			require.Equal(t, 1, strings.Count(log.String(), "cannot be confined here"))
			require.Contains(t, log.String(), string(missing)+": left out")
			require.Equal(t, newPool(t, nil).Fingerprint(), p.Fingerprint())
		})
	}
}

// Every thread of a native child has the filter, may gain no right, and can open no file.
func TestANativeChildIsConfinedInAllItsThreads(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { natively(t)(c); c.Parallel = 1 })
	readPDF1(t, p)
	s := p.Stats()
	require.True(t, s.Landlock && s.Seccomp, "%+v", s)
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(idlePID(p)), "task", "*", "status"))
	require.NoError(t, err)
	require.Greater(t, len(tasks), 2)
	for _, task := range tasks {
		status := procTable(t, task, ":")
		require.Equal(t, "2", status["Seccomp"], task)
		require.Equal(t, "1", status["NoNewPrivs"], task)
	}
}

func TestSettingsOfTheNativeReaderAreChecked(t *testing.T) {
	t.Parallel()
	good := natively(t)
	text := extracttest.WriteTemp(t, "libpdfium.so", []byte("no library"))
	foreign := foreignLibrary(t)
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"an engine that is none":  {func(c *Config) { c.PDFEngine = "fast" }, []string{"PDF_ENGINE: ", "wasm, native"}},
		"no sandbox":              {func(c *Config) { c.Sandbox = sandbox.Off }, []string{"PDF_ENGINE: ", "EXTRACT_SANDBOX=auto"}},
		"no program":              {func(c *Config) { c.PDFReader = "/nowhere/pdf-reader" }, []string{"PDF_READER: ", "no such file", "pdf-reader of this version"}},
		"no library":              {func(c *Config) { c.PDFLibrary = "/nowhere/libpdfium.so" }, []string{"PDF_LIBRARY: ", "no such file", "libpdfium.so"}},
		"none beside the program": {func(c *Config) { c.PDFLibrary = "" }, []string{"PDF_LIBRARY: ", "no such file"}},
		"none beside our own":     {func(c *Config) { c.PDFReader = "" }, []string{"PDF_READER: ", "no such file"}},
		"a text":                  {func(c *Config) { c.PDFLibrary = text }, []string{"PDF_LIBRARY: ", "is no program and no library"}},
		"another processor":       {func(c *Config) { c.PDFLibrary = foreign }, []string{"PDF_LIBRARY: ", "is built for"}},
		"another library":         {func(c *Config) { c.PDFLibrary = c.PDFReader }, []string{"PDF_LIBRARY: "}},
		"another program":         {func(c *Config) { c.PDFReader = "/bin/false" }, []string{"PDF_READER: /bin/false does not start"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := NewDefaultConfig()
			good(&cfg)
			c.change(&cfg)
			_, err := NewPool(cfg, testLog(t))
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// foreignLibrary is the library with the number of another processor in its head.
func foreignLibrary(t *testing.T) string {
	t.Helper()
	library, err := installed.PDFium()
	require.NoError(t, err)
	data, err := os.ReadFile(library)
	require.NoError(t, err)
	data[18] ^= 1
	return extracttest.WriteTemp(t, "libpdfium.so", data)
}

func TestHeldBlocksComeBackInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 3000} { // the second needs the file
		h := &heldBlocks{}
		var want, got []ingest.Block
		for i := range 3000 {
			b := ingest.Block{Kind: ingest.BlockParagraph, Page: i + 1, Text: strings.Repeat(strconv.Itoa(i%10), size)}
			want = append(want, b)
			require.NoError(t, h.add(b))
		}
		require.Equal(t, size > 10, h.file != nil)
		require.NoError(t, h.send(func(b ingest.Block) error { got = append(got, b); return nil }))
		require.Equal(t, want, got)
		h.close()
	}
	h := &heldBlocks{}
	require.NoError(t, h.add(ingest.Block{Kind: ingest.BlockParagraph, Text: "x"}))
	full := errors.New("the receiver is full")
	require.Equal(t, full, h.send(func(ingest.Block) error { return full }))
}

func TestTheFingerprintNamesTheEngine(t *testing.T) {
	t.Parallel()
	p := newPool(t, natively(t))
	require.Contains(t, p.Fingerprint(), pdfReader.String()+nativeMark+" ")
	ex, _, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "txt_utf8.txt"))
	require.NoError(t, err)
	require.NotContains(t, ex.Reader, nativeMark)
	require.Equal(t, document.TypeText, ex.MediaType)
}
