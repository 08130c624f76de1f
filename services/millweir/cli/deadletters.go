package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

// deadLetters shows and mends dead letters.
func deadLetters(a *App) *cobra.Command {
	return Group("dlq", "dead letters", dlqList(a), dlqGet(a), dlqReplay(a), dlqDrop(a))
}

// place says whose dead letters: the ingest queue's, or those of a topic or single stream.
type place struct{ topic, stream string }

func newPlace(c *cobra.Command) *place {
	p := &place{}
	c.Flags().StringVar(&p.topic, "topic", "", "dead letters of a topic of the partitioned queue")
	c.Flags().StringVar(&p.stream, "stream", "", "dead letters of a single stream, by its key")
	return p
}

// ofTopic reports whether it is not the ingest queue's.
func (p *place) ofTopic() bool { return p.topic+p.stream != "" }

// at makes the addresses of the dead letters.
func (p *place) at() address {
	if !p.ofTopic() {
		return address{root: "/internal/dlq"}
	}
	return address{root: "/internal/dlq/topics/" + url.PathEscape(cmp.Or(p.stream, p.topic)), stream: p.stream != ""}
}

// selection are the filters of dead letters. The gateway refuses those that the dead letters asked for do not know.
func selection(c *cobra.Command, filters map[string]*string) {
	for _, f := range [][3]string{
		{"group", "group", "of a topic: the group that gave it up"},
		{"key", "key", "of a topic: the message's key"},
		{"partition", "partition", "of a topic: the partition"},
		{"source", "source", "redis: the dead letter stream; kafka, table: rows with status DEAD; the transport's own by default"},
		{"task", "task", "task id"},
		{"error", "error", "text in the error"},
		{"failed-after", "failedAfter", "RFC 3339 time"},
		{"failed-before", "failedBefore", "RFC 3339 time"},
	} {
		filters[f[1]] = c.Flags().String(f[0], "", f[2])
	}
}

func dlqList(a *App) *cobra.Command {
	var l *listing
	var p *place
	c := Verb("list [--topic T | --stream KEY] [--task ID] [--error TEXT] [--failed-after T] [--failed-before T] [--source S] [--limit N]",
		"list dead letters with what their tasks are now, newest first; of a topic oldest first", Needs(),
		func(ctx context.Context, _ []string) error {
			if p.ofTopic() {
				return listed(ctx, a, p.at().path("letters"), l, p.at().kind(nil), topicDeadLetterHeader, topicDeadLetterRow)
			}
			return listed(ctx, a, p.at().path(), l, nil, deadLetterHeader, deadLetterRow)
		})
	l, p = newListing(c, 50, "dead letters"), newPlace(c)
	selection(c, l.filters)
	l.filter(c, "unreplayed", "unreplayed", "of a topic: true leaves out what was replayed")
	return c
}

const (
	deadLetterHeader      = "LETTER\tTASK\tFAILED\tATTEMPTS\tNOW\tREPLAY\tERROR"
	topicDeadLetterHeader = "LETTER\tPARTITION\tGROUP\tKEY\tFAILED\tATTEMPTS\tREPLAYED AS\tERROR"
)

// deadLetterRow is a dead letter in a table.
func deadLetterRow(l wire.DeadLetter) []any {
	now, replay := "-", "yes"
	if l.Task != nil {
		now = Clean(l.Task.Status)
	}
	if l.Reason != "" {
		replay = "no: " + Clean(l.Reason)
	}
	return []any{
		Clean(l.ID), word(l.TaskID), l.FailedAt.Local().Format(time.DateTime), l.AttemptCount, now, replay, Long(l.LastError, 60),
	}
}

// topicDeadLetterRow is a dead letter of a topic in a table.
func topicDeadLetterRow(l wire.TopicDeadLetter) []any {
	return []any{
		Clean(l.ID), l.Partition, Clean(l.Group), key(l.Key, 30), day(l.FailedAt), l.Attempts, word(l.ReplayedAs), Long(l.Error, 60),
	}
}

// key is a message's key, which may be missing.
func key(b *wire.Blob, n int) string {
	if b == nil {
		return "-"
	}
	return blob(*b, n)
}

func dlqGet(a *App) *cobra.Command {
	var p *place
	c := Verb("get LETTER [--topic T | --stream KEY]", "show a dead letter", Needs("a letter id"),
		func(ctx context.Context, args []string) error {
			path := p.at().url(nil, "letters", args[0])
			if p.ofTopic() {
				return shown(ctx, a, path, printTopicDeadLetter)
			}
			return shown(ctx, a, path, printDeadLetter)
		})
	p = newPlace(c)
	return c
}

