// Package topics has the routes of the partitioned queue.
package topics

import (
	"cmp"
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
	kind, forced := []string{"kind"}, []string{"kind", "force"}
	messages := []string{"kind", "partition", "from", "to", "cursor", "limit"}
	pending := []string{"kind", "order", "minIdleMs", "cursor", "limit"}
	routes := []web.Route{
		web.On(http.MethodGet, TopicsPath, web.AccessWatch, nil, g.listTopics),
		web.On(http.MethodGet, oneTopic, web.AccessWatch, kind, web.Of(g.admin, g.getTopic)),
		web.On(http.MethodDelete, oneTopic, web.AccessOperate, forced, web.Of(g.admin, g.deleteTopic)),
		web.On(http.MethodGet, oneTopic+"/messages", web.AccessInspect, messages, web.Of(g.admin, g.listMessages)),
		web.On(http.MethodPost, oneTopic+"/trim", web.AccessOperate, kind, web.Of(g.admin, g.trimTopic)),
		web.On(http.MethodGet, groupsPath, web.AccessWatch, kind, web.Of(g.admin, g.listGroups)),
		web.On(http.MethodGet, oneGroup, web.AccessWatch, kind, web.Of(g.admin, g.getGroup)),
		web.On(http.MethodDelete, oneGroup, web.AccessOperate, forced, web.Of(g.admin, g.deleteGroup)),
		web.On(http.MethodPost, oneGroup+"/reset", web.AccessOperate, kind, web.Of(g.admin, g.resetGroup)),
		web.On(http.MethodGet, oneGroup+"/owners", web.AccessWatch, kind, web.Of(g.admin, g.groupOwners)),
		web.On(http.MethodGet, oneGroup+"/pending", web.AccessWatch, pending, web.Of(g.admin, g.groupPending)),
		web.On(http.MethodGet, oneGroup+"/inflight", web.AccessWatch, kind, web.Of(g.admin, g.groupInFlight)),
		web.On(http.MethodGet, "/internal/mq/status", web.AccessInspect, []string{"ids"}, g.messageStatus),
	}
	if g.Mq == nil {
		routes = web.Without(routes, NoRedis)
	}
	own := web.Of(web.ID("messageId", errNotYours), g.ownMessageStatus)
	return append(routes, web.On(http.MethodGet, "/api/messages/:messageId/status", web.AccessRead, nil, own))
}

