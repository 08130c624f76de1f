// Package topics has the routes of the partitioned queue.
package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	TopicsPath  = "/internal/mq/topics"
	oneTopic    = TopicsPath + "/:topic"
	groupsPath  = oneTopic + "/groups"
	oneGroup    = groupsPath + "/:group"
	maxStatuses = 100

	// NoRedis is why there are no topics.
	NoRedis = "this service has no Redis, so there are no topics: REDIS_URL is not set"
)

// Handler shows and mends topics, groups and messages of the partitioned queue.
type Handler struct {
	Mq    *streammq.MQ // nil: there is no Redis
	Trail web.Trail
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	routes := []web.Route{
		web.On(http.MethodGet, TopicsPath, web.AccessInspect, nil, g.listTopics),
		web.On(http.MethodGet, oneTopic, web.AccessInspect, []string{"kind"}, g.getTopic),
		web.On(http.MethodDelete, oneTopic, web.AccessOperate, []string{"kind", "force"}, g.deleteTopic),
		web.On(http.MethodGet, oneTopic+"/messages", web.AccessInspect, []string{"kind", "partition", "from", "to", "cursor", "limit"}, g.listMessages),
		web.On(http.MethodPost, oneTopic+"/trim", web.AccessOperate, []string{"kind"}, g.trimTopic),
		web.On(http.MethodGet, groupsPath, web.AccessInspect, []string{"kind"}, g.listGroups),
		web.On(http.MethodGet, oneGroup, web.AccessInspect, []string{"kind"}, ofGroup(g, (*streammq.Admin).GroupStats, views.GroupStats)),
		web.On(http.MethodDelete, oneGroup, web.AccessOperate, []string{"kind", "force"}, g.deleteGroup),
		web.On(http.MethodPost, oneGroup+"/reset", web.AccessOperate, []string{"kind"}, g.resetGroup),
		web.On(http.MethodGet, oneGroup+"/owners", web.AccessInspect, []string{"kind"}, ofGroup(g, (*streammq.Admin).Owners, func(_ string, o streammq.Owners) wire.Owners {
			return views.Owners(o)
		})),
		web.On(http.MethodGet, oneGroup+"/pending", web.AccessInspect, []string{"kind", "order", "minIdleMs", "cursor", "limit"}, g.groupPending),
		web.On(http.MethodGet, oneGroup+"/inflight", web.AccessInspect, []string{"kind"}, ofGroup(g, (*streammq.Admin).InFlight,
			func(_ string, all []streammq.ConsumerInfo) wire.List[wire.Consumer] {
				return web.Whole(all, views.Consumer)
			})),
		web.On(http.MethodGet, "/internal/mq/status", web.AccessInspect, []string{"ids"}, g.messageStatus),
	}
	if g.Mq == nil {
		routes = web.Without(routes, NoRedis)
	}
	return append(routes, web.On(http.MethodGet, "/api/messages/:messageId/status", web.AccessRead, nil, g.ownMessageStatus))
}

// isStream reads the parameter kind.
func isStream(c *gin.Context) (bool, error) {
	kind, err := web.Word(c, "kind", []string{views.KindTopic, views.KindStream})
	return kind == views.KindStream, err
}

// Queue is streammq in the layout of the topic that the path names, which has to exist, or for a single stream as it is set.
func (g *Handler) Queue(c *gin.Context) (q *streammq.MQ, stream bool, err error) {
	if stream, err = isStream(c); err != nil || stream {
		return g.Mq, stream, err
	}
	info, err := g.Mq.Topic(c.Request.Context(), c.Param("topic"))
	if err != nil {
		return nil, false, err
	}
	q, err = g.Mq.ForLayout(info.Layout)
	return q, false, err
}

// admin is an operator's access to the topic or stream that the path names.
func (g *Handler) admin(c *gin.Context) (*streammq.Admin, error) {
	q, stream, err := g.Queue(c)
	switch {
	case err != nil:
		return nil, err
	case stream:
		return q.StreamAdmin(c.Param("topic")), nil
	}
	return q.Admin(c.Param("topic")), nil
}

