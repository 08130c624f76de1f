// Package rules names the rules by which package fsck judges, and adds up what several looks say of them.
package rules

import (
	"slices"

	"github.com/millweir/millweir/pkg/taskstate/history"
)

// Rule is one sentence of deploy/docs/rules.md that package fsck judges, or will.
type Rule struct {
	ID, Sentence string
	Later        string // why there is nothing to judge in this release; empty: there is
	Content      bool   // judged by a plain look, without the history
}

// Own are those of package fsck in the order of the report, after those of package history.
var Own = []Rule{
	{"I12", "nothing accepted is lost: task, document and file are there, the file with its recorded SHA-256, and no file without a row", "", true},
	{"I13", "every task came from a request, or names the source that made it", "", false},
	{"I14", "one task per user and Idempotency-Key; the same bytes get it again, others are refused", "", false},
	{"I15", "a QUEUED task has a delivery, or is promised again one sweep after its wake time; it starts only by a delivery", "", false},
	{"I16", "an event is SENT only after the broker's acknowledgement, and says so", "", false},
	{"I17", "a holder acknowledges its delivery only after the outcome of its claim is committed", "", false},
	{"I18", "every DEAD task has its dead letter, and every dead letter a death in its task's log", "", true},
	{"I19", "every pending delivery names a known task, and none without its entry stays", "", false},
	{"I20", "nothing is trimmed that a group still needs", "", false},
	{"I21", "a committed offset of Kafka lies within its log and never falls", "", false},
	{"I22", "the mirror has a copy of every unfinished task, or a row says why not, and none of a finished one", "", false},
	{"I23", "a version is visible only by its task's success, at most one of a document, and their numbers rise", "", true},
	{"I24", "a document that once had a visible version and was not deleted has one", "", true},
	{"I25", "a visible version has segments 0…n−1, each with its text and a vector of the right dimension, document and version, a row for each key of its metadata, and the store no vector that SQL does not name", "", true},
	{"I26", "segments, hits and paid calls belong to claims that the log knows", "", false},
	{"I27", "the same bytes with the same settings give the same segments", "", true},
	{"I28", "a finished batch is paid once; a crash, a lost answer or a run that ended in the middle pays again only what was in flight", "", false},
	{"I29", "a deleted document is gone: not in a hit after the answer, and without task, segment, file after one sweep", "", true},
	{"I30", "only the owner or an operator changes a task, a search finds only the caller's documents, a document is of the user of its base, tasks and files, and no user id can be taken for another", "", true},
	{"I31", "leases of partitions are exclusive, their epochs rise, and what is read and settled carries the last one", "", false},
	{"I32", "first deliveries of one key, and the versions of one document, are begun in the order of their partition", "", false},
	{"I33", "a published status never goes back from completed, nor its time", "", false},
	{"I34", "the counts of /internal/tasks/stats are those of SQL", "", false},
	{"I35", "a watcher sees a part of the log in its order, to the end, and nothing twice with another content", "", false},
	{"I36", "no message, error or log line holds a secret", "", false},
	{"I37", "each visible segment is in the full-text index of its base with the hash of its text, and the parts of the index are whole", "", true},
	{"I38", "each task that wakes is named by a call of its status that wakes no later", "", true},
	{"I39", "a task of a workflow that has ended has one row of workflow_runs with its status and result, and no other task has one", "", true},
	{"I40", "each task that fails is counted once among the failures of its cause, no other is, and each group has as many as it says", "", false},
	{"I41", "as many tasks are counted as there are, in each status and of each user and knowledge base in it", "", false},
	{"I42", "as many live documents and segments are counted as there are, of each knowledge base and status", "", false},
	{"I43", "a living attachment is in the knowledge base and of the user of its message, which lives, or is deleted and not swept yet", "", true},
	{"I44", "a deleted document has a receipt, which says removed when none of its rows is left, and not before", "", true},
	{"L1", "at rest every task is terminal, SUSPENDED, or RETRYING with a due time ahead", "", false},
	{"L2", "no lease stays expired for longer than a lease and a look of the recovery", "", false},
	{"L3", "no event waits longer than a relay takes; at rest the outbox is drained", "", false},
	{"L4", "at rest no finished task has a pending delivery", "", false},
	{"L5", "at rest the group was given every entry: no worker is deaf", "", false},
	{"L6", "after a loss of Redis every waiting task is promised again within 15 s", "", false},
}

// elsewhere are the rules that have something to judge only where deliveries are events, lie in partitions, or tasks have copies or are workflows.
var elsewhere = []string{"I16", "I21", "L3", "I31", "I32", "I33", "I22", "I39"}

// IDs are the ids of all rules that a check names, in their order.
func IDs() []string {
	var out []string
	for _, r := range history.Rules() {
		out = append(out, r.ID)
	}
	for _, r := range Own {
		out = append(out, r.ID)
	}
	return out
}

// Applicable are the ids of all rules that this release can judge on every transport, in their order.
func Applicable() []string {
	var out []string
	for _, r := range history.Rules() {
		out = append(out, r.ID)
	}
	for _, r := range Own {
		if r.Later == "" && !slices.Contains(elsewhere, r.ID) {
			out = append(out, r.ID)
		}
	}
	return out
}

// Merge adds up reports of several looks; each rule stands once, in the order of the first report that has it. A rule could
// judge if any of them could.
func Merge(reports ...history.Report) history.Report {
	var out history.Report
	at := map[string]int{}
	for _, one := range slices.Concat(reports...) {
		i, ok := at[one.Rule]
		if !ok {
			at[one.Rule] = len(out)
			out = append(out, one)
			continue
		}
		sum := &out[i]
		sum.Judged += one.Judged
		sum.Violations += one.Violations
		left := max(0, history.DefaultExamples-len(sum.Examples))
		sum.Examples = slices.Concat(sum.Examples, one.Examples[:min(left, len(one.Examples))])
		if one.NotJudged == "" {
			sum.NotJudged = ""
		}
	}
	return out
}
