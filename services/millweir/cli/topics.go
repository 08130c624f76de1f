package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

// topics shows and mends the topics of the partitioned queue.
func topics(a *App) *cobra.Command {
	return Group("mq", "the partitioned queue", mqTopics(a), mqPartitions(a), mqGroups(a), mqLag(a), mqOwners(a), mqPending(a),
		mqInFlight(a), mqRecent(a), mqTrim(a), mqReset(a), mqDelete(a), mqStatus(a))
}

// topicVerb is a verb on a topic or single stream.
func topicVerb(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, at topicPath, args []string) error) *cobra.Command {
	var stream bool
	c := Verb(use, short, args, func(ctx context.Context, args []string) error {
		at := topicPath{address{"/internal/mq/topics/" + url.PathEscape(args[0]), stream}, args[0]}
		return run(ctx, at, args[1:])
	})
	c.Flags().BoolVar(&stream, "stream", false, "TOPIC is the key of a single stream")
	return c
}

// topicPath makes the addresses of a topic or single stream.
type topicPath struct {
	address

	name string
}

// address makes those of what stands below a root.
type address struct {
	root   string
	stream bool // the root is that of a single stream
}

// url is an address with q as its query.
func (t address) url(q url.Values, rest ...string) string {
	if q = t.kind(q); len(q) == 0 {
		return t.path(rest...)
	}
	return t.path(rest...) + "?" + q.Encode()
}

// path is the address without its query.
func (t address) path(rest ...string) string {
	path := t.root
	for _, r := range rest {
		path += "/" + url.PathEscape(r)
	}
	return path
}

