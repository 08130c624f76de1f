package extract

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestText(t *testing.T) {
	t.Parallel()
	requireLines(t, readText, typeText, []byte("one\r\ntwo\r\n\r\n\x00three\x07\n"), "p one\ntwo", "p three")
	requireLines(t, readText, typeJSON, []byte(`{"a":"\u6b7b\u4fe1 \ud842\udfb7 \\u0041 \u0000"}`), `p {"a":"死信 𠮷 \\u0041 \u0000"}`)
	_, blocks, err := readBytes(readText, bytes.Repeat([]byte("a log line without an end of paragraph\n"), 10_000), typeText)
	require.NoError(t, err)
	for _, b := range blocks {
		require.LessOrEqual(t, len(b.Text), 4<<10)
		require.True(t, strings.HasPrefix(b.Text, "a log") && strings.HasSuffix(b.Text, "paragraph"), "cut at line ends")
	}
	_, _, err = readBytes(readText, []byte("\x81\x20\x81\x20\xff\xff\x81"), typeText)
	requirePermanent(t, err, ingest.CodeEncoding)
	_, _, err = readBytes(readText, bytes.Repeat([]byte("too long "), 1<<20), typeText)
	requirePermanent(t, err, ingest.CodeLimitExceeded)
}

func TestLateInvalidUTF8DoesNotChangeTheCharset(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("持久化异步入库任务。", 20_000) + "\xff end"
	ex, blocks, err := readBytes(readText, []byte(text), typeText)
	require.NoError(t, err)
	require.Contains(t, joined(blocks), "持久化")
	require.Contains(t, joined(blocks), "end")
	require.Equal(t, "utf-8", ex.Charset)
}

func FuzzText(f *testing.F) { fuzzReader(f, readText, typeText, ".txt", ".csv") }
