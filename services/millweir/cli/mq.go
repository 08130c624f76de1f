package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// mqCommands are the verbs on topics of the partitioned queue.
func mqCommands() []Command {
	return []Command{
		{"mq topics", "", "list the topics of the partitioned queue", mqTopics},
		{"mq partitions", "TOPIC", "count what each partition holds", mqPartitions},
		{"mq groups", "TOPIC", "list groups with their lag in entries", mqGroups},
		{"mq lag", "TOPIC GROUP", "tell how a group stands on each partition", mqLag},
		{"mq owners", "TOPIC GROUP", "tell who owns which partition, and who should", mqOwners},
		{"mq pending", "TOPIC GROUP [--order idle|deliveries] [--min-idle 5m] [--limit N]", "list what a group has not finished", mqPending},
		{"mq inflight", "TOPIC GROUP", "list consumers with what they have in hand", mqInFlight},
		{"mq recent", "TOPIC [--limit N] [--partition N [--from ID] [--to ID]]", "look at messages, newest first, or at a range", mqRecent},
		{"mq trim", "TOPIC [--finished] [--max-len N] [--max-age 24h] [--dry-run] [--yes]", "remove what every group has finished", mqTrim},
		{"mq reset", "TOPIC GROUP --to start|end | --time T | --after ID [--partition N] [--force] [--drop-retries] [--yes]", "let a group go on from another place", mqReset},
		{"mq delete", "TOPIC [GROUP] [--force] [--yes]", "delete a topic with all it holds, or one group; --force although members live", mqDelete},
		{"mq status", "UUID…", "tell how far messages are", mqStatus},
	}
}

// mqFlags are flags of a verb on a topic.
type mqFlags struct {
	*common
	stream *bool
}

func newMQFlags(std IO, name string) mqFlags {
	f := newFlags(std, name)
	return mqFlags{f, f.Bool("stream", false, "TOPIC is the key of a single stream")}
}

// names reads the arguments that the words name, all of them.
func (f mqFlags) names(args []string, words ...string) ([]string, error) {
	rest, err := f.parse(args)
	if err == nil && len(rest) != len(words) {
		err = &usageError{fmt.Sprintf("needs %s, got %d arguments", strings.Join(words, " and "), len(rest))}
	}
	return rest, err
}

// at is the address of something of a topic, with its query.
func (f mqFlags) at(q url.Values, topic string, rest ...string) string {
	path := f.path(topic, rest...)
	if q = f.kind(q); len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// path is the address without its query.
func (f mqFlags) path(topic string, rest ...string) string {
	path := "/internal/mq/topics/" + url.PathEscape(topic)
	for _, r := range rest {
		path += "/" + url.PathEscape(r)
	}
	return path
}

// kind adds to a query that TOPIC is a single stream, where it is.
func (f mqFlags) kind(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if *f.stream {
		q.Set("kind", "stream")
	}
	return q
}

// get reads an address.
func (f mqFlags) get(ctx context.Context, path string, out any) error {
	return f.client().do(ctx, http.MethodGet, path, "", nil, out)
}

// page is a list's answer.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"nextCursor"`
	HasMore    bool    `json:"hasMore"`
}

// word is a text that may be missing.
func word(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return clean(*s)
}

// about marks a number that was counted only up to a bound.
func about(n int64, exact bool) string {
	if exact {
		return strconv.FormatInt(n, 10)
	}
	return "~" + strconv.FormatInt(n, 10)
}

