package query

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	// fewVersions bounds what a filter is read as at first: so many are looked for alone. Of more, every hit is judged by its row.
	fewVersions = 1000
	// manyVersions bounds what it is read as when too few of the hits pass it.
	manyVersions = 50_000
)

// filterOf is a filter as the end of a statement that reads documents of a base as d, in two forms: few select documents out of all,
// judge says of rows that were found otherwise whether they pass. Both are empty when there is no filter.
func (r *Reads) filterOf(base string, f ingest.SearchFilter) (few, judge sqldb.Part) {
	l := &listStatement{q: r.q, kind: "Document"}
	if n := len(f.Documents); n > 0 {
		l.fragment(r.q.List("DocumentIDs", n), sqldb.Args(f.Documents)...)
	}
	if n := len(f.MediaTypes); n > 0 {
		l.fragment(r.q.List("DocumentMediaTypes", n), sqldb.Args(f.MediaTypes)...)
	}
	l.times(f.Times)
	with := func(said sqldb.Part) sqldb.Part {
		return sqldb.Part{Text: l.text.String() + said.Text, Args: slices.Concat(l.args, said.Args)}
	}
	return with(r.byMetadata(base, f.Metadata)), with(r.byMetadata("", f.Metadata))
}

// byMetadata selects documents by the metadata of their visible versions, at the end of a statement that reads documents as d: of
// one base, where the index has them, or without a base whichever the statement finds otherwise.
func (r *Reads) byMetadata(base string, rules []ingest.MetadataRule) (said sqldb.Part) {
	for _, rule := range rules {
		found := r.q.Part("DocumentHasMetadata")
		if base != "" {
			found = r.q.Part("DocumentsByMetadata", base)
		}
		asked := r.q.Part("MetadataBetween", rule.Key, rule.From, rule.To)
		if n := len(rule.AnyOf); n > 0 {
			asked = sqldb.Part{Text: r.q.List("MetadataAnyOf", n), Args: append([]any{rule.Key}, sqldb.Args(rule.AnyOf)...)}
		}
		said = sqldb.Part{Text: said.Text + "\n" + found.Text + "\n" + asked.Text, Args: slices.Concat(said.Args, found.Args, asked.Args)}
	}
	return said
}

// ids reads at most so many ids that a statement finds for the base and the filter; all: there are no more.
func (s *searching) ids(ctx context.Context, statement string, most int) (ids []string, all bool, err error) {
	text := s.r.q.Get(statement) + s.few.Text + "\n" + s.r.q.Get("SearchLimit")
	args := append(append([]any{s.base.ID}, s.few.Args...), most+1)
	ids, err = sqldb.ReadAll(ctx, s.r.store, "ids of a search", text, args, func(rows *sql.Rows) (string, error) {
		var id string
		err := rows.Scan(&id)
		return strings.TrimSpace(id), err
	})
	return ids[:min(len(ids), most)], len(ids) <= most, err
}

// allowed reads the visible versions that the filter selects; nil: there is no filter, or they are more than that.
func (s *searching) allowed(ctx context.Context, most int) (map[string]bool, error) {
	if s.filter.Text == "" {
		return nil, nil
	}
	ids, all, err := s.ids(ctx, "SearchVersions", most)
	if err != nil || !all {
		return nil, err
	}
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out, nil
}
