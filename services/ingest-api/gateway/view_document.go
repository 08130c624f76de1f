package gateway

import (
	"strconv"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// formatID is a row number as JSON says ids: a string.
func formatID(n int64) string { return strconv.FormatInt(n, 10) }

// documentView is a document.
type documentView struct {
	DocumentID      string                `json:"documentId"`
	KnowledgeBaseID string                `json:"knowledgeBaseId"`
	KnowledgeBase   string                `json:"knowledgeBase"` // its name
	Title           string                `json:"title"`
	FileName        string                `json:"fileName"`
	MediaType       string                `json:"mediaType"`
	Status          ingest.DocumentStatus `json:"status"`
	Bytes           int64                 `json:"bytes"`
	SHA256          string                `json:"sha256"`
	VisibleVersion  *int64                `json:"visibleVersion"` // null: nothing of it can be found yet
	SegmentCount    int                   `json:"segmentCount"`
	Pages           *int                  `json:"pages"` // null: the format has none, or nobody has looked yet
	LatestTaskID    *string               `json:"latestTaskId"`
	CreatedAt       string                `json:"createdAt"`
	UpdatedAt       string                `json:"updatedAt"`
}

func viewDocument(d ingest.Document) documentView {
	return documentView{
		DocumentID: d.ID, KnowledgeBaseID: d.BaseID, KnowledgeBase: d.BaseName, Title: d.Title, FileName: d.FileName,
		MediaType: d.MediaType, Status: d.Status, Bytes: d.Bytes, SHA256: d.SHA256, VisibleVersion: positive(d.VisibleVersion),
		SegmentCount: d.SegmentCount, Pages: positive(d.Pages), LatestTaskID: optional(d.LatestTaskID),
		CreatedAt: formatTime(d.CreatedAt), UpdatedAt: formatTime(d.UpdatedAt),
	}
}

// acceptedView is the answer to one file: the task, and what became of it.
type acceptedView struct {
	taskView
	FileName  string        `json:"fileName"`
	Duplicate bool          `json:"duplicate"` // the same bytes were there: this is their last task
	Replayed  bool          `json:"replayed"`  // the Idempotency-Key was used before: this is that task
	Document  *documentView `json:"document"`
}

func viewAccepted(a ingest.Accepted, fileName string) acceptedView {
	v := acceptedView{taskView: viewTask(a.Task), FileName: fileName, Duplicate: a.Duplicate, Replayed: a.Replayed}
	if a.Document.ID != "" {
		d := viewDocument(a.Document)
		v.Document = &d
	}
	return v
}

// refusedView stands in the place of a file that was not taken.
type refusedView struct {
	FileName string  `json:"fileName"`
	Error    problem `json:"error"`
}

// segmentView is a piece of a document.
type segmentView struct {
	Index       int      `json:"index"`
	Text        string   `json:"text"`
	Page        *int     `json:"page"`
	HeadingPath []string `json:"headingPath"`
	ByteStart   int64    `json:"byteStart"`
	ByteEnd     int64    `json:"byteEnd"`
	Tokens      int      `json:"tokens"`
}

func viewSegment(s ingest.Segment) segmentView {
	return segmentView{
		Index: s.Index, Text: s.Text, Page: positive(s.Page), HeadingPath: words(s.HeadingPath),
		ByteStart: s.ByteStart, ByteEnd: s.ByteEnd, Tokens: s.Tokens,
	}
}

// hitView is one segment found.
type hitView struct {
	DocumentID   string   `json:"documentId"`
	Title        string   `json:"title"`
	FileName     string   `json:"fileName"`
	Version      int64    `json:"version"`
	SegmentIndex int      `json:"segmentIndex"`
	Page         *int     `json:"page"`
	HeadingPath  []string `json:"headingPath"`
	Text         string   `json:"text"`
	Score        float64  `json:"score"`
}

func viewHit(h ingest.SearchHit) hitView {
	return hitView{
		DocumentID: h.DocumentID, Title: h.Title, FileName: h.FileName, Version: h.Version, SegmentIndex: h.SegmentIndex,
		Page: positive(h.Page), HeadingPath: words(h.HeadingPath), Text: h.Text, Score: h.Score,
	}
}

// searchView is the answer to a search.
type searchView struct {
	Hits    []hitView `json:"hits"`
	Partial bool      `json:"partial"` // fewer were found than might be there
}

// modelView is an embedding model.
type modelView struct {
	Key       string `json:"key"`
	Dimension *int   `json:"dimension"`
}

// baseView is a knowledge base.
type baseView struct {
	KnowledgeBaseID string     `json:"knowledgeBaseId"`
	Name            string     `json:"name"`
	Model           *modelView `json:"model"` // null until the first document is embedded
	CreatedAt       string     `json:"createdAt"`
	UpdatedAt       string     `json:"updatedAt"`
}

func viewBase(b ingest.Base) baseView {
	v := baseView{KnowledgeBaseID: b.ID, Name: b.Name, CreatedAt: formatTime(b.CreatedAt), UpdatedAt: formatTime(b.UpdatedAt)}
	if b.Model.Key != "" {
		v.Model = &modelView{Key: b.Model.Key, Dimension: positive(b.Model.Dim)}
	}
	return v
}

// summaryView is a base in numbers.
type summaryView struct {
	Base                 baseView                        `json:"base"`
	Documents            map[ingest.DocumentStatus]int64 `json:"documents"`
	Tasks                map[taskstate.Status]int64      `json:"tasks"`
	Segments             int64                           `json:"segments"`
	Percent              int                             `json:"percent"` // documents READY of all
	OldestWaitingSeconds *float64                        `json:"oldestWaitingSeconds"`
}

func viewSummary(s ingest.Summary) summaryView {
	v := summaryView{Base: viewBase(s.Base), Documents: map[ingest.DocumentStatus]int64{}, Tasks: everyStatus(s.Tasks), Segments: s.Segments, Percent: s.Percent}
	for _, status := range documentStatuses() {
		v.Documents[status] = s.Documents[status]
	}
	if s.OldestWaiting > 0 {
		seconds := s.OldestWaiting.Seconds()
		v.OldestWaitingSeconds = &seconds
	}
	return v
}

func documentStatuses() []ingest.DocumentStatus {
	return []ingest.DocumentStatus{ingest.DocumentQueued, ingest.DocumentProcessing, ingest.DocumentReady, ingest.DocumentFailed}
}

// keyView is an API key without its secret.
type keyView struct {
	KeyID      string         `json:"keyId"`
	UserID     string         `json:"userId"`
	Name       string         `json:"name"`
	Role       taskstate.Role `json:"role"`
	Scopes     []string       `json:"scopes"`
	Shown      string         `json:"shown"` // how the key begins
	CreatedAt  string         `json:"createdAt"`
	ExpiresAt  *string        `json:"expiresAt"`
	RevokedAt  *string        `json:"revokedAt"`
	LastUsedAt *string        `json:"lastUsedAt"` // to the minute
}

func viewKey(k auth.Key) keyView {
	return keyView{
		KeyID: k.ID, UserID: k.UserID, Name: k.Name, Role: k.Role, Scopes: k.Scopes.Names(), Shown: k.Shown, CreatedAt: formatTime(k.CreatedAt),
		ExpiresAt: optionalTime(k.ExpiresAt), RevokedAt: optionalTime(k.RevokedAt), LastUsedAt: optionalTime(k.LastUsedAt),
	}
}

// positive is null for numbers that stand for "none".
func positive[N int | int64](n N) *N {
	if n <= 0 {
		return nil
	}
	return &n
}

// words is an empty list for none.
func words(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