// millis is a number of milliseconds as a duration.
func millis(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

type mqTopic struct {
	Name       string     `json:"name"`
	Partitions int        `json:"partitions"`
	Layout     string     `json:"layout"`
	Status     bool       `json:"status"`
	CreatedAt  *time.Time `json:"createdAt"`
	Deleting   bool       `json:"deleting"`
}

// mqTopics lists topics.
func mqTopics(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq topics")
	if _, err := f.names(args); err != nil {
		return err
	}
	var p page[mqTopic]
	if err := f.get(ctx, "/internal/mq/topics", &p); err != nil {
		return err
	}
	return emit(f.common, p.Items, "TOPIC\tPARTITIONS\tLAYOUT\tSTATUS\tCREATED\tNOTE", func(t mqTopic) string {
		created, note := "-", ""
		if t.CreatedAt != nil {
			created = t.CreatedAt.Local().Format(time.DateTime)
		}
		switch {
		case t.Deleting:
			note = "being deleted: run millweir mq delete again"
		case t.Partitions == 0:
			note = "its meta cannot be read"
		}
		return fmt.Sprintf("%s\t%d\t%s\t%t\t%s\t%s", clean(t.Name), t.Partitions, clean(t.Layout), t.Status, created, note)
	})
}

type mqPartition struct {
	Partition int     `json:"partition"`
	Entries   int64   `json:"entries"`
	Beside    int64   `json:"payloadsBeside"`
	FirstID   *string `json:"firstId"`
	LastID    *string `json:"lastId"`
}

// mqPartitions counts.
func mqPartitions(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq partitions")
	names, err := f.names(args, "a topic")
	if err != nil {
		return err
	}
	var stats struct {
		mqTopic
		Kind    string        `json:"kind"`
		Entries int64         `json:"entries"`
		Retries int64         `json:"retries"`
		Bad     int64         `json:"malformedRetries"`
		Letters int64         `json:"letters"`
		Beside  int64         `json:"payloadsBeside"`
		Each    []mqPartition `json:"each"`
	}
	if err := f.get(ctx, f.at(nil, names[0]), &stats); err != nil {
		return err
	}
	if f.output != "table" {
		return emitOne(f.common, stats, nil)
	}
	err = emit(f.common, stats.Each, "PARTITION\tENTRIES\tFIRST\tLAST\tPAYLOADS BESIDE", func(p mqPartition) string {
		return fmt.Sprintf("%d\t%d\t%s\t%s\t%d", p.Partition, p.Entries, word(p.FirstID), word(p.LastID), p.Beside)
	})
	if err == nil {
		_, err = fmt.Fprintf(std.Out, "%d entries, %d retries wait, %d malformed retries, %d dead letters\n", stats.Entries, stats.Retries, stats.Bad, stats.Letters)
	}
	return err
}

type mqGroup struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Members    int    `json:"members"`
	Lag        int64  `json:"lag"`
	LagExact   bool   `json:"lagExact"`
	Pending    int64  `json:"pending"`
}

// mqGroups lists groups.
func mqGroups(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq groups")
	names, err := f.names(args, "a topic")
	if err != nil {
		return err
	}
	var p page[mqGroup]
	if err := f.get(ctx, f.at(nil, names[0], "groups"), &p); err != nil {
		return err
	}
	return emit(f.common, p.Items, "GROUP\tMEMBERS\tPARTITIONS\tLAG\tPENDING", func(g mqGroup) string {
		return fmt.Sprintf("%s\t%d\t%d\t%s\t%d", clean(g.Name), g.Members, g.Partitions, about(g.Lag, g.LagExact), g.Pending)
	})
}

type mqGroupPart struct {
	Partition     int     `json:"partition"`
	Owner         *string `json:"owner"`
	Epoch         *string `json:"epoch"`
	Length        int64   `json:"length"`
	Lag           int64   `json:"lag"`
	LagExact      bool    `json:"lagExact"`
	Pending       int64   `json:"pending"`
	PutOff        int64   `json:"putOff"`
	Consumers     int64   `json:"consumers"`
	LastDelivered string  `json:"lastDelivered"`
	Frontier      *string `json:"frontier"`
	FrontierAgeMs int64   `json:"frontierAgeMs"`
}

// mqLag shows a group partition by partition; "~" marks a lag that the server cannot tell.
func mqLag(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq lag")
	names, err := f.names(args, "a topic", "a group")
	if err != nil {
		return err
	}
	var g struct {
		Name       string        `json:"name"`
		Lag        int64         `json:"lag"`
		LagExact   bool          `json:"lagExact"`
		Pending    int64         `json:"pending"`
		Partitions []mqGroupPart `json:"partitions"`
	}
	if err := f.get(ctx, f.at(nil, names[0], "groups", names[1]), &g); err != nil {
		return err
	}
	if f.output != "table" {
		return emitOne(f.common, g, nil)
	}
	err = emit(f.common, g.Partitions, "PARTITION\tLAG\tPENDING\tPUT OFF\tLENGTH\tLAST GIVEN\tOLDEST NOT FINISHED\tOWNER", func(p mqGroupPart) string {
		return fmt.Sprintf("%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s", p.Partition, about(p.Lag, p.LagExact), p.Pending, p.PutOff, p.Length,
			clean(p.LastDelivered), frontier(p), word(p.Owner))
	})
	if err == nil {
		_, err = fmt.Fprintf(std.Out, "lag %s entries, %d pending\n", about(g.Lag, g.LagExact), g.Pending)
	}
	return err
}

