package ingest

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// DetectFunc tells the media type of an upload from its head (at most 64 KiB) and, through r, the whole of its size bytes.
// Errors: *Failure, permanent.
type DetectFunc func(head []byte, r io.ReaderAt, size int64, name string) (mediaType string, err error)

// Deps are the parts that an App stands on. Store, Files and Log are always needed.
type Deps struct {
	Store     taskstate.Database
	Publisher ingestq.Publisher // nil: deliveries are left to the sweeps
	Extractor Extractor         // nil in processes that do not process
	Splitter  Splitter          // nil in processes that do not process
	Embedder  Embedder          // of new bases
	Earlier   []Embedder        // of bases that were made with other models
	Vectors   VectorStore
	Detect    DetectFunc // nil in processes that receive nothing
	Adopts    bool       // may mark a new upload folder as the database's (design D20)
	Policy    taskstate.Policy
	Log       *slog.Logger
	Clock     func() time.Time    // nil: time.Now; for what the database's clock does not judge
	Redact    func(string) string // takes secrets out of error texts; nil: as they are
	// MaxTokens is the longest text that the embedding model takes, in tokens; 0: not known.
	MaxTokens int
	// TokenPrice is what a million tokens cost at the embedding model, in whatever currency; 0: not known.
	TokenPrice float64
	// TagEmbed adds to an embedding call's context whose call it is; nil: nothing.
	TagEmbed func(ctx context.Context, taskID string, fence int64, batch string) context.Context
	Changed  func(ids ...string) // told the ids of tasks that this process changed; nil: nobody waits
	// Tasks are types of task beside documents, which share this application's door; nil: none.
	Tasks map[string]tasks.Type
}

// EmbedderOf returns the embedder that a base's vectors were made with; now, that of new bases, when it has none yet. nil: neither now nor
// one of the earlier ones made them.
func EmbedderOf(base Model, now Embedder, earlier []Embedder) Embedder {
	if now != nil && (base.Key == "" || base.Same(now.Model())) {
		return now
	}
	i := slices.IndexFunc(earlier, func(e Embedder) bool { return base.Same(e.Model()) })
	if i < 0 {
		return nil
	}
	return earlier[i]
}

// BlockKind tells what a Block was in its document.
type BlockKind string

// The kinds of block.
const (
	BlockHeading   BlockKind = "heading"
	BlockParagraph BlockKind = "paragraph"
	BlockTable     BlockKind = "table" // one line a row, cells joined by " | "
	BlockCode      BlockKind = "code"  // never re-flowed
	BlockList      BlockKind = "list"  // one item
)

// Block is one run of text as a reader meets it, in reading order.
type Block struct {
	Kind  BlockKind `json:"k"`
	Text  string    `json:"t"`           // valid UTF-8, no NUL, trimmed, never empty
	Page  int       `json:"p,omitempty"` // 1-based; 0: the format has no pages
	Level int       `json:"l,omitempty"` // headings: 1–6
}

// Source is a stored file to read.
type Source struct {
	File      *os.File // opened for reading by the caller, who closes it
	Name      string   // the user's file name: a hint only, never a path
	MediaType string   // what Detect said at upload; empty: detect again
}

// Extraction tells what a reader found.
type Extraction struct {
	MediaType string
	Title     string   // from the document's own metadata or first heading; may be empty
	Pages     int      // 0: the format has no pages
	Unread    []int    // the first MaxUnread pages (from 1, ascending) that could not be read; the text is without them
	Warnings  []string // what else the text is without, such as attachments that could not be read: at most MaxWarnings of MaxWarningRunes
	Chars     int64    // characters of all blocks
	Charset   string   // of text formats
	Reader    string   // names and versions of the readers, then the settings that are not as by default, with blanks between them: "eml/1 pdf/1 headers"
}

// Bounds of what an Extraction names as not read.
const (
	MaxUnread       = 1000 // pages
	MaxWarnings     = 20
	MaxWarningRunes = 300
)

// Extractor reads a document of any supported type.
type Extractor interface {
	// Extract calls emit for every block in reading order and stops at its first error.
	// progress is told pages (or bytes) done and in all, at most a few times a second; it also proves that work moves.
	// Errors: *Failure for all that the file or its reader caused; ctx.Err() after ctx ended.
	Extract(ctx context.Context, src Source, progress func(done, total int), emit func(Block) error) (Extraction, error)
	// Attachments calls visit for each attachment of a message or a mailbox, in their order, and stops at its first error. What visit
	// does not read is left out. The names are UTF-8 and not clean: they may be paths, too long, or several times the same.
	// Errors: as Extract.
	Attachments(ctx context.Context, src Source, progress func(done, total int), visit func(name string, r io.Reader) error) error
	// Fingerprint names all readers and their versions, and settings, as Extraction.Reader does; equal fingerprints give equal blocks
	// for equal bytes.
	Fingerprint() string
}

