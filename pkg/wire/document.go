package wire

import (
	"bytes"
	"encoding/json"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Document is a document.
type Document struct {
	DocumentID      string         `json:"documentId"`
	UserID          string         `json:"userId"` // whose it is
	KnowledgeBaseID string         `json:"knowledgeBaseId"`
	KnowledgeBase   string         `json:"knowledgeBase"` // its name
	Title           string         `json:"title" payload:"yes"`
	FileName        string         `json:"fileName" payload:"yes"`
	MediaType       string         `json:"mediaType"`
	Metadata        map[string]any `json:"metadata" payload:"yes"` // texts, numbers and booleans, as the user gave them
	Status          string         `json:"status"`
	Bytes           int64          `json:"bytes"`
	SHA256          string         `json:"sha256"`
	VisibleVersion  NullInt        `json:"visibleVersion"` // null: nothing of it can be found yet
	SegmentCount    int            `json:"segmentCount"`
	Pages           NullInt        `json:"pages"` // null: the format has none, or nobody has looked yet
	LatestTaskID    NullText       `json:"latestTaskId"`
	ParentID        NullText       `json:"parentId"` // of the message that it is an attachment of; null: it is none
	CreatedAt       Time           `json:"createdAt"`
	UpdatedAt       Time           `json:"updatedAt"`
}

// AcceptedTask is the result of one file: the task, and what became of it.
type AcceptedTask struct {
	Task
	FileName  string    `json:"fileName"`
	Duplicate bool      `json:"duplicate"` // the same bytes were there: this is their last task
	Replayed  bool      `json:"replayed"`  // the Idempotency-Key was used before: this is that task
	Document  *Document `json:"document"`
	Delivery  string    `json:"delivery,omitempty"` // WaitingForRedis, or left out
}

// WaitingForRedis says that a task was accepted while Redis is away: its delivery is added once it is back.
const WaitingForRedis = "waiting for Redis"

// RefusedFile stands in the place of a file that was not taken.
type RefusedFile struct {
	FileName string  `json:"fileName"`
	Error    Problem `json:"error"`
}

// Segment is a piece of a document.
type Segment struct {
	Index       int      `json:"index"`
	Text        string   `json:"text"`
	Page        NullInt  `json:"page"`     // as pageFrom
	PageFrom    NullInt  `json:"pageFrom"` // null: the format has no pages
	PageTo      NullInt  `json:"pageTo"`   // null: also when it is not known
	HeadingPath []string `json:"headingPath"`
	ByteStart   int64    `json:"byteStart"`
	ByteEnd     int64    `json:"byteEnd"`
	Tokens      int      `json:"tokens"`
}

// Version is what an upload, a rollback or a reindexing made of a document.
type Version struct {
	Version      int64    `json:"version"`
	State        string   `json:"state"` // BUILDING, VISIBLE, SUPERSEDED, ABANDONED
	Title        string   `json:"title" payload:"yes"`
	TaskID       string   `json:"taskId"`  // which made it
	Model        NullText `json:"model"`   // key of the embedding model; null: not yet
	Reader       NullText `json:"reader"`  // name and version; null: not yet
	Chunker      NullText `json:"chunker"` // strategy, version and settings; null: not yet
	SegmentCount int      `json:"segmentCount"`
	Pages        NullInt  `json:"pages"`       // null: the format has none
	ContentKept  bool     `json:"contentKept"` // a SUPERSEDED one can be gone back to
	CreatedAt    Time     `json:"createdAt"`
	ClosedAt     NullTime `json:"closedAt"` // when it became SUPERSEDED or ABANDONED
}

// PreviewRequest asks how a document that there is would be cut.
type PreviewRequest struct {
	DocumentID string    `json:"documentId"`
	Chunking   *Chunking `json:"chunking,omitempty"` // nil: the base's
	Limit      *int      `json:"limit,omitempty"`    // of segments that are shown; nil: 20
}

// PreviewReply is the task of a preview, and what it has found.
type PreviewReply struct {
	TaskID  string           `json:"taskId"`
	Status  taskstate.Status `json:"status"`
	Preview *Preview         `json:"preview"` // null: not yet, or it failed
	Error   *WorkflowError   `json:"error"`   // of the last attempt; null: there is none
}

// Preview is what would become of a document. Nothing of it is stored in a base.
type Preview struct {
	FileName    string    `json:"fileName"`
	MediaType   string    `json:"mediaType"`
	Title       string    `json:"title"` // the document's own; empty: it has none
	Pages       NullInt   `json:"pages"` // null: the format has none
	Characters  int64     `json:"characters"`
	Reader      string    `json:"reader"`      // name and version
	Chunker     string    `json:"chunker"`     // strategy, version and settings
	Model       string    `json:"model"`       // key of the embedding model
	UnreadPages []int     `json:"unreadPages"` // that could not be read
	Warnings    []string  `json:"warnings"`
	Segments    int       `json:"segments"` // in all
	Tokens      int64     `json:"tokens"`   // of all
	NewTexts    int       `json:"newTexts"` // that have to be paid for
	NewTokens   int64     `json:"newTokens"`
	Cost        *float64  `json:"cost"`  // of newTokens, in the currency of EMBEDDING_PRICE; null: that is not set
	Shown       []Segment `json:"shown"` // the first ones
}

// SearchRequest asks for segments.
type SearchRequest struct {
	Query         string `json:"query"`
	KnowledgeBase string `json:"knowledgeBase,omitempty"`
	TopK          *int   `json:"topK,omitempty"`
	Mode          string `json:"mode,omitempty"` // auto, text, vector, hybrid; empty: the base's
	Cursor        string `json:"cursor,omitempty"`
	GroupBy       string `json:"groupBy,omitempty"` // document
	HitsPerGroup  *int   `json:"hitsPerGroup,omitempty"`

	DocumentIDs   []string       `json:"documentIds,omitempty"`
	MediaTypes    []string       `json:"mediaTypes,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"` // by key a value, a list of them, or {gte, lte}
	CreatedAfter  string         `json:"createdAfter,omitempty"`
	CreatedBefore string         `json:"createdBefore,omitempty"`
	UpdatedAfter  string         `json:"updatedAfter,omitempty"`
	UpdatedBefore string         `json:"updatedBefore,omitempty"`
}

// Hit is one segment found.
type Hit struct {
	DocumentID   string         `json:"documentId"`
	Title        string         `json:"title"`
	FileName     string         `json:"fileName"`
	Version      int64          `json:"version"`
	ParentID     NullText       `json:"parentId"` // of the message that the document is an attachment of; null: it is none
	SegmentIndex int            `json:"segmentIndex"`
	Page         NullInt        `json:"page"`     // as pageFrom
	PageFrom     NullInt        `json:"pageFrom"` // null: the format has no pages
	PageTo       NullInt        `json:"pageTo"`   // null: also when it is not known
	HeadingPath  []string       `json:"headingPath"`
	Metadata     map[string]any `json:"metadata"` // of the document
	Text         string         `json:"text"`
	Context      *Context       `json:"context"` // null: the base's chunking gives none
	Sentence     Sentence       `json:"sentence"`
	Score        float64        `json:"score"`
	TextScore    *float64       `json:"textScore"`   // BM25; null: its words were not found
	VectorScore  *float64       `json:"vectorScore"` // cosine similarity; null: its vector was not found
	RerankScore  *float64       `json:"rerankScore"` // of the reranking service; null: it was not asked about this hit
	Highlights   [][2]int       `json:"highlights"`  // ranges of characters of text
}

// Context is the text around a hit, with it.
type Context struct {
	Text         string `json:"text"`
	FirstSegment int    `json:"firstSegment"`
	LastSegment  int    `json:"lastSegment"` // may lie behind the document's last
}

// Sentence is the sentence of a hit in which the query's words count most.
type Sentence struct {
	Text       string   `json:"text"`
	Start      int      `json:"start"` // characters of the hit's text before it
	Page       NullInt  `json:"page"`  // null: none, or not known
	Highlights [][2]int `json:"highlights"`
}

// HitGroup is a document with its best hits.
type HitGroup struct {
	DocumentID string  `json:"documentId"`
	Title      string  `json:"title"`
	FileName   string  `json:"fileName"`
	Version    int64   `json:"version"`
	Score      float64 `json:"score"` // of the best
	Hits       []Hit   `json:"hits"`
}

// SearchAnswer is a page of the result of a search.
type SearchAnswer struct {
	Hits       []Hit      `json:"hits"`   // empty when they are grouped
	Groups     []HitGroup `json:"groups"` // empty when they are not
	NextCursor NullText   `json:"nextCursor"`
	HasMore    bool       `json:"hasMore"`
	Partial    bool       `json:"partial"` // fewer were found than might be there
	// Mode is what was looked into: text, vector or hybrid.
	Mode       string   `json:"mode"`
	Suggestion NullText `json:"suggestion"` // the query with misspelt words corrected; null: none was
	Reranked   *bool    `json:"reranked"`   // false: the reranking service failed, and hits are ordered without it; null: it was not asked
}

// BaseRequest asks for a knowledge base.
type BaseRequest struct {
	Name           string          `json:"name"`
	SearchMode     string          `json:"searchMode,omitempty"`     // auto, text, vector, hybrid; empty: auto
	Chunking       *Chunking       `json:"chunking,omitempty"`       // nil: the operator's
	MetadataSchema *MetadataSchema `json:"metadataSchema,omitempty"` // nil: any metadata
}

// BaseChange changes a knowledge base.
type BaseChange struct {
	SearchMode     string                   `json:"searchMode,omitempty"`    // auto, text, vector, hybrid; empty: as it is
	Chunking       Optional[Chunking]       `json:"chunking,omitzero"`       // null: the operator's
	MetadataSchema Optional[MetadataSchema] `json:"metadataSchema,omitzero"` // null: any metadata
}

// The states of a Deletion.
const (
	DeletionPending  = "PENDING"
	DeletionVerified = "VERIFIED"
)

// Deletion is the receipt of a deleted document.
type Deletion struct {
	DocumentID      string   `json:"documentId"`
	KnowledgeBaseID string   `json:"knowledgeBaseId"`
	State           string   `json:"state"`     // PENDING, VERIFIED
	SHA256          string   `json:"sha256"`    // of the newest upload
	Bytes           int64    `json:"bytes"`     // of the newest upload
	Versions        int64    `json:"versions"`  // that it had
	Segments        int64    `json:"segments"`  // rows that were removed since the deletion
	Vectors         int64    `json:"vectors"`   // that were deleted since, and that the store then said it does not hold
	Files           int      `json:"files"`     // stored files that were removed
	DeletedBy       string   `json:"deletedBy"` // kind:name
	DeletedAt       Time     `json:"deletedAt"`
	RemovedAt       NullTime `json:"removedAt"`  // when rows, vectors and files were gone; null: not yet
	VerifiedAt      NullTime `json:"verifiedAt"` // when words of the index and cached embeddings were gone too; null: not yet
}

// Rollback asks for the content of an earlier version of a document.
type Rollback struct {
	Version *int64 `json:"version,omitempty"` // nil: the last one before the visible one that differs from it
}

// Reindex asks for a base's outdated documents to be made anew.
type Reindex struct {
	DryRun bool `json:"dryRun,omitempty"` // only count
}

// Chunking says how the documents of a base are cut into segments; nil and empty members have defaults.
type Chunking struct {
	Strategy   string `json:"strategy,omitempty"` // recursive, headings, sentences, rows, parents
	Unit       string `json:"unit,omitempty"`     // tokens, chars
	Size       *int   `json:"size,omitempty"`
	Overlap    *int   `json:"overlap,omitempty"`
	ParentSize *int   `json:"parentSize,omitempty"` // parents only
	Window     *int   `json:"window,omitempty"`     // sentences only
}

// MetadataSchema says which metadata the documents of a base may have.
type MetadataSchema struct {
	Fields     map[string]MetadataField `json:"fields,omitempty"`     // by key
	Additional *bool                    `json:"additional,omitempty"` // keys that are no fields are allowed; nil: true
}

// MetadataField is what is asked of one key.
type MetadataField struct {
	Type     string `json:"type"` // string, number, boolean
	Required bool   `json:"required,omitempty"`
	Values   []any  `json:"values,omitempty"` // the allowed ones; empty: all of the type
}

// Optional is a member that may be missing, and then Set is false, or null, and then Value is nil.
type Optional[T any] struct {
	Set   bool
	Value *T
}

// UnmarshalJSON reads a member that is there: null, or a T with fields that are known.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	o.Set, o.Value = true, nil
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(&o.Value)
}