// group is admin with the group that the path names.
func (g *Handler) group(c *gin.Context) (*streammq.Admin, string, error) {
	a, err := g.admin(c)
	return a, c.Param("group"), err
}

// noGroup says that it is the group that was not found.
func noGroup(err error) error {
	if errors.Is(err, streammq.ErrNotFound) {
		return &web.Error{Code: web.CodeGroupNotFound, Cause: err}
	}
	return err
}

func (g *Handler) listTopics(c *gin.Context) error {
	topics, err := g.Mq.Topics(c.Request.Context())
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, web.Whole(topics, views.Topic))
}

func (g *Handler) getTopic(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	ctx, name := c.Request.Context(), c.Param("topic")
	stream, err := isStream(c)
	if err != nil {
		return err
	}
	info := streammq.TopicInfo{Name: name, Partitions: 1}
	if !stream {
		if info, err = g.Mq.Topic(ctx, name); err != nil {
			return err
		}
	}
	stats, err := a.Stats(ctx)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, views.TopicStats(info, stream, stats))
}

func (g *Handler) listGroups(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	groups, err := a.Groups(c.Request.Context())
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, web.Whole(groups, views.Group))
}

// ofGroup is a route that shows what read finds of the group that the path names.
func ofGroup[R, V any](
	g *Handler, read func(*streammq.Admin, context.Context, string) (R, error), view func(group string, r R) V,
) web.HandlerFunc {
	return func(c *gin.Context) error {
		a, name, err := g.group(c)
		if err != nil {
			return err
		}
		found, err := read(a, c.Request.Context(), name)
		if err != nil {
			return noGroup(err)
		}
		return web.JSON(c, http.StatusOK, view(name, found))
	}
}

// groupPending pages by place: the entries are sorted by what changes all the time, so that there is no key to go on from.
func (g *Handler) groupPending(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	order, err := web.Word(c, "order", []streammq.PendingOrder{streammq.PendingByIdle, streammq.PendingByDeliveries})
	if err != nil {
		return err
	}
	idle, err := web.Int(c, "minIdleMs", 0, 0, maxSettingMS)
	if err != nil {
		return err
	}
	of := "pending:" + string(order)
	limit, from, err := web.Page(c, of)
	if err != nil {
		return err
	}
	q := streammq.PendingQuery{Order: order, Idle: time.Duration(idle) * time.Millisecond, Limit: limit + 1}
	if from != nil {
		if from.At < 0 || from.At > maxPendingPlace {
			return (&web.Error{Code: web.CodeBadCursor}).About("cursor")
		}
		q.Offset = int(from.At)
	}
	rows, err := a.Pending(c.Request.Context(), name, q)
	if err != nil {
		return noGroup(err)
	}
	next := func(streammq.PendingEntry) web.Cursor { return web.Cursor{List: of, At: int64(q.Offset + limit)} }
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, views.Pending, next))
}

const (
	maxSettingMS    = 365 * 24 * 3600 * 1000
	maxPendingPlace = 100_000_000
)

func (g *Handler) listMessages(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	partition, err := web.Int(c, "partition", -1, 0, streammq.MaxPartitions-1)
	if err != nil {
		return err
	}
	from, ranged := c.GetQuery("from")
	to, bounded := c.GetQuery("to")
	if stream, _ := isStream(c); partition < 0 && (ranged || bounded) { // judged by admin
		if !stream {
			return web.Errorf(web.CodeInvalidParameter, "from and to are ids of one partition: name it by parameter partition").About("partition")
		}
		partition = 0
	}
	of := fmt.Sprint("messages:", partition)
	limit, after, err := web.Page(c, of)
	if err != nil {
		return err
	}
	var rows []streammq.Stored
	switch ctx := c.Request.Context(); {
	case partition >= 0:
		if after != nil {
			from = "(" + after.ID
		}
		rows, err = a.Range(ctx, partition, cmp.Or(from, "-"), cmp.Or(to, "+"), limit+1)
	case after != nil:
		rows, err = a.Older(ctx, int(after.At), after.ID, limit+1)
	default:
		rows, err = a.Recent(ctx, limit+1)
	}
	if err != nil {
		return err
	}
	next := func(m streammq.Stored) web.Cursor { return web.Cursor{List: of, At: int64(m.Partition), ID: m.ID} }
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, views.Message, next))
}

