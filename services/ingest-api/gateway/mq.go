package gateway

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
)

const (
	topicsPath  = "/internal/mq/topics"
	oneTopic    = topicsPath + "/:topic"
	groupsPath  = oneTopic + "/groups"
	oneGroup    = groupsPath + "/:group"
	maxStatuses = 100
)

// topics shows and mends topics, groups and messages of the partitioned queue.
type topics struct {
	mq    *streammq.MQ // nil: there is no Redis
	trail trail
}

// routes are the addresses.
func (g *topics) routes() []route {
	return []route{
		{http.MethodGet, topicsPath, accessInspect, nil, g.listTopics},
		{http.MethodGet, oneTopic, accessInspect, []string{"kind"}, g.getTopic},
		{http.MethodDelete, oneTopic, accessOperate, []string{"kind", "force"}, g.deleteTopic},
		{http.MethodGet, oneTopic + "/messages", accessInspect, []string{"kind", "partition", "from", "to", "cursor", "limit"}, g.listMessages},
		{http.MethodPost, oneTopic + "/trim", accessOperate, []string{"kind"}, g.trimTopic},
		{http.MethodGet, groupsPath, accessInspect, []string{"kind"}, g.listGroups},
		{http.MethodGet, oneGroup, accessInspect, []string{"kind"}, g.getGroup},
		{http.MethodDelete, oneGroup, accessOperate, []string{"kind", "force"}, g.deleteGroup},
		{http.MethodPost, oneGroup + "/reset", accessOperate, []string{"kind"}, g.resetGroup},
		{http.MethodGet, oneGroup + "/owners", accessInspect, []string{"kind"}, g.groupOwners},
		{http.MethodGet, oneGroup + "/pending", accessInspect, []string{"kind", "order", "minIdleMs", "cursor", "limit"}, g.groupPending},
		{http.MethodGet, oneGroup + "/inflight", accessInspect, []string{"kind"}, g.groupInFlight},
		{http.MethodGet, "/internal/mq/status", accessInspect, []string{"ids"}, g.messageStatus},
		{http.MethodGet, "/api/messages/:messageId/status", accessRead, nil, g.ownMessageStatus},
	}
}

// noMQ returns where there is no Redis.
func (g *topics) noMQ() error {
	if g.mq == nil {
		return problemf(codeNotFound, "this service has no Redis, so there are no topics: REDIS_URL is not set")
	}
	return nil
}

// isStream reads the parameter kind.
func isStream(c *gin.Context) (bool, error) {
	kind, err := oneWord(c, "kind", []string{kindTopic, kindStream})
	return kind == kindStream, err
}

// queue is streammq in the layout of the topic that the path names, which has to exist, or for a single stream as it is set.
func (g *topics) queue(c *gin.Context) (q *streammq.MQ, stream bool, err error) {
	if err := g.noMQ(); err != nil {
		return nil, false, err
	}
	if stream, err = isStream(c); err != nil || stream {
		return g.mq, stream, err
	}
	info, err := g.mq.Topic(c.Request.Context(), c.Param("topic"))
	if err != nil {
		return nil, false, err
	}
	q, err = g.mq.ForLayout(info.Layout)
	return q, false, err
}

// admin is an operator's access to the topic or stream that the path names.
func (g *topics) admin(c *gin.Context) (*streammq.Admin, error) {
	q, stream, err := g.queue(c)
	switch {
	case err != nil:
		return nil, err
	case stream:
		return q.StreamAdmin(c.Param("topic")), nil
	}
	return q.Admin(c.Param("topic")), nil
}

// group is admin with the group that the path names.
func (g *topics) group(c *gin.Context) (*streammq.Admin, string, error) {
	a, err := g.admin(c)
	return a, c.Param("group"), err
}

// ofGroup says that it is the group that was not found.
func ofGroup(err error) error {
	if errors.Is(err, streammq.ErrNotFound) {
		return &apiError{code: codeGroupNotFound, cause: err}
	}
	return err
}

func (g *topics) listTopics(c *gin.Context) error {
	if err := g.noMQ(); err != nil {
		return err
	}
	topics, err := g.mq.Topics(c.Request.Context())
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, whole(topics, viewTopic))
}

func (g *topics) getTopic(c *gin.Context) error {
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
		if info, err = g.mq.Topic(ctx, name); err != nil {
			return err
		}
	}
	stats, err := a.Stats(ctx)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewTopicStats(info, stream, stats))
}

func (g *topics) listGroups(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	groups, err := a.Groups(c.Request.Context())
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, whole(groups, viewGroup))
}

func (g *topics) getGroup(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	parts, err := a.GroupStats(c.Request.Context(), name)
	if err != nil {
		return ofGroup(err)
	}
	return writeJSON(c, http.StatusOK, viewGroupStats(name, parts))
}

