package crash

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telegramtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/mutants"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	lease       = time.Second
	settleLimit = 60 * time.Second // for all work to end after a fault, on two busy cores
	fireLimit   = 45 * time.Second // for a point to be reached; an owed dead letter is looked at after 10 s
	readyLimit  = 30 * time.Second
	firstNumber = 1000
)

// quick are settings under which what takes minutes in production takes seconds here. Chunks and batches are small, so
// that a small document has several of each.
var quick = []string{
	"INGEST_LEASE_MS=" + strconv.Itoa(int(lease.Milliseconds())), "INGEST_MAX_CRASHES=6", "INGEST_REDIS_MAX_ATTEMPTS=4",
	"INGEST_SWEEP_INTERVAL_MS=200", "INGEST_PROMISE_SLACK_MS=300", "INGEST_STOP_GRACE_MS=0", "INGEST_STREAM_PIN_MAX_MS=1000",
	"INGEST_REDIS_RECLAIM_IDLE_MS=300", "INGEST_REDIS_RECLAIM_INTERVAL_MS=200",
	"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=200", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=400",
	"CHUNK_MODE=chars", "CHUNK_SIZE=300", "CHUNK_OVERLAP=0", "EMBEDDING_BATCH_SIZE=4",
}

// sent is a document that was accepted.
type sent struct {
	apiclient.Doc
	task, document string
}

// lane is a world of its own in which one point after the other is tried. Only its gateway runs all the time.
type lane struct {
	*world.World
	gateway *proc.Proc
	client  *apiclient.Client
	load    *apiclient.Record           // what was accepted
	want    map[string]taskstate.Status // tasks that end otherwise than SUCCEEDED
	number  int                         // of the next document
	seed    uint64                      // of the run
	lost    bool                        // answers of the embedding service are thrown away
	on      servers
	bot     *telegramtest.Server
	hook    string          // where the webhook of the armed process listens
	chatted int             // tasks that the messages of chats make
	clean   []apiclient.Doc // documents whose segments are compared with those of an undisturbed run in the end
}

// newLane makes a lane on the plan's servers.
func (p *plan) newLane(ctx context.Context, on servers) (*lane, error) {
	p.mu.Lock()
	p.parts[on]++
	n := p.parts[on]
	p.mu.Unlock()
	if n > laneLimit {
		return nil, fmt.Errorf("%d lanes were given up after failures", n-1)
	}
	bot, hook := telegramtest.NewServer(), world.FreeAddr()
	env := append(slices.Clone(quick), botEnv(bot, hook)...)
	if p.mutant != "" {
		env = append(env, mutants.Env(p.mutant))
	}
	name := fmt.Sprintf("lane-%s-%d", on, n)
	w, err := p.worlds[on].Part(ctx, n, world.Options{Name: name, Kafka: on == onKafka, RabbitMQ: on == onRabbit, Env: env, Embedder: &embedtest.Options{}, Evidence: true})
	if err != nil {
		bot.Close()
		return nil, err
	}
	l := &lane{
		World: w, on: on, bot: bot, hook: hook, lost: p.kind == "error", seed: p.Seed, load: &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}, want: map[string]taskstate.Status{},
		number: firstNumber + int(p.Seed%firstNumber)*firstNumber, //nolint:gosec // below a million
	}
	if err := l.serve(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close ends the lane's processes.
func (l *lane) Close() {
	l.World.Close()
	l.bot.Close()
}

// serve starts the lane's gateway.
func (l *lane) serve(ctx context.Context) (err error) {
	if l.gateway, err = l.StartReady(ctx, gateway); err == nil {
		l.client = apiclient.NewClient(l.gateway.HTTP)
	}
	return err
}

// doc is a new document of about that many bytes; it has no idempotency key.
func (l *lane) doc(bytes int) apiclient.Doc {
	l.number++
	d := apiclient.Text(l.number, bytes)
	d.Key = ""
	return d
}

// blank is a new document in whose markup no text stands: it ends DEAD at once.
func (l *lane) blank() apiclient.Doc {
	l.number++
	return apiclient.Doc{Name: fmt.Sprintf("blank-%d.html", l.number), Body: fmt.Appendf(nil, "<!DOCTYPE html><html><body><!-- %d --></body></html>\n", l.number)}
}

// upload sends a document that must be accepted.
func (l *lane) upload(ctx context.Context, d apiclient.Doc) (sent, error) {
	task, err := l.client.Upload(ctx, d)
	if err != nil {
		return sent{}, fmt.Errorf("upload %s: %w", d.Name, err)
	}
	l.load.Accepted[task.TaskID] = d
	return sent{Doc: d, task: task.TaskID, document: task.DocumentID}, nil
}

// insist sends a document again and again until it is accepted, as a careful client does.
func (l *lane) insist(ctx context.Context, d apiclient.Doc) error {
	return await.Until(ctx, settleLimit, 200*time.Millisecond, func(ctx context.Context) error {
		_, err := l.upload(ctx, d)
		return err
	})
}

// audit is the judge of this lane.
func (l *lane) audit() judge.Audit {
	return judge.Audit{
		DB: l.DB.Reader(), Vectors: l.Vectors, Stream: l.Stream, Load: l.load, Want: l.want, World: l.World, Gateway: l.client,
		RepliesLost: l.lost,
	}
}

// settled waits until nothing of the lane is under way.
func (l *lane) settled(ctx context.Context) error { return l.audit().Rest(ctx, settleLimit) }

// workers are the services that run tasks on the lane's transport.
func (l *lane) workers() []string {
	if l.on == onKafka {
		return []string{consumer, relay}
	}
	return []string{worker}
}

// undisturbed runs a worker from here until every task has ended, and ends it again.
func (l *lane) undisturbed(ctx context.Context, env ...string) error {
	for _, name := range l.workers() {
		p, err := l.Start(name, env...)
		if err != nil {
			return err
		}
		defer p.Kill()
	}
	return l.settled(ctx)
}
