package pipeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestSpoolGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	s := &spool{}
	defer s.close()
	want := []ingest.Segment{
		{Index: 0, Text: "plain"},
		{Index: 1, Text: "死信队列\n\"quoted\" \x01 " + strings.Repeat("long ", 50_000), Page: 7, PageBreaks: [][2]int{{5, 8}}, HeadingPath: []string{"one", "", "三"}, ByteStart: 1 << 40, ByteEnd: 1<<40 + 9, Tokens: 300},
		{Index: 2, Text: "", Page: -1, HeadingPath: []string{""}, ByteStart: -5},
	}
	for i, seg := range want {
		require.Equal(t, i < 2, s.f == nil, "what fits into memory needs no file")
		require.NoError(t, s.add(seg))
	}
	require.Less(t, s.items[1].offset, s.filed, "what does not fit into memory is in the file")
	require.GreaterOrEqual(t, s.items[2].offset, s.filed, "the last records are in memory")
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
