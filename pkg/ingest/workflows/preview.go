package workflows

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// PreviewDocument is the id of the workflow that shows what would become of a document.
const PreviewDocument = "preview.document"

// Segments that a preview shows.
const (
	DefaultShown = 20
	MaxShown     = 100
)

const previewSchema = `{"type": "object", "additionalProperties": false, "oneOf": [{"required": ["documentId"]}, {"required": ["file"]}], "properties": {
	"documentId": {"type": "string", "format": "uuid"}, "knowledgeBase": {"type": "string", "maxLength": 128},
	"limit": {"type": "integer", "minimum": 0, "maximum": 100}, "chunking": {"type": "object", "additionalProperties": false, "properties": {"strategy": {"type": "string"},
		"unit": {"type": "string"}, "size": {"type": "integer"}, "overlap": {"type": "integer"}, "parentSize": {"type": "integer"}, "window": {"type": "integer"}}},
	"file": ` + fileSchema + `}}`

// Previewing is the payload of preview.document: a document that there is, or a file that was received for it alone.
type Previewing struct {
	DocumentID    string               `json:"documentId,omitempty"`
	File          *TaskFile            `json:"file,omitempty"`
	KnowledgeBase string               `json:"knowledgeBase,omitempty"` // of a file: whose chunking counts
	Chunking      *ingest.ChunkOptions `json:"chunking,omitempty"`      // null: the base's
	Limit         *int                 `json:"limit,omitempty"`         // of segments that are shown; null: DefaultShown
}

// Previewed is the result of preview.document.
type Previewed struct {
	FileName   string           `json:"fileName"`
	MediaType  string           `json:"mediaType"`
	Title      string           `json:"title"` // the document's own; empty: it has none
	Pages      int              `json:"pages,omitempty"`
	Characters int64            `json:"characters"`
	Reader     string           `json:"reader"`
	Chunker    string           `json:"chunker"`
	Model      string           `json:"model"`
	Unread     []int            `json:"unreadPages,omitempty"`
	Warnings   []string         `json:"warnings,omitempty"`
	Segments   int              `json:"segments"`
	Tokens     int64            `json:"tokens"`
	New        int              `json:"newTexts"`  // that have to be paid for
	NewTokens  int64            `json:"newTokens"` // of these
	Cost       *float64         `json:"cost"`      // of these, in the currency of EMBEDDING_PRICE; null: that is not set
	Shown      []PreviewSegment `json:"shown"`     // the first ones
}

// PreviewSegment is a segment that a document would be cut into.
type PreviewSegment struct {
	Index       int      `json:"index"`
	Text        string   `json:"text"`
	PageFrom    int      `json:"pageFrom,omitempty"`
	PageTo      int      `json:"pageTo,omitempty"`
	HeadingPath []string `json:"headingPath,omitempty"`
	ByteStart   int64    `json:"byteStart"`
	ByteEnd     int64    `json:"byteEnd"`
	Tokens      int      `json:"tokens"`
}

// preview reads and cuts a document and says what it would cost. A file that was received for it goes with it.
func (d *doors) preview(ctx context.Context, r workflow.Run, c ingest.Caller, p Previewing) (Previewed, error) {
	s := pipeline.Sample{Limit: DefaultShown}
	got, err := d.previewed(ctx, r, c, p, &s)
	if p.File != nil && (err == nil || !again(err)) {
		d.app.Drop(ctx, r.Task.ID)
	}
	return got, err
}

// again reports whether a task that failed so runs again.
func again(err error) bool {
	failure, ok := errors.AsType[*ingest.Failure](err)
	return !ok || !failure.Permanent
}

func (d *doors) previewed(ctx context.Context, r workflow.Run, c ingest.Caller, p Previewing, s *pipeline.Sample) (Previewed, error) {
	if d.worker == nil {
		return Previewed{}, errors.New("this process reads no documents")
	}
	if p.Limit != nil {
		s.Limit = *p.Limit
	}
	open := d.received
	if p.DocumentID != "" {
		open = d.stored
	}
	base, err := open(ctx, r, c, p, s)
	if err != nil {
		return Previewed{}, err
	}
	defer func() { _ = s.File.Close() }() // it was only read
	if s.Chunking = base.Chunking; p.Chunking != nil {
		if s.Chunking, err = p.Chunking.Chunking("chunking."); err != nil {
			return Previewed{}, err
		}
	}
	got, err := d.worker.Preview(ctx, *s, func(int, int) { r.Report(taskstate.Progress{Stage: taskstate.StageRun}) })
	if err != nil {
		return Previewed{}, err
	}
	return shown(*s, got), nil
}

// stored opens the file of a document's newest upload.
func (d *doors) stored(ctx context.Context, _ workflow.Run, c ingest.Caller, p Previewing, s *pipeline.Sample) (ingest.Base, error) {
	found, file, err := d.newest(ctx, c, p.DocumentID)
	if err != nil {
		return ingest.Base{}, err
	}
	s.File, s.Name, s.MediaType, s.Document = file, found.FileName, found.MediaType, found.ID
	return d.app.Base(ctx, c, found.BaseID)
}

// received opens a file that was received for the preview alone.
func (d *doors) received(ctx context.Context, r workflow.Run, c ingest.Caller, p Previewing, s *pipeline.Sample) (base ingest.Base, err error) {
	base, err = d.app.Base(ctx, c, p.KnowledgeBase)
	if errors.Is(err, ingest.ErrBaseNotFound) && p.KnowledgeBase == "" {
		base, err = ingest.Base{}, nil // the default one is made with the first document
	}
	if err != nil {
		return base, err
	}
	s.Name, s.MediaType = p.File.Name, p.File.MediaType
	s.File, err = d.fileOf(r.Task)
	return base, err
}

// maxShownJSON bounds the segments of a result, in bytes of JSON: the rest of it has room below workflow.MaxResult.
const maxShownJSON = workflow.MaxResult - 80<<10

// shown renders a preview.
func shown(s pipeline.Sample, p pipeline.Preview) Previewed {
	out := Previewed{
		FileName: s.Name, MediaType: p.Found.MediaType, Title: p.Found.Title, Pages: p.Found.Pages, Characters: p.Found.Chars,
		Reader: p.Found.Reader, Chunker: p.Chunker, Model: p.Model, Unread: p.Found.Unread, Warnings: p.Found.Warnings,
		Segments: p.Segments, Tokens: p.Tokens, New: p.New, NewTokens: p.NewTokens, Cost: p.Cost,
		Shown: []PreviewSegment{},
	}
	size := 0
	for _, seg := range p.Shown {
		v := PreviewSegment{
			Index: seg.Index, Text: seg.Text, PageFrom: seg.Page, PageTo: ingest.LastPage(seg.Page, seg.PageBreaks), HeadingPath: seg.HeadingPath,
			ByteStart: seg.ByteStart, ByteEnd: seg.ByteEnd, Tokens: seg.Tokens,
		}
		text, _ := json.Marshal(v) // which cannot fail
		if size += len(text) + 1; size > maxShownJSON {
			break
		}
		out.Shown = append(out.Shown, v)
	}
	return out
}
