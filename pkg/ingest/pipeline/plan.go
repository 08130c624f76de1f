package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const planPage = 1000 // rows of the visible version read at once

// planned is one segment of a plan.
type planned struct {
	vector string // vector id
	birth  string // the version that wrote it, or will
}

// plan says which vector every segment has: one of the visible version with the same text, or a new one of this version.
type plan struct {
	items   []planned // one per segment
	visible string    // the visible version that it re-uses from; empty: none
	reused  int
	stored  []bool // by index: an earlier attempt has written this vector
}

// makePlan gives every segment of the spool its vector.
func (r planning) makePlan(ctx context.Context) error {
	visible, err := r.visibleVersion(ctx)
	if err != nil {
		return err
	}
	free, err := r.visibleVectors(ctx, visible)
	if err != nil {
		return err
	}
	p := plan{items: make([]planned, len(r.spool.items)), visible: visible}
	born := map[embedcache.TextHash]int{}
	for i, s := range r.spool.items {
		if same := free[s.hash]; len(same) > 0 {
			p.items[i] = same[0]
			free[s.hash] = same[1:]
			p.reused++
			continue
		}
		p.items[i] = planned{vector: vectorID(r.work.version, s.hash, born[s.hash]), birth: r.work.version}
		born[s.hash]++
	}
	r.plan = p
	return nil
}

// visibleVersion is the document's visible version now, whose vectors lie where the base's are searched.
// A first version has none beside it: once a later upload is visible the first one is not wanted any more.
func (r planning) visibleVersion(ctx context.Context) (string, error) {
	if r.work.no == 1 {
		return "", nil
	}
	var id string
	err := r.w.d.Store.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		return db.QueryRowContext(ctx, r.w.q.Get("DocumentVisible"), r.work.document).Scan(&id)
	})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read the visible version: %w", err)
	}
	return strings.TrimSpace(id), nil
}

// visibleVectors reads the vectors of a version by the hash of their text, in the order of its segments.
func (r planning) visibleVectors(ctx context.Context, version string) (map[embedcache.TextHash][]planned, error) {
	out := map[embedcache.TextHash][]planned{}
	if version == "" {
		return out, nil
	}
	type seen struct { // a segment of the visible version
		planned
		index int
		text  embedcache.TextHash
	}
	for after, more := -1, true; more; {
		args := []any{version, after, planPage}
		scan := func(rows *sql.Rows) (s seen, err error) {
			err = rows.Scan(&s.index, &s.text, &s.vector, &s.birth)
			return s, err
		}
		page, err := sqldb.ReadAll(ctx, r.w.d.Store, "read the visible version's vectors", r.w.q.Get("VisibleVectors"), args, scan)
		if err != nil {
			return nil, err
		}
		for _, v := range page {
			out[v.text] = append(out[v.text], v.planned)
			after = v.index
		}
		more = len(page) == planPage
	}
	return out, nil
}
