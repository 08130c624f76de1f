package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// installation is one way to run Millweir: the script below must leave the same log on each.
type installation struct {
	*client
	embed *embedtest.Server
	// begin starts the process that works, with more settings; it is what a step stops or kills.
	begin  func(more ...string) *program
	worker *program
	// sweep starts what tidies up, where that is a process of its own; it would take work over from a killed worker.
	sweep func()
}

// play is one life of a task: what happens to it, and the log that it leaves as "from>to reason attempt/crashes actor".
type play struct {
	name string
	act  func(w *installation) (taskID string)
	want []string
}

const (
	accepted  = ">QUEUED ACCEPTED 0/0 operator"
	claimed   = "QUEUED>RUNNING CLAIMED 0/0 worker"
	done      = "RUNNING>SUCCEEDED DONE 0/0 worker"
	failedOne = "RUNNING>RETRYING FAILED 1/0 worker"

	// shortLease is of a worker that is killed; whoever only stands still keeps the long one.
	shortLease = "INGEST_LEASE_MS=3000"
	// handBackTime is what a stop gives its runs to come back in.
	handBackTime = 5 * time.Second
	// stopGoal is what a stop takes, the leave of its servers' groups with it; stallFactor is how often it waits for what a
	// yardstick waits for once: a few hundred turns on two cores that other tests use too.
	stopGoal    = 3 * time.Second
	stallFactor = 50
)

