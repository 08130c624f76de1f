package ingestfake

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// segments is how many each document has.
const segments = 5

func (s *Service) document(c ingest.Caller, id string) (ingest.Document, error) {
	d, ok := s.docs[id]
	if !ok || !c.Scope.All() && d.UserID != c.Scope.UserID {
		return ingest.Document{}, ingest.ErrDocumentNotFound
	}
	return d, nil
}

// Document returns one document.
func (s *Service) Document(_ context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	end, err := s.begin("Document", c)
	defer end()
	if err != nil {
		return ingest.Document{}, err
	}
	return s.document(c, id)
}

// Documents lists documents.
func (s *Service) Documents(_ context.Context, c ingest.Caller, q ingest.DocumentQuery) ([]ingest.Document, error) {
	end, err := s.begin("Documents", c)
	defer end()
	if err != nil {
		return nil, err
	}
	var out []ingest.Document
	for _, d := range s.docs {
		_, err := s.document(c, d.ID)
		if err == nil && (q.Base == "" || q.Base == d.BaseID) && s.at(d, q.Statuses, q.Stage) &&
			strings.Contains(d.Title+d.FileName, q.Text) && within(q.Times, d.CreatedAt, d.UpdatedAt) {
			out = append(out, d)
		}
	}
	key := func(d ingest.Document) taskstate.Cursor { return taskstate.Cursor{At: d.UpdatedAt, ID: d.ID} }
	return page(out, key, strings.HasPrefix(string(q.Sort), "-"), q.After, q.Limit), nil
}

// at reports whether a document has one of the statuses and its last task the stage; nil and empty: any.
func (s *Service) at(d ingest.Document, statuses []ingest.DocumentStatus, stage taskstate.Stage) bool {
	return (len(statuses) == 0 || slices.Contains(statuses, d.Status)) && (stage == "" || stage == s.tasks[d.LatestTaskID].Progress.Stage)
}

// Segments returns five segments for each document.
func (s *Service) Segments(_ context.Context, c ingest.Caller, id string, after, limit int) ([]ingest.Segment, error) {
	end, err := s.begin("Segments", c)
	defer end()
	if err != nil {
		return nil, err
	}
	if _, err := s.document(c, id); err != nil {
		return nil, err
	}
	var out []ingest.Segment
	for i := after + 1; i < segments && len(out) < limit; i++ {
		out = append(out, ingest.Segment{Index: i, Text: "text", Page: i, HeadingPath: []string{"A"}, ByteEnd: 4, Tokens: 1})
	}
	return out, nil
}

// DeleteDocument forgets a document.
func (s *Service) DeleteDocument(_ context.Context, c ingest.Caller, id string) error {
	end, err := s.begin("DeleteDocument", c)
	defer end()
	if err != nil {
		return err
	}
	d, err := s.document(c, id)
	if err == nil {
		err = guarded(c, d)
	}
	if err == nil {
		err = s.noted(c)
	}
	if err != nil {
		return err
	}
	delete(s.docs, id)
	return nil
}

func (s *Service) base(c ingest.Caller, idOrName string) (ingest.Base, error) {
	for _, b := range s.bases {
		mine := b.UserID == c.Scope.UserID
		if (mine || c.Scope.All()) && b.ID == idOrName || mine && b.Name == idOrName {
			return b, nil
		}
	}
	return ingest.Base{}, ingest.ErrBaseNotFound
}

func (s *Service) newBase(c ingest.Caller, name string) ingest.Base {
	at := s.tick()
	b := ingest.Base{ID: s.id(), UserID: c.Scope.UserID, Name: name, CreatedAt: at, UpdatedAt: at, Model: ingest.Model{Key: "local/1", Dim: 3}}
	s.bases[b.ID] = b
	return b
}

// CreateBase makes a base.
func (s *Service) CreateBase(_ context.Context, c ingest.Caller, name string) (ingest.Base, error) {
	end, err := s.begin("CreateBase", c)
	defer end()
	if err != nil {
		return ingest.Base{}, err
	}
	if _, err := s.base(c, name); err == nil {
		return ingest.Base{}, ingest.ErrBaseExists
	}
	return s.newBase(c, name), nil
}

