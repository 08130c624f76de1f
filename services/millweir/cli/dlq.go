package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// letter is a dead letter of the ingest queue as the gateway shows it.
type letter struct {
	ID             string          `json:"id"`
	Source         string          `json:"source"`
	TaskID         *string         `json:"taskId"`
	Fence          *int64          `json:"fence"`
	AttemptCount   int             `json:"attemptCount"`
	LastError      string          `json:"lastError"`
	FailedAt       time.Time       `json:"failedAt"`
	SourceStream   *string         `json:"sourceStream"`
	SourceGroup    *string         `json:"sourceGroup"`
	SourceRecordID *string         `json:"sourceRecordId"`
	Raw            map[string]blob `json:"raw"`
	Task           *struct {
		Status string `json:"status"`
		Fence  int64  `json:"fence"`
	} `json:"task"`
	Replayable bool    `json:"replayable"`
	Reason     *string `json:"reason"`
	Why        *string `json:"why"`
}

// blob is a value that somebody else wrote.
type blob struct {
	Value    string `json:"value"`
	Encoding string `json:"encoding"`
	Bytes    int    `json:"bytes"`
	Clipped  bool   `json:"clipped"`
}

// show is a blob on one line.
func (b blob) show(n int) string {
	text := short(b.Value, n)
	if b.Encoding != "utf-8" {
		text = b.Encoding + ":" + text
	}
	if b.Clipped {
		text += fmt.Sprintf(" (%d bytes)", b.Bytes)
	}
	return text
}

const letterHeader = "LETTER\tTASK\tFAILED\tATTEMPTS\tNOW\tREPLAY\tERROR"

// letterRow is a dead letter in a table.
func letterRow(l letter) string {
	task, now, replay := "-", "-", "yes"
	if l.TaskID != nil {
		task = *l.TaskID
	}
	if l.Task != nil {
		now = l.Task.Status
	}
	if l.Reason != nil {
		replay = "no: " + *l.Reason
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s", clean(l.ID), clean(task), l.FailedAt.Local().Format(time.DateTime), l.AttemptCount,
		clean(now), clean(replay), short(l.LastError, 60))
}

// dlqFlags say whose dead letters: the ingest queue's, or those of a topic or single stream.
type dlqFlags struct {
	*common
	topic, stream *string
}

func newDLQFlags(std IO, name string) dlqFlags {
	f := newFlags(std, name)
	return dlqFlags{
		f, f.String("topic", "", "dead letters of a topic of the partitioned queue"),
		f.String("stream", "", "dead letters of a single stream, by its key"),
	}
}

// ofTopic reports whether it is not the ingest queue's.
func (f dlqFlags) ofTopic() bool { return *f.topic+*f.stream != "" }

// at is an address below the dead letters.
func (f dlqFlags) at(rest string) string {
	switch {
	case *f.stream != "":
		return "/internal/dlq/topics/" + url.PathEscape(*f.stream) + rest + "?kind=stream"
	case *f.topic != "":
		return "/internal/dlq/topics/" + url.PathEscape(*f.topic) + rest
	}
	return "/internal/dlq" + rest
}

// letter is the address of one dead letter, or of a step of it.
func (f dlqFlags) letter(id, step string) string {
	return f.at("/letters/" + url.PathEscape(id) + step)
}

// letterFilter are the filters of a list by their names on the wire. Those that the dead letters asked for do not know are refused there.
func letterFilter(f dlqFlags) map[string]*string {
	return map[string]*string{
		"group":        f.String("group", "", "of a topic: the group that gave it up"),
		"key":          f.String("key", "", "of a topic: the message's key"),
		"partition":    f.String("partition", "", "of a topic: the partition"),
		"source":       f.String("source", "", "redis: the dead letter stream; kafka, table: rows with status DEAD; the transport's own by default"),
		"task":         f.String("task", "", "task id"),
		"error":        f.String("error", "", "text in the error"),
		"failedAfter":  f.String("failed-after", "", "RFC 3339 time"),
		"failedBefore": f.String("failed-before", "", "RFC 3339 time"),
	}
}

// none refuses arguments of a command that takes none.
func none(rest []string) error {
	if len(rest) > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	return nil
}

