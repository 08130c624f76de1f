package subtitles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/subtitles"
)

func TestWhatIsShownIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ data, want string }{
		"SRT":              {"1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>One</i> line\r\nand two.\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n{\\an8}Three.\r\n", "p [00:00:01] One line and two. Three."},
		"WebVTT":           {"WEBVTT - title\n\nSTYLE\n::cue { color: red }\n\nNOTE a comment\n\nname\n01:02.000 --> 01:03.000 align:start\n<v Ann>Hello.\n\n01:04.000 --> 01:05.000\nHello.\nAgain.", "p [00:01:02] Hello. Again."},
		"Chinese":          {"1\n00:10:01,000 --> 00:10:02,000\n持久化\n异步\n", "p [00:10:01] 持久化异步"},
		"a number is said": {"1\n00:00:01,000 --> 00:00:02,000\nIn\n2026\n", "p [00:00:01] In 2026"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, subtitles.Read, document.TypeSubtitles, []byte(c.data), c.want)
		})
	}
}

func TestPassagesEndWithSentences(t *testing.T) {
	t.Parallel()
	var data strings.Builder
	for i := range 200 {
		fmt.Fprintf(&data, "%d\n00:%02d:%02d,000 --> 00:%02d:%02d,900\nThis is line %d of what\nsomebody says.\n\n", i+1, i/60, i%60, i/60, i%60, i)
	}
	_, blocks, err := extracttest.ReadBytes(subtitles.Read, []byte(data.String()), document.TypeSubtitles)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 5)
	for i, b := range blocks {
		require.True(t, strings.HasPrefix(b.Text, "[00:0") && strings.HasSuffix(b.Text, "says."), "%q", b.Text)
		require.Less(t, len(b.Text), 800)
		require.Contains(t, blocks[i].Text, "This is line")
	}
}

func FuzzSubtitles(f *testing.F) {
	f.Add([]byte("1\n00:00:01,000 --> 00:00:02,000\na\n"))
	extracttest.FuzzReader(f, subtitles.Read, document.TypeSubtitles, ".srt")
}
