package plaintext

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestText(t *testing.T) {
	t.Parallel()
	extracttest.RequireLines(t, Read, document.TypeText, []byte("one\r\ntwo\r\n\r\n\x00three\x07\n"), "p one\ntwo", "p three")
	extracttest.RequireLines(t, Read, document.TypeJSON, []byte(`{"a":"\u6b7b\u4fe1 \ud842\udfb7 \\u0041 \u0000"}`), `p {"a":"死信 𠮷 \\u0041 \u0000"}`)
	_, blocks, err := extracttest.ReadBytes(Read, bytes.Repeat([]byte("a log line without an end of paragraph\n"), 10_000), document.TypeText)
	require.NoError(t, err)
	for _, b := range blocks {
		require.LessOrEqual(t, len(b.Text), 4<<10)
		require.True(t, strings.HasPrefix(b.Text, "a log") && strings.HasSuffix(b.Text, "paragraph"), "cut at line ends")
	}
	_, _, err = extracttest.ReadBytes(Read, []byte("\x81\x20\x81\x20\xff\xff\x81"), document.TypeText)
	extracttest.RequirePermanent(t, err, ingest.CodeEncoding)
	_, _, err = extracttest.ReadBytes(Read, bytes.Repeat([]byte("too long "), 1<<20), document.TypeText)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

func TestLateInvalidUTF8DoesNotChangeTheCharset(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("持久化异步入库任务。", 20_000) + "\xff end"
	ex, blocks, err := extracttest.ReadBytes(Read, []byte(text), document.TypeText)
	require.NoError(t, err)
	require.Contains(t, extracttest.Joined(blocks), "持久化")
	require.Contains(t, extracttest.Joined(blocks), "end")
	require.Equal(t, "utf-8", ex.Charset)
}

func FuzzText(f *testing.F) { extracttest.FuzzReader(f, Read, document.TypeText, ".txt", ".csv") }

func TestParagraphs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"blank lines end them":    {"a\nb\n\n \t\nc", []string{"p a\nb", "p c"}},
		"no end of the last line": {"a", []string{"p a"}},
		"only ends":               {"\n\n\n", nil},
		"old line ends":           {"a\rb", []string{"p a\nb"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeText, []byte(c.text), c.want...)
		})
	}
}

func TestEscapesOfJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"\u4e2d\u6587"`: `p "中文"`, `"\ud83d\ude00"`: `p "😀"`, `"\ud83d"`: "p \"\uFFFD\"", `"\u0022"`: `p "\u0022"`, `"\u005c"`: `p "\u005c"`,
		`"\\u4e2d"`: `p "\\u4e2d"`, `"\u4e"`: `p "\u4e"`, `"a\nb"`: `p "a\nb"`,
	} {
		extracttest.RequireLines(t, Read, document.TypeJSON, []byte(in), want)
	}
	extracttest.RequireLines(t, Read, document.TypeText, []byte(`\u4e2d`), `p \u4e2d`)
}

func TestALineWithoutEnd(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("词", 100_000)
	_, blocks, err := extracttest.ReadBytes(Read, []byte(text), document.TypeText)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 3)
	joined := strings.ReplaceAll(extracttest.Joined(blocks), "\n\n", "")
	require.NotContains(t, joined, "\uFFFD", "no character is cut in two")
	require.True(t, text == joined, "%d of %d bytes", len(joined), len(text))
}