// kind adds to a query that the topic is a single stream, where it is.
func (t address) kind(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if t.stream {
		q.Set("kind", "stream")
	}
	return q
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

// whole reads a list that is one page and shows it.
func whole[T any](ctx context.Context, a *App, path, header string, row func(T) []any) error {
	var all wire.List[T]
	if err := a.Gateway().Get(ctx, path, &all); err != nil {
		return err
	}
	return Table(a, all.Items, header, row)
}

// part reads one thing and shows a list in it, with a last line below the table.
func part[T, P any](ctx context.Context, a *App, path, header string, parts func(T) []P, row func(P) []any, last func(T) string) error {
	var of T
	if err := a.Gateway().Get(ctx, path, &of); err != nil {
		return err
	}
	if a.Output != "table" {
		return One(a, of, nil)
	}
	if err := Table(a, parts(of), header, row); err != nil {
		return err
	}
	_, err := io.WriteString(a.Out, last(of))
	return err
}

func mqTopics(a *App) *cobra.Command {
	return Verb("topics", "list the topics of the partitioned queue", Needs(), func(ctx context.Context, _ []string) error {
		return whole(ctx, a, "/internal/mq/topics", "TOPIC\tPARTITIONS\tLAYOUT\tSTATUS\tCREATED\tNOTE", func(t wire.Topic) []any {
			note := ""
			switch {
			case t.Deleting:
				note = "being deleted: millweir mq delete again"
			case t.Partitions == 0:
				note = "its meta cannot be read"
			}
			return []any{Clean(t.Name), t.Partitions, Clean(t.Layout), t.Status, day(t.CreatedAt), note}
		})
	})
}

func mqPartitions(a *App) *cobra.Command {
	return topicVerb("partitions TOPIC", "count what each partition holds", Needs("a topic"),
		func(ctx context.Context, at topicPath, _ []string) error {
			return part(ctx, a, at.url(nil), "PARTITION\tENTRIES\tFIRST\tLAST\tPAYLOADS BESIDE",
				func(s wire.TopicStats) []wire.PartitionStats { return s.Each },
				func(p wire.PartitionStats) []any {
					return []any{p.Partition, p.Entries, word(p.FirstID), word(p.LastID), p.Beside}
				},
				func(s wire.TopicStats) string {
					return fmt.Sprintf("%d entries, %d retries wait, %d malformed retries, %d dead letters\n", s.Entries, s.Retries, s.Malformed, s.DeadLetters)
				})
		})
}

func mqGroups(a *App) *cobra.Command {
	return topicVerb("groups TOPIC", "list groups with their lag in entries", Needs("a topic"),
		func(ctx context.Context, at topicPath, _ []string) error {
			return whole(ctx, a, at.url(nil, "groups"), "GROUP\tMEMBERS\tPARTITIONS\tLAG\tPENDING", func(g wire.Group) []any {
				return []any{Clean(g.Name), g.Members, g.Partitions, about(g.Lag, g.LagExact), g.Pending}
			})
		})
}

// mqLag shows a group partition by partition; "~" marks a lag that the server cannot tell.
func mqLag(a *App) *cobra.Command {
	return topicVerb("lag TOPIC GROUP", "tell how a group stands on each partition", Needs("a topic", "a group"),
		func(ctx context.Context, at topicPath, args []string) error {
			return part(ctx, a, at.url(nil, "groups", args[0]),
				"PARTITION\tLAG\tPENDING\tPUT OFF\tLENGTH\tLAST GIVEN\tOLDEST NOT FINISHED\tOWNER",
				func(g wire.GroupStats) []wire.GroupPartition { return g.Partitions },
				func(p wire.GroupPartition) []any {
					oldest := "-"
					if p.Frontier != "" {
						oldest = millis(p.FrontierAgeMs)
					}
					return []any{p.Partition, about(p.Lag, p.LagExact), p.Pending, p.PutOff, p.Length, Clean(p.LastDelivered), oldest, word(p.Owner)}
				},
				func(g wire.GroupStats) string {
					return fmt.Sprintf("lag %s entries, %d pending\n", about(g.Lag, g.LagExact), g.Pending)
				})
		})
}

// mqOwners shows the rebalance view: partitions, then members.
func mqOwners(a *App) *cobra.Command {
	return topicVerb("owners TOPIC GROUP", "tell who owns which partition, and who should", Needs("a topic", "a group"),
		func(ctx context.Context, at topicPath, args []string) error {
			var owners wire.Owners
			err := part(ctx, a, at.url(nil, "groups", args[0], "owners"), "PARTITION\tOWNER\tLIVE\tLEASE LEFT\tEPOCH",
				func(o wire.Owners) []wire.OwnedPartition {
					owners = o
					return o.Partitions
				},
				func(p wire.OwnedPartition) []any {
					return []any{p.Partition, word(p.Owner), p.Live, millis(p.LeaseLeftMs), word(p.Epoch)}
				},
				func(wire.Owners) string { return "\n" })
			if err != nil || a.Output != "table" {
				return err
			}
			err = Table(a, owners.Members, "MEMBER\tLIVE\tOWNS\tTARGET\tCAP\tHEARTBEAT LEFT", func(m wire.Member) []any {
				return []any{Clean(m.Name), m.Live, m.Owned, m.Target, m.Cap, millis(m.HeartbeatLeftMs)}
			})
			if err == nil && owners.Unowned+owners.Uncovered > 0 {
				_, err = fmt.Fprintf(a.Out, "%d partitions without an owner, %d beyond the caps of all members\n", owners.Unowned, owners.Uncovered)
			}
			return err
		})
}

func mqPending(a *App) *cobra.Command {
	var l *listing
	var order string
	var idle time.Duration
	c := topicVerb("pending TOPIC GROUP [--order idle|deliveries] [--min-idle 5m] [--limit N]", "list what a group has not finished",
		Needs("a topic", "a group"), func(ctx context.Context, at topicPath, args []string) error {
			q := at.kind(url.Values{"order": {order}, "minIdleMs": {strconv.FormatInt(idle.Milliseconds(), 10)}})
			return listed(ctx, a, at.path("groups", args[0], "pending"), l, q, "PARTITION\tENTRY\tCONSUMER\tIDLE\tDELIVERIES", func(p wire.Pending) []any {
				return []any{p.Partition, Clean(p.ID), Clean(p.Consumer), millis(p.IdleMs), p.Deliveries}
			})
		})
	l = newListing(c, 50, "entries")
	c.Flags().StringVar(&order, "order", "idle", "idle or deliveries, the largest first")
	c.Flags().DurationVar(&idle, "min-idle", 0, "only those idle for at least that long")
	return c
}

func mqInFlight(a *App) *cobra.Command {
	return topicVerb("inflight TOPIC GROUP", "list consumers with what they have in hand", Needs("a topic", "a group"),
		func(ctx context.Context, at topicPath, args []string) error {
			return whole(ctx, a, at.url(nil, "groups", args[0], "inflight"), "PARTITION\tCONSUMER\tLIVE\tPENDING\tIDLE", func(c wire.Consumer) []any {
				return []any{c.Partition, Clean(c.Consumer), c.Live, c.Pending, millis(c.IdleMs)}
			})
		})
}

func mqRecent(a *App) *cobra.Command {
	var l *listing
	c := topicVerb("recent TOPIC [--limit N] [--partition N [--from ID] [--to ID]]", "look at messages, newest first, or at a range",
		Needs("a topic"), func(ctx context.Context, at topicPath, _ []string) error {
			return listed(ctx, a, at.path("messages"), l, at.kind(nil), "PARTITION\tENTRY\tUUID\tKEY\tPUBLISHED\tFAILED\tPAYLOAD", messageRow)
		})
	l = newListing(c, 20, "messages")
	l.filter(c, "partition", "partition", "only this one, the oldest first")
	l.filter(c, "from", "from", "with --partition: from this id on; ( before it excludes it")
	l.filter(c, "to", "to", "with --partition: up to this id")
	return c
}

// messageRow is a message in a table.
func messageRow(m wire.Message) []any {
	payload := blob(m.Payload, 60)
	if m.Problem != "" {
		payload = "unreadable: " + Short(m.Problem, 60)
	}
	return []any{m.Partition, Clean(m.ID), word(m.UUID), key(m.Key, 30), day(m.PublishedAt), m.Failed, payload}
}

func mqTrim(a *App) *cobra.Command {
	var wish wire.TrimTopic
	var maxAge time.Duration
	c := topicVerb("trim TOPIC [--finished] [--max-len N] [--max-age 24h] [--dry-run] [--yes]", "remove what every group has finished",
		Needs("a topic"), func(ctx context.Context, at topicPath, _ []string) error {
			if !wish.Finished && wish.MaxLen == 0 && maxAge == 0 {
				return Usage("say what to keep: --max-len, --max-age, or --finished")
			}
			if !wish.DryRun {
				if err := a.confirm("Remove finished entries of " + at.name + " for good?"); err != nil {
					return err
				}
			}
			wish.MaxAgeSeconds = int64(maxAge.Seconds())
			return posted(ctx, a, at.url(nil, "trim"), wish, func(w fields, done wire.Trimmed) {
				verb := "removed"
				if done.DryRun {
					verb = "would be removed"
				}
				_, _ = fmt.Fprintf(w, "%d entries %s\n", done.Entries, verb)
				for _, p := range done.Partitions {
					_, _ = fmt.Fprintf(w, "partition %d: %d, still needed from %s\n", p.Partition, p.Entries, word(p.Frontier))
				}
			})
		})
	c.Flags().BoolVar(&wish.Finished, "finished", false, "keep nothing that every group has finished")
	c.Flags().IntVar(&wish.MaxLen, "max-len", 0, "entries that a partition keeps")
	c.Flags().DurationVar(&maxAge, "max-age", 0, "how long entries are kept")
	c.Flags().BoolVar(&wish.DryRun, "dry-run", false, "only count")
	return c
}

func mqReset(a *App) *cobra.Command {
	places := map[string]*string{}
	wish := map[string]any{}
	var partition int
	var force, dropRetries bool
	c := topicVerb("reset TOPIC GROUP --to start|end | --time T | --after ID [--partition N] [--force] [--drop-retries] [--yes]",
		"let a group go on from another place", Needs("a topic", "a group"), func(ctx context.Context, at topicPath, args []string) error {
			place := given(places)
			if len(place) != 1 {
				return Usage("needs one of --to, --time and --after")
			}
			err := a.confirm("Let group " + args[0] + " of " + at.name + " go on from another place? What it has pending before that is given up.")
			if err != nil {
				return err
			}
			wish["force"], wish["dropRetries"] = force, dropRetries
			for name, v := range place {
				wish[name] = v[0]
			}
			if partition >= 0 {
				wish["partition"] = partition
			}
			return posted(ctx, a, at.url(nil, "groups", args[0], "reset"), wish, func(w fields, done wire.ResetDone) {
				_, _ = fmt.Fprintf(w, "reset; %d pending entries given up\n", done.PendingDropped)
			})
		})
	f := c.Flags()
	places["to"] = f.String("to", "", "start or end")
	places["time"] = f.String("time", "", "RFC 3339 time")
	places["after"] = f.String("after", "", "an entry's id")
	f.IntVar(&partition, "partition", -1, "only this one")
	f.BoolVar(&force, "force", false, "although the group has members")
	f.BoolVar(&dropRetries, "drop-retries", false, "what was put off by republishing goes too")
	return c
}

// mqDelete deletes a topic or a group after a question.
func mqDelete(a *App) *cobra.Command {
	var force bool
	topicOrGroup := func(_ *cobra.Command, args []string) error {
		if len(args) != 1 && len(args) != 2 {
			return Usage(fmt.Sprintf("needs a topic, and a group if only that is meant; got %d arguments", len(args)))
		}
		return nil
	}
	c := topicVerb("delete TOPIC [GROUP] [--force] [--yes]", "delete a topic with all it holds, or one group; --force although members live",
		topicOrGroup, func(ctx context.Context, at topicPath, args []string) error {
			q := url.Values{}
			if force {
				q.Set("force", "true")
			}
			what, path := at.name+" with all that it holds", at.url(q)
			if len(args) == 1 {
				what, path = "group "+args[0]+" of "+at.name, at.url(q, "groups", args[0])
			}
			if err := a.confirm("Delete " + what + " for good?"); err != nil {
				return err
			}
			if err := a.Gateway().Delete(ctx, path); err != nil {
				return err
			}
			return One(a, map[string]string{"deleted": what}, func(w io.Writer) { _, _ = fmt.Fprintf(w, "deleted %s\n", Clean(what)) })
		})
	c.Flags().BoolVar(&force, "force", false, "although members live")
	return c
}

// mqStatus tells how far messages are; when none of them is known it is exit 4.
func mqStatus(a *App) *cobra.Command {
	return Verb("status UUID…", "tell how far messages are", NeedsSome("UUID"), func(ctx context.Context, ids []string) error {
		path := "/internal/mq/status?ids=" + url.QueryEscape(strings.Join(ids, ","))
		return whole(ctx, a, path, "MESSAGE\tSTATE\tUPDATED\tERROR", func(m wire.MessageStatus) []any {
			if m.Status == nil {
				return []any{Clean(m.ID), "unknown or expired", "-", ""}
			}
			reason := ""
			if m.Status.Error != nil {
				reason = Short(m.Status.Error.Type+": "+m.Status.Error.Message, 80)
			}
			return []any{Clean(m.ID), Clean(m.Status.State), m.Status.UpdatedAt.Local().Format(time.DateTime), reason}
		})
	})
}
