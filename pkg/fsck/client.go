package fsck

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// clientView is what the clients' log says, gathered by what it is about. A nil view has nothing to say.
type clientView struct {
	accepted  map[string]ClientRecord // by task: answered with 2xx; taken out when its row was seen
	bodies    map[string]string       // by task: hash of the accepted bytes
	keys      map[clientKey]*keyUse
	maybe     bool // an upload has no answer
	deleted   map[string]time.Time
	withdrawn map[string]bool      // documents with a deletion that may have been done: it was not refused
	unseen    map[string]string    // documents that were accepted, with a task of theirs; taken out when their rows were seen
	searches  []time.Time          // when those with an answer began
	hits      map[string][]seenHit // by document
	watched   map[string]map[string][]ClientRecord
	made      map[string]bool // every task that an answer named
	outages   []ClientRecord
}

// clientKey is what an Idempotency-Key is unique by.
type clientKey struct{ user, key string }

// keyUse is what was done with one key.
type keyUse struct {
	tasks  map[string]bool
	bodies map[string]bool // of accepted requests
	maybe  bool
}

// seenHit is one answer of one search.
type seenHit struct {
	user         string
	began, ended time.Time
	version      int64
}

// readClient gathers the clients' log.
func (c *checker) readClient(context.Context) error {
	if c.e.Client == nil {
		c.notJudged("no client log", "I13", "I14", "I35")
		return nil
	}
	if !c.o.WholeClient {
		c.notJudged("the client log does not say that it is whole", "I13")
	}
	v := &clientView{
		accepted: map[string]ClientRecord{}, bodies: map[string]string{}, keys: map[clientKey]*keyUse{}, made: map[string]bool{},
		deleted: map[string]time.Time{}, withdrawn: map[string]bool{}, unseen: map[string]string{}, hits: map[string][]seenHit{},
		watched: map[string]map[string][]ClientRecord{},
	}
	c.client = v
	return ReadClientLog(c.e.Client, func(r ClientRecord) error {
		v.add(r)
		return nil
	})
}

// add gathers one record.
func (v *clientView) add(r ClientRecord) {
	switch r.Op {
	case OpUpload, OpReplace, OpImport, OpApply:
		v.addMaker(r)
	case OpDelete:
		if r.Outcome != OutcomeRefused {
			v.withdrawn[r.Document] = true
		}
		if at, ok := v.deleted[r.Document]; r.Outcome == OutcomeOK && (!ok || r.Ended.Before(at)) {
			v.deleted[r.Document] = r.Ended
		}
	case OpSearch:
		if r.Outcome != OutcomeOK {
			return
		}
		for _, h := range r.Hits {
			v.hits[h.Document] = append(v.hits[h.Document], seenHit{r.User, r.Began, r.Ended, h.Version})
		}
		v.searches = append(v.searches, r.Began)
	case OpOutage:
		v.outages = append(v.outages, r)
	case OpEvent:
		if v.watched[r.Task] == nil {
			v.watched[r.Task] = map[string][]ClientRecord{}
		}
		v.watched[r.Task][r.Watcher] = append(v.watched[r.Task][r.Watcher], r)
	}
}

// addMaker gathers a request that makes a task.
func (v *clientView) addMaker(r ClientRecord) {
	if r.Key != "" {
		at := clientKey{r.User, r.Key}
		if v.keys[at] == nil {
			v.keys[at] = &keyUse{tasks: map[string]bool{}, bodies: map[string]bool{}}
		}
		k := v.keys[at]
		k.maybe = k.maybe || r.Outcome == OutcomeMaybe
		if r.Outcome == OutcomeOK {
			k.tasks[r.Task], k.bodies[r.BodyHash] = true, true
		}
	}
	switch r.Outcome {
	case OutcomeOK:
		v.made[r.Task] = true
		if r.Document != "" {
			v.unseen[r.Document] = r.Task
		}
		if !r.Duplicate {
			v.accepted[r.Task] = r
			if !r.Replayed {
				v.bodies[r.Task] = r.BodyHash
			}
		}
	case OutcomeMaybe:
		v.maybe = true
	case OutcomeRefused:
	}
}

// asked reports whether a request can have made the task.
func (v *clientView) asked(t taskstate.Task) bool {
	if v.made[t.ID] {
		return true
	}
	if t.IdempotencyKey != "" {
		k := v.keys[clientKey{t.UserID, sentKey(t.IdempotencyKey)}]
		return k != nil && k.maybe
	}
	return v.maybe // without a key nothing ties a lost request to its task but its bytes; the documents are checked apart
}

// sentKey is a row's key as the request had it: the gateway adds the number of the file, "/1".
func sentKey(key string) string {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return key
}

// row judges one task's row: I12 and I14.
func (v *clientView) row(c *checker, t taskstate.Task) {
	if v == nil {
		return
	}
	if _, ok := v.accepted[t.ID]; ok {
		c.judged("I12")
		delete(v.accepted, t.ID)
	}
	if t.IdempotencyKey == "" {
		return
	}
	k := v.keys[clientKey{t.UserID, sentKey(t.IdempotencyKey)}]
	if k == nil || len(k.tasks) == 0 {
		return
	}
	c.verdict(k.tasks[t.ID], "I14", t.ID, "it has key %q of user %s, whose requests were answered with another task", t.IdempotencyKey, t.UserID)
	if t.RequestHash != "" {
		c.verdict(k.bodies[t.RequestHash], "I14", t.ID, "it keeps hash %s for key %q, which was accepted for other bytes", t.RequestHash, t.IdempotencyKey)
	}
}

