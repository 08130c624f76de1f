package views

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// ID is a row number as JSON says ids: a string.
func ID(n int64) string { return strconv.FormatInt(n, 10) }

func Document(d ingest.Document) wire.Document {
	return wire.Document{
		DocumentID: d.ID, UserID: d.UserID, KnowledgeBaseID: d.BaseID, KnowledgeBase: d.BaseName, Title: d.Title, FileName: d.FileName,
		MediaType: d.MediaType, Metadata: d.Metadata.Values(), Status: string(d.Status), Bytes: d.Bytes, SHA256: d.SHA256, VisibleVersion: wire.NullInt(d.VisibleVersion),
		SegmentCount: d.SegmentCount, Pages: wire.NullInt(d.Pages), LatestTaskID: wire.NullText(d.LatestTaskID), ParentID: wire.NullText(d.Parent.ID),
		CreatedAt: wire.At(d.CreatedAt), UpdatedAt: wire.At(d.UpdatedAt),
	}
}

func Accepted(a ingest.Accepted, fileName string) wire.AcceptedTask {
	v := wire.AcceptedTask{Task: Task(a.Task), FileName: fileName, Duplicate: a.Duplicate, Replayed: a.Replayed}
	if a.Waits {
		v.Delivery = wire.WaitingForRedis
	}
	if a.Document.ID != "" {
		d := Document(a.Document)
		v.Document = &d
	}
	return v
}

// Deletion is a receipt.
func Deletion(d ingest.Deletion) wire.Deletion {
	v := wire.Deletion{
		DocumentID: d.DocumentID, KnowledgeBaseID: d.BaseID, State: wire.DeletionPending, SHA256: d.SHA256, Bytes: d.Bytes, Versions: d.Versions,
		Segments: d.Segments, Vectors: d.Vectors, Files: d.Files, DeletedBy: d.By,
		DeletedAt: wire.At(d.DeletedAt), RemovedAt: wire.MaybeAt(d.RemovedAt), VerifiedAt: wire.MaybeAt(d.VerifiedAt),
	}
	if !d.VerifiedAt.IsZero() {
		v.State = wire.DeletionVerified
	}
	return v
}

func Segment(s ingest.Segment) wire.Segment {
	return wire.Segment{
		Index: s.Index, Text: s.Text, Page: wire.NullInt(s.Page), PageFrom: wire.NullInt(s.Page), PageTo: wire.NullInt(ingest.LastPage(s.Page, s.PageBreaks)),
		HeadingPath: words(s.HeadingPath),
		ByteStart:   s.ByteStart, ByteEnd: s.ByteEnd, Tokens: s.Tokens,
	}
}

func Hit(h ingest.SearchHit) wire.Hit {
	return wire.Hit{
		DocumentID: h.DocumentID, Title: h.Title, FileName: h.FileName, Version: h.Version, ParentID: wire.NullText(h.ParentID), SegmentIndex: h.SegmentIndex,
		Page: wire.NullInt(h.Page), PageFrom: wire.NullInt(h.Page), PageTo: wire.NullInt(h.PageTo), HeadingPath: words(h.HeadingPath),
		Metadata: h.Metadata.Values(), Text: h.Text, Context: around(h),
		Sentence: wire.Sentence{
			Text: h.Sentence.Text, Start: h.Sentence.Start, Page: wire.NullInt(h.Sentence.Page), Highlights: append([][2]int{}, h.Sentence.Highlights...),
		},
		Score: h.Score, TextScore: h.TextScore, VectorScore: h.VectorScore, RerankScore: h.RerankScore, Highlights: append([][2]int{}, h.Highlights...),
	}
}

// Found is a page of a search; next is the cursor behind it.
func Found(f ingest.SearchResult, next string) wire.SearchAnswer {
	return wire.SearchAnswer{
		Hits: web.Each(f.Hits, Hit), Groups: web.Each(f.Groups, group), NextCursor: wire.NullText(next), HasMore: next != "",
		Partial: f.Partial, Mode: string(f.Mode), Suggestion: wire.NullText(f.Suggestion), Reranked: f.Reranked,
	}
}

// around is the text around a hit; nil: there is none.
func around(h ingest.SearchHit) *wire.Context {
	if h.Context == "" {
		return nil
	}
	return &wire.Context{Text: h.Context, FirstSegment: h.Around[0], LastSegment: h.Around[1]}
}

// chunking is nil for the operator's.
func chunking(c ingest.Chunking) *wire.Chunking {
	if c == (ingest.Chunking{}) {
		return nil
	}
	v := &wire.Chunking{Strategy: string(c.Strategy), Unit: string(c.Unit), Size: &c.Size, Overlap: &c.Overlap}
	if c.ParentSize > 0 {
		v.ParentSize = &c.ParentSize
	}
	if c.Window > 0 {
		v.Window = &c.Window
	}
	return v
}

// ChunkOptions are what a client says of how documents are cut.
func ChunkOptions(w wire.Chunking) ingest.ChunkOptions {
	return ingest.ChunkOptions{
		Strategy: ingest.ChunkStrategy(w.Strategy), Unit: ingest.ChunkUnit(w.Unit), Size: w.Size, Overlap: w.Overlap, ParentSize: w.ParentSize, Window: w.Window,
	}
}

