package tables

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// listPage is a page of the store's own listing.
const listPage = 1000

// Pictures is what can be seen of all tasks and documents at one moment: name of the thing → how it looks.
type Pictures map[string]string

// pictured are the statements of a picture: two columns, name and look. Leases and hidden marks are not in it.
var pictured = []string{
	`SELECT CONCAT('task ', id), CONCAT(status, ' ', attempt_count, ' ', crash_count, ' ', fence, ' ', progress, ' ', updated_at,
		' ', COALESCE(last_error, ''), ' ', processed_segments) FROM ingest_task`,
	`SELECT CONCAT('transition ', task_id, ' ', id), CONCAT(to_status, ' ', fence, ' ', actor) FROM ingest_task_transition`,
	`SELECT CONCAT('document ', id), CONCAT(status, ' ', COALESCE(visible_version_id, ''), ' ', segment_count) FROM knowledge_document`,
	`SELECT CONCAT('version ', id), CONCAT(state, ' ', segment_count) FROM document_version`,
	`SELECT CONCAT('segment ', id), CONCAT(version_id, ' ', segment_index, ' ', vector_id, ' ', text_hash) FROM knowledge_segment`,
}

// Picture takes one. Each transition, document and segment is in it, and each vector that the store holds.
func Picture(ctx context.Context, tx taskstate.Tx, vectors ingest.VectorStore) (Pictures, error) {
	out := Pictures{}
	for _, statement := range pictured {
		rows, err := Query(ctx, tx, func(r *sql.Rows) (p [2]string, err error) { err = r.Scan(&p[0], &p[1]); return p, err }, statement)
		if err != nil {
			return nil, fmt.Errorf("picture: %w", err)
		}
		for _, r := range rows {
			out[r[0]] = r[1]
		}
	}
	bases, err := Texts(ctx, tx, `SELECT id FROM knowledge_base`)
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		for offset := 0; ; offset += listPage {
			page, err := vectors.List(ctx, base, offset, listPage)
			if err != nil {
				return nil, fmt.Errorf("picture: list base %s: %w", base, err)
			}
			for _, id := range page {
				out["vector "+id] = "there"
			}
			if len(page) < listPage {
				break
			}
		}
	}
	return out, nil
}

// Lost names the first thing of p that is gone or looks otherwise in later; "" when all is as it was.
func (p Pictures) Lost(later Pictures) string {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		now, there := later[name]
		if !there {
			return name + " is gone: " + p[name]
		}
		if now != p[name] {
			return fmt.Sprintf("%s was %q and is %q", name, p[name], now)
		}
	}
	return ""
}
