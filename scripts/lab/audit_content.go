package lab

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// presentBatch is how many ids are asked for at once.
const presentBatch = 500

// listPage is a page of the store's own listing.
const listPage = 1000

// library is all content rows.
type library struct {
	docs      []documentRow
	byDoc     map[string][]versionRow
	byVersion map[string][]segmentRow
	garbage   []string
}

// readLibrary reads all content.
func readLibrary(ctx context.Context, tx taskstate.Tx) (library, error) {
	l := library{byDoc: map[string][]versionRow{}, byVersion: map[string][]segmentRow{}}
	var err error
	if l.docs, err = documents(ctx, tx); err != nil {
		return l, fmt.Errorf("documents: %w", err)
	}
	vs, err := versions(ctx, tx)
	if err != nil {
		return l, fmt.Errorf("versions: %w", err)
	}
	for _, v := range vs {
		l.byDoc[v.document] = append(l.byDoc[v.document], v)
	}
	ss, err := segments(ctx, tx)
	if err != nil {
		return l, fmt.Errorf("segments: %w", err)
	}
	for _, s := range ss {
		l.byVersion[s.version] = append(l.byVersion[s.version], s)
	}
	if l.garbage, err = garbage(ctx, tx); err != nil {
		return l, fmt.Errorf("vector_garbage: %w", err)
	}
	return l, nil
}

// content checks documents, versions, segments and vectors against each other.
func (a Audit) content(ctx context.Context, f *finding, rows []taskRow) error {
	l, err := readLibrary(ctx, a.DB)
	if err != nil {
		return err
	}
	succeeded, byDoc := map[string]bool{}, map[string]string{}
	for _, t := range rows {
		byDoc[t.document] = t.id
		if t.status == taskstate.StatusSucceeded {
			succeeded[t.document] = true
		}
	}
	want := map[string]map[string]string{} // base → vector id → task
	for _, d := range l.docs {
		if want[d.base] == nil {
			want[d.base] = map[string]string{}
		}
		if !d.deleted {
			l.document(f, d, byDoc[d.id], succeeded[d.id], want[d.base])
		}
	}
	for _, base := range sortedKeys(want) {
		if err := a.vectors(ctx, f, base, want[base]); err != nil {
			return err
		}
		if err := a.strays(ctx, f, base, l); err != nil {
			return err
		}
	}
	return nil
}

// document: a live document whose task succeeded has exactly one visible version, whole; another one has none.
func (l library) document(f *finding, d documentRow, task string, succeeded bool, want map[string]string) {
	visible := 0
	for _, v := range l.byDoc[d.id] {
		if v.state != "VISIBLE" {
			if v.state == "BUILDING" && succeeded && len(l.byDoc[d.id]) == 1 {
				f.add(task, "document %s: version %s is still BUILDING", d.id, v.id)
			}
			continue
		}
		visible++
		if d.visible != v.id {
			f.add(task, "document %s names visible version %q, version %s is VISIBLE", d.id, d.visible, v.id)
		}
		l.version(f, d, v, task, want)
	}
	wantVisible := 0
	if succeeded {
		wantVisible = 1
	}
	if visible != wantVisible {
		f.add(task, "document %s has %d visible versions, must be %d", d.id, visible, wantVisible)
	}
	if (d.status == "READY") != (visible == 1) {
		f.add(task, "document %s has status %s with %d visible versions", d.id, d.status, visible)
	}
}

// version: segments 0..n-1 without gaps, n as version and document say, each with a vector of its own.
func (l library) version(f *finding, d documentRow, v versionRow, task string, want map[string]string) {
	rows := l.byVersion[v.id]
	if len(rows) == 0 || len(rows) != v.segments || len(rows) != d.segments {
		f.add(task, "version %s has %d segments, its row says %d, its document %d", v.id, len(rows), v.segments, d.segments)
	}
	for i, s := range rows {
		if s.index != i {
			f.add(task, "version %s: segment %d stands at place %d", v.id, s.index, i)
		}
		if other, twice := want[s.vector]; twice {
			f.add(task, "version %s: vector %s is also one of task %s", v.id, s.vector, other)
		}
		want[s.vector] = task
	}
}

// vectors: each is there.
func (a Audit) vectors(ctx context.Context, f *finding, base string, want map[string]string) error {
	ids := sortedKeys(want)
	for len(ids) > 0 {
		part := ids[:min(len(ids), presentBatch)]
		ids = ids[len(part):]
		there, err := a.Vectors.Present(ctx, base, part)
		if err != nil {
			return fmt.Errorf("vectors of base %s: %w", base, err)
		}
		for _, id := range part {
			if !there[id] {
				f.add(want[id], "base %s: visible vector %s of task %s is not in the store", base, id, want[id])
			}
		}
	}
	return nil
}

// strays: the store holds no id that SQL does not know, and none twice (design D8).
func (a Audit) strays(ctx context.Context, f *finding, base string, l library) error {
	known := map[string]bool{}
	for _, rows := range l.byVersion {
		for _, s := range rows {
			known[s.vector] = true
		}
	}
	for _, id := range l.garbage {
		known[id] = true
	}
	seen := map[string]bool{}
	for offset := 0; ; {
		page, err := a.Vectors.List(ctx, base, offset, listPage)
		if err != nil {
			return fmt.Errorf("list base %s: %w", base, err)
		}
		for _, id := range page {
			if seen[id] {
				f.add("", "base %s lists vector %s twice", base, id)
			}
			if seen[id] = true; !known[id] {
				f.add("", "base %s holds vector %s, which no row names", base, id)
			}
		}
		if offset += len(page); len(page) < listPage {
			return nil
		}
	}
}
