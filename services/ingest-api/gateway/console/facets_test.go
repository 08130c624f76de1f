package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/tasks/filter"
)

// A word is put into an expression, in place of another of its name, and taken out again; the others stay as they stand.
func TestAFacetIsAWordOfTheExpression(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, name, value, want string }{
		{"", "kb", "legal", "kb:legal"},
		{"kb:legal", "kb", "legal", ""},
		{`error~"a  b" kb:old stage:embed`, "kb", `a "b" \c`, `error~"a  b" stage:embed kb:"a \"b\" \\c"`},
		{`kb:"a \"b\" \\c" age>1h`, "kb", `a "b" \c`, "age>1h"},
		{`"kb:legal" x`, "kb", "legal", `"kb:legal" x kb:legal`},
		{"stage:EMBED", "stage", "embed", ""},
		{`error~"open`, "kb", "x", `error~"open kb:x`},
	} {
		got, _ := expression(c.text).toggled(c.name, c.value)
		require.Equal(t, c.want, got.String(), c.text)
	}
}

// What a facet writes, the parser of the API reads as that value.
func FuzzFacet(f *testing.F) {
	for _, value := range []string{"legal", `a "b"`, `\`, "川 獺", `"`, "a\tb", ":x", `\"`} {
		f.Add("age>1h", value)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		now := time.Unix(1e9, 0)
		before, err := filter.Parse(text, now)
		if err != nil || before.Base != "" {
			return // no expression, or one with a base
		}
		if _, err := filter.Parse("kb:"+asValue(value), now); err != nil {
			return // no value
		}
		ws, _ := expression(text).toggled("kb", value)
		after, err := filter.Parse(ws.String(), now)
		require.NoError(t, err, ws.String())
		want, err := filter.Parse("kb:"+asValue(value), now)
		require.NoError(t, err)
		require.Equal(t, want.Base, after.Base)
		after.Base, after.Text = before.Base, before.Text
		require.Equal(t, before, after)
		back, has := ws.toggled("kb", value)
		require.True(t, has)
		again, err := filter.Parse(back.String(), now)
		require.NoError(t, err)
		again.Text = before.Text
		require.Equal(t, before, again)
	})
}