// frontier is how old the oldest entry is that a group has not finished.
func frontier(p mqGroupPart) string {
	if p.Frontier == nil {
		return "-"
	}
	return millis(p.FrontierAgeMs)
}

type mqOwned struct {
	Partition   int     `json:"partition"`
	Owner       *string `json:"owner"`
	Live        bool    `json:"live"`
	LeaseLeftMs int64   `json:"leaseLeftMs"`
	Epoch       *string `json:"epoch"`
}

type mqMember struct {
	Name            string `json:"name"`
	Live            bool   `json:"live"`
	HeartbeatLeftMs int64  `json:"heartbeatLeftMs"`
	Cap             int    `json:"cap"`
	Owned           int    `json:"owned"`
	Target          int    `json:"target"`
}

// mqOwners shows the rebalance view: partitions, then members.
func mqOwners(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq owners")
	names, err := f.names(args, "a topic", "a group")
	if err != nil {
		return err
	}
	var o struct {
		Unowned    int        `json:"unowned"`
		Uncovered  int        `json:"uncovered"`
		Partitions []mqOwned  `json:"partitions"`
		Members    []mqMember `json:"members"`
	}
	if err := f.get(ctx, f.at(nil, names[0], "groups", names[1], "owners"), &o); err != nil {
		return err
	}
	if f.output != "table" {
		return emitOne(f.common, o, nil)
	}
	err = emit(f.common, o.Partitions, "PARTITION\tOWNER\tLIVE\tLEASE LEFT\tEPOCH", func(p mqOwned) string {
		return fmt.Sprintf("%d\t%s\t%t\t%s\t%s", p.Partition, word(p.Owner), p.Live, millis(p.LeaseLeftMs), word(p.Epoch))
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(std.Out)
	err = emit(f.common, o.Members, "MEMBER\tLIVE\tOWNS\tTARGET\tCAP\tHEARTBEAT LEFT", func(m mqMember) string {
		return fmt.Sprintf("%s\t%t\t%d\t%d\t%d\t%s", clean(m.Name), m.Live, m.Owned, m.Target, m.Cap, millis(m.HeartbeatLeftMs))
	})
	if err == nil && o.Unowned+o.Uncovered > 0 {
		_, err = fmt.Fprintf(std.Out, "%d partitions without an owner, %d beyond the caps of all members\n", o.Unowned, o.Uncovered)
	}
	return err
}

type mqPendingEntry struct {
	Partition  int    `json:"partition"`
	ID         string `json:"id"`
	Consumer   string `json:"consumer"`
	IdleMs     int64  `json:"idleMs"`
	Deliveries int64  `json:"deliveries"`
}

// mqPending lists pending entries.
func mqPending(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq pending")
	order := f.String("order", "idle", "idle or deliveries, the largest first")
	minIdle := f.Duration("min-idle", 0, "only those idle for at least that long")
	limit := f.Int("limit", 50, "most entries")
	names, err := f.names(args, "a topic", "a group")
	if err != nil {
		return err
	}
	q := f.kind(url.Values{"order": {*order}, "minIdleMs": {strconv.FormatInt(minIdle.Milliseconds(), 10)}})
	all, err := listAll[mqPendingEntry](ctx, f.common, f.path(names[0], "groups", names[1], "pending"), q, *limit)
	if err != nil {
		return err
	}
	return emit(f.common, all, "PARTITION\tENTRY\tCONSUMER\tIDLE\tDELIVERIES", func(p mqPendingEntry) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%d", p.Partition, clean(p.ID), clean(p.Consumer), millis(p.IdleMs), p.Deliveries)
	})
}

type mqConsumer struct {
	Partition int    `json:"partition"`
	Consumer  string `json:"consumer"`
	Live      bool   `json:"live"`
	Pending   int64  `json:"pending"`
	IdleMs    int64  `json:"idleMs"`
}

// mqInFlight lists consumers.
func mqInFlight(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq inflight")
	names, err := f.names(args, "a topic", "a group")
	if err != nil {
		return err
	}
	var p page[mqConsumer]
	if err := f.get(ctx, f.at(nil, names[0], "groups", names[1], "inflight"), &p); err != nil {
		return err
	}
	return emit(f.common, p.Items, "PARTITION\tCONSUMER\tLIVE\tPENDING\tIDLE", func(c mqConsumer) string {
		return fmt.Sprintf("%d\t%s\t%t\t%d\t%s", c.Partition, clean(c.Consumer), c.Live, c.Pending, millis(c.IdleMs))
	})
}

type mqMessage struct {
	Partition   int               `json:"partition"`
	ID          string            `json:"id"`
	UUID        *string           `json:"uuid"`
	Key         *blob             `json:"key"`
	PublishedAt *time.Time        `json:"publishedAt"`
	Failed      int               `json:"failed"`
	OriginalID  *string           `json:"originalId"`
	Group       *string           `json:"group"`
	Headers     map[string]string `json:"headers"`
	Payload     blob              `json:"payload"`
	Problem     *string           `json:"problem"`
	Raw         map[string]blob   `json:"raw"`
}

// mqRecent looks at messages.
func mqRecent(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq recent")
	limit := f.Int("limit", 20, "most messages")
	filters := map[string]*string{
		"partition": f.String("partition", "", "only this one, the oldest first"),
		"from":      f.String("from", "", "with --partition: from this id on; ( before it excludes it"),
		"to":        f.String("to", "", "with --partition: up to this id"),
	}
	names, err := f.names(args, "a topic")
	if err != nil {
		return err
	}
	all, err := listAll[mqMessage](ctx, f.common, f.path(names[0], "messages"), f.kind(given(filters)), *limit)
	if err != nil {
		return err
	}
	return emit(f.common, all, "PARTITION\tENTRY\tUUID\tKEY\tPUBLISHED\tFAILED\tPAYLOAD", func(m mqMessage) string {
		key, at, payload := "-", "-", m.Payload.show(60)
		if m.Key != nil {
			key = m.Key.show(30)
		}
		if m.PublishedAt != nil {
			at = m.PublishedAt.Local().Format(time.DateTime)
		}
		if m.Problem != nil {
			payload = "unreadable: " + short(*m.Problem, 60)
		}
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%d\t%s", m.Partition, clean(m.ID), word(m.UUID), key, at, m.Failed, payload)
	})
}

// mqTrim removes finished entries after a question.
func mqTrim(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq trim")
	finished := f.Bool("finished", false, "keep nothing that every group has finished")
	maxLen := f.Int("max-len", 0, "entries that a partition keeps")
	maxAge := f.Duration("max-age", 0, "how long entries are kept")
	dryRun := f.Bool("dry-run", false, "only count")
	names, err := f.names(args, "a topic")
	if err != nil {
		return err
	}
	if !*finished && *maxLen == 0 && *maxAge == 0 {
		return &usageError{"say what to keep: --max-len, --max-age, or --finished"}
	}
	if !*dryRun {
		if err := confirm(f.common, "Remove finished entries of "+names[0]+" for good?"); err != nil {
			return err
		}
	}
	body := map[string]any{"finished": *finished, "dryRun": *dryRun}
	if *maxLen != 0 {
		body["maxLen"] = *maxLen
	}
	if *maxAge != 0 {
		body["maxAgeSeconds"] = int64(maxAge.Seconds())
	}
	var done struct {
		DryRun     bool `json:"dryRun"`
		Entries    int  `json:"entries"`
		Partitions []struct {
			Partition int     `json:"partition"`
			Entries   int     `json:"entries"`
			Frontier  *string `json:"frontier"`
		} `json:"partitions"`
	}
	if err := postJSON(ctx, f.common, f.at(nil, names[0], "trim"), body, &done); err != nil {
		return err
	}
	return emitOne(f.common, done, func(w io.Writer) {
		verb := "removed"
		if done.DryRun {
			verb = "would be removed"
		}
		_, _ = fmt.Fprintf(w, "%d entries %s\n", done.Entries, verb)
		for _, p := range done.Partitions {
			_, _ = fmt.Fprintf(w, "partition %d: %d, still needed from %s\n", p.Partition, p.Entries, word(p.Frontier))
		}
	})
}

// mqReset moves a group after a question.
func mqReset(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq reset")
	places := map[string]*string{
		"to": f.String("to", "", "start or end"), "time": f.String("time", "", "RFC 3339 time"), "after": f.String("after", "", "an entry's id"),
	}
	partition := f.Int("partition", -1, "only this one")
	force := f.Bool("force", false, "although the group has members")
	dropRetries := f.Bool("drop-retries", false, "what was put off by republishing goes too")
	names, err := f.names(args, "a topic", "a group")
	if err != nil {
		return err
	}
	place := given(places)
	if len(place) != 1 {
		return &usageError{"needs one of --to, --time and --after"}
	}
	if err := confirm(f.common, "Let group "+names[1]+" of "+names[0]+" go on from another place? What it has pending before that is given up."); err != nil {
		return err
	}
	body := map[string]any{"force": *force, "dropRetries": *dropRetries}
	for name, v := range place {
		body[name] = v[0]
	}
	if *partition >= 0 {
		body["partition"] = *partition
	}
	var done struct {
		PendingDropped int `json:"pendingDropped"`
	}
	if err := postJSON(ctx, f.common, f.at(nil, names[0], "groups", names[1], "reset"), body, &done); err != nil {
		return err
	}
	return emitOne(f.common, done, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "reset; %d pending entries given up\n", done.PendingDropped)
	})
}

