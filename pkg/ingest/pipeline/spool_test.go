package pipeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestSpoolGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	s, err := newSpool()
	require.NoError(t, err)
	defer s.close()
	want := []ingest.Segment{
		{Index: 0, Text: "plain"},
		{Index: 1, Text: "死信队列\n\"quoted\" \x01 " + strings.Repeat("long ", 50_000), Page: 7, PageBreaks: [][2]int{{5, 8}}, HeadingPath: []string{"one", "", "三"}, ByteStart: 1 << 40, ByteEnd: 1<<40 + 9, Tokens: 300},
		{Index: 2, Text: "", Page: -1, HeadingPath: []string{""}, ByteStart: -5},
	}
	for _, seg := range want {
		require.NoError(t, s.add(seg))
	}
	require.NoError(t, s.flush())
	for i, seg := range want {
		got, err := s.get(i)
		require.NoError(t, err)
		require.Equal(t, seg, got)
		text, err := s.text(i)
		require.NoError(t, err)
		require.Equal(t, seg.Text, text)
	}
	require.ErrorContains(t, s.add(ingest.Segment{Index: 5}), "segment 5 came where 3 was due")
}