// task judges what watchers saw of a task: I35.
func (v *clientView) task(c *checker, t taskstate.Task, l *life) {
	if v == nil {
		return
	}
	for _, events := range v.watched[t.ID] {
		c.watcher(t, l, events)
	}
	delete(v.watched, t.ID)
}

// watcher judges one client's events: each is a transition of the log, in its order, none between the first and the last is
// missing, and what came twice said the same.
func (c *checker) watcher(t taskstate.Task, l *life, events []ClientRecord) {
	at := -1 // of the last event in the log
	for _, e := range events {
		c.judged("I35")
		i, ok := slices.BinarySearchFunc(l.log, e.Transition, func(tr taskstate.Transition, id int64) int { return int(tr.ID - id) })
		switch {
		case !ok && c.client.undone(e):
			continue
		case !ok:
			c.bad("I35", t.ID, "%s was shown transition %d, which is not in the log", e.Watcher, e.Transition)
			return
		case string(l.log[i].To) != e.State:
			c.bad("I35", t.ID, "%s was shown %s for transition %d, which is %s", e.Watcher, e.State, e.Transition, l.log[i].To)
		case at >= 0 && i < at:
			c.bad("I35", t.ID, "%s was shown transition %d after %d", e.Watcher, e.Transition, l.log[at].ID)
		case at >= 0 && i > at+1:
			c.bad("I35", t.ID, "%s was shown transition %d after %d: %d between them are missing", e.Watcher, e.Transition, l.log[at].ID, i-at-1)
		}
		at = i
	}
}

// flushing is how long MySQL and MariaDB may show a COMMIT to others before it is on the disk: the time of a log write, which
// on a busy machine is long. Postgres shows none before.
const flushing = 2 * time.Second

// undone reports whether the database was killed so soon after an event that the change may have been shown and not kept.
func (v *clientView) undone(e ClientRecord) bool {
	return slices.ContainsFunc(v.outages, func(o ClientRecord) bool {
		return e.Ended.After(o.Began.Add(-flushing)) && e.Ended.Before(o.Ended)
	})
}

// saw notes that a document's row, or its tombstone, is there.
func (v *clientView) saw(document string) {
	if v != nil {
		delete(v.unseen, document)
	}
}

// document judges what clients know of a document: I12, I26, I29, I30.
func (v *clientView) document(c *checker, d documentRow, vs []versionRow) {
	if v == nil {
		return
	}
	byNo := map[int64]versionRow{}
	for _, one := range vs {
		byNo[one.no] = one
		if body, ok := v.bodies[one.task]; ok && one.sha != "" && body != "" {
			c.verdict(one.sha == body, "I12", d.id, "task %s was accepted for bytes %s, version %s is made of %s", one.task, body, one.id, one.sha)
		}
	}
	for _, h := range v.hits[d.id] {
		if h.user != "" && !slices.Contains(c.o.Operators, h.user) {
			c.verdict(h.user == d.user, "I30", d.id, "a search of %s found it, it is %s's", h.user, d.user)
		}
		if h.version == 0 {
			continue // the answer does not say it
		}
		one, ok := byNo[h.version]
		shown := ok && (one.state == visible || one.state == superseded) && !one.created.After(h.ended.Add(skew)) &&
			(one.closed.IsZero() || !one.closed.Before(h.began.Add(-commitLag)))
		c.verdict(shown, "I26", d.id, "a search at %s found version %d, which was not visible then", stamp(h.began), h.version)
	}
}

// judgeClient closes the clients' view: what was accepted and never seen is lost, what was deleted is in no later hit.
func (c *checker) judgeClient(context.Context) error {
	v := c.client
	if v == nil {
		return nil
	}
	for id, r := range v.accepted {
		c.verdict(false, "I12", id, "LOST: it was answered with %d at %s and is not in the table", r.Status, stamp(r.Ended))
	}
	for id, task := range v.unseen {
		if !v.withdrawn[id] && c.o.WholeClient {
			c.verdict(false, "I12", task, "its document %s is gone, and no client deleted it", id)
		}
	}
	for at, k := range v.keys {
		if len(k.tasks) == 0 {
			continue
		}
		c.verdict(len(k.tasks) == 1 && len(k.bodies) == 1, "I14", at.key, "user %s got %d tasks for %d bodies with one key", at.user, len(k.tasks), len(k.bodies))
	}
	for document, gone := range v.deleted {
		for _, h := range v.hits[document] {
			c.verdict(!h.began.After(gone), "I29", document, "a search that began at %s found it, the deletion was answered at %s", stamp(h.began), stamp(gone))
		}
	}
	if len(v.deleted) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(v.deleted)), time.Time.Compare)
		for _, began := range v.searches {
			if began.After(first) {
				c.judged("I29")
			}
		}
	}
	for id := range v.watched {
		c.verdict(false, "I35", id, "it was watched and has no log")
	}
	return nil
}
