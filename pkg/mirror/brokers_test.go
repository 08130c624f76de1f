package mirror_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// figures are what the exporters have said, by name and state.
func (r *running) figures() map[string]float64 {
	out := map[string]float64{}
	for _, name := range []string{"rabbit_messages_ready", "rabbit_messages_unacknowledged", "rabbit_quorum_leader_changes_total"} {
		if v, shown := r.gauge(name); shown {
			out[name] = v
		}
	}
	for _, state := range []string{"leader", "follower"} {
		if v, shown := r.gauge("rabbit_quorum_members", state); shown {
			out[state] = v
		}
	}
	return out
}

func (r *running) shows(what string, want map[string]float64) {
	r.w.t.Helper()
	var got map[string]float64
	defer func() {
		if r.w.t.Failed() {
			r.w.t.Logf("%s: got %v, want %v", what, got, want)
		}
	}()
	r.w.eventually(what, func() bool { got = r.figures(); return fmt.Sprint(got) == fmt.Sprint(want) })
}

// The figures of the queue are those of its broker's exporter, and absent while that cannot be read.
func TestTheBrokersFiguresAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.Private(t, labserver.KindRabbitMQ, labserver.Options{}), taskstoretest.SQLite(t))
	w.cfg.MetricsURLs = []string{w.server.RabbitMetricsURL() + "/"}
	_, err := w.ch.QueueDeclare("another", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
	require.NoError(t, w.ch.PublishWithContext(t.Context(), "", "another", false, false, amqp.Publishing{}))
	w.submit(3)
	m := w.start()
	m.knows(3)
	w.copies(3)
	one := map[string]float64{"rabbit_messages_ready": 3, "rabbit_messages_unacknowledged": 0, "rabbit_quorum_leader_changes_total": 0, "leader": 1}
	m.shows("three copies", one)
	m.stop() // it would copy anew what it does not find
	_, found, err := w.ch.Get(w.cfg.Queue, false)
	require.NoError(t, err)
	require.True(t, found)
	one["rabbit_messages_ready"], one["rabbit_messages_unacknowledged"] = 2, 1
	m.shows("one is taken", one)

	require.NoError(t, w.server.Pause())
	began := time.Now()
	require.Empty(t, m.figures(), "nothing is known of a broker that hangs")
	require.Less(t, time.Since(began), 30*time.Second, "each of five scrapes is bounded")
	require.NoError(t, w.server.Continue())
	m.shows("it answers again", one)

	require.NoError(t, w.server.Stop(t.Context()))
	require.Empty(t, m.figures())
	require.NoError(t, w.server.Restart(t.Context()))
	w.eventually("a leader was elected again", func() bool { return m.figures()["rabbit_quorum_leader_changes_total"] > 0 })
}

// RabbitMQ 4 names the term otherwise, and says much more of each queue: the page of many queues is larger than what is kept of it.
func TestThePageOfRabbitMQ4(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	page := "# TYPE rabbitmq_detailed_raft_term gauge\n"
	for _, line := range []string{
		"queue_messages_ready%s 5\n", "queue_messages_unacked%s 2\n", "raft_term%s 3.0\n", "raft_term_and_voted_for_updates%s 7.0\n",
	} {
		page += "rabbitmq_detailed_" + fmt.Sprintf(line, fmt.Sprintf(`{vhost="/",queue=%q}`, w.cfg.Queue))
	}
	other := "rabbitmq_detailed_raft_commit_index{vhost=\"/\",queue=\"another\"} 1.0\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, page+strings.Repeat(other, 5<<20/len(other)))
	}))
	t.Cleanup(s.Close)
	w.cfg.MetricsURLs, w.cfg.VHost = []string{s.URL}, "/"
	w.start().shows("a page of RabbitMQ 4", map[string]float64{
		"rabbit_messages_ready": 5, "rabbit_messages_unacknowledged": 2, "rabbit_quorum_leader_changes_total": 2, "leader": 1,
	})
}

// An exporter that cannot be read takes nothing from the others, and its password is told nobody.
func TestABrokenExporterShowsNothing(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close() //nolint:errcheck // it only listens
	serve := func(f http.HandlerFunc) string {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		return strings.Replace(s.URL, "http://", "http://user:s3cr3t@", 1)
	}
	w := onSQLite(t)
	for what, url := range map[string]string{
		"refuses":      "http://user:s3cr3t@127.0.0.1:1",
		"hangs":        "http://user:s3cr3t@" + silent.Addr().String(),
		"foreign text": serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>s3cr3t {") }),
		"another's":    serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "go_goroutines 3\n") }),
		"status": serve(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			http.Error(w, user+password, http.StatusUnauthorized)
		}),
		"endless": serve(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("# nothing\n", 1000))
			}
		}),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bad := *w
			bad.t, bad.cfg.MetricsURLs, bad.tasks = t, []string{url}, openStore(t, taskstoretest.SQLite(t))
			m := bad.start()
			m.knows(0)
			require.Empty(t, m.figures())
			m.stop()
			require.Equal(t, what != "another's", strings.Contains(m.log.String(), "RABBITMQ_METRICS_URLS was not read"), m.log)
			require.NotContains(t, m.log.String(), "s3cr3t")

			both := bad
			both.cfg.MetricsURLs = []string{url, w.server.RabbitMetricsURL()}
			m = both.start()
			m.shows("what the other one says", map[string]float64{
				"rabbit_messages_ready": 0, "rabbit_messages_unacknowledged": 0, "rabbit_quorum_leader_changes_total": 0, "leader": 1,
			})
		})
	}
}

// In a cluster the leader is told from its followers, and a killed node is none of them.
func TestMembersOfACluster(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateRabbitCluster(t)
	w := newWorld(t, c.Nodes[0], taskstoretest.SQLite(t))
	for _, n := range c.Nodes {
		w.cfg.MetricsURLs = append(w.cfg.MetricsURLs, n.RabbitMetricsURL())
	}
	w.submit(2)
	m := w.start()
	m.knows(2)
	all := map[string]float64{
		"rabbit_messages_ready": 2, "rabbit_messages_unacknowledged": 0, "rabbit_quorum_leader_changes_total": 0, "leader": 1, "follower": 2,
	}
	m.shows("three members", all)
	require.NoError(t, c.Nodes[2].Kill(t.Context()))
	all["follower"] = 1
	m.shows("one is gone", all)
	require.NoError(t, c.Nodes[0].Kill(t.Context())) // the leader is where the queue was declared
	w.eventually("one of three leads nobody", func() bool {
		f := m.figures()
		_, counted := f["rabbit_messages_ready"]
		return f["follower"] == 1 && f["leader"] == 0 && !counted
	})
	for _, n := range []int{0, 2} {
		require.NoError(t, c.Nodes[n].Restart(t.Context()))
	}
	w.eventually("a leader was elected", func() bool {
		f := m.figures()
		return f["leader"] == 1 && f["follower"] == 2 && f["rabbit_messages_ready"] == 2 && f["rabbit_quorum_leader_changes_total"] > 0
	})
}
