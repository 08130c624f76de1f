// Package ingest is the application: it takes a document in, works it through
// extract → split → embed → index, and makes one version of it visible in one step.
//
// It holds the rules and the ports (Extractor, Splitter, Embedder, VectorStore, Store);
// every library lives in a package of its own below it.
package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Errors of the Service besides taskstate.ErrNotFound, taskstate.ErrUnavailable, *taskstate.RefusedError, *Failure
// and *TextError.
var (
	ErrDocumentNotFound = errors.New("document not found")                                          // 404; unknown, foreign and deleted look the same
	ErrBaseNotFound     = errors.New("knowledge base not found")                                    // 404
	ErrBaseExists       = errors.New("knowledge base exists")                                       // 409
	ErrBaseNotEmpty     = errors.New("knowledge base is not empty")                                 // 409
	ErrKeyInUse         = errors.New("a request with this idempotency key is still being received") // 409
	ErrKeyReused        = tasks.ErrKeyReused                                                        // 422
	ErrBacklogFull      = tasks.ErrBacklogFull                                                      // 503 with Retry-After
	ErrDiskFull         = errors.New("no space for uploads")                                        // 507
	ErrTooLarge         = errors.New("upload too large")                                            // 413
	ErrChanged          = errors.New("changed since it was read")                                   // 412
	ErrReplaySuperseded = errors.New("a later upload is visible")                                   // 409 SUPERSEDED
	ErrDocumentDeleted  = errors.New("its document or file is gone")                                // 409 DOCUMENT_DELETED
	ErrNoDeletion       = errors.New("no deletion of this document is known")                       // 404
	ErrVersionNotFound  = errors.New("version not found")                                           // 404
	ErrVersionVisible   = errors.New("the version is the visible one")                              // 409
	ErrVersionGone      = errors.New("the version's content is not kept")                           // 409
)

// Caller is who asks: a scope and what the audit and the traces show.
type Caller = tasks.Caller

// Explanation is a task in words.
type Explanation = tasks.Explanation

// ReceivedFile is an upload on disk that no row names yet. Discard it unless Accept took it.
type ReceivedFile struct {
	ID        string // UUIDv7: the row's id and the file's name
	Name      string // the user's, cleaned: base name, no control characters, at most 255 characters
	Bytes     int64
	SHA256    string // hex
	MediaType string // by Detect
}

// Upload is one document to accept.
type Upload struct {
	File           ReceivedFile
	Title          string   // empty: the file's name; at most 500 characters
	Metadata       Metadata // empty: that of the document's last upload
	Base           string   // id or name; empty: "default", which is made when missing
	DocumentID     string   // PUT: a new version of this document; empty: a new document
	IdempotencyKey string   // with the part number already added; empty: none
	ChatID         string   // the conversation that it comes from; empty: none
	Unclaimed      string   // the request's key as BeginKey takes it, if nobody claimed it; empty: claimed, or none
	Again          bool     // what the document holds is taken in anew, with its metadata, which is not judged by the base's schema
	Force          bool     // take the same bytes in again, as a new version of the same document
	Lost           *Lost    // nil: a new upload
	Kept           *Kept    // nil: File was received
	Parent         Parent   // of an attachment; zero: it is none
}

// Parent is the message that a document is an attachment of. An attachment is found by its message: the same bytes in another message,
// or uploaded by themselves, are another document.
type Parent struct {
	ID string // of its document; empty: there is none
	No int64  // the newest version of it that has the attachment
}

// Kept is an upload whose File is a stored one already: the content of an earlier version of the document, taken in again (design D8).
// Title and Metadata are that version's.
type Kept struct {
	Version int64 // as the request names it, for its idempotency key; 0: it names none
}

// Lost is an upload that was accepted and whose rows were lost with the database (design D19): it gets them again. Its base is made
// when it is missing; that others have the same bytes does not matter.
type Lost struct {
	TaskID, DocumentID string
	RequestHash        string // of the request with the idempotency key
	MaxAttempts        int
}

// RequestKey is an idempotency key as claims of requests are found by: sha256, hex.
func RequestKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Accepted is the answer to an Upload.
type Accepted struct {
	Task      taskstate.Task
	Document  Document
	Duplicate bool // the same bytes were there: Task is the document's last one
	Replayed  bool // the same idempotency key and bytes: Task is the first request's
	Waits     bool // the queue is away: the task's delivery is added once it is back
}

