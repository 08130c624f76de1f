package checks

import "time"

// Result is what a check found, and what a repair did or would do.
type Result struct {
	BeganAt    time.Time `json:"beganAt"` // of the attempt that ended; by the worker's clock
	EndedAt    time.Time `json:"endedAt"`
	Violations int64     `json:"violations"` // before a repair
	Rules      []Rule    `json:"rules"`
	Young      int       `json:"young"`      // files without a row that are no violation yet
	Uncompared int64     `json:"uncompared"` // vectors that a deep check could not compare
	Repair     *Repair   `json:"repair,omitempty"`
	Shortened  bool      `json:"shortened"` // evidence was left out, so that the result can be kept
}

// Rule is one rule's word.
type Rule struct {
	Rule       string    `json:"rule"`
	Sentence   string    `json:"sentence"`
	Judged     int64     `json:"judged"`
	Violations int64     `json:"violations"`
	NotJudged  string    `json:"notJudged"` // why it could not judge; empty: it could
	Examples   []Example `json:"examples"`
}

// Example is a violation with its evidence.
type Example struct {
	About   string `json:"about"` // the id of a task, document, version or vector, or a name
	Kind    string `json:"kind"`  // task, document, base: there is one of this id; empty: it is something else
	Problem string `json:"problem"`
	History string `json:"history"` // the task's log up to the violation
}

// Repair is what a repair did, or with DryRun would do.
type Repair struct {
	DryRun  bool     `json:"dryRun"`
	Mends   []Mend   `json:"mends"`
	Left    []string `json:"left"`    // what cannot be mended, with the reason
	LeftAll int      `json:"leftAll"` // all of them
	Rest    int64    `json:"rest"`    // violations that are left; of a dry run all
}

// Mend is one thing that a repair does. Count is how many, Items names the first of them; those of a repair that was done are
// counted only.
type Mend struct {
	What  string   `json:"what"`
	Rule  string   `json:"rule"` // that they break; empty: several
	Count int64    `json:"count"`
	Items []string `json:"items"`
}

// What a Mend does.
const (
	DeleteVectors  = "delete_vectors"  // that no row names
	WriteVectors   = "write_vectors"   // of visible versions, from the embedding cache or embedded anew
	EmbedVectors   = "embed_vectors"   // of those, embedded anew
	MendRows       = "mend_rows"       // of documents, where all other witnesses speak against a row
	MendIndex      = "mend_index"      // the full-text index of knowledge bases
	WakeTasks      = "wake_tasks"      // that nobody would look at
	CountFailures  = "count_failures"  // tasks that do not fail are taken off the failures
	CountDocuments = "count_documents" // of knowledge bases, anew
	RemoveFiles    = "remove_files"    // without a row, older than a day
)

// Took is how long the attempt that ended took; 0 before the end.
func (r *Result) Took() time.Duration {
	if r == nil {
		return 0
	}
	return max(0, r.EndedAt.Sub(r.BeganAt))
}
