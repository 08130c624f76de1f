package taskstore

import (
	"embed"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// loadQueries reads the statements of a dialect and fills in what they share.
func loadQueries(d sqldb.Dialect) sqldb.Queries {
	q := sqldb.MustLoad(queryFiles, "queries", string(d))
	primary, sweep, listed := "", "", ""
	if d == sqldb.MySQL {
		primary, sweep, listed = "FORCE INDEX (PRIMARY)", "FORCE INDEX (ingest_task_sweep)", "FORCE INDEX (ingest_task_listed)"
	}
	shared := strings.NewReplacer(
		"@columns", q.Get("Columns"), "@transitions", q.Get("TransitionColumns"),
		"@primary", primary, "@sweep", sweep, "@listed", listed,
	)
	for name, text := range q {
		q[name] = shared.Replace(text)
	}
	return q
}

// fill puts one of the optional parts into a statement.
func fill(query, mark, part string) string { return strings.Replace(query, mark, part, 1) }

// padded is ids with the last one repeated up to a power of two, so that few different texts
// reach the server's and the driver's caches of statements.
func padded(ids []string) []string {
	n := 1
	for n < len(ids) {
		n *= 2
	}
	out := make([]string, n)
	copy(out, ids)
	for i := len(ids); i < n; i++ {
		out[i] = ids[len(ids)-1]
	}
	return out
}

// anys turns texts into arguments.
func anys(texts []string, more ...any) []any {
	out := make([]any, 0, len(texts)+len(more))
	for _, t := range texts {
		out = append(out, t)
	}
	return append(out, more...)
}