func (g *topics) groupOwners(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	o, err := a.Owners(c.Request.Context(), name)
	if err != nil {
		return ofGroup(err)
	}
	return writeJSON(c, http.StatusOK, viewOwners(o))
}

func (g *topics) groupInFlight(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	consumers, err := a.InFlight(c.Request.Context(), name)
	if err != nil {
		return ofGroup(err)
	}
	return writeJSON(c, http.StatusOK, whole(consumers, viewConsumer))
}

// groupPending pages by place: the entries are sorted by what changes all the time, so that there is no key to go on from.
func (g *topics) groupPending(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	order, err := oneWord(c, "order", []streammq.PendingOrder{streammq.PendingByIdle, streammq.PendingByDeliveries})
	if err != nil {
		return err
	}
	idle, err := intParam(c, "minIdleMs", 0, 0, maxSettingMS)
	if err != nil {
		return err
	}
	of := "pending:" + string(order)
	limit, from, err := pageParams(c, of)
	if err != nil {
		return err
	}
	q := streammq.PendingQuery{Order: order, Idle: time.Duration(idle) * time.Millisecond, Limit: limit + 1}
	if from != nil {
		if from.at < 0 || from.at > maxPendingPlace {
			return (&apiError{code: codeBadCursor}).about("cursor")
		}
		q.Offset = int(from.at)
	}
	rows, err := a.Pending(c.Request.Context(), name, q)
	if err != nil {
		return ofGroup(err)
	}
	next := func(streammq.PendingEntry) cursor { return cursor{list: of, at: int64(q.Offset + limit)} }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewPending, next))
}

const (
	maxSettingMS    = 365 * 24 * 3600 * 1000
	maxPendingPlace = 100_000_000
)

func (g *topics) listMessages(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	partition, err := intParam(c, "partition", -1, 0, streammq.MaxPartitions-1)
	if err != nil {
		return err
	}
	from, ranged := c.GetQuery("from")
	to, bounded := c.GetQuery("to")
	if stream, _ := isStream(c); partition < 0 && (ranged || bounded) { // judged by admin
		if !stream {
			return problemf(codeInvalidParameter, "from and to are ids of one partition: name it by parameter partition").about("partition")
		}
		partition = 0
	}
	of := fmt.Sprint("messages:", partition)
	limit, after, err := pageParams(c, of)
	if err != nil {
		return err
	}
	var rows []streammq.Stored
	switch ctx := c.Request.Context(); {
	case partition >= 0:
		if after != nil {
			from = "(" + after.id
		}
		rows, err = a.Range(ctx, partition, cmp.Or(from, "-"), cmp.Or(to, "+"), limit+1)
	case after != nil:
		rows, err = a.Older(ctx, int(after.at), after.id, limit+1)
	default:
		rows, err = a.Recent(ctx, limit+1)
	}
	if err != nil {
		return err
	}
	next := func(m streammq.Stored) cursor { return cursor{list: of, at: int64(m.Partition), id: m.ID} }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewMessage, next))
}

