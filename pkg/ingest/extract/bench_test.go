package extract

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// cpuTicks is the CPU time of a process in clock ticks of 1/100 s.
func cpuTicks(t testing.TB, pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+2:])
	user, err := strconv.Atoi(string(fields[11]))
	require.NoError(t, err)
	system, err := strconv.Atoi(string(fields[12]))
	require.NoError(t, err)
	return user + system
}

// benchPDF reads one PDF again and again in one resident child and reports pages and files per second of the
// child's CPU.
func benchPDF(b *testing.B, pages int) {
	p := newPool(b, func(c *Config) { c.Parallel, c.ChildFiles = 1, 100_000 })
	path := extracttest.WriteTemp(b, "bench.pdf", pdfgen.Text(pages, 1))
	_, _, err := extracttest.ExtractPath(b, b.Context(), p, path)
	require.NoError(b, err)
	pid := p.idle[0].cmd.Process.Pid
	before, n := cpuTicks(b, pid), 0
	for b.Loop() {
		ex, _, err := extracttest.ExtractPath(b, b.Context(), p, path)
		require.NoError(b, err)
		require.Equal(b, pages, ex.Pages)
		n++
	}
	seconds := float64(cpuTicks(b, pid)-before) / 100
	b.ReportMetric(float64(n*pages)/seconds, "pages/cpu-s")
	b.ReportMetric(float64(n)/seconds, "files/cpu-s")
	b.ReportMetric(float64(p.Stats().PeakBytes)/(1<<20), "peak-MiB")
}

func BenchmarkPDF300(b *testing.B) { benchPDF(b, 300) }

func BenchmarkPDF30(b *testing.B) { benchPDF(b, 30) }

func BenchmarkPDFSmall(b *testing.B) { benchPDF(b, 1) }

// BenchmarkStart starts a child that reads no PDF, with and without namespaces of its own.
func BenchmarkStart(b *testing.B) {
	for name, layers := range map[string][]sandbox.Layer{"namespaces": nil, "plain": {sandbox.Namespaces}} {
		b.Run(name, func(b *testing.B) {
			s := newStarter()
			defer s.stop()
			for b.Loop() {
				w, err := startWorker(b.Context(), s, sandbox.Setup{MemoryMB: 256, Sandbox: sandbox.Auto, Without: layers})
				require.NoError(b, err)
				w.kill()
			}
		})
	}
}

func BenchmarkDOCX(b *testing.B) { benchFile(b, "docx_tables.docx") }

func BenchmarkHTML(b *testing.B) { benchFile(b, "html_gbk_meta.html") }

func benchFile(b *testing.B, name string) {
	f, err := os.Open(filepath.Join("testdata", "corpus", name))
	require.NoError(b, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(b, err)
	b.SetBytes(info.Size())
	for b.Loop() {
		_, err := direct{}.Extract(b.Context(), ingest.Source{File: f, Name: name}, nil, func(ingest.Block) error { return nil })
		require.NoError(b, err)
	}
}