// script is every event that a task can meet.
func script() []play {
	const (
		again     = "RETRYING>RUNNING CLAIMED 1/0 worker"
		doneLater = "RUNNING>SUCCEEDED DONE 1/0 worker"
	)
	return []play{
		{"succeeds", func(w *installation) string { return w.finish(w.upload()) }, []string{accepted, claimed, done}},
		{"fails once", func(w *installation) string {
			w.embed.Set(embedtest.Fault{Kind: embedtest.Refuse, Match: firstClaim})
			return w.finish(w.upload())
		}, []string{accepted, claimed, failedOne, again, doneLater}},
		{"dies and is replayed", func(w *installation) string {
			w.embed.Set(embedtest.Fault{Kind: embedtest.Refuse})
			id := w.finish(w.upload())
			w.embed.Clear()
			w.post(tasks + "/" + id + "/retry")
			return w.finish(id)
		}, []string{accepted, claimed, failedOne, again, "RUNNING>DEAD EXHAUSTED 2/0 worker", "DEAD>QUEUED REPLAYED 0/0 operator", claimed, done}},
		{"is cancelled and replayed", func(w *installation) string {
			id := w.hold()
			w.post(tasks + "/" + id + "/cancel")
			w.embed.Clear()
			w.post(tasks + "/" + id + "/retry")
			return w.finish(id)
		}, []string{accepted, claimed, "RUNNING>CANCELLED CANCELLED 0/0 operator", "CANCELLED>QUEUED REPLAYED 0/0 operator", claimed, done}},
		{"is suspended and resumed", func(w *installation) string {
			id := w.hold()
			w.post("/internal/tasks/" + id + "/suspend")
			w.embed.Clear()
			w.post("/internal/tasks/" + id + "/resume")
			return w.finish(id)
		}, []string{accepted, claimed, "RUNNING>SUSPENDED SUSPENDED 0/0 operator", "SUSPENDED>QUEUED RESUMED 0/0 operator", claimed, done}},
		{"is throttled", func(w *installation) string {
			w.embed.Set(embedtest.Fault{Kind: embedtest.Throttle, For: 3 * time.Second, Match: firstClaim})
			return w.finish(w.upload())
		}, []string{accepted, claimed, "RUNNING>RETRYING THROTTLED 0/0 worker", "RETRYING>RUNNING CLAIMED 0/0 worker", done}},
		{"does not wait", func(w *installation) string {
			w.worker.stop()
			w.worker = w.begin("INGEST_REDIS_RETRY_BASE_BACKOFF_MS=120000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=120000") // time enough to ask for a retry now
			w.embed.Set(embedtest.Fault{Kind: embedtest.Refuse, Match: firstClaim})
			id := w.reaches(w.upload(), "RETRYING").TaskID
			w.post(tasks + "/" + id + "/retry")
			return w.finish(id)
		}, []string{accepted, claimed, failedOne, "RETRYING>RETRYING RETRY_NOW 1/0 operator", again, doneLater}},
		{"is handed back", func(w *installation) string {
			for {
				id := w.hold()
				y, stopping := measure(w.t), time.Now()
				w.worker.stop()
				took, stall := time.Since(stopping), y.stall()
				require.Less(w.t, took, stopGoal+stallFactor*stall, "a stop, while the machine stalled for %s", stall)
				w.embed.Clear()
				w.worker = w.begin()
				if w.finish(id); took < handBackTime {
					return id
				} // so long a stall leaves runs to their leases
			}
		}, []string{accepted, claimed, "RUNNING>QUEUED HANDED_BACK 0/0 worker", claimed, done}},
		{"is taken over", func(w *installation) string {
			w.worker.stop()
			w.worker = w.begin(shortLease)
			id := w.hold()
			w.worker.kill()
			w.embed.Clear()
			w.worker = w.begin(shortLease)
			return w.finish(id)
		}, []string{accepted, claimed, "RUNNING>RUNNING TAKEOVER 0/1 worker", "RUNNING>SUCCEEDED DONE 0/1 worker"}},
		{"takes its process down", func(w *installation) string {
			id := w.hold()
			for crash := range 3 {
				w.worker.kill()
				w.worker = w.begin(shortLease)
				eventually(w.t, fmt.Sprintf("crash %d is counted", crash+1), func() bool { return len(w.log(id)) == 3+crash })
			}
			w.embed.Clear()
			return w.finish(id)
		}, []string{
			accepted, claimed, "RUNNING>RUNNING TAKEOVER 0/1 worker", "RUNNING>RUNNING TAKEOVER 0/2 worker", "RUNNING>DEAD crash_limit 0/3 worker",
		}},
		{"is overtaken by a newer version", func(w *installation) string {
			w.worker.stop() // that of the short lease
			w.worker = w.begin()
			id := w.hold()
			document := w.task(id).DocumentID
			w.embed.Clear()
			w.embed.Set(embedtest.Fault{Kind: embedtest.Hang, Match: func(e embedtest.Effect) bool { return e.Task == id }})
			w.sweep()
			body, kind := form(w.t, "newer.txt", w.text())
			var newer task
			w.do(http.MethodPut, documents+"/"+document, body, "Content-Type", kind).into(w.t, http.StatusAccepted, &newer)
			require.Equal(w.t, "SUCCEEDED", w.ended(newer.TaskID).Status)
			return w.finish(id)
		}, []string{accepted, claimed, "RUNNING>CANCELLED SUPERSEDED 0/0 system"}},
		{"loses its document", func(w *installation) string {
			id := w.hold()
			require.Equal(w.t, http.StatusNoContent, w.do(http.MethodDelete, documents+"/"+w.task(id).DocumentID, nil).status)
			return w.finish(id)
		}, []string{accepted, claimed, "RUNNING>CANCELLED DELETED 0/0 operator"}},
	}
}

// firstClaim matches what a task asks for in its first claim.
func firstClaim(e embedtest.Effect) bool { return e.Fence == 1 }

// installations are on embedded and on real servers, on SQLite and the two others, on Redis with one stream and with partitions, and on Kafka.
var installations = map[string]func(t *testing.T, env []string) *installation{
	"embedded": allInOne,
	"MariaDB": func(t *testing.T, env []string) *installation {
		return separate(t, append(env, "MYSQL_DSN="+labserver.MySQLDatabase(t)))
	},
	"partitions": func(t *testing.T, env []string) *installation {
		return separate(t, append(env, "INGEST_STREAM_PARTITIONS=3", "MYSQL_DSN="+labserver.MySQLDatabase(t)))
	},
	"embedded partitions": func(t *testing.T, env []string) *installation {
		return allInOne(t, append(env, "INGEST_STREAM_PARTITIONS=3"))
	},
	"Postgres": func(t *testing.T, env []string) *installation {
		return separate(t, append(env, "DATABASE_URL="+labserver.PostgresDatabase(t)))
	},
	"Kafka": func(t *testing.T, env []string) *installation {
		return separateOnKafka(t, append(env, "MYSQL_DSN="+labserver.MySQLDatabase(t)))
	},
}

