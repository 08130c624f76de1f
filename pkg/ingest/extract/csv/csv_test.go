package csv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/csv"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestRecordsAreRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"commas":                 {"a,b\n1,2\n3,4", []string{"t a | b\n1 | 2\n3 | 4"}},
		"semicolons":             {"a;b\r\n1,5;2\r\n", []string{"t a | b\n1,5 | 2"}},
		"tabs":                   {"a\tb\n1\t2, and\n", []string{"t a | b\n1 | 2, and"}},
		"a line end in a field":  {"a,b\n\"one\ntwo\",\"say \"\"x\"\", y\"\n", []string{"t a | b\none two | say \"x\", y"}},
		"rows of other lengths":  {"a,b\n1\n1,2,3\n\n", []string{"t a | b\n1\n1 | 2 | 3"}},
		"a quote that never end": {"a,b\n\"1,2\n3,4\n", []string{"t a | b\n1 | 2\n3 | 4"}},
		"a quote inside a field": {"a,b\n3\" pipe,x\"\n", []string{"t a | b\n3\" pipe | x\""}},
		"one column":             {"a\nb\n", []string{"p a", "p b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, csv.Read, document.TypeCSV, []byte(c.data), c.want...)
		})
	}
}

func TestLongTablesAreCutBetweenRows(t *testing.T) {
	t.Parallel()
	data := "name,\"the value\"\n"
	for i := range 5000 {
		data += fmt.Sprintf("row %d,\"line one\nline two\"\n", i)
	}
	_, blocks, err := extracttest.ReadBytes(csv.Read, []byte(data), document.TypeCSV)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 3)
	for _, b := range blocks {
		lines := strings.Split(b.Text, "\n")
		require.Equal(t, "name | the value", lines[0])
		for _, l := range lines[1:] {
			require.True(t, strings.HasPrefix(l, "row ") && strings.HasSuffix(l, " | line one line two"), "%q", l)
		}
	}
	require.Contains(t, extracttest.Joined(blocks), "row 4999 |")
}

func TestAQuoteThatHoldsTheFileIsACharacter(t *testing.T) {
	t.Parallel()
	data := "a,b\n\"" + strings.Repeat("one,two\n", 200_000)
	_, blocks, err := extracttest.ReadBytes(csv.Read, []byte(data), document.TypeCSV)
	require.NoError(t, err)
	require.Equal(t, 200_000, strings.Count(extracttest.Joined(blocks), "one | two"))
}

func FuzzCSV(f *testing.F) { extracttest.FuzzReader(f, csv.Read, document.TypeCSV, ".csv") }
