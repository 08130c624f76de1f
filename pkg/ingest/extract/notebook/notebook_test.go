package notebook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/notebook"
)

func TestCells(t *testing.T) {
	t.Parallel()
	extracttest.RequireLines(t, notebook.Read, document.TypeIPYNB, []byte(`{"nbformat":4,"cells":[
		{"cell_type":"markdown","source":["# Title\n","\n","Some *text*."]},
		{"cell_type":"code","source":"x = 1\nprint(x)","outputs":[{"output_type":"stream","text":["1\n"]},{"data":{"text/plain":"'y'","image/png":"AAAA"}}]},
		{"cell_type":"raw","source":"as it is"},{"cell_type":"markdown","source":[]},{"cell_type":"code","source":7}]}`),
		"# Title", "p Some text.", "c x = 1\nprint(x)", "c 1", "c 'y'", "p as it is")
	extracttest.RequireLines(t, notebook.Read, document.TypeIPYNB, []byte(`{"worksheets":[{"cells":[{"cell_type":"heading","level":2,"source":"Old"},{"cell_type":"code","input":"a()"}]}]}`),
		"## Old", "c a()")
}

func TestLongOutputsAreCut(t *testing.T) {
	t.Parallel()
	_, blocks, err := extracttest.ReadBytes(notebook.Read, []byte(`{"cells":[{"cell_type":"code","source":"a","outputs":[{"text":"`+strings.Repeat("日志", 20_000)+`"}]}]}`), document.TypeIPYNB)
	require.NoError(t, err)
	require.Len(t, blocks, 2)
	require.Less(t, len(blocks[1].Text), 9<<10)
	require.True(t, strings.HasSuffix(blocks[1].Text, " …"))
}

func TestNotebooksThatAreDamaged(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`{"cells":[`, `[]`, `{"cells":{"a":1}}`} {
		_, _, err := extracttest.ReadBytes(notebook.Read, []byte(data), document.TypeIPYNB)
		extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	}
}

func FuzzNotebook(f *testing.F) {
	f.Add([]byte(`{"cells":[{"cell_type":"markdown","source":["# a"]},{"cell_type":"code","source":"b","outputs":[{"text":"c"}]}]}`))
	extracttest.FuzzReader(f, notebook.Read, document.TypeIPYNB, ".ipynb")
}