// dlqList lists dead letters.
func dlqList(ctx context.Context, std IO, args []string) error {
	f := newDLQFlags(std, "dlq list")
	filter := letterFilter(f)
	filter["unreplayed"] = f.String("unreplayed", "", "of a topic: true leaves out what was replayed")
	limit := f.Int("limit", 50, "most letters")
	rest, err := f.parse(args)
	if err == nil {
		err = none(rest)
	}
	if err != nil {
		return err
	}
	if f.ofTopic() {
		return listTopicLetters(ctx, f, given(filter), *limit)
	}
	all, err := listAll[letter](ctx, f.common, f.at(""), given(filter), *limit)
	if err != nil {
		return err
	}
	return emit(f.common, all, letterHeader, letterRow)
}

// dlqGet shows one dead letter.
func dlqGet(ctx context.Context, std IO, args []string) error {
	f := newDLQFlags(std, "dlq get")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest, "letter id")
	if err != nil {
		return err
	}
	if f.ofTopic() {
		return getTopicLetter(ctx, f, id)
	}
	var l letter
	if err := f.client().do(ctx, http.MethodGet, f.letter(id, ""), "", nil, &l); err != nil {
		return err
	}
	return emitOne(f.common, l, func(w io.Writer) { printLetter(w, l) })
}

// printLetter writes a dead letter for people.
func printLetter(w io.Writer, l letter) {
	line := func(name string, value *string) {
		if value != nil && *value != "" {
			_, _ = fmt.Fprintf(w, "%-12s %s\n", name, clean(*value))
		}
	}
	text := func(name, value string) { line(name, &value) }
	text("letter", l.ID)
	text("source", l.Source)
	line("task", l.TaskID)
	if l.Fence != nil {
		text("fence", strconv.FormatInt(*l.Fence, 10))
	}
	if l.Task != nil {
		text("now", fmt.Sprintf("%s, fence %d", l.Task.Status, l.Task.Fence))
	}
	text("attempts", strconv.Itoa(l.AttemptCount))
	text("failed", l.FailedAt.Local().Format(time.RFC3339))
	text("error", l.LastError)
	line("stream", l.SourceStream)
	line("group", l.SourceGroup)
	line("delivery", l.SourceRecordID)
	for _, name := range slices.Sorted(maps.Keys(l.Raw)) {
		text("raw "+name, l.Raw[name].show(200))
	}
	if l.Replayable {
		text("replay", "possible: millweir dlq replay "+l.ID)
	} else {
		line("no replay", l.Why)
	}
}

// bulkFlags are the flags of a verb on many dead letters.
type bulkFlags struct {
	all, dryRun *bool
	perSecond   *int
	filter      map[string]*string
}

// chosen tells ids from filters: one of the two is needed.
func (b bulkFlags) chosen(ids []string) error {
	switch {
	case *b.all == (len(ids) > 0):
		return &usageError{"needs letter ids, or --all"}
	case !*b.all && (len(given(b.filter)) > 0 || *b.dryRun):
		return &usageError{"filters and --dry-run go with --all"}
	}
	return nil
}

// body is the filter for the gateway.
func (b bulkFlags) body() (map[string]any, error) {
	body := map[string]any{"all": true, "dryRun": *b.dryRun}
	for name, v := range given(b.filter) {
		body[name] = v[0]
	}
	if text, ok := body["partition"].(string); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--partition %s: allowed is a number", text)}
		}
		body["partition"] = n
	}
	if b.perSecond != nil {
		body["perSecond"] = *b.perSecond
	}
	return body, nil
}

// read parses the arguments: ids, or the filter as the gateway takes it.
func (b bulkFlags) read(f dlqFlags, args []string) (ids []string, body map[string]any, err error) {
	if ids, err = f.parse(args); err != nil {
		return nil, nil, err
	}
	if err = b.chosen(ids); err != nil {
		return nil, nil, err
	}
	body, err = b.body()
	return ids, body, err
}

// bulkReport sums up what the requests of one command did.
type bulkReport struct {
	Done    int            `json:"-"`
	Skipped map[string]int `json:"skipped"`
	Failed  int            `json:"failed"`
	DryRun  bool           `json:"dryRun"`
}

