package deadletters

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/topics"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// TopicHandler shows and mends dead letters of topics.
type TopicHandler struct {
	Topics *topics.Handler
	Trail  web.Trail
}

// Routes are the addresses.
func (g *TopicHandler) Routes() []web.Route {
	const topic = "/internal/dlq/topics/:topic"
	const deadLetters = topic + "/letters"
	const one = deadLetters + "/:letterId"
	filter := []string{"kind", "group", "partition", "key", "error", "failedAfter", "failedBefore", "unreplayed", "cursor", "limit"}
	routes := []web.Route{
		web.On(http.MethodGet, deadLetters, web.AccessInspect, filter, web.Of(g.topicDLQ, g.listTopicDeadLetters)),
		web.On(http.MethodGet, one, web.AccessInspect, []string{"kind"}, web.Of(g.topicDLQ, g.getTopicDeadLetter)),
		web.On(http.MethodDelete, one, web.AccessOperate, []string{"kind", "reason"}, web.Of(g.topicDLQ, g.dropTopicDeadLetter)),
		web.On(http.MethodPost, one+"/replay", web.AccessOperate, []string{"kind"}, web.Of(g.topicDLQ, g.replayTopicDeadLetter)),
		web.On(http.MethodPost, topic+"/replay", web.AccessOperate, []string{"kind"}, g.bulk(false)),
		web.On(http.MethodPost, topic+"/drop", web.AccessOperate, []string{"kind"}, g.bulk(true)),
	}
	if g.Topics.Mq == nil {
		return web.Without(routes, topics.NoRedis)
	}
	return routes
}

// topicDLQ is the service for the topic or stream that the path names, in whichever layout of keys. A topic has to exist.
func (g *TopicHandler) topicDLQ(c *gin.Context) (*dlq.Topic, error) {
	q, stream, err := g.Topics.Queue(c)
	if err != nil {
		return nil, err
	}
	return dlq.NewTopic(q, c.Param("topic"), stream), nil
}

// ofDeadLetter says that it is the dead letter that was not found, or cannot be read.
func ofDeadLetter(err error) error {
	switch {
	case errors.Is(err, streammq.ErrNotFound):
		return &web.Error{Code: web.CodeDeadLetterNotFound, Cause: err}
	case errors.Is(err, streammq.ErrMalformed):
		return &web.Error{Code: web.CodeDeadLetterUnreadable, Cause: err}
	}
	return err
}

const TopicDeadLetterList = "dlq:topic"

func (g *TopicHandler) listTopicDeadLetters(c *gin.Context, letters *dlq.Topic) error {
	q, err := topicDeadLetterQuery(c)
	if err != nil {
		return err
	}
	p := web.ParamsOf(c)
	limit, from := p.Page(TopicDeadLetterList)
	if p.Err() != nil {
		return p.Err()
	}
	after := ""
	if from != nil {
		after = from.ID
	}
	rows, next, err := letters.List(c.Request.Context(), q, after, limit)
	if err != nil {
		return err
	}
	out := web.Whole(rows, views.TopicDeadLetter)
	if next != "" {
		out.NextCursor, out.HasMore = textOf(TopicDeadLetterList, &dlq.Cursor{ID: next}), true
	}
	return web.JSON(c, http.StatusOK, out)
}

func topicDeadLetterQuery(c *gin.Context) (dlq.TopicQuery, error) {
	p := web.ParamsOf(c)
	return dlq.TopicQuery{
		Group: p.Text("group"), Key: p.Text("key"), Text: p.Text("error"), Partition: p.Int("partition", -1, 0, streammq.MaxPartitions-1),
		Unreplayed: p.Bool("unreplayed"), FailedAfter: p.Time("failedAfter"), FailedBefore: p.Time("failedBefore"),
	}, p.Err()
}

func (g *TopicHandler) getTopicDeadLetter(c *gin.Context, letters *dlq.Topic) error {
	l, err := letters.Get(c.Request.Context(), c.Param("letterId"))
	return web.Show(c, views.TopicDeadLetter)(l, ofDeadLetter(err))
}

