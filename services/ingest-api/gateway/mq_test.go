package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/deadletters"
	"github.com/millweir/millweir/services/ingest-api/gateway/topics"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// queue is a bench with topics on a real Redis, under names of the test's own.
type queue struct {
	*bench
	mq     *streammq.MQ
	client rueidis.Client
	topic  string
}

const group = "workers"

// home is a place for topics: the layout of their keys, that of the service's settings, and a server.
type home struct {
	topics, service streammq.Layout
	server          func(t *testing.T) rueidis.ClientOption
}

// homes are all that there can be; a topic in the cluster's layout may lie on one Redis too.
var homes = map[string]home{
	"one Redis":             {streammq.LayoutSingle, streammq.LayoutSingle, oneRedis},
	"one Redis, other keys": {streammq.LayoutCluster, streammq.LayoutSingle, oneRedis},
	"cluster": {streammq.LayoutCluster, streammq.LayoutCluster, func(t *testing.T) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: labserver.RedisCluster(t).Addrs(), DisableCache: true}
	}},
}

func oneRedis(t *testing.T) rueidis.ClientOption {
	options, err := rueidis.ParseURL(labserver.RedisURL(t))
	require.NoError(t, err)
	return options
}

func newQueue(t *testing.T, partitions int) *queue {
	t.Helper()
	return newQueueIn(t, homes["one Redis"], partitions)
}

