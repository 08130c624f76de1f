package extract

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// TestA23 gives pages of tags that parsers have looped over: each ends within seconds, in text or in a plain
// reason.
func TestA23(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	const n = 100_000 / sandbox.MemoryFactor
	for name, page := range map[string]string{
		"formatting":        strings.Repeat("<b><i><a href=x><font>", n) + "end",
		"crossed":           strings.Repeat("<p><b></p></b><table><a>", n) + "end",
		"templates":         strings.Repeat("<template><svg><math>", n) + "end",
		"foreign":           strings.Repeat("<math><annotation-xml encoding=text/html><mglyph><svg><desc>", n) + "end",
		"selects":           strings.Repeat("<select><option><keygen>", n) + "end",
		"end tags":          strings.Repeat("</a></b></p></table></td>", n) + "end",
		"comments":          strings.Repeat("<!-- <!--", n) + "end",
		"declarations":      strings.Repeat("<!DOCTYPE html><![CDATA[<?", n) + "end",
		"open tag":          "<html " + strings.Repeat("<", n),
		"attributes":        "<html><p " + strings.Repeat("a ", n) + "><p>end",
		"entities":          "<html>" + strings.Repeat("&amp&lt&#0;&#xFFFFFFFF;&NotEqualTilde;", n) + "end",
		"raw text":          strings.Repeat("<script><!--<script>", n) + "end",
		"plaintext":         "<html><plaintext>" + strings.Repeat("<p>", n),
		"tables in cells":   "<html>" + strings.Repeat("<table><tr><td>x<table><caption>", n/10),
		"lists of headings": "<html>" + strings.Repeat("<ol><li><h1>x", n),
		"nul and invalid":   "<html>" + strings.Repeat("<p\x00>\xff\xfe<\x00b>", n) + "end",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "odd.html", []byte("<!DOCTYPE html>"+page)))
			if err != nil {
				extracttest.RequirePermanent(t, err)
			}
			t.Logf("%v in %v", err, time.Since(began).Round(time.Millisecond))
		})
	}
	require.Zero(t, p.Stats().Killed, "each ends by itself")
	if sandbox.MemoryFactor == 1 {
		require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
	}
}

func TestChildIsRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	victim, me := extracttest.WriteTemp(t, "victim", []byte("x")), strconv.Itoa(os.Getpid())
	p := newPool(t, func(c *Config) { c.Sandbox, c.Parallel = sandbox.Require, 1 })
	for _, what := range []string{
		"read /etc/passwd", "read /proc/self/environ", "read " + victim, "list /", "create " + t.TempDir() + "/x", "remove " + victim,
		"connect " + listener.Addr().String(), "udp 127.0.0.1:53", "unix", "exec /bin/true", "replace /bin/true", "bomb",
		"ptrace " + me, "kill " + me, "owner", "raise", "code", "mount /proc", "environment",
	} {
		t.Run(what, func(t *testing.T) {
			said, err := order(t, p, what)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(said, "refused: "), said)
		})
	}
	require.FileExists(t, victim)
	require.Equal(t, 1, p.Stats().Started, "the child lived on")
}

func TestChildIsKilledAndThePoolLives(t *testing.T) {
	t.Parallel()
	crowded := "threads"
	if ownProcesses == 0 {
		crowded = "" // a thread of C brings its stack, and the memory ends first
	}
	orders := map[string]string{
		"sleep": "longer than", "spin": "longer than", "garbage": "protocol", "exit": "exit status 3", "panic": "as ordered", "threads": crowded,
	}
	if sandbox.MemoryFactor == 1 { // the race detector has the child's memory multiplied
		orders["allocate"], orders["overflow"] = "", ""
	}
	for what, want := range orders {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, func(c *Config) { c.TimeoutSmall, c.Parallel = time.Minute, 1 })
			if want == "longer than" {
				p.cfg.TimeoutSmall = 300 * time.Millisecond
			}
			_, err := order(t, p, what)
			require.Error(t, err)
			f := ingest.AsFailure(err)
			require.Equal(t, ingest.CodeExtractCrashed, f.Code)
			require.False(t, f.Permanent, "a later attempt may go better")
			require.ErrorContains(t, err, want)
			require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
			require.Zero(t, p.Stats().Live, "the child is not used again")
			p.cfg.TimeoutSmall = time.Minute
			said, err := order(t, p, "environment")
			require.NoError(t, err)
			require.Equal(t, "refused: there is none", said)
		})
	}
}