// DocumentStatus is contract §3's status of a document (design D13).
type DocumentStatus string

// The states of a document.
const (
	DocumentQueued     DocumentStatus = "QUEUED"
	DocumentProcessing DocumentStatus = "PROCESSING"
	DocumentReady      DocumentStatus = "READY"
	DocumentFailed     DocumentStatus = "FAILED"
)

// Document is a live row of knowledge_document.
type Document struct {
	ID, UserID, BaseID, BaseName string
	Title, FileName, MediaType   string
	Metadata                     Metadata // of the visible version; before there is one, of the newest upload
	Status                       DocumentStatus
	Bytes                        int64
	SHA256                       string // of the newest upload
	VisibleVersion               int64  // 0: none
	SegmentCount                 int    // of the visible version
	Pages                        int
	LatestTaskID                 string
	Parent                       Parent
	CreatedAt, UpdatedAt         time.Time
}

// Version is a row of document_version: what an upload, a rollback or a reindexing made of a document.
type Version struct {
	No                     int64
	State                  string // BUILDING, VISIBLE, SUPERSEDED, ABANDONED
	Title                  string
	TaskID                 string // which made it
	Model, Reader, Chunker string // with which; empty: not yet
	Segments, Pages        int
	Kept                   bool // its file is: a SUPERSEDED one can be gone back to
	CreatedAt              time.Time
	ClosedAt               time.Time // when it became SUPERSEDED or ABANDONED; zero: it is neither
}

// Original is the file of a version as it was uploaded.
type Original struct {
	File            *os.File // whoever asked closes it
	Name, MediaType string
	SHA256          string // of its bytes, in hexadecimal
	Bytes           int64
	Version         int64
}

// Deletion is a row of document_deletion: what was removed of a deleted document, which is gone, and when that was seen.
type Deletion struct {
	DocumentID, UserID, BaseID string
	SHA256                     string // of the newest upload
	Bytes                      int64  // of the newest upload
	Versions                   int64
	Segments                   int64  // rows that were removed
	Vectors                    int64  // that were deleted, and that the vector store then said it does not hold
	Files                      int    // stored files that were removed
	By                         string // kind:name of who deleted it
	DeletedAt                  time.Time
	RemovedAt                  time.Time // when rows, vectors and files were gone; zero: not yet
	VerifiedAt                 time.Time // when its words in the index and the embeddings of its texts were gone too; zero: not yet
}

// Base is a row of knowledge_base.
type Base struct {
	ID, UserID, Name     string
	Model                Model           // zero until the first document is embedded
	Collection           string          // that the vector store has its vectors in
	SearchMode           SearchMode      // of a search that names none
	Chunking             Chunking        // of documents that are ingested from now on; zero: the operator's
	MetadataSchema       *MetadataSchema // of documents that are uploaded from now on; nil: any metadata
	CreatedAt, UpdatedAt time.Time
	Counts               *BaseCounts // where a list asked for them
}

// BaseCounts are the documents and tasks of a base.
type BaseCounts struct {
	Documents map[DocumentStatus]int64
	Tasks     map[taskstate.Status]int64 // in the caller's scope
	Segments  int64
	Percent   int // documents READY of all
}

// BaseSettings are what a user says of a base.
type BaseSettings struct {
	SearchMode     SearchMode      // empty: as it is; SearchAuto for a new base
	Chunking       *Chunking       // nil: as it is; the operator's for a new base
	MetadataSchema *MetadataSchema // that Check has returned; nil: as it is; none for a new base
}

// Summary counts a base's documents and tasks.
type Summary struct {
	Base Base
	BaseCounts
	Pace
}

// Pace is how tasks come on.
type Pace struct {
	OldestWaiting time.Duration             // 0: nothing waits
	Stages        map[taskstate.Stage]int64 // RUNNING tasks by stage
	PerMinute     float64                   // tasks that ended, within the last ten minutes
	Left          time.Duration             // how long what waits takes at that pace; 0: nothing waits, or nobody can say
	Half, Most    time.Duration             // from upload to SUCCEEDED, of the last tasks: what half and 95 % took at most; 0: none
}

// SearchRequest is contract §4's.
type SearchRequest struct {
	Query string
	Base  string     // id or name; empty: "default"
	TopK  int        // hits, or groups, of one page: 1–50; 0: 10
	Mode  SearchMode // empty: the base's
	// Filter limits the search to documents.
	Filter SearchFilter
	// PerDocument groups hits by their documents, with at most so many for each; 0: not grouped.
	PerDocument int
	// After is the Next of the page before, of the same search.
	After *SearchPlace
}