func newQueueIn(t *testing.T, h home, partitions int) *queue {
	t.Helper()
	client, err := rueidis.NewClient(h.server(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	open := func(layout streammq.Layout) *streammq.MQ {
		cfg := streammq.NewDefaultConfig()
		cfg.Layout = layout
		mq, err := streammq.New(client, cfg)
		require.NoError(t, err)
		return mq
	}
	mq := open(h.topics)
	q := &queue{mq: mq, client: client, topic: "orders-" + rand.Text(), bench: newBench(t, func(_ *Config, d *Deps) { d.MQ = open(h.service) })}
	_, err = mq.CreateTopic(t.Context(), streammq.Topic{Name: q.topic, Partitions: partitions, Status: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = mq.Admin(q.topic).Delete(context.Background(), streammq.Removal{Force: true}) }) // a test may have deleted it
	return q
}

// publish adds n messages and returns their UUIDs.
func (q *queue) publish(n int) (uuids []string) {
	q.t.Helper()
	for i := range n {
		r, err := q.mq.NewProducer(nil).Publish(q.t.Context(), q.topic, streammq.Message{Key: fmt.Sprint("k", i), Payload: fmt.Appendf(nil, "payload %d", i)})
		require.NoError(q.t, err)
		uuids = append(uuids, r.UUID)
	}
	return uuids
}

// consume runs a member until n messages came to an end.
func (q *queue) consume(n int, result func(d *streammq.Delivery) streammq.Result) {
	q.t.Helper()
	done := make(chan struct{}, n)
	cfg := streammq.NewDefaultSubscriberConfig(q.topic, group, func(_ context.Context, d *streammq.Delivery) streammq.Result {
		defer func() {
			select {
			case done <- struct{}{}:
			default: // more than n came before the stop; nobody waits for them
			}
		}()
		return result(d)
	})
	cfg.Member = "m1"
	s, err := q.mq.NewSubscriber(cfg)
	require.NoError(q.t, err)
	ctx, stop := context.WithCancel(q.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range n {
		select {
		case <-done:
		case <-time.After(time.Minute):
			require.Fail(q.t, "not all messages were run")
		}
	}
	stop()
	require.NoError(q.t, <-ended)
}

// at is a path below the topic.
func (q *queue) at(rest string) string { return topics.TopicsPath + "/" + q.topic + rest }

func (q *queue) dlq(rest string) string { return "/internal/dlq/topics/" + q.topic + rest }

func (q *queue) post(path, body string, want int) []byte {
	q.t.Helper()
	w := q.send(operator, http.MethodPost, path, body)
	require.Equal(q.t, want, w.Code, w.Body.String())
	return w.Body.Bytes()
}

func TestTopicsOfOperators(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 2)
	uuids := q.publish(6)
	q.consume(6, func(*streammq.Delivery) streammq.Result { return streammq.Success() })
	q.publish(3)

	topics := decode[wire.List[wire.Topic]](t, q.get(operator, topics.TopicsPath)).Items
	names := map[string]wire.Topic{}
	for _, v := range topics {
		names[v.Name] = v
	}
	require.Equal(t, 2, names[q.topic].Partitions)
	stats := decode[wire.TopicStats](t, q.get(operator, q.at("")))
	require.EqualValues(t, 9, stats.Entries)
	require.Len(t, stats.Each, 2)
	for _, p := range stats.Each {
		require.NotEmpty(t, p.FirstID)
		require.Less(t, string(p.FirstID), string(p.LastID))
	}
	groups := decode[wire.List[wire.Group]](t, q.get(operator, q.at("/groups"))).Items
	require.Equal(t, []wire.Group{{Name: group, Partitions: 2, Lag: 3, LagExact: true}}, groups)
	one := decode[wire.GroupStats](t, q.get(operator, q.at("/groups/"+group)))
	require.EqualValues(t, 3, one.Lag)
	require.Len(t, one.Partitions, 2)
	for _, p := range one.Partitions {
		require.Equal(t, p.Lag > 0, p.Frontier != "", "the oldest that is not finished")
	}
	owners := decode[wire.Owners](t, q.get(operator, q.at("/groups/"+group+"/owners")))
	require.Equal(t, 2, owners.Unowned, "the member has left")
	require.Empty(t, decode[wire.List[wire.Pending]](t, q.get(operator, q.at("/groups/"+group+"/pending"))).Items)
	require.Equal(t, http.StatusOK, q.get(operator, q.at("/groups/"+group+"/inflight")).Code)

	recent := decode[wire.List[wire.Message]](t, q.get(operator, q.at("/messages?limit=4"))).Items
	require.Len(t, recent, 4)
	require.Equal(t, "utf-8", recent[0].Payload.Encoding)
	require.True(t, strings.HasPrefix(recent[0].Payload.Value, "payload "))
	require.NotEmpty(t, recent[0].UUID)
	q.judgeMessagePages()
	for _, bad := range []string{"/messages?from=x", "/messages?partition=7", "/messages?partition=0&from=x", "?kind=mars"} {
		q.refused(q.get(operator, q.at(bad)), http.StatusBadRequest, web.CodeInvalidParameter)
	}

	// How far messages are.
	status := decode[wire.List[wire.MessageStatus]](t, q.get(operator, "/internal/mq/status?ids="+uuids[0])).Items
	require.Equal(t, string(streammq.StateCompleted), status[0].Status.State)
	unknown := uuid.NewString()
	p := q.refused(q.get(operator, "/internal/mq/status?ids="+unknown), http.StatusNotFound, web.CodeMessageNotFound)
	require.Contains(t, p.Message, unknown)
	status = decode[wire.List[wire.MessageStatus]](t, q.get(operator, "/internal/mq/status?ids="+unknown+","+strings.ToUpper(uuids[1]))).Items
	require.Nil(t, status[0].Status)
	require.NotNil(t, status[1].Status)
	for _, bad := range []string{"", "x", strings.Repeat(unknown+",", 101)} {
		q.refused(q.get(operator, "/internal/mq/status?ids="+bad), http.StatusBadRequest, web.CodeInvalidParameter)
	}

	// Trim: only what every group has finished.
	for _, bad := range []string{``, `{"maxLen":-1}`, `{"maxAgeSeconds":-1}`} {
		q.post(q.at("/trim"), bad, http.StatusUnprocessableEntity)
	}
	var trimmed wire.Trimmed
	require.NoError(t, json.Unmarshal(q.post(q.at("/trim"), `{"finished":true,"dryRun":true}`, http.StatusOK), &trimmed))
	require.Equal(t, 6, trimmed.Entries)
	require.Empty(t, q.trail.events)
	require.NoError(t, json.Unmarshal(q.post(q.at("/trim"), `{"finished":true}`, http.StatusOK), &trimmed))
	require.Equal(t, 6, trimmed.Entries)
	require.NotEmpty(t, trimmed.Partitions[0].Frontier)
	require.Equal(t, audit.QueueTrim, q.trail.events[0].Action)
	require.EqualValues(t, 3, decode[wire.TopicStats](t, q.get(operator, q.at(""))).Entries)

	// Reset and delete.
	reset := q.at("/groups/" + group + "/reset")
	for _, bad := range []string{``, `{"to":"mars"}`, `{"to":"end","after":"1-1"}`, `{"after":"x"}`, `{"to":"end","partition":-1}`} {
		q.post(reset, bad, http.StatusUnprocessableEntity)
	}
	q.post(q.at("/groups/nobody/reset"), `{"to":"end"}`, http.StatusNotFound)
	q.post(reset, `{"to":"end"}`, http.StatusOK)
	require.Zero(t, decode[wire.GroupStats](t, q.get(operator, q.at("/groups/"+group))).Lag)
	q.post(reset, `{"time":"2020-01-01T00:00:00Z"}`, http.StatusOK)
	require.EqualValues(t, 3, decode[wire.GroupStats](t, q.get(operator, q.at("/groups/"+group))).Lag)
	require.Equal(t, audit.QueueReset, q.trail.events[0].Action)
	remove := func(path string) int { return q.do(q.request(operator, http.MethodDelete, path, nil)).Code }
	require.Equal(t, http.StatusNoContent, remove(q.at("/groups/"+group)))
	q.refused(q.do(q.request(operator, http.MethodDelete, q.at("/groups/"+group), nil)), http.StatusNotFound, web.CodeGroupNotFound)
	q.refused(q.get(operator, q.at("/groups/"+group)), http.StatusNotFound, web.CodeGroupNotFound)
	require.Equal(t, http.StatusNoContent, remove(q.at("")))
	q.refused(q.get(operator, q.at("")), http.StatusNotFound, web.CodeTopicNotFound)
	require.Equal(t, http.StatusNotFound, remove(q.at("")))
	require.Equal(t, audit.QueueDelete, q.trail.events[0].Action)
}

// judgeMessagePages reads the nine messages of two partitions page by page: all, each partition, and a part of one.
func (q *queue) judgeMessagePages() {
	read := func(query string) (all []wire.Message) {
		for cursor := ""; ; {
			page := decode[wire.List[wire.Message]](q.t, q.get(operator, q.at("/messages?limit=2&"+query+cursor)))
			require.Equal(q.t, page.NextCursor != "", page.HasMore)
			all = append(all, page.Items...)
			if page.NextCursor == "" {
				return all
			}
			require.Len(q.t, page.Items, 2)
			cursor = "&cursor=" + string(page.NextCursor)
		}
	}
	seen := map[string]bool{}
	all := read("")
	for _, m := range all {
		seen[string(m.UUID)] = true
	}
	require.Len(q.t, all, 9)
	require.Len(q.t, seen, 9, "each once")
	total := 0
	for partition := range 2 {
		ofOne := fmt.Sprint("partition=", partition)
		part := read(ofOne)
		total += len(part)
		require.True(q.t, slices.IsSortedFunc(part, func(a, b wire.Message) int { return strings.Compare(a.ID, b.ID) }), "the oldest first")
		require.Len(q.t, read(ofOne+"&from="+url.QueryEscape("("+part[0].ID)), len(part)-1)
		require.Len(q.t, read(ofOne+"&to="+part[1].ID), 2)
	}
	require.Equal(q.t, 9, total)
	other := web.Cursor{List: "messages:1", ID: "1-0"}.Encode()
	q.refused(q.get(operator, q.at("/messages?partition=0&cursor="+other)), http.StatusBadRequest, web.CodeBadCursor)
}

// What members live on is deleted by force alone, and the refusal names them.
func TestDeletionUnderLiveMembersIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 1)
	s, err := q.mq.NewSubscriber(streammq.NewDefaultSubscriberConfig(q.topic, group, func(context.Context, *streammq.Delivery) streammq.Result { return streammq.Success() }))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	require.Eventually(t, func() bool { return len(s.Partitions()) == 1 }, time.Minute, 5*time.Millisecond)
	remove := func(rest string) *httptest.ResponseRecorder {
		return q.do(q.request(operator, http.MethodDelete, q.at(rest), nil))
	}
	for _, rest := range []string{"", "?force=false", "/groups/" + group} {
		p := q.refused(remove(rest), http.StatusConflict, web.CodeGroupLive)
		require.Contains(t, p.Message, s.Name())
		require.Contains(t, p.Message, "stop them")
	}
	q.refused(remove("?force=perhaps"), http.StatusBadRequest, web.CodeInvalidParameter)
	require.Equal(t, http.StatusNoContent, remove("/groups/"+group+"?force=true").Code)
	require.Equal(t, http.StatusNoContent, remove("?force=true").Code)
	require.ErrorIs(t, <-ended, streammq.ErrUnknownTopic)
}

