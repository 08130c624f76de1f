package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
)

const (
	operatorName = "operator"
	userCount    = 3
	// actorsEach are the sessions of one user.
	actorsEach = 12
	// remembered are the documents that a user comes back to; older ones are left in peace.
	remembered = 300
	smallBytes = 300
	largeBytes = 20_000
	tries      = 4 // of one upload whose outcome is unknown or that met a 503
	topK       = 10
	borrowOne  = 20 // every so many uploads are a file that somebody has sent before
	bulkRate   = 20 // tasks a second
	letterOne  = 20 // every so many new documents are a message
	tryPause   = 100 * time.Millisecond
	maxPause   = time.Second
	waitLimit  = 5 * time.Second // of a user with one request
	gateTick   = 50 * time.Millisecond
)

// held is a document as its user remembers it.
type held struct {
	doc      apiclient.Doc
	task     string
	document string
}

// user owns documents. Its methods are safe for concurrent use.
type user struct {
	name    string
	clients []*apiclient.Client // one for each gateway

	mu     sync.Mutex
	recent []held
	next   int // place in recent that is overwritten next
}

// crowd is all users at their work.
type crowd struct {
	users    []*user
	secrets  []string // API keys: they must be seen nowhere
	operator []*apiclient.Client
	seed     uint64
	random   func(name string) *rand.Rand
	full     func() bool // the backlog is long enough
	journal  *journal
	watchers chan struct{} // a place for each open stream
	watching sync.WaitGroup
	numbers  atomic.Int64 // of documents
	faults   *problems

	mu      sync.Mutex
	owner   map[string]string    // of each document
	deleted map[string]time.Time // document → when its deletion was answered
}

// newCrowd makes users with keys, and an operator.
func newCrowd(ctx context.Context, s *soak, gateways []*apiclient.Client) (*crowd, error) {
	c := &crowd{
		seed: s.Seed, random: s.randomOf, full: s.full, journal: s.journal, faults: &s.problems,
		watchers: make(chan struct{}, watchersMax), owner: map[string]string{}, deleted: map[string]time.Time{},
	}
	as := func(name, role string) ([]*apiclient.Client, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(s.bench.Bin, "millweir"), "keys", "create", "--user", name, "--role", role)
		cmd.Env = []string{"DATABASE_URL=" + s.world.SQL.URL("")}
		secret, err := cmd.Output()
		c.secrets = append(c.secrets, strings.TrimSpace(string(secret)))
		var out []*apiclient.Client
		for _, g := range gateways {
			out = append(out, g.Within(waitLimit).As(name, strings.TrimSpace(string(secret)), s.journal.call))
		}
		return out, err
	}
	for i := range userCount {
		u := &user{name: fmt.Sprintf("user-%d", i+1)}
		var err error
		if u.clients, err = as(u.name, "user"); err != nil {
			return nil, err
		}
		c.users = append(c.users, u)
	}
	var err error
	c.operator, err = as(operatorName, "operator")
	return c, err
}

// work lets everybody work until ctx ends.
func (c *crowd) work(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range c.users {
		for i := range actorsEach {
			a := &actor{crowd: c, user: u, random: c.random(fmt.Sprint(u.name, "/", i))}
			wg.Go(func() {
				for ctx.Err() == nil {
					a.step(ctx)
				}
			})
		}
	}
	wg.Wait()
	c.watching.Wait()
}

// actor is one session of a user.
type actor struct {
	*crowd
	user   *user
	random *rand.Rand
}

// ops are what an actor does, with how often: something by itself, or to a document that its user knows.
var ops = []struct {
	weight int
	do     func(a *actor, ctx context.Context)
	to     func(a *actor, ctx context.Context, h held)
}{
	{weight: 36, do: (*actor).upload},
	{weight: 4, to: (*actor).repeat},
	{weight: 2, to: (*actor).misuse},
	{weight: 3, to: (*actor).again},
	{weight: 5, to: (*actor).replace},
	{weight: 3, to: (*actor).force},
	{weight: 2, to: (*actor).rollback},
	{weight: 1, do: (*actor).bulk},
	{weight: 4, to: (*actor).delete},
	{weight: 7, to: (*actor).cancel},
	{weight: 14, to: (*actor).retry},
	{weight: 3, to: (*actor).suspend},
	{weight: 4, to: (*actor).search},
	{weight: 2, do: (*actor).list},
}