// noted puts a step of a dead letter that is there into the audit log, with its reason and the letter's error.
func (g *TopicHandler) noted(c *gin.Context, letters *dlq.Topic, action audit.Action) (id string, err error) {
	p := web.ParamsOf(c)
	reason := p.Text("reason")
	if p.Err() != nil {
		return "", p.Err()
	}
	id = c.Param("letterId")
	l, err := letters.Get(c.Request.Context(), id)
	if err != nil {
		return "", ofDeadLetter(err)
	}
	return id, g.Trail.Noted(c, action, c.Param("topic")+"/"+id, because(reason, l.Error))
}

func (g *TopicHandler) replayTopicDeadLetter(c *gin.Context, letters *dlq.Topic) error {
	id, err := g.noted(c, letters, audit.DeadLetterReplay)
	if err != nil {
		return err
	}
	l, err := letters.Replay(c.Request.Context(), id)
	return web.Show(c, views.TopicDeadLetter)(l, ofDeadLetter(err))
}

func (g *TopicHandler) dropTopicDeadLetter(c *gin.Context, letters *dlq.Topic) error {
	id, err := g.noted(c, letters, audit.DeadLetterDrop)
	if err != nil {
		return err
	}
	return web.NoContent(c, ofDeadLetter(letters.Drop(c.Request.Context(), id)))
}

// topicBulkQuery checks the filter.
func topicBulkQuery(b wire.TopicDeadLetterBulk) (q dlq.TopicQuery, err error) {
	q = dlq.TopicQuery{Group: b.Group, Partition: -1, Key: b.Key, Text: b.Error, Unreplayed: b.Unreplayed}
	for name, text := range map[string]string{"group": b.Group, "key": b.Key, "error": b.Error, "reason": b.Reason} {
		if err := ingest.CheckText(name, text, web.MaxFilter); err != nil {
			return q, err
		}
	}
	if b.Partition != nil {
		q.Partition = *b.Partition
		if err := web.Within("partition", q.Partition, 0, streammq.MaxPartitions-1); err != nil {
			return q, err
		}
	}
	q.FailedAfter, q.FailedBefore, err = spanOf(b.Bulk)
	return q, err
}

// readTopicBulk reads the wish and the reason for it; a drop of everything has to say so.
func readTopicBulk(c *gin.Context, drop bool) (q dlq.TopicQuery, b dlq.Bulk, why string, err error) {
	var body wire.TopicDeadLetterBulk
	if err := web.ReadJSON(c, &body, true); err != nil {
		return q, b, "", err
	}
	if q, err = topicBulkQuery(body); err != nil {
		return q, b, "", err
	}
	if drop && q == (dlq.TopicQuery{Partition: -1}) {
		if err := saysAll(body.Bulk); err != nil {
			return q, b, "", err
		}
	}
	b, err = boundsOf(body.Bulk, TopicDeadLetterList)
	return q, b, strings.TrimSpace(body.Reason), err
}

// describeTopicQuery is a filter for the audit log.
func describeTopicQuery(q dlq.TopicQuery) string {
	text := describeQuery(dlq.Query{Task: "", Text: q.Text, FailedAfter: q.FailedAfter, FailedBefore: q.FailedBefore})
	for _, f := range slices.Backward([][2]string{{"group", q.Group}, {"key", q.Key}}) {
		if f[1] != "" {
			text = f[0] + " " + f[1] + " " + text
		}
	}
	if q.Unreplayed {
		text = "unreplayed " + text
	}
	return text
}

// bulk replays or drops the dead letters that the body selects.
func (g *TopicHandler) bulk(drop bool) web.HandlerFunc {
	return web.Of(g.topicDLQ, func(c *gin.Context, letters *dlq.Topic) error {
		q, b, why, err := readTopicBulk(c, drop)
		if err != nil {
			return err
		}
		action, run := audit.DeadLetterReplay, letters.ReplayAll
		if drop {
			action, run = audit.DeadLetterDrop, letters.DropAll
		}
		if !b.DryRun {
			if err := g.Trail.Noted(c, action, c.Param("topic"), because(why, describeTopicQuery(q))); err != nil {
				return err
			}
		}
		r, err := run(c.Request.Context(), q, b)
		if err != nil {
			return err
		}
		return web.JSON(c, http.StatusOK, viewBulk(TopicDeadLetterList, b, r, drop))
	})
}
