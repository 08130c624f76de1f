package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// belongings is what a route is called with, all of it ada's or of her task; what the route does not name is empty.
type belongings struct {
	task, document, base string
	key, event           string
	deadLetter           string // of the ingest queue, or of the topic
	topic, group         string
	message              string // its UUID
	operation, view      string
	worker               string
	check                string
}

// belonging makes objects of ada's in the state that the route wants.
func (s *site) belonging(r web.Route) belongings {
	s.t.Helper()
	task := s.accept(s.secrets["owner"], s.planted+"a.txt", s.planted+"some text of ada's, "+rand.Text()) // the same bytes would be a duplicate
	o := belongings{task: task.TaskID, document: string(task.DocumentID), base: task.Document.KnowledgeBaseID}
	step := func(who, path string) {
		w := s.do(s.request(s.secrets[who], http.MethodPost, path, nil))
		require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	}
	switch {
	case strings.HasSuffix(r.Path, ":taskId/resume"):
		step("operator", "/internal/tasks/"+task.TaskID+"/suspend")
	case strings.HasSuffix(r.Path, "/retry"), strings.HasSuffix(r.Path, "/events"):
		step("owner", "/api/knowledge/tasks/"+task.TaskID+"/cancel")
	case strings.HasSuffix(r.Path, "/deletion"):
		w := s.do(s.request(s.secrets["owner"], http.MethodDelete, "/api/knowledge/documents/"+o.document, nil))
		require.Equal(s.t, http.StatusNoContent, w.Code, w.Body.String())
	case strings.HasSuffix(r.Path, "/rollback"):
		s.earlierVersion(o.document)
	case strings.Contains(r.Path, ":keyId"):
		_, key, err := s.keys.Create(s.t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser})
		require.NoError(s.t, err)
		o.key = key.ID
	case strings.Contains(r.Path, ":eventId"):
		o.event = s.deadEvent(task.TaskID)
	case strings.Contains(r.Path, ":topic"), strings.Contains(r.Path, "/mq/status"), strings.Contains(r.Path, ":messageId"):
		s.topic(&o)
	case strings.Contains(r.Path, ":worker"):
		o.worker = "worker-" + rand.Text()[:8]
		s.exec(`INSERT INTO ingest_worker (name, lease_until, created_at) VALUES (?, ?, ?)`, o.worker, time.Now().UTC().Add(time.Minute), time.Now().UTC())
	case strings.Contains(r.Path, ":viewId"):
		w := s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/views", `{"name":"dead","filter":"status:DEAD"}`)
		require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
		o.view = decode[wire.View](s.t, w).ViewID
	case strings.Contains(r.Path, ":operationId"):
		w := s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bulk", `{"action":"retry","filter":"status:DEAD"}`)
		require.Equal(s.t, http.StatusAccepted, w.Code, w.Body.String())
		o.operation = decode[wire.BulkOperation](s.t, w).OperationID
		if strings.HasSuffix(r.Path, "/resume") {
			w = s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bulk/"+o.operation+"/pause", "")
			require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
		}
	case strings.Contains(r.Path, ":checkId"):
		w := s.send(s.secrets["operator"], http.MethodGet, "/internal/fsck", "") // there is no other beside one that has not ended
		if all := decode[wire.List[wire.CheckReport]](s.t, w).Items; len(all) > 0 {
			o.check = all[0].CheckID
			break
		}
		w = s.send(s.secrets["operator"], http.MethodPost, "/internal/fsck", `{}`)
		require.Equal(s.t, http.StatusAccepted, w.Code, w.Body.String())
		o.check = decode[wire.CheckReport](s.t, w).CheckID
	case strings.Contains(r.Path, ":letterId"):
		_, o.deadLetter = s.dead("no use")
	}
	return o
}

// earlierVersion gives a document a visible version and one before, as two uploads would that a worker has taken.
func (s *site) earlierVersion(document string) {
	s.t.Helper()
	s.exec("UPDATE document_version SET state = 'VISIBLE', no = 2, upload_no = 2 WHERE document_id = ?", document)
	s.exec(`INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, created_at, updated_at, sweep_at)
		SELECT ?, document_id, base_id, task_id, file_id, 1, 1, 'SUPERSEDED', 'before', created_at, updated_at, sweep_at
		FROM document_version WHERE document_id = ?`, uuid.Must(uuid.NewV7()).String(), document)
	s.exec(`UPDATE knowledge_document SET visible_no = 2, visible_upload_no = 2, last_no = 2, last_upload_no = 2,
		visible_version_id = (SELECT id FROM document_version WHERE document_id = knowledge_document.id AND state = 'VISIBLE') WHERE id = ?`, document)
}

// deadEvent is an event of a task that the broker refused.
func (s *site) deadEvent(task string) string {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	at := time.Now().UTC().Truncate(time.Microsecond)
	s.exec(`INSERT INTO outbox_event (id, topic, message_key, payload, status, cause, attempt_count, last_error, wake_at, created_at)
		VALUES (?, 'ingest-tasks', ?, ?, 'DEAD', 'REFUSED', 3, 'too large', '9999-12-31 00:00:00.000000', ?)`, id, task, `{"taskId":"x`+s.planted+`"}`, at)
	return id
}