// bulk sends the wish again and again until nothing is left, and reports; a failure ends it, and the same command goes on later.
func bulk(ctx context.Context, f *common, path, done string, body map[string]any) error {
	sum := bulkReport{Skipped: map[string]int{}, DryRun: body["dryRun"] == true}
	var failed error
	for more := true; more && failed == nil; {
		var answer struct {
			Replayed, Dropped int
			Skipped           map[string]int
			Failed            int
			Error             *string
			NextCursor        *string
		}
		if failed = postJSON(ctx, f, path, body, &answer); failed != nil {
			break
		}
		sum.Done, sum.Failed = sum.Done+answer.Replayed+answer.Dropped, sum.Failed+answer.Failed
		for why, n := range answer.Skipped {
			sum.Skipped[why] += n
		}
		if more = answer.NextCursor != nil; more {
			body["cursor"] = *answer.NextCursor
		}
		if answer.Error != nil {
			failed = Failed(fmt.Errorf("%d letters failed: %s; run the command again to go on", answer.Failed, *answer.Error))
		}
	}
	report := map[string]any{done: sum.Done, "skipped": sum.Skipped, "failed": sum.Failed, "dryRun": sum.DryRun}
	err := emitOne(f, report, func(w io.Writer) { _, _ = fmt.Fprintln(w, sum.words(done)) })
	if failed != nil {
		return failed
	}
	return err
}

// words is the report for people.
func (r bulkReport) words(done string) string {
	text := fmt.Sprintf("%d %s", r.Done, done)
	if r.DryRun {
		text = fmt.Sprintf("%d would be %s", r.Done, done)
	}
	var why []string
	total := 0
	for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
		why = append(why, fmt.Sprintf("%d %s", r.Skipped[reason], clean(reason)))
		total += r.Skipped[reason]
	}
	if total > 0 {
		text += fmt.Sprintf(", %d skipped (%s)", total, strings.Join(why, ", "))
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d failed", r.Failed)
	}
	return text
}

// dlqReplay puts the tasks of dead letters back: of those named, or with --all of those that the filter selects.
func dlqReplay(ctx context.Context, std IO, args []string) error {
	f := newDLQFlags(std, "dlq replay")
	b := bulkFlags{
		all: f.Bool("all", false, "every dead letter that the filter selects"), dryRun: f.Bool("dry-run", false, "with --all: only count"),
		perSecond: f.Int("per-second", 100, "with --all: most replays a second"), filter: letterFilter(f),
	}
	ids, body, err := b.read(f, args)
	if err != nil {
		return err
	}
	if *b.all {
		if !*b.dryRun {
			if err := confirm(f.common, "Replay every dead letter that the filter selects?"); err != nil {
				return err
			}
		}
		return bulk(ctx, f.common, f.at("/replay"), "replayed", body)
	}
	replay := func(id string) string { return f.letter(id, "/replay") }
	if f.ofTopic() {
		return replayTopicLetters(ctx, f, ids, replay)
	}
	done, failed := postEach[task](ctx, f.common, ids, "replay", replay)
	if err := emit(f.common, done, "TASK\tSTATUS", func(t task) string { return clean(t.TaskID) + "\t" + clean(t.Status) }); err != nil {
		return err
	}
	return failed
}

// dlqDrop removes entries for good; their rows stay DEAD.
func dlqDrop(ctx context.Context, std IO, args []string) error {
	f := newDLQFlags(std, "dlq drop")
	b := bulkFlags{
		all: f.Bool("all", false, "every dead letter that the filter selects"), dryRun: f.Bool("dry-run", false, "with --all: only count"),
		filter: letterFilter(f),
	}
	ids, body, err := b.read(f, args)
	if err != nil {
		return err
	}
	if !*b.dryRun {
		what := fmt.Sprintf("%d dead letter(s)", len(ids))
		if *b.all {
			what = "every dead letter that the filter selects"
		}
		if err := confirm(f.common, "Drop "+what+" for good?"); err != nil {
			return err
		}
	}
	if *b.all {
		return bulk(ctx, f.common, f.at("/drop"), "dropped", body)
	}
	return dropEach(ctx, f.common, ids, func(id string) string { return f.letter(id, "") })
}

// dropEach deletes one thing after the other; the first refusal ends it.
func dropEach(ctx context.Context, f *common, ids []string, path func(string) string) error {
	type dropped struct {
		ID string `json:"id"`
	}
	var done []dropped
	var failed error
	for _, id := range ids {
		if failed = f.client().do(ctx, http.MethodDelete, path(id), "", nil, nil); failed != nil {
			failed = fmt.Errorf("drop %s: %w", id, failed)
			break
		}
		done = append(done, dropped{id})
	}
	if err := emit(f, done, "DROPPED", func(d dropped) string { return clean(d.ID) }); err != nil {
		return err
	}
	return failed
}