// What is in hand of a member that is gone is pending, and pages by place.
func TestPendingEntriesArePaged(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 1)
	q.publish(5)
	stream := "stream:topic:" + q.topic + ":p:0"
	run := func(args ...string) {
		require.NoError(t, q.client.Do(t.Context(), q.client.B().Arbitrary(args...).Build()).Error())
	}
	run("XGROUP", "CREATE", stream, group, "0")
	run("XREADGROUP", "GROUP", group, "ghost", "COUNT", "5", "STREAMS", stream, ">")
	var ids []string
	for path := q.at("/groups/" + group + "/pending?limit=2&order=deliveries"); path != ""; {
		page := decode[wire.List[wire.Pending]](t, q.get(operator, path))
		path = ""
		for _, p := range page.Items {
			ids = append(ids, p.ID)
			require.Equal(t, "ghost", p.Consumer)
			require.EqualValues(t, 1, p.Deliveries)
		}
		if page.NextCursor != "" {
			path = q.at("/groups/"+group+"/pending?limit=2&order=deliveries&cursor=") + string(page.NextCursor)
		}
	}
	require.Len(t, ids, 5)
	require.Empty(t, decode[wire.List[wire.Pending]](t, q.get(operator, q.at("/groups/"+group+"/pending?minIdleMs=3600000"))).Items)
	consumers := decode[wire.List[wire.Consumer]](t, q.get(operator, q.at("/groups/"+group+"/inflight"))).Items
	require.Equal(t, int64(5), consumers[0].Pending)
	require.False(t, consumers[0].Live)
	bad := web.Cursor{List: "pending:", At: -1}.Encode()
	q.refused(q.get(operator, q.at("/groups/"+group+"/pending?cursor="+bad)), http.StatusBadRequest, web.CodeBadCursor)
	q.refused(q.get(operator, q.at("/groups/nobody/pending")), http.StatusNotFound, web.CodeGroupNotFound)

	// The same stream by its key.
	single := topics.TopicsPath + "/" + url.PathEscape(stream) + "%s?kind=stream"
	require.Equal(t, views.KindStream, decode[wire.TopicStats](t, q.get(operator, fmt.Sprintf(single, ""))).Kind)
	require.Len(t, decode[wire.List[wire.Pending]](t, q.get(operator, fmt.Sprintf(single, "/groups/"+group+"/pending"))).Items, 5)
}

