package ingest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
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
func (r *run) makePlan(ctx context.Context) error {
	if err := r.spool.flush(); err != nil {
		return err
	}
	visible, err := r.visibleVersion(ctx)
	if err != nil {
		return err
	}
	free, err := r.visibleVectors(ctx, visible)
	if err != nil {
		return err
	}
	p := plan{items: make([]planned, len(r.spool.items)), visible: visible}
	born := map[textHash]int{}
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

// visibleVersion is the document's visible version now, if its vectors were made with the model of this run.
func (r *run) visibleVersion(ctx context.Context) (string, error) {
	var id string
	err := r.a.d.Store.Reader().QueryRowContext(ctx, r.a.q.Get("DocumentVisible"), r.work.document).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the visible version: %w", err)
	}
	if id = strings.TrimSpace(id); id == "" {
		return "", nil
	}
	var model string
	if err := r.a.d.Store.Reader().QueryRowContext(ctx, r.a.q.Get("VersionModel"), id).Scan(&model); err != nil {
		return "", fmt.Errorf("read the visible version's model: %w", err)
	}
	if model != r.a.d.Embedder.Model().Key {
		return "", nil
	}
	return id, nil
}

// visibleVectors reads the vectors of a version by the hash of their text, in the order of its segments.
func (r *run) visibleVectors(ctx context.Context, version string) (map[textHash][]planned, error) {
	out := map[textHash][]planned{}
	if version == "" {
		return out, nil
	}
	for after, more := -1, true; more; {
		n, last, err := r.visiblePage(ctx, version, after, out)
		if err != nil {
			return nil, fmt.Errorf("read the visible version's vectors: %w", err)
		}
		after, more = last, n == planPage
	}
	return out, nil
}

// visiblePage reads one page of a version's vectors after an index into out.
func (r *run) visiblePage(ctx context.Context, version string, after int, out map[textHash][]planned) (n, last int, err error) {
	rows, err := r.a.d.Store.Reader().QueryContext(ctx, r.a.q.Get("VisibleVectors"), version, after, planPage)
	if err != nil {
		return 0, after, err
	}
	defer func() { _ = rows.Close() }()
	last = after
	for rows.Next() {
		var text string
		var v planned
		if err := rows.Scan(&last, &text, &v.vector, &v.birth); err != nil {
			return n, last, err
		}
		h, err := parseHash(text)
		if err != nil {
			return n, last, err
		}
		out[h] = append(out[h], v)
		n++
	}
	return n, last, rows.Err()
}