// messageStatus tells how far messages are. Of one that is not known it is 404; of several the unknown have none.
func (g *topics) messageStatus(c *gin.Context) error {
	if err := g.noMQ(); err != nil {
		return err
	}
	var ids []string
	for _, id := range strings.Split(c.Query("ids"), ",") {
		if id = strings.ToLower(strings.TrimSpace(id)); id == "" {
			continue
		}
		if !isUUID(id) {
			return problemf(codeInvalidParameter, "parameter ids has %s, allowed are UUIDs with commas between", shown(id)).about("ids")
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 || len(ids) > maxStatuses {
		return problemf(codeInvalidParameter, "parameter ids has %d ids, allowed are 1 to %d", len(ids), maxStatuses).about("ids")
	}
	found, err := g.mq.Statuses(c.Request.Context(), ids...)
	if err != nil {
		return err
	}
	if len(ids) == 1 && len(found) == 0 {
		return problemf(codeMessageNotFound, "message %s is unknown, or its status has expired, or its topic keeps none", ids[0])
	}
	return writeJSON(c, http.StatusOK, whole(ids, func(id string) wire.MessageStatus { return viewStatus(id, found) }))
}

// ownMessageStatus tells how far a message of the caller is: one that was published with the header x-user-id. Another
// user's is as unknown as one that is not there; an operator sees all.
func (g *topics) ownMessageStatus(c *gin.Context) error {
	id, ok := pathID(c, "messageId")
	if !ok || g.mq == nil {
		return problemf(codeMessageNotFound, "there is no message of yours with this id whose status is known")
	}
	found := map[string]streammq.Status{}
	scope := caller(c).Scope
	if scope.All() {
		var err error
		if found, err = g.mq.Statuses(c.Request.Context(), id); err != nil {
			return err
		}
	} else {
		s, mine, err := g.mq.OwnStatus(c.Request.Context(), scope.UserID, id)
		if err != nil {
			return err
		}
		if mine {
			found[id] = s
		}
	}
	if len(found) == 0 {
		return problemf(codeMessageNotFound, "there is no message of yours with this id whose status is known")
	}
	return writeJSON(c, http.StatusOK, viewStatus(id, found))
}

// removal reads the parameter force.
func removal(c *gin.Context) (how streammq.Removal, err error) {
	how.Force, err = boolParam(c, "force", false)
	return how, err
}

func (g *topics) deleteTopic(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	how, err := removal(c)
	if err != nil {
		return err
	}
	if err := g.trail.noted(c, audit.QueueDelete, c.Param("topic"), fmt.Sprintf("topic or stream, with all it holds, force %t", how.Force)); err != nil {
		return err
	}
	if err := a.Delete(c.Request.Context(), how); err != nil {
		return err
	}
	return noContent(c)
}

func (g *topics) deleteGroup(c *gin.Context) error {
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
	if err := g.trail.noted(c, audit.QueueDelete, c.Param("topic"), fmt.Sprintf("group %s force %t", name, how.Force)); err != nil {
		return err
	}
	if err := a.DeleteGroup(c.Request.Context(), name, how); err != nil {
		return ofGroup(err)
	}
	return noContent(c)
}

func (g *topics) trimTopic(c *gin.Context) error {
	a, err := g.admin(c)
	if err != nil {
		return err
	}
	var body wire.TrimTopic
	if err := readJSON(c, &body, true); err != nil {
		return err
	}
	switch {
	case body.MaxLen < 0:
		return problemf(codeInvalidField, "maxLen is %d, allowed is 1 or more", body.MaxLen).about("maxLen")
	case body.MaxAgeSeconds < 0 || body.MaxAgeSeconds > maxSettingMS/1000:
		return problemf(codeInvalidField, "maxAgeSeconds is %d, allowed is 1 to %d", body.MaxAgeSeconds, maxSettingMS/1000).about("maxAgeSeconds")
	case body.MaxLen == 0 && body.MaxAgeSeconds == 0 && !body.Finished:
		return problemf(codeInvalidField, "say what to keep: maxLen, maxAgeSeconds, or finished=true for nothing that every group has finished").about("finished")
	}
	r := streammq.Retention{MaxLen: body.MaxLen, MaxAge: time.Duration(body.MaxAgeSeconds) * time.Second, Finished: body.Finished}
	if _, err := a.Stats(c.Request.Context()); err != nil {
		return err
	}
	if !body.DryRun {
		err := g.trail.noted(c, audit.QueueTrim, c.Param("topic"), fmt.Sprintf("maxLen %d maxAge %s finished %t", r.MaxLen, r.MaxAge, r.Finished))
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
	return writeJSON(c, http.StatusOK, v)
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
		return r, problemf(codeInvalidField, "%d places are given, one is needed: to (start or end), time, or after (an entry's id)", places).about("to")
	case b.Time != nil:
		r.To = streammq.PositionTime(*b.Time)
	case b.After != "":
		if r.To, err = streammq.PositionAfter(b.After); err != nil {
			return r, problemf(codeInvalidField, "after is %s, allowed is an entry's id such as 1700000000000-0", shown(b.After)).about("after")
		}
	case b.To == "start":
		r.To = streammq.PositionStart()
	case b.To == "end":
		r.To = streammq.PositionEnd()
	default:
		return r, problemf(codeInvalidField, "to is %s, allowed are start and end", shown(b.To)).about("to")
	}
	r.Partition, r.Force, r.DropRetries = -1, b.Force, b.DropRetries
	if b.Partition != nil {
		if r.Partition = *b.Partition; r.Partition < 0 || r.Partition >= streammq.MaxPartitions {
			return r, problemf(codeInvalidField, "partition is %d, allowed is 0 to %d", r.Partition, streammq.MaxPartitions-1).about("partition")
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

func (g *topics) resetGroup(c *gin.Context) error {
	a, name, err := g.group(c)
	if err != nil {
		return err
	}
	var body wire.ResetGroup
	if err := readJSON(c, &body, true); err != nil {
		return err
	}
	how, err := resetOf(body)
	if err != nil {
		return err
	}
	if _, err := a.Groups(c.Request.Context()); err != nil {
		return err
	}
	if err := g.trail.noted(c, audit.QueueReset, c.Param("topic"), resetWords(body, name)); err != nil {
		return err
	}
	n, err := a.ResetGroup(c.Request.Context(), name, how)
	if err != nil {
		return ofGroup(err)
	}
	return writeJSON(c, http.StatusOK, wire.ResetDone{PendingDropped: n})
}