// topic makes one with a group that has given up a message, and has another one before it.
func (s *site) topic(o *belongings) {
	s.t.Helper()
	ctx := s.t.Context()
	o.topic, o.group = "orders-"+rand.Text(), group
	_, err := s.mq.CreateTopic(ctx, streammq.Topic{Name: o.topic, Partitions: 1, Status: true})
	require.NoError(s.t, err)
	done, once := make(chan struct{}), sync.Once{}
	cfg := streammq.NewDefaultSubscriberConfig(o.topic, o.group, func(context.Context, *streammq.Delivery) streammq.Result {
		defer once.Do(func() { close(done) })
		return streammq.Fail(errors.New("no use"))
	})
	cfg.Member = "m1"
	member, err := s.mq.NewSubscriber(cfg)
	require.NoError(s.t, err)
	_, err = s.mq.NewProducer(nil).Publish(ctx, o.topic, streammq.Message{Key: "k", Payload: []byte(s.planted + "a message of ada's")})
	require.NoError(s.t, err)
	runs, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- member.Run(runs) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(s.t, "the message was not given to anybody")
	}
	stop()
	require.NoError(s.t, <-ended)
	deadLetters := decode[wire.List[wire.TopicDeadLetter]](s.t, s.get(s.secrets["operator"], "/internal/dlq/topics/"+o.topic+"/letters")).Items
	require.Len(s.t, deadLetters, 1)
	o.deadLetter = deadLetters[0].ID
	sent, err := s.mq.NewProducer(nil).Publish(ctx, o.topic, streammq.Message{
		Key: "k", Payload: []byte(s.planted + "another"), Headers: map[string]string{"x-user-id": "ada"},
	})
	require.NoError(s.t, err)
	o.message = sent.UUID
}

// bodies are for the routes that refuse a request without one.
var bodies = map[string]string{
	"POST /internal/dlq/drop":                             `{"all":true}`,
	"POST /internal/dlq/topics/:topic/drop":               `{"all":true}`,
	"POST /internal/dlq/topics/:topic/replay":             `{"all":true}`,
	"POST /internal/mq/topics/:topic/groups/:group/reset": `{"to":"start"}`,
	"POST /internal/mq/topics/:topic/trim":                `{"finished":true}`,
	"POST /api/knowledge/bulk":                            `{"action":"retry","filter":"status:DEAD"}`,
	"POST /api/knowledge/views":                           `{"name":"dead","filter":"status:DEAD"}`,
	"POST /api/knowledge/search":                          `{"query":"a"}`,
	"POST /api/knowledge/preview":                         `{"documentId":"DOCUMENT"}`,
	"POST /api/knowledge/bases/:base/reindex":             `{}`,
	"POST /api/knowledge/documents/:documentId/rollback":  `{}`,
	"POST /api/workflows/apply":                           `{"workflowId":"ingest.text","chatId":"1","userText":"a","waitForResult":false}`,
	"POST /internal/keys":                                 `{"userId":"eve"}`,
	"PATCH /api/knowledge/bases/:base":                    `{"searchMode":"text"}`,
}

// at is a route's path with an object.
func (o belongings) at(r web.Route) string {
	return strings.NewReplacer(":taskId", o.task, ":documentId", o.document, ":base", o.base, ":keyId", o.key, ":eventId", o.event,
		":letterId", o.deadLetter, ":topic", o.topic, ":group", o.group, ":messageId", o.message, ":operationId", o.operation, ":viewId", o.view, ":worker", o.worker, ":checkId", o.check).Replace(r.Path)
}

// asks is the query and the JSON body that a route is called with; an empty body: it takes none.
func (o belongings) asks(r web.Route) (query url.Values, body string) {
	query, body = url.Values{}, strings.ReplaceAll(bodies[r.Method+" "+r.Path], "DOCUMENT", o.document)
	switch {
	case strings.HasSuffix(r.Path, "/upload"), strings.HasSuffix(r.Path, "/preview"):
		query.Set("waitSeconds", "0")
	case strings.HasSuffix(r.Path, "/mq/status"):
		query.Set("ids", o.message)
	case r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/bases"):
		body = `{"name":"new ` + rand.Text() + `"}`
	case r.Method == http.MethodDelete && strings.Contains(r.Path, "/bases/"):
		query.Set("cascade", "true")
	}
	return query, body
}

// walk calls one route with an object.
func (s *site) walk(r web.Route, o belongings, who string) *httptest.ResponseRecorder {
	s.t.Helper()
	path, secret := o.at(r), s.secrets[who]
	require.NotContains(s.t, path, "//", "the object lacks something of %s", r.Path)
	require.NotContains(s.t, path, "/:", "nobody makes objects for %s", r.Path)
	query, body := o.asks(r)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	switch {
	case r.Method == http.MethodPut:
		return s.upload(secret, "PUT "+path, nil, file("b.txt", "other "+rand.Text()))
	case strings.Contains(r.Path, "upload"):
		return s.upload(secret, path, nil, file("b.txt", "other "+rand.Text()))
	case body != "":
		return s.send(secret, r.Method, path, body)
	}
	return s.do(s.request(secret, r.Method, path, nil))
}