// printDeadLetter writes a dead letter for people.
func printDeadLetter(f fields, l wire.DeadLetter) {
	f.line("letter", l.ID)
	f.line("source", l.Source)
	f.line("task", string(l.TaskID))
	if l.Fence != nil {
		f.line("fence", strconv.FormatInt(*l.Fence, 10))
	}
	if l.Task != nil {
		f.line("now", fmt.Sprintf("%s, fence %d", l.Task.Status, l.Task.Fence))
	}
	f.line("attempts", strconv.Itoa(l.AttemptCount))
	f.line("failed", l.FailedAt.Local().Format(time.RFC3339))
	f.line("error", l.LastError)
	f.line("stream", string(l.SourceStream))
	f.line("group", string(l.SourceGroup))
	f.line("delivery", string(l.SourceRecordID))
	f.raw(l.Raw)
	if l.Replayable {
		f.line("replay", "possible: millweir dlq replay "+l.ID)
	} else {
		f.line("no replay", string(l.Why))
	}
}

// printTopicDeadLetter writes a dead letter of a topic for people.
func printTopicDeadLetter(f fields, l wire.TopicDeadLetter) {
	f.line("letter", l.ID)
	f.line("topic", l.Topic)
	f.line("partition", strconv.Itoa(l.Partition))
	f.line("entry", l.OriginalID)
	f.line("group", l.Group)
	f.line("key", key(l.Key, 200))
	f.line("attempts", fmt.Sprintf("%d of %d", l.Attempts, l.MaxRetries))
	if !l.FailedAt.Missing() {
		f.line("failed", l.FailedAt.Local().Format(time.RFC3339))
	}
	f.line("error", l.Error)
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		f.line("header", name+": "+Short(l.Headers[name], 200))
	}
	f.raw(l.Raw)
	f.line("payload", blob(l.Payload, 2000))
	f.line("replayed as", string(l.ReplayedAs))
}

// raw writes the fields of an entry that cannot be read.
func (f fields) raw(raw map[string]wire.Blob) {
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		f.line("raw "+Clean(name), blob(raw[name], 200))
	}
}

// bulk are the flags of a verb on many dead letters.
type bulk struct {
	*place
	all, dryRun bool
	perSecond   int    // 0: not this verb's
	reason      string // for the audit log; of drop alone
	filters     map[string]*string
}

func newBulk(c *cobra.Command) *bulk {
	b := &bulk{place: newPlace(c), filters: map[string]*string{}}
	c.Flags().BoolVar(&b.all, "all", false, "every dead letter that the filter selects")
	c.Flags().BoolVar(&b.dryRun, "dry-run", false, "with --all: only count")
	selection(c, b.filters)
	return b
}

// check tells ids from filters: one of the two is needed.
func (b *bulk) check(ids []string) error {
	switch {
	case b.all == (len(ids) > 0):
		return Usage("needs letter ids, or --all")
	case !b.all && (len(given(b.filters)) > 0 || b.dryRun):
		return Usage("filters and --dry-run go with --all")
	}
	return nil
}

// wish is the filter for the gateway.
func (b *bulk) wish() (map[string]any, error) {
	wish := map[string]any{"all": true, "dryRun": b.dryRun}
	for name, v := range given(b.filters) {
		wish[name] = v[0]
	}
	if text, ok := wish["partition"].(string); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, Usage(fmt.Sprintf("--partition %s: allowed is a number", text))
		}
		wish["partition"] = n
	}
	if b.perSecond != 0 {
		wish["perSecond"] = b.perSecond
	}
	if b.reason != "" {
		wish["reason"] = b.reason
	}
	return wish, nil
}

// bulkSum sums up what the requests of one command did.
type bulkSum struct {
	done    int
	skipped map[string]int
	failed  int
	dryRun  bool
}

// run sends the wish again and again until nothing is left, and reports; a failure ends it, and the same command goes on later.
func (b *bulk) run(ctx context.Context, a *App, step, done string) error {
	wish, err := b.wish()
	if err != nil {
		return err
	}
	sum := bulkSum{skipped: map[string]int{}, dryRun: b.dryRun}
	var failed error
	for more := true; more && failed == nil; {
		var r wire.BulkResult
		if failed = a.Gateway().Post(ctx, b.at().url(nil, step), wish, &r); failed != nil {
			break
		}
		sum.add(r)
		more, wish["cursor"] = r.NextCursor != "", r.NextCursor
		if r.Error != "" {
			failed = Failed(fmt.Errorf("%d letters failed: %s; run the command again to go on", r.Failed, r.Error))
		}
	}
	report := map[string]any{done: sum.done, "skipped": sum.skipped, "failed": sum.failed, "dryRun": sum.dryRun}
	return cmp.Or(failed, One(a, report, func(w io.Writer) { _, _ = fmt.Fprintln(w, sum.words(done)) }))
}

