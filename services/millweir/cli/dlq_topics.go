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
	"time"
)

// topicLetter is a dead letter of a topic: a message with its payload.
type topicLetter struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Partition  int               `json:"partition"`
	OriginalID string            `json:"originalId"`
	Group      string            `json:"group"`
	Key        *blob             `json:"key"`
	Attempts   int               `json:"attempts"`
	MaxRetries int               `json:"maxRetries"`
	FailedAt   *time.Time        `json:"failedAt"`
	Error      string            `json:"error"`
	Headers    map[string]string `json:"headers"`
	Payload    blob              `json:"payload"`
	Raw        map[string]blob   `json:"raw"`
	Replayable bool              `json:"replayable"`
	ReplayedAs *string           `json:"replayedAs"`
}

const topicLetterHeader = "LETTER\tPARTITION\tGROUP\tKEY\tFAILED\tATTEMPTS\tREPLAYED AS\tERROR"

// topicLetterRow is a dead letter in a table.
func topicLetterRow(l topicLetter) string {
	key, failed := "-", "-"
	if l.Key != nil {
		key = l.Key.show(30)
	}
	if l.FailedAt != nil {
		failed = l.FailedAt.Local().Format(time.DateTime)
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s", clean(l.ID), l.Partition, clean(l.Group), key, failed, l.Attempts, word(l.ReplayedAs), short(l.Error, 60))
}

// listTopicLetters lists dead letters of a topic, the oldest first.
func listTopicLetters(ctx context.Context, f dlqFlags, q url.Values, limit int) error {
	path := dlqFlags{f.common, f.topic, new(string)}.at("/letters")
	if *f.stream != "" {
		q.Set("kind", "stream")
		path = "/internal/dlq/topics/" + url.PathEscape(*f.stream) + "/letters"
	}
	all, err := listAll[topicLetter](ctx, f.common, path, q, limit)
	if err != nil {
		return err
	}
	return emit(f.common, all, topicLetterHeader, topicLetterRow)
}

// getTopicLetter shows one dead letter of a topic.
func getTopicLetter(ctx context.Context, f dlqFlags, id string) error {
	var l topicLetter
	if err := f.client().do(ctx, http.MethodGet, f.letter(id, ""), "", nil, &l); err != nil {
		return err
	}
	return emitOne(f.common, l, func(w io.Writer) { printTopicLetter(w, l) })
}

// printTopicLetter writes a dead letter for people.
func printTopicLetter(w io.Writer, l topicLetter) {
	line := func(name, value string) {
		if value != "" && value != "-" {
			_, _ = fmt.Fprintf(w, "%-12s %s\n", name, value)
		}
	}
	line("letter", clean(l.ID))
	line("topic", clean(l.Topic))
	line("partition", strconv.Itoa(l.Partition))
	line("entry", clean(l.OriginalID))
	line("group", clean(l.Group))
	if l.Key != nil {
		line("key", l.Key.show(200))
	}
	line("attempts", fmt.Sprintf("%d of %d", l.Attempts, l.MaxRetries))
	if l.FailedAt != nil {
		line("failed", l.FailedAt.Local().Format(time.RFC3339))
	}
	line("error", clean(l.Error))
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		line("header", clean(name)+": "+short(l.Headers[name], 200))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Raw)) {
		line("raw "+clean(name), l.Raw[name].show(200))
	}
	line("payload", l.Payload.show(2000))
	line("replayed as", word(l.ReplayedAs))
}

// replayTopicLetters replays those named.
func replayTopicLetters(ctx context.Context, f dlqFlags, ids []string, path func(string) string) error {
	done, failed := postEach[topicLetter](ctx, f.common, ids, "replay", path)
	if err := emit(f.common, done, topicLetterHeader, topicLetterRow); err != nil {
		return err
	}
	return failed
}