// metadataSchema is nil for none.
func metadataSchema(s *ingest.MetadataSchema) *wire.MetadataSchema {
	if s == nil {
		return nil
	}
	v := &wire.MetadataSchema{Fields: make(map[string]wire.MetadataField, len(s.Fields)), Additional: &s.Additional}
	for key, f := range s.Fields {
		v.Fields[key] = wire.MetadataField{Type: string(f.Type), Required: f.Required, Values: f.Values}
	}
	return v
}

// MetadataSchema is what a client says of metadata, unchecked.
func MetadataSchema(w wire.MetadataSchema) ingest.MetadataSchema {
	s := ingest.MetadataSchema{Fields: make(map[string]ingest.MetadataField, len(w.Fields)), Additional: w.Additional == nil || *w.Additional}
	for key, f := range w.Fields {
		s.Fields[key] = ingest.MetadataField{Type: ingest.MetadataType(f.Type), Required: f.Required, Values: f.Values}
	}
	return s
}

// Preview renders the task of a preview.
func Preview(t taskstate.Task) (wire.PreviewReply, error) {
	v := wire.PreviewReply{TaskID: t.ID, Status: t.Status, Error: workflowError(t)}
	if t.Status != taskstate.StatusSucceeded {
		return v, nil
	}
	var p workflows.Previewed
	if err := json.Unmarshal(t.Result, &p); err != nil {
		return v, fmt.Errorf("read the result of preview %s: %w", t.ID, err)
	}
	v.Preview = &wire.Preview{
		FileName: p.FileName, MediaType: p.MediaType, Title: p.Title, Pages: wire.NullInt(p.Pages), Characters: p.Characters, Reader: p.Reader,
		Chunker: p.Chunker, Model: p.Model, UnreadPages: append([]int{}, p.Unread...), Warnings: words(p.Warnings),
		Segments: p.Segments, Tokens: p.Tokens, NewTexts: p.New, NewTokens: p.NewTokens, Cost: p.Cost,
		Shown: web.Each(p.Shown, func(s workflows.PreviewSegment) wire.Segment {
			return wire.Segment{
				Index: s.Index, Text: s.Text, Page: wire.NullInt(s.PageFrom), PageFrom: wire.NullInt(s.PageFrom), PageTo: wire.NullInt(s.PageTo),
				HeadingPath: words(s.HeadingPath), ByteStart: s.ByteStart, ByteEnd: s.ByteEnd, Tokens: s.Tokens,
			}
		}),
	}
	return v, nil
}

// Version renders a version of a document.
func Version(v ingest.Version) wire.Version {
	return wire.Version{
		Version: v.No, State: v.State, Title: v.Title, TaskID: v.TaskID, Model: wire.NullText(v.Model), Reader: wire.NullText(v.Reader),
		Chunker: wire.NullText(v.Chunker), SegmentCount: v.Segments, Pages: wire.NullInt(v.Pages), ContentKept: v.Kept,
		CreatedAt: wire.At(v.CreatedAt), ClosedAt: wire.MaybeAt(v.ClosedAt),
	}
}

// group is a document with its hits; there is at least one.
func group(hits []ingest.SearchHit) wire.HitGroup {
	best := hits[0]
	return wire.HitGroup{
		DocumentID: best.DocumentID, Title: best.Title, FileName: best.FileName, Version: best.Version, Score: best.Score, Hits: web.Each(hits, Hit),
	}
}

func Base(b ingest.Base) wire.Base {
	v := wire.Base{
		KnowledgeBaseID: b.ID, Name: b.Name, SearchMode: string(b.SearchMode), Chunking: chunking(b.Chunking), MetadataSchema: metadataSchema(b.MetadataSchema),
		CreatedAt: wire.At(b.CreatedAt), UpdatedAt: wire.At(b.UpdatedAt),
	}
	if b.Model.Key != "" {
		v.Model = &wire.Model{Key: b.Model.Key, Dimension: wire.NullInt(b.Model.Dim)}
	}
	if b.Counts != nil {
		counts := baseCounts(*b.Counts)
		v.Counts = &counts
	}
	return v
}

func baseCounts(n ingest.BaseCounts) wire.BaseCounts {
	v := wire.BaseCounts{Documents: map[string]int64{}, Tasks: everyStatus(n.Tasks), Segments: n.Segments, Percent: n.Percent}
	for _, status := range DocumentStatuses() {
		v.Documents[string(status)] = n.Documents[status]
	}
	return v
}

func Summary(s ingest.Summary) wire.Summary {
	return wire.Summary{Base: Base(s.Base), BaseCounts: baseCounts(s.BaseCounts), Pace: pace(s.Pace)}
}

func DocumentStatuses() []ingest.DocumentStatus {
	return []ingest.DocumentStatus{ingest.DocumentQueued, ingest.DocumentProcessing, ingest.DocumentReady, ingest.DocumentFailed}
}

func Key(k auth.Key) wire.Key {
	return wire.Key{
		KeyID: k.ID, UserID: k.UserID, Name: k.Name, Role: k.Role, Scopes: k.Scopes.Names(), Bases: k.Bases, Shown: k.Shown, CreatedAt: wire.At(k.CreatedAt),
		ExpiresAt: wire.MaybeAt(k.ExpiresAt), RevokedAt: wire.MaybeAt(k.RevokedAt), LastUsedAt: wire.MaybeAt(k.LastUsedAt),
	}
}

// words is an empty list for none.
func words(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