// Base returns one base.
func (s *Service) Base(_ context.Context, c ingest.Caller, idOrName string) (ingest.Base, error) {
	end, err := s.begin("Base", c)
	defer end()
	if err != nil {
		return ingest.Base{}, err
	}
	return s.base(c, idOrName)
}

// within reports whether a row's times are within limits.
func within(t ingest.Times, created, updated time.Time) bool {
	return (t.CreatedAfter.IsZero() || created.After(t.CreatedAfter)) && (t.CreatedBefore.IsZero() || created.Before(t.CreatedBefore)) &&
		(t.UpdatedAfter.IsZero() || updated.After(t.UpdatedAfter)) && (t.UpdatedBefore.IsZero() || updated.Before(t.UpdatedBefore))
}

// Bases lists bases.
func (s *Service) Bases(_ context.Context, c ingest.Caller, q ingest.BaseQuery) ([]ingest.Base, error) {
	end, err := s.begin("Bases", c)
	defer end()
	if err != nil {
		return nil, err
	}
	var out []ingest.Base
	for _, b := range s.bases {
		has := len(q.Statuses) == 0 && q.Stage == ""
		for _, d := range s.docs {
			has = has || d.BaseID == b.ID && s.at(d, q.Statuses, q.Stage)
		}
		if _, err := s.base(c, b.ID); err == nil && has && (q.Base == "" || q.Base == b.ID) && strings.Contains(b.Name, q.Text) &&
			within(q.Times, b.CreatedAt, b.UpdatedAt) {
			out = append(out, b)
		}
	}
	key := func(b ingest.Base) taskstate.Cursor { return taskstate.Cursor{At: b.CreatedAt, ID: b.ID} }
	return page(out, key, strings.HasPrefix(string(q.Sort), "-"), q.After, q.Limit), nil
}

// BaseSummary counts a base's documents.
func (s *Service) BaseSummary(_ context.Context, c ingest.Caller, idOrName string) (ingest.Summary, error) {
	end, err := s.begin("BaseSummary", c)
	defer end()
	if err != nil {
		return ingest.Summary{}, err
	}
	b, err := s.base(c, idOrName)
	out := ingest.Summary{Base: b, Documents: map[ingest.DocumentStatus]int64{}, OldestWaiting: 1500000000}
	for _, d := range s.docs {
		if d.BaseID == b.ID {
			out.Documents[d.Status]++
		}
	}
	return out, err
}

// DeleteBase forgets a base.
func (s *Service) DeleteBase(_ context.Context, c ingest.Caller, idOrName string, cascade bool) error {
	end, err := s.begin("DeleteBase", c)
	defer end()
	if err != nil {
		return err
	}
	b, err := s.base(c, idOrName)
	if err == nil {
		err = guarded(c, b)
	}
	if err == nil {
		err = s.noted(c)
	}
	if err != nil {
		return err
	}
	for id, d := range s.docs {
		if d.BaseID != b.ID {
			continue
		}
		if !cascade {
			return ingest.ErrBaseNotEmpty
		}
		delete(s.docs, id)
	}
	delete(s.bases, b.ID)
	return nil
}

// Search finds the caller's documents by their title.
func (s *Service) Search(_ context.Context, c ingest.Caller, r ingest.SearchRequest) (ingest.SearchResult, error) {
	end, err := s.begin("Search", c)
	defer end()
	if err != nil {
		return ingest.SearchResult{}, err
	}
	out := ingest.SearchResult{Partial: true}
	for _, d := range s.docs {
		if _, err := s.document(c, d.ID); err == nil && strings.Contains(d.Title, r.Query) && len(out.Hits) < r.TopK {
			out.Hits = append(out.Hits, ingest.SearchHit{
				DocumentID: d.ID, Title: d.Title, FileName: d.FileName, Version: 1, SegmentIndex: 2, Page: 3,
				HeadingPath: []string{"A", "B"}, Text: "found", Score: 0.5,
			})
		}
	}
	return out, nil
}
