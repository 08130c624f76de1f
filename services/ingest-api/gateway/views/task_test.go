package views_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
)

func TestATaskSaysWhatItsTextIsWithout(t *testing.T) {
	t.Parallel()
	result := json.RawMessage(`{"version":1,"warnings":["the hidden sheet \"a\" was not read"]}`)
	require.Equal(t, []string{`the hidden sheet "a" was not read`}, views.Task(taskstate.Task{Type: ingest.TypeDocument, Result: result}).Warnings)
	require.Nil(t, views.Task(taskstate.Task{Type: "workflow.execute", Result: result}).Warnings, "a workflow's result is its handler's")
	for _, other := range []string{"", "null", `{"version":1}`, `{"warnings":7}`} {
		require.Nil(t, views.Task(taskstate.Task{Type: ingest.TypeDocument, Result: json.RawMessage(other)}).Warnings, other)
	}
}