// In both layouts of keys, on a cluster too, where each partition has its own stream of dead letters.
func TestDeadLettersOfTopics(t *testing.T) {
	t.Parallel()
	for name, h := range homes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judgeTopicDeadLetters(t, newQueueIn(t, h, 2), h.topics == streammq.LayoutCluster)
		})
	}
}

func judgeTopicDeadLetters(t *testing.T, q *queue, apart bool) {
	q.publish(6)
	q.consume(6, func(d *streammq.Delivery) streammq.Result {
		return streammq.Fail(errors.New("no use: " + d.Key))
	})
	page := decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq("/letters?limit=4")))
	require.Len(t, page.Items, 4)
	rest := decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq("/letters?limit=4&cursor="+string(page.NextCursor))))
	require.Len(t, rest.Items, 2)
	require.False(t, rest.HasMore)
	byID := map[string]wire.TopicDeadLetter{}
	for _, l := range append(page.Items, rest.Items...) {
		byID[l.ID] = l
		require.Equal(t, apart, strings.HasPrefix(l.ID, fmt.Sprint(l.Partition, ":")), l.ID)
	}
	require.Len(t, byID, 6)
	for partition := range 2 {
		for _, l := range decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq(fmt.Sprint("/letters?partition=", partition)))).Items {
			require.Equal(t, partition, l.Partition)
			delete(byID, l.ID)
		}
	}
	require.Empty(t, byID, "both partitions have them all")
	bad := web.Cursor{List: deadletters.TopicDeadLetterList, ID: "9:9:9"}.Encode()
	q.refused(q.get(operator, q.dlq("/letters?cursor="+bad)), http.StatusBadRequest, web.CodeBadCursor)
	first := page.Items[0]
	require.True(t, first.Replayable)
	require.Equal(t, group, first.Group)
	require.Contains(t, first.Error, "no use: "+first.Key.Value)
	for filter, want := range map[string]int{"?error=NO+USE:+k3": 1, "?key=k1": 1, "?group=nobody": 0, "?failedBefore=2020-01-01T00:00:00Z": 0, "?failedAfter=2020-01-01T00:00:00Z": 6} {
		require.Len(t, decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq("/letters"+filter))).Items, want, filter)
	}

	got := decode[wire.TopicDeadLetter](t, q.send(operator, http.MethodPost, q.dlq("/letters/"+first.ID+"/replay"), ""))
	require.NotEmpty(t, got.ReplayedAs)
	require.Equal(t, audit.DeadLetterReplay, q.trail.events[0].Action)
	q.refused(q.send(operator, http.MethodPost, q.dlq("/letters/"+first.ID+"/replay"), ""), http.StatusConflict, web.CodeDeadLetterReplayed)
	require.Equal(t, got, decode[wire.TopicDeadLetter](t, q.get(operator, q.dlq("/letters/"+first.ID))))
	require.Len(t, decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq("/letters?unreplayed=true"))).Items, 5)

	bulk := func(path, body string) (v wire.BulkResult) {
		require.NoError(t, json.Unmarshal(q.post(q.dlq(path), body, http.StatusOK), &v))
		return v
	}
	require.Equal(t, 5, *bulk("/replay", `{"dryRun":true}`).Replayed)
	some := bulk("/replay", `{"limit":2}`)
	require.Equal(t, 2, *some.Replayed)
	require.Equal(t, 3, *bulk("/replay", `{"cursor":"`+string(some.NextCursor)+`"}`).Replayed)
	require.Equal(t, 0, *bulk("/replay", ``).Replayed, "never twice")
	q.consume(6, func(*streammq.Delivery) streammq.Result { return streammq.Success() })
	require.Zero(t, decode[wire.List[wire.Group]](t, q.get(operator, q.at("/groups"))).Items[0].Lag, "six, and no more")

	q.post(q.dlq("/drop"), ``, http.StatusUnprocessableEntity)
	require.Equal(t, http.StatusNoContent, q.do(q.request(operator, http.MethodDelete, q.dlq("/letters/"+first.ID), nil)).Code)
	q.refused(q.do(q.request(operator, http.MethodDelete, q.dlq("/letters/"+first.ID), nil)), http.StatusNotFound, web.CodeDeadLetterNotFound)
	for _, none := range []string{"x", "0:x", "5-5", "0:5-5", "9999:5-5", "0:"} {
		q.refused(q.get(operator, q.dlq("/letters/"+none)), http.StatusNotFound, web.CodeDeadLetterNotFound)
	}
	require.Equal(t, 5, *bulk("/drop", `{"all":true,"dryRun":true}`).Dropped)
	require.Equal(t, 5, *bulk("/drop", `{"all":true}`).Dropped)
	require.Empty(t, decode[wire.List[wire.TopicDeadLetter]](t, q.get(operator, q.dlq("/letters"))).Items)
	q.refused(q.get(operator, "/internal/dlq/topics/nothing-of-that/letters"), http.StatusNotFound, web.CodeTopicNotFound)
}