// The same events leave the same log on every installation.
func TestEveryInstallationLeavesTheSameLog(t *testing.T) {
	t.Parallel()
	for name, open := range installations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			embed := embedtest.Start(t, embedtest.Options{})
			w := open(t, []string{
				"AUTH_MODE=none", "EMBEDDING_BASE_URL=" + embed.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai",
				"INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=1000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=1000",
				"INGEST_MAX_CRASHES=3", "INGEST_LEASE_MS=30000", "INGEST_STOP_GRACE_MS=100",
			})
			w.embed, w.worker = embed, w.begin()
			for _, p := range script() {
				t.Run(p.name, func(t *testing.T) { // one after the other: they share the process that they kill
					embed.Clear()
					w.client = w.in(t)
					require.Equal(t, p.want, w.log(p.act(w)))
				})
			}
		})
	}
}

// allInOne is the all-in-one, with its servers in its own process.
func allInOne(t *testing.T, env []string) *installation {
	data := t.TempDir()
	w := &installation{client: newClient(t, ""), sweep: func() {}}
	w.begin = func(more ...string) *program {
		p := start(t, "dev", slices.Concat(env, more), "--data", data, "--addr", "127.0.0.1:0")
		w.url = p.printed(`ready (http://\S+)`) // another one each time: nobody keeps a port for a process that is away
		return p
	}
	return w
}

// separate is a gateway and a worker, and in the end a reclaimer, on real servers.
func separate(t *testing.T, env []string) *installation {
	migrate(t, env...)
	env = append(env, "REDIS_URL="+labserver.RedisURL(t), "CHROMA_BASE_URL="+labserver.Chroma(t).URL(""), "UPLOAD_DIR="+filepath.Join(t.TempDir(), "uploads"))
	api := start(t, "ingest-api", append(env, "HTTP_ADDR=127.0.0.1:0"))
	return &installation{
		client: newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`)),
		begin:  func(more ...string) *program { return start(t, "stream-worker", slices.Concat(env, more)) },
		sweep:  func() { start(t, "reclaimer", env) },
	}
}

// separateOnKafka is separate on the other transport, with a relay beside the gateway.
func separateOnKafka(t *testing.T, env []string) *installation {
	transport, init := onKafka(t, labserver.Kafka(t).URL(""))
	init()
	migrate(t, env...)
	env = slices.Concat(env, transport, []string{"CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads")})
	api := start(t, "ingest-api", append(env, "HTTP_ADDR=127.0.0.1:0"))
	start(t, "outbox-relay", env)
	return &installation{
		client: newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`)),
		begin:  func(more ...string) *program { return start(t, "kafka-consumer", slices.Concat(env, more)) },
		sweep:  func() { start(t, "reclaimer", env) },
	}
}

// text is unlike any before.
func (w *installation) text() []byte { return prose(fmt.Sprintf("word%d", time.Now().UnixNano()), 1) }

// upload sends a new document.
func (w *installation) upload() string { return w.accepted("a.txt", w.text()).TaskID }

// hold sends a document whose embedding hangs, once it runs.
func (w *installation) hold() string {
	w.embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	return w.reaches(w.upload(), "RUNNING").TaskID
}

// post takes one step with a task.
func (w *installation) post(path string) {
	w.t.Helper()
	w.do(http.MethodPost, path, nil).into(w.t, http.StatusOK, nil)
}

// finish waits for a task's end.
func (w *installation) finish(id string) string {
	w.t.Helper()
	return w.ended(id).TaskID
}

// log is a task's log, one line a row.
func (w *installation) log(id string) []string {
	w.t.Helper()
	var rows page[struct {
		FromStatus   string `json:"fromStatus"`
		ToStatus     string `json:"toStatus"`
		Reason       string `json:"reason"`
		AttemptCount int    `json:"attemptCount"`
		CrashCount   int    `json:"crashCount"`
		Actor        string `json:"actor"`
	}]
	w.get(tasks+"/"+id+"/transitions").into(w.t, http.StatusOK, &rows)
	var out []string
	for _, r := range rows.Items {
		kind, _, _ := strings.Cut(r.Actor, ":")
		out = append(out, fmt.Sprintf("%s>%s %s %d/%d %s", r.FromStatus, r.ToStatus, r.Reason, r.AttemptCount, r.CrashCount, kind))
	}
	return out
}