// mqDelete deletes a topic or a group after a question.
func mqDelete(ctx context.Context, std IO, args []string) error {
	f := newMQFlags(std, "mq delete")
	force := f.Bool("force", false, "although members live")
	names, err := f.parse(args)
	if err != nil {
		return err
	}
	q := url.Values{}
	if *force {
		q.Set("force", "true")
	}
	var what, path string
	switch len(names) {
	case 1:
		what, path = names[0]+" with all that it holds", f.at(q, names[0])
	case 2:
		what, path = "group "+names[1]+" of "+names[0], f.at(q, names[0], "groups", names[1])
	default:
		return &usageError{fmt.Sprintf("needs a topic, and a group if only that is meant; got %d arguments", len(names))}
	}
	if err := confirm(f.common, "Delete "+what+" for good?"); err != nil {
		return err
	}
	if err := f.client().do(ctx, http.MethodDelete, path, "", nil, nil); err != nil {
		return err
	}
	return emitOne(f.common, map[string]string{"deleted": what}, func(w io.Writer) { _, _ = fmt.Fprintf(w, "deleted %s\n", clean(what)) })
}

type mqMessageStatus struct {
	ID     string `json:"id"`
	Status *struct {
		State     string    `json:"state"`
		UpdatedAt time.Time `json:"updatedAt"`
		Error     *struct {
			Type      string  `json:"type"`
			Message   string  `json:"message"`
			Traceback *string `json:"traceback"`
		} `json:"error"`
	} `json:"status"`
}

// mqStatus tells how far messages are; when none of them is known it is exit 4.
func mqStatus(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "mq status")
	ids, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return &usageError{"needs at least one UUID"}
	}
	var p page[mqMessageStatus]
	if err := f.client().do(ctx, http.MethodGet, "/internal/mq/status?ids="+url.QueryEscape(strings.Join(ids, ",")), "", nil, &p); err != nil {
		return err
	}
	return emit(f, p.Items, "MESSAGE\tSTATE\tUPDATED\tERROR", func(m mqMessageStatus) string {
		if m.Status == nil {
			return clean(m.ID) + "\tunknown or expired\t-\t"
		}
		reason := ""
		if m.Status.Error != nil {
			reason = short(m.Status.Error.Type+": "+m.Status.Error.Message, 80)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", clean(m.ID), clean(m.Status.State), m.Status.UpdatedAt.Local().Format(time.DateTime), reason)
	})
}