// SearchFilter selects documents; the zero value: all.
type SearchFilter struct {
	Documents  []string // ids
	MediaTypes []string
	Metadata   []MetadataRule
	Times      Times
}

// MaxHits is how many hits of a search can be paged through.
const MaxHits = 1000

// SearchPlace is where a page of a search ends.
type SearchPlace struct {
	Rank     int    // how many hits, or groups, stand before it
	Document string // of the last hit
	Segment  int    // its index; -1 when hits are grouped
}

// SearchMode says what a search looks into.
type SearchMode string

// The modes.
const (
	SearchAuto   SearchMode = "auto"   // hybrid with an embedding model, text with the built-in lexical embedder
	SearchText   SearchMode = "text"   // words: BM25
	SearchVector SearchMode = "vector" // meaning: the nearest vectors
	SearchHybrid SearchMode = "hybrid" // both, fused by their ranks
)

// SearchModes are all modes.
func SearchModes() []SearchMode {
	return []SearchMode{SearchAuto, SearchText, SearchVector, SearchHybrid}
}

// SearchHit is one segment found.
type SearchHit struct {
	DocumentID, Title, FileName string
	VersionID                   string // of the document's version that the segment belongs to
	Version                     int64
	ParentID                    string // of the message that the document is an attachment of; empty: it is none
	SegmentIndex                int
	Page                        int      // of the segment's first character; 0: none
	PageTo                      int      // of its last one; 0: none, or not known
	PageBreaks                  [][2]int // as Segment's
	HeadingPath                 []string
	Metadata                    Metadata // of the document
	Text                        string
	Score                       float64
	// TextScore and VectorScore are what Score is made of: BM25 and cosine similarity; nil when that part did not find it.
	TextScore, VectorScore *float64
	// TextShare is how much of the query the words of the segment are, from 0 to 1.
	TextShare float64
	// RerankScore is the reranking service's; nil when it was not asked about this hit.
	RerankScore *float64
	// Highlights are where words of the query stand in Text: half-open ranges of characters (Unicode code points).
	Highlights [][2]int
	// Around are the first and the last index of the segments that Context is made of; zero: none.
	Around [2]int
	// Context is the text around the segment, with it: of its parent, or of the sentences around it; empty: there is none.
	Context string
	// Sentence is the one in which the query's words count most; without any, the first.
	Sentence Sentence
}

// Sentence is a sentence of a segment.
type Sentence struct {
	Text       string
	Start      int      // characters of the segment's text before it
	Page       int      // of its first character; 0: none, or not known
	Highlights [][2]int // as SearchHit's, in Text
}

// SearchResult is the answer to a search; Partial when fewer were found than might be there (design D12).
type SearchResult struct {
	Hits    []SearchHit   // empty when they are grouped
	Groups  [][]SearchHit // by document, with the best first; nil when they are not grouped
	Next    *SearchPlace  // nil: there is no more
	Partial bool
	Mode    SearchMode // what was looked into: text, vector or hybrid
	// Reranked tells whether the reranking service has ordered the first hits anew; false: it failed. nil: it was not asked.
	Reranked *bool
	// Suggestion is the query with words that no segment has replaced by near ones that some have; empty: none was.
	Suggestion string
}

// Times limits a list by when its rows were made and changed; "after" and "before" exclude the instant itself. Zero: no limit.
type Times struct {
	CreatedAfter, CreatedBefore time.Time
	UpdatedAfter, UpdatedBefore time.Time
}

// ListQuery selects documents or knowledge bases of a list. Of a base it is asked whether at least one document has a
// status or a stage.
type ListQuery struct {
	Base     string // id or name; empty: any
	Parent   string // id of the message whose attachments are listed; empty: any. Not for bases
	Statuses []DocumentStatus
	Stage    taskstate.Stage // of a document's last task; empty: any
	Text     string          // in a document's title or file name, in a base's name
	Metadata []MetadataRule  // of a document's visible version; not for bases
	Counts   bool            // of bases, with each
	Times    Times
	Sort     taskstate.Sort // empty: documents by SortUpdatedDesc, bases by SortCreatedDesc
	After    *taskstate.Cursor
	Limit    int
}