// step does one thing.
func (a *actor) step(ctx context.Context) {
	sum := 0
	for _, o := range ops {
		sum += o.weight
	}
	at := a.random.IntN(sum)
	for _, o := range ops {
		if at -= o.weight; at >= 0 {
			continue
		}
		if o.do != nil {
			o.do(a, ctx)
		} else if h, ok := a.known(); ok {
			o.to(a, ctx, h)
		}
		return
	}
}

// client is one of the gateways, at random.
func (a *actor) client() *apiclient.Client { return a.user.clients[a.random.IntN(len(a.user.clients))] }

// fresh is a document that nobody has sent before, out of the seed; now and then it is a message with attachments.
func (a *actor) fresh() apiclient.Doc {
	size := smallBytes
	if a.random.IntN(100) == 0 {
		size = largeBytes
	}
	n := int(a.numbers.Add(1))
	d := apiclient.Text(int(a.seed%1_000_000)*1_000_000+n, size)
	if a.random.IntN(letterOne) == 0 { // one attachment is the same in many of a user's messages
		d = apiclient.Letter(d, "terms.txt", fmt.Sprintf("enclosure-%d.txt", n))
	}
	return d
}

// send repeats an upload while its outcome is unknown, as a careful client does; false: it was refused or given up.
func (a *actor) send(ctx context.Context, d apiclient.Doc, how func(*apiclient.Client, context.Context, apiclient.Doc) (apiclient.Task, error)) (apiclient.Task, bool) {
	for range tries {
		t, err := how(a.client(), context.WithoutCancel(ctx), d)
		if err == nil {
			a.learn(t.DocumentID)
			return t, true
		}
		var status *apiclient.StatusError
		pause := tryPause
		if errors.As(err, &status) {
			if status.Status < http.StatusInternalServerError && status.Status != http.StatusConflict {
				return apiclient.Task{}, false
			}
			pause = min(max(pause, status.RetryAfter), maxPause)
		}
		if !await.Pause(ctx, pause) || d.Key == "" {
			break // without a key a repeat could be a second upload
		}
	}
	return apiclient.Task{}, false
}

// learn notes whose a document is.
func (a *actor) learn(document string) {
	if document == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, known := a.owner[document]; known && other != a.user.name {
		a.faults.add("I30: document %s of %s was answered to %s", document, other, a.user.name)
	}
	a.owner[document] = a.user.name
}

// remember keeps a document to come back to.
func (u *user) remember(h held) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.recent) < remembered {
		u.recent = append(u.recent, h)
		return
	}
	u.recent[u.next] = h
	u.next = (u.next + 1) % remembered
}

// known is a document of the user's at random, the younger the likelier; false: it has none yet.
func (a *actor) known() (held, bool) { return a.user.pick(a.random) }

func (u *user) pick(random *rand.Rand) (held, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.recent)
	if n == 0 {
		return held{}, false
	}
	back := min(random.IntN(n), random.IntN(n), random.IntN(n))
	return u.recent[(u.next-1-back+2*n)%n], true
}

// upload sends something new, once the backlog has room, and sometimes follows it to its end.
func (a *actor) upload(ctx context.Context) {
	for a.full() {
		if !await.Pause(ctx, gateTick) {
			return
		}
	}
	d := a.fresh()
	if other, ok := a.users[a.random.IntN(len(a.users))].pick(a.random); ok && a.random.IntN(borrowOne) == 0 {
		d = other.doc // two users have the same file
		d.Key = fmt.Sprintf("borrow-%d", a.numbers.Add(1))
	}
	t, ok := a.send(ctx, d, (*apiclient.Client).Upload)
	if !ok || t.Duplicate { // a duplicate's task has the key of its first request
		return
	}
	a.user.remember(held{doc: d, task: t.TaskID, document: t.DocumentID})
	if a.random.IntN(watchOne) == 0 {
		a.watch(ctx, t.TaskID)
	}
}

// repeat sends the same request again: the same key and bytes are the same task for ever.
func (a *actor) repeat(ctx context.Context, h held) {
	if t, ok := a.send(ctx, h.doc, (*apiclient.Client).Upload); ok && t.TaskID != h.task {
		a.faults.add("I14: key %s of %s was answered with task %s, and before with %s", h.doc.Key, a.user.name, t.TaskID, h.task)
	}
}

// misuse sends other bytes with a key that is taken: refused.
func (a *actor) misuse(ctx context.Context, h held) {
	d := a.fresh()
	d.Key = h.doc.Key
	if t, ok := a.send(ctx, d, (*apiclient.Client).Upload); ok {
		a.faults.add("I14: key %s of %s took other bytes: task %s, before %s", d.Key, a.user.name, t.TaskID, h.task)
	}
}

