package sentence

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentencesOfManyWritings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"It costs 3.50 dollars. Really.":    {"It costs 3.50 dollars. ", "Really."},
		"Use e.g. this one. Then that.":     {"Use e.g. this one. ", "Then that."},
		"Mr. A. B. Smith came. So did I.":   {"Mr. A. B. Smith came. ", "So did I."},
		"He said \"Stop.\" Then he left.":   {"He said \"Stop.\" ", "Then he left."},
		"What?! No. Yes!":                   {"What?! ", "No. Yes!"},
		"这是（第一句。）这是第二句。":                    {"这是（第一句。）", "这是第二句。"},
		"「はい。」と言った。終わり。":                    {"「はい。」", "と言った。", "終わり。"},
		"one line\nand its rest. Two.":      {"one line\nand its rest. ", "Two."},
		"a paragraph\n\nand another":        {"a paragraph\n", "\n", "and another"},
		"See www.example.org. It is there.": {"See www.example.org. ", "It is there."},
		"Это предложение. Это другое.":      {"Это предложение. ", "Это другое."},
		"هذه جملة. وهذه أخرى؟ نعم.":         {"هذه جملة. ", "وهذه أخرى؟ ", "نعم."},
		" \n ": {" \n "},
	} {
		got := Cut(text)
		require.Equal(t, text, strings.Join(got, ""), "nothing is lost")
		require.Equal(t, want, got, "%q", text)
	}
}