// TestEachLayerHoldsAlone lets a child try what one layer must refuse by itself,
// and first shows that without any layer it would have gone through.
func TestEachLayerHoldsAlone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	victim, me := extracttest.WriteTemp(t, "victim", []byte("x")), strconv.Itoa(os.Getpid())
	address := listener.Addr().String()
	files := []string{"read " + victim, "list /", "create " + t.TempDir() + "/x", "connect " + address, "exec /bin/true", "kill " + me}
	namespaced := []string{"connect " + address, "udp " + address}
	if ownProcesses != 0 {
		namespaced = append(namespaced, "kill "+me)
	}
	for _, c := range []struct {
		alone  sandbox.Layer
		others []sandbox.Layer
		orders []string
	}{
		{sandbox.Landlock, []sandbox.Layer{sandbox.Seccomp, sandbox.Namespaces}, files},
		{sandbox.Seccomp, []sandbox.Layer{sandbox.Landlock, sandbox.Namespaces}, append(files, "udp "+address, "unix", "bomb", "code", "owner")},
		{sandbox.Namespaces, []sandbox.Layer{sandbox.Landlock, sandbox.Seccomp}, namespaced},
	} {
		t.Run(string(c.alone), func(t *testing.T) {
			t.Parallel()
			alone, bare := without(t, sandbox.Auto, c.others...), without(t, sandbox.Off)
			for _, what := range c.orders {
				said, err := order(t, bare, what)
				require.NoError(t, err, what)
				require.True(t, strings.HasPrefix(said, "done: "), "%s without any layer: %s", what, said)
				said, err = order(t, alone, what)
				require.NoError(t, err, what)
				require.True(t, strings.HasPrefix(said, "refused: "), "%s with %s: %s", what, c.alone, said)
			}
			require.Equal(t, 1, alone.Stats().Started)
			s := alone.Stats()
			require.Equal(t, map[sandbox.Layer]bool{sandbox.Landlock: s.Landlock, sandbox.Seccomp: s.Seccomp, sandbox.Namespaces: s.Namespaces},
				map[sandbox.Layer]bool{sandbox.Landlock: c.alone == sandbox.Landlock, sandbox.Seccomp: c.alone == sandbox.Seccomp, sandbox.Namespaces: c.alone == sandbox.Namespaces})
		})
	}
}

// TestConfinementIsInForce looks at a living child from outside.
func TestConfinementIsInForce(t *testing.T) {
	t.Parallel()
	p := without(t, sandbox.Require)
	readText1(t, p)
	proc := "/proc/" + strconv.Itoa(p.idle[0].cmd.Process.Pid)
	spaces := []string{"user", "net", "ipc", "uts", "mnt"}
	if ownProcesses != 0 {
		spaces = append(spaces, "pid")
	}
	for _, space := range spaces {
		theirs, err := os.Readlink(proc + "/ns/" + space)
		require.NoError(t, err)
		ours, err := os.Readlink("/proc/self/ns/" + space)
		require.NoError(t, err)
		require.NotEqual(t, ours, theirs)
	}
	status := procTable(t, proc+"/status", ":")
	for field, want := range map[string]string{
		"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		require.Equal(t, want, status[field], field)
	}
	limits := procTable(t, proc+"/limits", "  ")
	for name, want := range map[string]string{"Max core file size": "0", "Max file size": "0", "Max open files": "64", "Max cpu time": "14400"} {
		require.Equal(t, []string{want, want}, strings.Fields(limits[name])[:2], name)
	}
	environ, err := os.ReadFile(proc + "/environ")
	require.NoError(t, err)
	require.Empty(t, environ)
	require.NoError(t, testutil.CollectAndCompare(p.Collector(), strings.NewReader(`
# HELP ingest_extract_sandbox_layer 1 while children that read documents are confined by the layer, 0 while not or before the first child.
# TYPE ingest_extract_sandbox_layer gauge
ingest_extract_sandbox_layer{layer="landlock"} 1
ingest_extract_sandbox_layer{layer="namespaces"} 1
ingest_extract_sandbox_layer{layer="seccomp"} 1
`), "ingest_extract_sandbox_layer"))
}

func TestChildIsResidentAndRecycled(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel, c.ChildFiles = 1, 3 })
	require.Zero(t, p.Stats().Live, "started when needed")
	for range 6 {
		readText1(t, p)
	}
	require.Equal(t, 2, p.Stats().Started)
	readText1(t, p)
	require.Equal(t, 3, p.Stats().Started)
	require.Equal(t, 1, p.Stats().Live)
}

func TestVeryManyUnreadPagesFitTheAnswer(t *testing.T) {
	t.Parallel()
	const pages = 24_000 / sandbox.MemoryFactor // half of their numbers would not fit
	pdf := extracttest.SimplePDF("", "BT /F1 9 Tf 9 50 Td (x) Tj ET")
	pdf = bytes.Replace(pdf, []byte("/Kids[3 0 R]/Count 1"), []byte("/Kids["+strings.Repeat("3 0 R 8 0 R ", pages/2)+"]/Count "+strconv.Itoa(pages)), 1)
	p := newPool(t, func(c *Config) { c.MaxPages, c.TimeoutSmall = pages, 10*time.Minute })
	ex, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "gaps.pdf", pdf))
	require.NoError(t, err)
	require.Equal(t, pages, ex.Pages)
	require.Len(t, ex.Unread, min(pages/2, ingest.MaxUnread))
}