// again sends the same bytes without a key: a duplicate, or a new task if the last one ended badly.
func (a *actor) again(ctx context.Context, h held) {
	h.doc.Key = ""
	a.send(ctx, h.doc, (*apiclient.Client).Upload)
}

// replace sends a new version.
func (a *actor) replace(ctx context.Context, h held) {
	d := a.fresh()
	t, ok := a.send(ctx, d, func(c *apiclient.Client, ctx context.Context, d apiclient.Doc) (apiclient.Task, error) {
		return c.Replace(ctx, h.document, d)
	})
	if ok {
		a.user.remember(held{doc: d, task: t.TaskID, document: t.DocumentID})
	}
}

// force sends the same bytes as a new version, with a key of its own.
func (a *actor) force(ctx context.Context, h held) {
	h.doc.Key = fmt.Sprintf("force-%d", a.numbers.Add(1))
	a.send(ctx, h.doc, (*apiclient.Client).Force)
}

// rollback goes back to what a document said before; most have nothing to go back to, which is refused.
func (a *actor) rollback(ctx context.Context, h held) {
	if t, err := a.client().Rollback(context.WithoutCancel(ctx), h.document); err == nil {
		a.learn(t.DocumentID)
	}
}

// bulk runs all of a user's tasks again that died, or that wait for their next try.
func (a *actor) bulk(ctx context.Context) {
	r := wire.BulkRequest{Action: "replay", Filter: "status:DEAD", RatePerSecond: bulkRate, Reason: "again"}
	if a.random.IntN(2) == 0 {
		r.Action, r.Filter = "retry", "status:RETRYING"
	}
	_, _ = a.client().Bulk(context.WithoutCancel(ctx), r) // a refusal is in the journal
}

// delete removes a document.
func (a *actor) delete(ctx context.Context, h held) {
	if err := a.client().Delete(context.WithoutCancel(ctx), h.document); err == nil {
		a.mu.Lock()
		if _, before := a.deleted[h.document]; !before {
			a.deleted[h.document] = time.Now()
		}
		a.mu.Unlock()
	}
}

// cancel withdraws a task, and sometimes replays it at once.
func (a *actor) cancel(ctx context.Context, h held) {
	if a.client().Cancel(ctx, h.task) == nil && a.random.IntN(2) == 0 {
		_ = a.client().Retry(ctx, h.task) // a refusal is in the journal
	}
}

// retry does not want to wait, or replays what died.
func (a *actor) retry(ctx context.Context, h held) {
	_ = a.client().Retry(ctx, h.task) // most are refused: they are done or at work
}

// suspend lets the operator hold a task and let it go again.
func (a *actor) suspend(ctx context.Context, h held) {
	c := a.operator[a.random.IntN(len(a.operator))]
	if c.Suspend(ctx, h.task) == nil && await.Pause(ctx, time.Duration(a.random.IntN(300))*time.Millisecond) {
		_ = c.Resume(ctx, h.task) // what stays is let go in the end
	}
}

// search looks for a document by its own words: nothing deleted, nothing of others.
func (a *actor) search(ctx context.Context, h held) {
	began := time.Now()
	hits, err := a.client().Search(ctx, h.doc.Base, string(h.doc.Body[:min(len(h.doc.Body), smallBytes)]), topK)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, hit := range hits {
		if at, gone := a.deleted[hit.DocumentID]; gone && at.Before(began) {
			a.faults.add("I29: document %s was deleted at %s and found by a search that began at %s", hit.DocumentID, at.Format(time.TimeOnly), began.Format(time.TimeOnly))
		}
		if owner, known := a.owner[hit.DocumentID]; known && owner != a.user.name {
			a.faults.add("I30: %s found document %s of %s", a.user.name, hit.DocumentID, owner)
		}
	}
}

// list pages through tasks or documents: nothing of others.
func (a *actor) list(ctx context.Context) {
	paths := []string{"/api/knowledge/tasks?limit=20", "/api/knowledge/documents?limit=20", "/api/knowledge/tasks?status=RETRYING,RUNNING&limit=20"}
	rows, err := a.client().List(ctx, paths[a.random.IntN(len(paths))])
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, row := range rows {
		var t apiclient.Task
		if json.Unmarshal(row, &t) != nil {
			continue
		}
		if owner, known := a.owner[t.DocumentID]; known && owner != a.user.name {
			a.faults.add("I30: the list of %s shows document %s of %s", a.user.name, t.DocumentID, owner)
		}
	}
}