// Segment is a piece of a document's text with its place.
type Segment struct {
	Index int
	Text  string
	Page  int // 1-based page of its first character; 0: none
	// PageBreaks are where other pages begin inside of Text, as pairs of a byte and a page; empty: nowhere, nil: not known.
	PageBreaks  [][2]int
	HeadingPath []string // outermost first
	ByteStart   int64    // in the document's extracted text (blocks joined by "\n\n"), half-open range
	ByteEnd     int64
	Tokens      int
	// Around are the first and the last index of the segments whose text a hit shows around this one; the last may lie behind the
	// document's last. Zero: none.
	Around [2]int
}

// LastPage is the page of a segment's last character; 0: none, or not known. first is that of its first one, breaks are its PageBreaks.
func LastPage(first int, breaks [][2]int) int {
	if breaks == nil {
		return 0
	}
	for _, b := range breaks {
		first = max(first, b[1])
	}
	return first
}

// Splitter cuts blocks into segments; the same blocks always give the same segments. The zero Chunking is the operator's.
type Splitter interface {
	NewRun(c Chunking) SplitRun
	// Fingerprint names the algorithm and its settings.
	Fingerprint(c Chunking) string
}

// SplitRun is one document's pass through a Splitter.
type SplitRun interface {
	// Add takes the next block and returns the segments that it completed.
	// Memory is bounded: at most the text of one segment, or of one parent, is held.
	Add(b Block) []Segment
	// Close returns the segments that are left.
	Close() []Segment
}

// Model says which embedding model makes the vectors.
type Model struct {
	Key string // provider, name and anything else that changes the vectors; at most 190 ASCII characters
	Dim int    // 0: not known before the first answer
	// Lexical says that its vectors know words and no meaning: a search for words finds more.
	Lexical bool
}

// Same reports whether two models make the same vectors; a dimension that is not known fits every other.
func (m Model) Same(o Model) bool {
	return m.Key == o.Key && (m.Dim == 0 || o.Dim == 0 || m.Dim == o.Dim)
}

// Embedder turns texts into vectors.
type Embedder interface {
	Model() Model
	// BatchSize is the most texts of one call.
	BatchSize() int
	// Embed returns one vector per text, in the texts' order, each of the same dimension, finite and not all zero.
	// Errors: *Failure (Throttled with RetryAfter after 429/503; Permanent with CodeEmbedRejected naming the text; Suspend with
	// CodeModelUnusable or CodeDimension where no text would do).
	Embed(ctx context.Context, texts []string) (vectors [][]float32, err error)
}

// Reranker judges by a model of its own how well texts fit a query.
type Reranker interface {
	// Rerank returns one score per text, in the texts' order, each finite; a higher one fits better.
	// Errors: whatever went wrong at the service, fit for a log line; that of ctx when ctx ended.
	Rerank(ctx context.Context, query string, texts []string) (scores []float64, err error)
}

// Vector is a row of the vector store.
type Vector struct {
	ID         string // 64 hex characters
	DocumentID string
	Birth      string // id of the version that it was born in
	Values     []float32
}

// Hit is one answer of the vector store.
type Hit struct {
	ID    string
	Score float64 // cosine similarity, 1 is best
}

// VectorStore keeps collections of vectors, each named by a UUID: a knowledge base's is its Base.Collection.
// All its errors are *Failure; Delete and Query of a collection that does not exist do nothing and find nothing.
type VectorStore interface {
	// Upsert writes all rows or fails; it makes the collection when it is missing.
	// Another dimension than the collection's is CodeDimension, permanent.
	Upsert(ctx context.Context, collection string, rows []Vector) error
	// Delete removes ids; unknown ones are no error. It returns after the store answered that they are gone.
	Delete(ctx context.Context, collection string, ids []string) error
	// Query finds the k nearest rows, best first. births, when not empty, limits them to rows born in these versions.
	Query(ctx context.Context, collection string, vector []float32, k int, births []string) ([]Hit, error)
	// Get returns those of ids that the store holds, by id, with document and birth; values asks for their values too,
	// which a store may return at length 1.
	Get(ctx context.Context, collection string, ids []string, values bool) (map[string]Vector, error)
	// List pages through all ids in any stable order (fsck); after is the last id of the page before.
	List(ctx context.Context, collection string, offset, limit int) ([]string, error)
	// Drop removes a collection.
	Drop(ctx context.Context, collection string) error
	// Ping returns nil when the store can be used (readiness).
	Ping(ctx context.Context) error
}