// A user sees how far a message is that was published for them, and nobody else's: one of another user, one of nobody and one
// that does not exist look the same. The keys are those that the README of streammq names.
func TestAUserSeesTheStatusOfTheirOwnMessages(t *testing.T) {
	t.Parallel()
	for name, h := range homes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueueIn(t, h, 2)
			publish := func(user, uuid string) string {
				m := streammq.Message{Payload: []byte("x"), Headers: map[string]string{streammq.HeaderUser: user}}
				if uuid != "" {
					m.Headers[streammq.HeaderUUID] = uuid
				}
				if user == "" {
					delete(m.Headers, streammq.HeaderUser)
				}
				r, err := q.mq.NewProducer(nil).Publish(t.Context(), q.topic, m)
				require.NoError(t, err)
				return r.UUID
			}
			path := func(id string) string { return "/api/messages/" + id + "/status" }
			hers, theirs, nobodys := publish(ada, ""), publish(bob, ""), publish("", "")
			publish(bob, hers) // the id is taken: the first message has it, and this one is not run once that has completed
			owner, err := q.client.Do(t.Context(), q.client.B().Get().Key("task:owner:"+hers).Build()).ToString()
			require.NoError(t, err)
			require.Equal(t, ada, owner)

			got := decode[wire.MessageStatus](t, q.get(ada, path(hers)))
			require.Equal(t, hers, got.ID)
			require.Equal(t, string(streammq.StatePending), got.Status.State)
			missing := q.get(ada, path(uuid.NewString()))
			q.refused(missing, http.StatusNotFound, web.CodeMessageNotFound)
			for _, id := range []string{theirs, nobodys, "no-id", "*"} {
				foreign := q.get(ada, path(id))
				require.Equal(t, http.StatusNotFound, foreign.Code, id)
				require.Equal(t, q.bare(missing), q.bare(foreign), id)
			}
			q.refused(q.get(bob, path(hers)), http.StatusNotFound, web.CodeMessageNotFound)
			q.refused(q.get(nobody, path(hers)), http.StatusUnauthorized, web.CodeUnauthenticated)
			require.Equal(t, http.StatusOK, q.get(adaReads, path(hers)).Code, "the scope read is enough")
			require.Equal(t, http.StatusOK, q.get(operator, path(theirs)).Code)

			q.consume(3, func(*streammq.Delivery) streammq.Result { return streammq.Success() })
			require.Eventually(t, func() bool {
				return decode[wire.MessageStatus](t, q.get(ada, path(hers))).Status.State == string(streammq.StateCompleted)
			}, time.Minute, 10*time.Millisecond)
			for _, key := range []string{"task:owner:" + hers, "task:status:" + hers} {
				left, err := q.client.Do(t.Context(), q.client.B().Ttl().Key(key).Build()).AsInt64()
				require.NoError(t, err)
				require.Positive(t, left, key)
			}
		})
	}
}