// Service is the application as its clients see it (HTTP, later the command line and bots).
type Service interface {
	// Admit returns nil when an upload can be taken in now; it is asked before a body is read.
	// Errors: taskstate.ErrUnavailable, ErrFolder, ErrNoResources.
	Admit(ctx context.Context) error
	// Receive streams one upload to disk: temp file, hash on the way, type check on the head, fsync, rename, directory fsync.
	// Errors: those of Admit, ErrTooLarge, ErrDiskFull, *Failure (empty file, unsupported type, encrypted …), r's own error.
	Receive(ctx context.Context, r io.Reader, name string) (ReceivedFile, error)
	// Discard removes a received file that was not accepted.
	Discard(f ReceivedFile)
	// BeginKey claims an idempotency key while a request is being received; release it in the end. A request that is received
	// at once needs no claim: AcceptAll looks for those of others (Upload.Unclaimed). ErrKeyInUse.
	BeginKey(ctx context.Context, c Caller, key string) (release func(), err error)
	// AcceptAll makes document, version and task of each upload in one transaction, then adds the deliveries (the fast path).
	// It returns a result or an error for each upload, as if they came one after the other.
	// Errors: ErrBaseNotFound, ErrDocumentNotFound, ErrKeyReused, ErrKeyInUse, ErrBacklogFull, *TextError, taskstate.ErrUnavailable.
	AcceptAll(ctx context.Context, c Caller, uploads []Upload) ([]Accepted, []error)

	// Rollback makes a new version of the content of an earlier one; version 0: the last one before the visible one that differs from it.
	// key is an idempotency key; empty: none. The caller's guard is asked about the document.
	// Errors: ErrDocumentNotFound, ErrVersionNotFound, ErrVersionVisible, ErrVersionGone, and those of AcceptAll.
	Rollback(ctx context.Context, c Caller, documentID string, version int64, key string) (Accepted, error)

	// Submit makes tasks of other types than a document's: a result or an error for each request.
	// Errors: ErrKeyReused, ErrBacklogFull, tasks.ErrUnknownType, taskstate.ErrUnavailable, taskstate.ErrOutcomeUnknown.
	Submit(ctx context.Context, c Caller, requests ...tasks.Request) ([]tasks.Submitted, []error)

	Task(ctx context.Context, c Caller, id string) (taskstate.Task, error)
	Tasks(ctx context.Context, c Caller, q taskstate.Query) (taskstate.Page, error)
	// Workers lists processes that have claimed tasks lately, with what each runs (operators).
	Workers(ctx context.Context, c Caller) ([]Worker, error)
	// TaskCounts counts tasks by what they can be listed by, of the caller's or, with a base's id, of those in it. It looks at none that has
	// ended.
	TaskCounts(ctx context.Context, c Caller, base string) (TaskCounts, error)
	// Drain asks a process to take no more tasks, or with off to take some again (operators).
	// taskstate.ErrNotFound: Workers does not list it.
	Drain(ctx context.Context, c Caller, worker string, off bool) error
	// FailureGroups lists what failures have in common, that with the latest failure first.
	FailureGroups(ctx context.Context, c Caller, q taskstate.GroupQuery) ([]taskstate.FailureGroup, error)
	Transitions(ctx context.Context, c Caller, id string, after int64, limit int) ([]taskstate.Transition, error)
	// Retry, Cancel, Suspend and Resume act at once; they return the task afterwards.
	Retry(ctx context.Context, c Caller, id string) (taskstate.Task, error)
	Cancel(ctx context.Context, c Caller, id string) (taskstate.Task, error)
	Suspend(ctx context.Context, c Caller, id, why string) (taskstate.Task, error)
	Resume(ctx context.Context, c Caller, id, why string) (taskstate.Task, error)
	// Uncopied lists tasks of which RabbitMQ has no copy.
	Uncopied(ctx context.Context, c Caller, after *taskstate.Cursor, limit int) ([]tasks.Uncopied, error)
	// Explain says where the task is, who holds it until when, which delivery carries it and what happens next.
	Explain(ctx context.Context, c Caller, id string) (Explanation, error)
	// Watch returns a channel of the task's states: at once and on every change of status or progress, in order,
	// from after the transition id given (0: only the present state first). It is closed after a terminal state,
	// or when ctx ends. One poller per process serves all watchers.
	Watch(ctx context.Context, c Caller, id string, after int64) (<-chan TaskEvent, error)

	Document(ctx context.Context, c Caller, id string) (Document, error)
	Documents(ctx context.Context, c Caller, q ListQuery) ([]Document, error)
	// Versions pages through a document's versions below a number, the newest first.
	Versions(ctx context.Context, c Caller, documentID string, below int64, limit int) ([]Version, error)
	// Segments pages through the visible version's segments after an index (-1: from the start).
	Segments(ctx context.Context, c Caller, documentID string, after, limit int) ([]Segment, error)
	// Original opens the file of a version; 0: the visible one, or the newest when none is visible.
	// Errors: ErrDocumentNotFound, ErrVersionNotFound, ErrVersionGone.
	Original(ctx context.Context, c Caller, documentID string, version int64) (Original, error)
	// DeleteDocument takes the document out of every search at once; files and vectors follow.
	DeleteDocument(ctx context.Context, c Caller, id string) error

	// Deletion is the receipt of a deleted document. ErrNoDeletion.
	Deletion(ctx context.Context, c Caller, documentID string) (Deletion, error)

	CreateBase(ctx context.Context, c Caller, name string, s BaseSettings) (Base, error)
	// ChangeBase changes settings of a base; it returns the base afterwards.
	ChangeBase(ctx context.Context, c Caller, idOrName string, s BaseSettings) (Base, error)
	Base(ctx context.Context, c Caller, idOrName string) (Base, error)
	Bases(ctx context.Context, c Caller, q ListQuery) ([]Base, error)
	BaseSummary(ctx context.Context, c Caller, idOrName string) (Summary, error)
	// DeleteBase deletes the base and, with cascade, its documents; without, ErrBaseNotEmpty.
	DeleteBase(ctx context.Context, c Caller, idOrName string, cascade bool) error

	Search(ctx context.Context, c Caller, r SearchRequest) (SearchResult, error)
	// History says what ended in each part of the last hour or day (operators).
	History(ctx context.Context, span Span) (History, error)
	// Stats returns counts by status and the queue's lengths (operators).
	Stats(ctx context.Context, c Caller) (Stats, error)
}

