package split

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var loadCounter = sync.OnceValue(newTokenCounter)

// requireSameCount compares with the library's own count of the whole text.
func requireSameCount(t require.TestingT, text string) {
	counter := loadCounter()
	want, err := counter.codec.Count(text)
	require.NoError(t, err)
	require.Equal(t, want, counter.count(text), "%q", text)
}

func TestTokenCountIsTheVocabularys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "  ", "a", "It's we'LL they've I'd 'tis", "持久化异步入库任务。他说：“好”", "1234567 12 1", "x  y   z", "a\n\nb \n c\r\n\r\nd", "\t\tif x {\n\t\t\treturn\n}\n",
		"...!!! ?? —", " (a) [b]", "é ñ 𠮷 👩‍👩‍👧", "e\u0301x", "http://x.y/z?a=b&c=d", "end ", "end\n", "a \u00a0 b", "'", "'s", "x's'", "½ ⅓ ²",
		strings.Repeat("The reclaimer's lease. ", 50),
	} {
		requireSameCount(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		requireSameCount(t, rapid.StringOfN(rapid.SampledFrom([]rune("aB'sTré中。 \n\r\t1½-.(\u0301👩\u00a0")), 0, 60, -1).Draw(t, "text"))
	})
}

func TestLongRunsAreCountedQuickly(t *testing.T) {
	t.Parallel()
	counter := loadCounter()
	for _, text := range []string{strings.Repeat("中", 20_000), strings.Repeat("a", 60_000), strings.Repeat("!", 60_000), strings.Repeat(" ", 60_000)} {
		n := counter.count(text)
		require.Positive(t, n)
		require.LessOrEqual(t, n, len(text))
	}
}

func BenchmarkCount(b *testing.B) {
	counter := loadCounter()
	text := strings.Repeat("A worker claims one durable task from its queue, and renews the lease while it makes progress. 持久化异步入库任务把文档切成段落。", 200)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		counter.count(text)
	}
}