// Entries of a publisher that knows nothing of statuses, as the Java original writes them: from the first delivery on a user
// sees their own, also after a failure, and nobody else's.
func TestAForeignPublishersMessageIsItsUsers(t *testing.T) {
	t.Parallel()
	for name, h := range homes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueueIn(t, h, 1)
			add := func(user, uuid, payload string) {
				headers, err := json.Marshal(map[string]string{
					"x-message-uuid": uuid, "x-user-id": user, "x-payload-storage-type": "inline", "x-payload-original-size": "3",
				})
				require.NoError(t, err)
				require.NoError(t, q.client.Do(t.Context(), q.client.B().Arbitrary("XADD").Keys("stream:topic:"+q.topic+":p:0").Args("*",
					"headers", string(headers), "maxRetries", "0", "payload", payload, "partitionId", "0", "retryCount", "0",
					"topic", q.topic, "timestamp", "2026-11-23T05:47:48.803624273Z").Build()).Error())
			}
			path := func(id string) string { return "/api/messages/" + id + "/status" }
			hers, failed, theirs := uuid.NewString(), uuid.NewString(), uuid.NewString()
			add(ada, hers, "a")
			add(ada, failed, "b")
			add(bob, theirs, "c")
			add(bob, hers, "d") // the id is taken
			q.refused(q.get(ada, path(hers)), http.StatusNotFound, web.CodeMessageNotFound)
			during := make(chan *httptest.ResponseRecorder, 1)
			q.consume(3, func(d *streammq.Delivery) streammq.Result {
				switch string(d.Payload) {
				case "a":
					during <- q.get(ada, path(hers))
				case "b":
					return streammq.DeadLetter(errors.New("broken"))
				}
				return streammq.Success()
			})
			require.Equal(t, string(streammq.StateProcessing), decode[wire.MessageStatus](t, <-during).Status.State)
			require.Equal(t, string(streammq.StateCompleted), decode[wire.MessageStatus](t, q.get(ada, path(hers))).Status.State)
			require.Equal(t, string(streammq.StateFailed), decode[wire.MessageStatus](t, q.get(ada, path(failed))).Status.State)
			require.Equal(t, string(streammq.StateCompleted), decode[wire.MessageStatus](t, q.get(bob, path(theirs))).Status.State)
			q.refused(q.get(ada, path(theirs)), http.StatusNotFound, web.CodeMessageNotFound)
			q.refused(q.get(bob, path(hers)), http.StatusNotFound, web.CodeMessageNotFound)
			for _, id := range []string{hers, failed, theirs} {
				left, err := q.client.Do(t.Context(), q.client.B().Ttl().Key("task:owner:"+id).Build()).AsInt64()
				require.NoError(t, err)
				require.Positive(t, left, id)
			}
		})
	}
}

func TestWithoutRedisThereAreNoTopics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, path := range []string{topics.TopicsPath, topics.TopicsPath + "/orders", topics.TopicsPath + "/orders/groups/g", "/internal/mq/status?ids=" + bodyID, "/internal/dlq/topics/orders/letters"} {
		p := b.refused(b.get(operator, path), http.StatusNotFound, web.CodeNotFound)
		require.Contains(t, p.Message, "REDIS_URL")
	}
}