// messageStatus tells how far messages are. Of one that is not known it is 404; of several the unknown have none.
func (g *Handler) messageStatus(c *gin.Context) error {
	var ids []string
	for _, id := range strings.Split(c.Query("ids"), ",") {
		if id = strings.ToLower(strings.TrimSpace(id)); id == "" {
			continue
		}
		if !web.IsUUID(id) {
			return web.Errorf(web.CodeInvalidParameter, "parameter ids has %s, allowed are UUIDs with commas between", web.Shown(id)).About("ids")
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 || len(ids) > maxStatuses {
		return web.Errorf(web.CodeInvalidParameter, "parameter ids has %d ids, allowed are 1 to %d", len(ids), maxStatuses).About("ids")
	}
	found, err := g.Mq.Statuses(c.Request.Context(), ids...)
	if err != nil {
		return err
	}
	if len(ids) == 1 && len(found) == 0 {
		return web.Errorf(web.CodeMessageNotFound, "message %s is unknown, or its status has expired, or its topic keeps none", ids[0])
	}
	return web.JSON(c, http.StatusOK, web.Whole(ids, func(id string) wire.MessageStatus { return views.MessageStatus(id, found) }))
}

// ownMessageStatus tells how far a message of the caller is: one that was published with the header x-user-id. Another
// user's is as unknown as one that is not there; an operator sees all.
func (g *Handler) ownMessageStatus(c *gin.Context) error {
	id, ok := web.PathID(c, "messageId")
	if !ok || g.Mq == nil {
		return web.Errorf(web.CodeMessageNotFound, "there is no message of yours with this id whose status is known")
	}
	found := map[string]streammq.Status{}
	scope := web.Caller(c).Scope
	if scope.All() {
		var err error
		if found, err = g.Mq.Statuses(c.Request.Context(), id); err != nil {
			return err
		}
	} else {
		s, mine, err := g.Mq.OwnStatus(c.Request.Context(), scope.UserID, id)
		if err != nil {
			return err
		}
		if mine {
			found[id] = s
		}
	}
	if len(found) == 0 {
		return web.Errorf(web.CodeMessageNotFound, "there is no message of yours with this id whose status is known")
	}
	return web.JSON(c, http.StatusOK, views.MessageStatus(id, found))
}

// removal reads the parameter force.
func removal(c *gin.Context) (how streammq.Removal, err error) {
	how.Force, err = web.Bool(c, "force", false)
	return how, err
}

func (g *Handler) deleteTopic(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	how, err := removal(c)
	if err != nil {
		return err
	}
	if err := g.Trail.Noted(c, audit.QueueDelete, c.Param("topic"), fmt.Sprintf("topic or stream, with all it holds, force %t", how.Force)); err != nil {
		return err
	}
	if err := a.Delete(c.Request.Context(), how); err != nil {
		return err
	}
	return web.NoContent(c)
}

func (g *Handler) deleteGroup(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	if _, err := a.Groups(c.Request.Context()); err != nil {
		return err
	}
	how, err := removal(c)
	if err != nil {
		return err
	}
	if err := g.Trail.Noted(c, audit.QueueDelete, c.Param("topic"), fmt.Sprintf("group %s force %t", name, how.Force)); err != nil {
		return err
	}
	if err := a.DeleteGroup(c.Request.Context(), name, how); err != nil {
		return noGroup(err)
	}
	return web.NoContent(c)
}

func (g *Handler) trimTopic(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	var body wire.TrimTopic
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	switch {
	case body.MaxLen < 0:
		return web.Errorf(web.CodeInvalidField, "maxLen is %d, allowed is 1 or more", body.MaxLen).About("maxLen")
	case body.MaxAgeSeconds < 0 || body.MaxAgeSeconds > maxSettingMS/1000:
		return web.Errorf(web.CodeInvalidField, "maxAgeSeconds is %d, allowed is 1 to %d", body.MaxAgeSeconds, maxSettingMS/1000).About("maxAgeSeconds")
	case body.MaxLen == 0 && body.MaxAgeSeconds == 0 && !body.Finished:
		return web.Errorf(web.CodeInvalidField, "say what to keep: maxLen, maxAgeSeconds, or finished=true for nothing that every group has finished").About("finished")
	}
	r := streammq.Retention{MaxLen: body.MaxLen, MaxAge: time.Duration(body.MaxAgeSeconds) * time.Second, Finished: body.Finished}
	if _, err := a.Stats(c.Request.Context()); err != nil {
		return err
	}
	if !body.DryRun {
		err := g.Trail.Noted(c, audit.QueueTrim, c.Param("topic"), fmt.Sprintf("maxLen %d maxAge %s finished %t", r.MaxLen, r.MaxAge, r.Finished))
		if err != nil {
			return err
		}
	}
	parts, err := a.Trim(c.Request.Context(), r, body.DryRun)
	if err != nil {
		return err
	}
	v := wire.Trimmed{DryRun: body.DryRun, Partitions: make([]wire.TrimmedPartition, len(parts))}
	for i, p := range parts {
		v.Entries += p.Entries
		v.Partitions[i] = wire.TrimmedPartition{Partition: p.Partition, Entries: p.Entries, Frontier: wire.NullText(p.Frontier)}
	}
	return web.JSON(c, http.StatusOK, v)
}

// resetOf reads the wish.
func resetOf(b wire.ResetGroup) (r streammq.Reset, err error) {
	places := 0
	for _, given := range []bool{b.To != "", b.Time != nil, b.After != ""} {
		if given {
			places++
		}
	}
	switch {
	case places != 1:
		return r, web.Errorf(web.CodeInvalidField, "%d places are given, one is needed: to (start or end), time, or after (an entry's id)", places).About("to")
	case b.Time != nil:
		r.To = streammq.PositionTime(*b.Time)
	case b.After != "":
		if r.To, err = streammq.PositionAfter(b.After); err != nil {
			return r, web.Errorf(web.CodeInvalidField, "after is %s, allowed is an entry's id such as 1700000000000-0", web.Shown(b.After)).About("after")
		}
	case b.To == "start":
		r.To = streammq.PositionStart()
	case b.To == "end":
		r.To = streammq.PositionEnd()
	default:
		return r, web.Errorf(web.CodeInvalidField, "to is %s, allowed are start and end", web.Shown(b.To)).About("to")
	}
	r.Partition, r.Force, r.DropRetries = -1, b.Force, b.DropRetries
	if b.Partition != nil {
		if r.Partition = *b.Partition; r.Partition < 0 || r.Partition >= streammq.MaxPartitions {
			return r, web.Errorf(web.CodeInvalidField, "partition is %d, allowed is 0 to %d", r.Partition, streammq.MaxPartitions-1).About("partition")
		}
	}
	return r, nil
}

// resetWords is the wish for the audit log.
func resetWords(b wire.ResetGroup, group string) string {
	text := "group " + group + " to " + b.To + b.After
	if b.Time != nil {
		text += wire.At(*b.Time).Text()
	}
	if b.Partition != nil {
		text += fmt.Sprintf(" partition %d", *b.Partition)
	}
	return text + fmt.Sprintf(" force %t dropRetries %t", b.Force, b.DropRetries)
}

func (g *Handler) resetGroup(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	var body wire.ResetGroup
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	how, err := resetOf(body)
	if err != nil {
		return err
	}
	if _, err := a.Groups(c.Request.Context()); err != nil {
		return err
	}
	if err := g.Trail.Noted(c, audit.QueueReset, c.Param("topic"), resetWords(body, name)); err != nil {
		return err
	}
	n, err := a.ResetGroup(c.Request.Context(), name, how)
	if err != nil {
		return noGroup(err)
	}
	return web.JSON(c, http.StatusOK, wire.ResetDone{PendingDropped: n})
}