func (s *bulkSum) add(r wire.BulkResult) {
	for _, n := range []*int{r.Replayed, r.Dropped} {
		if n != nil {
			s.done += *n
		}
	}
	s.failed += r.Failed
	for why, n := range r.Skipped {
		s.skipped[why] += n
	}
}

// words is the report for people.
func (s *bulkSum) words(done string) string {
	text := fmt.Sprintf("%d %s", s.done, done)
	if s.dryRun {
		text = fmt.Sprintf("%d would be %s", s.done, done)
	}
	var why []string
	total := 0
	for _, reason := range slices.Sorted(maps.Keys(s.skipped)) {
		why = append(why, fmt.Sprintf("%d %s", s.skipped[reason], Clean(reason)))
		total += s.skipped[reason]
	}
	if total > 0 {
		text += fmt.Sprintf(", %d skipped (%s)", total, strings.Join(why, ", "))
	}
	if s.failed > 0 {
		text += fmt.Sprintf(", %d failed", s.failed)
	}
	return text
}

// dlqReplay runs the tasks of dead letters again: of those named, or with --all of those that the filter selects.
func dlqReplay(a *App) *cobra.Command {
	var b *bulk
	c := Verb("replay LETTER… | --all [--task ID] [--error TEXT] … [--topic T | --stream KEY] [--per-second N] [--dry-run] [--yes]",
		"run dead tasks, or messages of a topic, again, each once", cobra.ArbitraryArgs,
		func(ctx context.Context, ids []string) error {
			if err := b.check(ids); err != nil {
				return err
			}
			if b.all {
				if !b.dryRun {
					if err := a.confirm("Replay every dead letter that the filter selects?"); err != nil {
						return err
					}
				}
				return b.run(ctx, a, "replay", "replayed")
			}
			replay := func(id string) string { return b.at().url(nil, "letters", id, "replay") }
			if b.ofTopic() {
				done, failed := postEach[wire.TopicDeadLetter](ctx, a, ids, "replay", replay)
				return cmp.Or(failed, Table(a, done, topicDeadLetterHeader, topicDeadLetterRow))
			}
			done, failed := postEach[wire.InspectedTask](ctx, a, ids, "replay", replay)
			return cmp.Or(failed, Table(a, done, "TASK\tSTATUS", func(t wire.InspectedTask) []any { return taskRow(t.Task) }))
		})
	b = newBulk(c)
	c.Flags().IntVar(&b.perSecond, "per-second", 100, "with --all: most replays a second")
	return c
}

// dropped is a dead letter that is gone.
type dropped struct {
	ID string `json:"id"`
}

// dlqDrop removes dead letters for good; their rows stay DEAD.
func dlqDrop(a *App) *cobra.Command {
	var b *bulk
	c := Verb("drop LETTER… | --all [--task ID] [--error TEXT] … [--topic T | --stream KEY] [--reason TEXT] [--dry-run] [--yes]",
		"remove dead letters; the tasks stay DEAD", cobra.ArbitraryArgs,
		func(ctx context.Context, ids []string) error {
			if err := b.check(ids); err != nil {
				return err
			}
			what := fmt.Sprintf("%d dead letter(s)", len(ids))
			if b.all {
				what = "every dead letter that the filter selects"
			}
			if !b.dryRun {
				if err := a.confirm("Drop " + what + " for good?"); err != nil {
					return err
				}
			}
			if b.all {
				return b.run(ctx, a, "drop", "dropped")
			}
			q := url.Values{}
			if b.reason != "" {
				q.Set("reason", b.reason)
			}
			done, failed := forEach(ids, "drop", func(id string) (dropped, error) {
				return dropped{id}, a.Gateway().Delete(ctx, b.at().url(q, "letters", id))
			})
			return cmp.Or(failed, Table(a, done, "DROPPED", func(d dropped) []any { return []any{Clean(d.ID)} }))
		})
	b = newBulk(c)
	c.Flags().StringVar(&b.reason, "reason", "", "why, for the audit log")
	return c
}
