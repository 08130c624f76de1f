package sqldb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummariesNameVerbAndTable(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][2]string{
		"SELECT a, b FROM ingest_task WHERE id = ?": {"SELECT", "ingest_task"},
		"select now(6)": {"SELECT", ""},
		"INSERT INTO ingest_task_transition (a) SELECT b FROM c": {"INSERT", "ingest_task_transition"},
		"UPDATE ingest_task SET status = 'DEAD'":                 {"UPDATE", "ingest_task"},
		"DELETE FROM outbox_event\nWHERE seq IN (?, ?)":          {"DELETE", "outbox_event"},
		"WITH d AS (SELECT id FROM ingest_task) SELECT * FROM d": {"WITH", "ingest_task"},
		"BEGIN IMMEDIATE": {"BEGIN", ""},
		"COMMIT":          {"COMMIT", ""},
		"":                {"", ""},
		"UPDATE":          {"UPDATE", ""},
		"SELECT x FROM (SELECT 1 FROM knowledge_segment) AS t WHERE ?": {"SELECT", "knowledge_segment"},
		"SELECT 'secret', 'FROM' FROM knowledge_base":                  {"SELECT", "knowledge_base"},
	} {
		verb, table := summary(query)
		require.Equal(t, want, [2]string{verb, table}, query)
	}
}