// MarshalJSON writes the value, or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.Value) }

// Model is an embedding model.
type Model struct {
	Key       string  `json:"key"`
	Dimension NullInt `json:"dimension"`
}

// Base is a knowledge base.
type Base struct {
	KnowledgeBaseID string          `json:"knowledgeBaseId"`
	Name            string          `json:"name"`
	Model           *Model          `json:"model"`                        // null until the first document is embedded
	SearchMode      string          `json:"searchMode"`                   // of a search that names none: auto, text, vector, hybrid
	Chunking        *Chunking       `json:"chunking"`                     // of documents that are ingested from now on; null: the operator's
	MetadataSchema  *MetadataSchema `json:"metadataSchema" payload:"yes"` // of documents that are uploaded from now on; null: any metadata
	CreatedAt       Time            `json:"createdAt"`
	UpdatedAt       Time            `json:"updatedAt"`
	Counts          *BaseCounts     `json:"counts"` // null: not asked for
}

// BaseCounts are the documents and tasks of a base.
type BaseCounts struct {
	Documents map[string]int64           `json:"documents"`
	Tasks     map[taskstate.Status]int64 `json:"tasks"`
	Segments  int64                      `json:"segments"`
	Percent   int                        `json:"percent"` // documents READY of all
}

// Summary is a base in numbers.
type Summary struct {
	Base Base `json:"base"`
	BaseCounts
	Pace
}