// isStream reads the parameter kind.
func isStream(c *gin.Context) (bool, error) {
	p := web.ParamsOf(c)
	return web.Word(p, "kind", []string{views.KindTopic, views.KindStream}) == views.KindStream, p.Err()
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

// noGroup says that it is the group that was not found.
func noGroup(err error) error {
	if errors.Is(err, streammq.ErrNotFound) {
		return &web.Error{Code: web.CodeGroupNotFound, Cause: err}
	}
	return err
}

func (g *Handler) listTopics(c *gin.Context) error {
	return web.Show(c, web.WholeOf(views.Topic))(g.Mq.Topics(c.Request.Context()))
}

func (g *Handler) getTopic(c *gin.Context, a *streammq.Admin) error {
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
	return web.Show(c, func(s streammq.Stats) wire.TopicStats { return views.TopicStats(info, stream, s) })(a.Stats(ctx))
}

func (g *Handler) listGroups(c *gin.Context, a *streammq.Admin) error {
	return web.Show(c, web.WholeOf(views.Group))(a.Groups(c.Request.Context()))
}

// showGroup sends what was found of a group.
func showGroup[R, V any](c *gin.Context, view func(R) V) func(R, error) error {
	return func(found R, err error) error { return web.Show(c, view)(found, noGroup(err)) }
}

func (g *Handler) getGroup(c *gin.Context, a *streammq.Admin) error {
	name := c.Param("group")
	view := func(parts []streammq.PartitionStats) wire.GroupStats { return views.GroupStats(name, parts) }
	return showGroup(c, view)(a.GroupStats(c.Request.Context(), name))
}

func (g *Handler) groupOwners(c *gin.Context, a *streammq.Admin) error {
	return showGroup(c, views.Owners)(a.Owners(c.Request.Context(), c.Param("group")))
}

func (g *Handler) groupInFlight(c *gin.Context, a *streammq.Admin) error {
	return showGroup(c, web.WholeOf(views.Consumer))(a.InFlight(c.Request.Context(), c.Param("group")))
}

// groupPending pages by place: the entries are sorted by what changes all the time, so that there is no key to go on from.
func (g *Handler) groupPending(c *gin.Context, a *streammq.Admin) error {
	p := web.ParamsOf(c)
	q := streammq.PendingQuery{
		Order: web.Word(p, "order", []streammq.PendingOrder{streammq.PendingByIdle, streammq.PendingByDeliveries}),
		Idle:  time.Duration(p.Int("minIdleMs", 0, 0, maxSettingMS)) * time.Millisecond,
	}
	if p.Err() != nil {
		return p.Err()
	}
	var next int64
	return web.List(c, "pending:"+string(q.Order), func(after *web.Cursor, most int) ([]streammq.PendingEntry, error) {
		from := after.Number(0)
		if from < 0 || from > maxPendingPlace {
			return nil, web.BadCursor()
		}
		q.Offset, q.Limit, next = int(from), most, from+int64(most)-1
		rows, err := a.Pending(c.Request.Context(), c.Param("group"), q)
		return rows, noGroup(err)
	}, views.Pending, func(streammq.PendingEntry) web.Cursor { return web.Cursor{At: next} })
}

const (
	maxSettingMS    = 365 * 24 * 3600 * 1000
	maxPendingPlace = 100_000_000
)

func (g *Handler) listMessages(c *gin.Context, a *streammq.Admin) error {
	p := web.ParamsOf(c)
	partition := p.Int("partition", -1, 0, streammq.MaxPartitions-1)
	if p.Err() != nil {
		return p.Err()
	}
	from, ranged := c.GetQuery("from")
	to, bounded := c.GetQuery("to")
	if stream, _ := isStream(c); partition < 0 && (ranged || bounded) { // judged by admin
		if !stream {
			return web.Errorf(web.CodeInvalidParameter, "from and to are ids of one partition: name it by parameter partition").About("partition")
		}
		partition = 0
	}
	return web.List(c, fmt.Sprint("messages:", partition), func(after *web.Cursor, most int) ([]streammq.Stored, error) {
		switch ctx := c.Request.Context(); {
		case partition >= 0:
			if after != nil {
				from = "(" + after.ID
			}
			return a.Range(ctx, partition, cmp.Or(from, "-"), cmp.Or(to, "+"), most)
		case after != nil:
			return a.Older(ctx, int(after.At), after.ID, most)
		default:
			return a.Recent(ctx, most)
		}
	}, views.Message, func(m streammq.Stored) web.Cursor { return web.Cursor{At: int64(m.Partition), ID: m.ID} })
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

// errNotYours is one answer for a message that is unknown and for one of somebody else.
var errNotYours = web.Errorf(web.CodeMessageNotFound, "there is no message of yours with this id whose status is known")

// ownMessageStatus tells how far a message of the caller is: one that was published with the header x-user-id. Another
// user's is as unknown as one that is not there; an operator sees all.
func (g *Handler) ownMessageStatus(c *gin.Context, id string) (err error) {
	if g.Mq == nil {
		return errNotYours
	}
	var found map[string]streammq.Status
	if scope := web.Caller(c).Scope; scope.All() {
		found, err = g.Mq.Statuses(c.Request.Context(), id)
	} else {
		var s streammq.Status
		var mine bool
		if s, mine, err = g.Mq.OwnStatus(c.Request.Context(), scope.UserID, id); mine {
			found = map[string]streammq.Status{id: s}
		}
	}
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return errNotYours
	}
	return web.JSON(c, http.StatusOK, views.MessageStatus(id, found))
}

// removal reads the parameter force.
func removal(c *gin.Context) (streammq.Removal, error) {
	p := web.ParamsOf(c)
	return streammq.Removal{Force: p.Bool("force")}, p.Err()
}

func (g *Handler) deleteTopic(c *gin.Context, a *streammq.Admin) error {
	how, err := removal(c)
	if err != nil {
		return err
	}
	if err := g.Trail.Noted(c, audit.QueueDelete, c.Param("topic"), fmt.Sprintf("topic or stream, with all it holds, force %t", how.Force)); err != nil {
		return err
	}
	return web.NoContent(c, a.Delete(c.Request.Context(), how))
}

func (g *Handler) deleteGroup(c *gin.Context, a *streammq.Admin) error {
	name := c.Param("group")
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
	return web.NoContent(c, noGroup(a.DeleteGroup(c.Request.Context(), name, how)))
}

func (g *Handler) trimTopic(c *gin.Context, a *streammq.Admin) error {
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
	view := func(parts []streammq.PartitionTrim) wire.Trimmed { return views.Trimmed(parts, body.DryRun) }
	return web.Show(c, view)(a.Trim(c.Request.Context(), r, body.DryRun))
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
		r.Partition = *b.Partition
		err = web.Within("partition", r.Partition, 0, streammq.MaxPartitions-1)
	}
	return r, err
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

func (g *Handler) resetGroup(c *gin.Context, a *streammq.Admin) error {
	name := c.Param("group")
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
	view := func(dropped int) wire.ResetDone { return wire.ResetDone{PendingDropped: dropped} }
	return showGroup(c, view)(a.ResetGroup(c.Request.Context(), name, how))
}
