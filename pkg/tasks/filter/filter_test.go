package filter_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func TestExpressions(t *testing.T) {
	for text, want := range map[string]filter.Filter{
		"":                     {},
		"status:DEAD kb:legal": {Base: "legal", Query: taskstate.Query{Statuses: []taskstate.Status{"DEAD"}}},
		"status:dead,RETRYING": {Query: taskstate.Query{Statuses: []taskstate.Status{"DEAD", "RETRYING"}}},
		`error~"connection \"refused\"" stage:embed`: {Query: taskstate.Query{Error: `connection "refused"`, Stage: "embed"}},
		"age>1h age<2d":             {Query: taskstate.Query{CreatedBefore: now.Add(-time.Hour), CreatedAfter: now.Add(-48 * time.Hour)}},
		"idle>90m":                  {Query: taskstate.Query{UpdatedBefore: now.Add(-90 * time.Minute)}},
		"attempt>=3":                {Query: taskstate.Query{AttemptsFrom: 3}},
		"attempt>2 attempt<=5":      {Query: taskstate.Query{AttemptsFrom: 3, AttemptsBelow: 6}},
		"attempt:0":                 {Query: taskstate.Query{AttemptsBelow: 1}},
		`doc~"2024" code:encrypted`: {Query: taskstate.Query{FileName: "2024", Code: "ENCRYPTED"}},
		"group:00000000deadBEEF":    {Query: taskstate.Query{FailureGroup: "00000000deadbeef"}},
		"type:document workflow:ingest.url user:ann": {Query: taskstate.Query{Type: "document", Workflow: "ingest.url", UserID: "ann"}},
		"refused":                 {Query: taskstate.Query{Text: "refused"}},
		`"two words" status:DEAD`: {Query: taskstate.Query{Text: "two words", Statuses: []taskstate.Status{"DEAD"}}},
		`kb:"Ärzte & Co"`:         {Base: "Ärzte & Co"},
		"http://x":                {Query: taskstate.Query{Text: "http://x"}},
	} {
		got, err := filter.Parse(text, now)
		if text == "http://x" { // what looks like a name and is none is told
			require.ErrorContains(t, err, `unknown name "http"`)
			continue
		}
		require.NoError(t, err, text)
		want.Text = text
		require.Equal(t, want, got, text)
	}
}

func TestExpressionsThatAreWrongAreToldWhere(t *testing.T) {
	for text, want := range map[string]string{
		"status:GONE":             `at character 1: status "GONE" is none of`,
		"kb:a colour:red":         `at character 6: unknown name "colour"; known are status: kb: stage: error~`,
		`kb:"a`:                   "at character 4: a quotation mark that is not closed",
		`kb:"a"b`:                 "at character 7: a blank is missing",
		`kb:a"b"`:                 "at character 5: a quotation mark inside of a word",
		"kb:":                     "at character 1: kb: has no value",
		`error~"  "`:              "error~ has no value",
		"error:x":                 "error takes ~, not :",
		"age>1y":                  "age>\"1y\": an age is a whole number and s, m, h, d or w",
		"age>-1h":                 "an age is",
		"age>4294967295w":         "an age is",
		"age:1h":                  "age takes > or <, not :",
		"attempt>=x":              "a number of attempts is 0 to 1000000",
		"attempt<0":               "fits no task",
		"status:DEAD status:X":    "status is said twice",
		"a b":                     "at character 3: two texts to look for",
		"x id:y":                  "use one of them",
		"group:12":                "16 hexadecimal digits",
		"code:é":                  "an error code",
		"a\x00b":                  "at character 2: a control character",
		"a\xffb":                  "at character 2: a control character, or bytes that are not UTF-8",
		strings.Repeat("a", 201):  "a value has 201 characters, allowed are 200",
		strings.Repeat("a ", 600): "the expression has 1200 characters, allowed are 1000",
		"attempt>3 attempt>=4":    "attempt is said twice",
	} {
		_, err := filter.Parse(text, now)
		require.ErrorContains(t, err, want, text)
		require.ErrorAs(t, err, new(*filter.Error), text)
	}
}

func TestAQuotedValueIsRead(t *testing.T) {
	for _, value := range []string{"a", `"`, `\`, `\"`, "two words", "status:DEAD", "ü>1"} {
		got, err := filter.Parse("kb:"+filter.Quote(value), now)
		require.NoError(t, err, value)
		require.Equal(t, value, got.Base)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", `status:DEAD kb:legal error~"refused" stage:embed age>1h attempt>=3 doc~"2024"`, `a"b`, "age>", "\\", `"\`, "age>1", "kb:\u202e", "é~x", ">=", "status:,",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := filter.Parse(text, now)
		if err != nil {
			require.ErrorAs(t, err, new(*filter.Error))
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		again, err := filter.Parse(got.Text, now) // what is stored is read as the same
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