// Span is how far back a History goes.
type Span string

// The spans.
const (
	SpanHour Span = "hour" // in minutes
	SpanDay  Span = "day"  // in half hours
)

// Spans lists them all.
func Spans() []Span { return []Span{SpanHour, SpanDay} }

// Length is how long the span is.
func (s Span) Length() time.Duration {
	if s == SpanDay {
		return 24 * time.Hour
	}
	return time.Hour
}

// Step is how long one part of it is.
func (s Span) Step() time.Duration {
	if s == SpanDay {
		return 30 * time.Minute
	}
	return time.Minute
}

// History is what ended in each part of a span, the oldest first.
type History struct {
	Step    time.Duration
	Buckets []Bucket
}

// Bucket is what ended in one part of a span; Took of its Past is empty.
type Bucket struct {
	At time.Time // its beginning
	taskstate.Past
	Half, Most time.Duration // what half, and 95 %, of the sampled tasks took from upload to SUCCEEDED; 0: none
	Sampled    int           // how many tasks that was read of
}

// TaskCounts are tasks by status, RUNNING ones by stage, and those of bases by status.
type TaskCounts struct {
	Tasks  map[taskstate.Status]int64
	Stages map[taskstate.Stage]int64
	Bases  []Base // the newest ones with their tasks; Counts has nothing else
}

// Minute has the changes to each status in a minute.
type Minute struct {
	At      time.Time // its beginning
	Changes map[taskstate.Status]int64
}

// Worker is a process with the tasks that it runs.
type Worker struct {
	taskstate.Worker
	Tasks []taskstate.Task // the first ones
	Runs  int              // how many; at least so many when Cut
	Cut   bool             // more tasks run than were looked at
}

// TaskEvent is one event of a watched task.
type TaskEvent struct {
	Task         taskstate.Task // Status, AttemptCount, … as of the event
	TransitionID int64          // the last one
	Terminal     bool
}

// Stats are an operator's counts; Tasks equals SELECT status, COUNT(*) … GROUP BY status.
type Stats struct {
	Tasks           map[taskstate.Status]int64
	StreamLength    int64
	RetryLength     int64
	SuspendedLength int64
	Recent          map[taskstate.Status]int64 // changes to each status in the last hour
	Minutes         []Minute                   // of that hour, those with changes, the oldest first
	Pace            Pace
}

// DefaultBase is the name of the base that is meant when none is named (contract §4); an upload makes it when it is missing.
const DefaultBase = "default"
