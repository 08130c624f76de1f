package streammq

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

const (
	soakVariable   = "STREAMMQ_SOAK" // how long, as "10m"; a few seconds without it
	soakShort      = 3 * time.Second
	soakPartitions = 6
	soakPublishers = 4
	soakMembers    = 3 // of each kind, at most
	soakPatience   = 2 * time.Minute
)

// soak is one Redis with members that come and go in every way there is.
type soak struct {
	*rig
	q         *MQ // of the publishers
	rng       *rand.Rand
	processes []*exec.Cmd // those that run, paused ones too
	paused    map[*exec.Cmd]bool
	members   []*running // of this process
	started   int
	faults    map[string]int

	mu        sync.Mutex
	published int
	ran       map[string]bool // by uuid
	last      map[string]int  // by key: the latest first run
	runs      atomic.Int64
	problem   atomic.Pointer[string]
}

// For STREAMMQ_SOAK members join, leave, are paused, stopped in their tracks and killed; leases and scripts are lost;
// handlers fail, and acknowledge themselves. Then nothing is lost, first runs of a key came in the order of
// publishing, and no entry was settled by two.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := soakShort
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, soakVariable)
	}
	r, _ := newPrivateRig(t)
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number is a seed
	t.Logf("seed %d", seed)
	s := &soak{
		rig: r, rng: rand.New(rand.NewPCG(seed, 1)), paused: map[*exec.Cmd]bool{}, faults: map[string]int{}, //nolint:gosec // no secret
		ran: map[string]bool{}, last: map[string]int{},
	}
	s.q = s.mqOf(r.connect())
	r.topicOf(s.q, soakPartitions)
	s.run(length)
	t.Logf("%d messages in %s, %d runs; faults: %v", s.published, length, s.runs.Load(), s.faults)
}

func (s *soak) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), length)
	defer cancel()
	var publishers, reader sync.WaitGroup
	for i := range soakPublishers {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), uint64(i))) //nolint:gosec // no secret
		publishers.Go(func() { s.publishAs(ctx, "k"+strconv.Itoa(i), rng) })
	}
	reading, stopReading := context.WithCancel(context.Background())
	client := s.connect()
	reader.Go(func() { s.check(reading, client) })
	for ctx.Err() == nil {
		s.fault()
		<-time.After(time.Duration(50+s.rng.IntN(400)) * time.Millisecond)
	}
	publishers.Wait()
	s.endProcesses()
	s.join()
	require.Eventually(s.t, func() bool { return s.problem.Load() != nil || s.done() }, soakPatience, 50*time.Millisecond, "all done")
	stopReading()
	reader.Wait()
	if p := s.problem.Load(); p != nil {
		s.t.Fatal(*p)
	}
	s.settledOnce()
}

// publishAs publishes numbers under two keys, one after another, each until it is known to be there.
func (s *soak) publishAs(ctx context.Context, key string, rng *rand.Rand) {
	p := s.q.NewProducer(nil)
	next := map[string]int{}
	for ctx.Err() == nil {
		of := key + "-" + strconv.Itoa(rng.IntN(2))
		messages := make([]Message, 1+rng.IntN(30))
		for i := range messages {
			messages[i] = Message{Key: of, Payload: []byte(strconv.Itoa(next[of])), Headers: map[string]string{HeaderUUID: model.NewUUID(time.Now())}}
			next[of]++
		}
		for _, m := range messages {
			for s.publishOnce(p, m) != nil && s.t.Context().Err() == nil {
				<-time.After(10 * time.Millisecond)
			}
		}
		<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond)
	}
}

func (s *soak) publishOnce(p *Producer, m Message) error {
	_, err := p.Publish(s.t.Context(), s.topic, m)
	if err == nil {
		s.mu.Lock()
		s.published++
		s.mu.Unlock()
	}
	return err
}

func (s *soak) mqOf(client rueidis.Client) *MQ {
	cfg := NewDefaultConfig()
	cfg.Layout = s.layout
	q, err := New(client, cfg)
	require.NoError(s.t, err)
	return q
}

// fault does one thing, if it can be done now.
func (s *soak) fault() {
	name, do := "join", s.join
	switch s.rng.IntN(10) {
	case 0:
		name, do = "leave", s.leave
	case 1:
		name, do = "rest", s.rest
	case 2, 3:
		name, do = "start a process", s.start
	case 4:
		name, do = "kill -9", s.kill
	case 5, 6:
		name, do = "stop or continue a process", s.stopOrContinue
	case 7:
		name, do = "lose a lease", func() { s.do("DEL", s.source(s.rng.IntN(soakPartitions)).Lease("g")) }
	case 8:
		name, do = "lose the scripts", func() { s.do("SCRIPT", "FLUSH") }
	}
	s.faults[name]++
	do()
}

// size is a small batch or a large one, with or without lanes.
func (s *soak) size() place {
	return place{Batch: []int{1, 3, 10, 100}[s.rng.IntN(4)], Concurrency: 1 + 3*s.rng.IntN(2)}
}

func (s *soak) join() {
	if len(s.members) >= soakMembers {
		s.leave()
	}
	client := s.connect()
	s.members = append(s.members, s.subscribe(s.mqOf(client), exclusive(s.t, witness(client, s.topic)), s.size().size))
}

func (s *soak) leave() {
	if len(s.members) > 0 {
		s.members[0].end()
		s.members = s.members[1:]
	}
}

// rest pauses a member until the next one that is to rest.
func (s *soak) rest() {
	for _, m := range s.members {
		m.Resume()
	}
	if len(s.members) > 1 {
		s.members[0].Pause()
	}
}

func (s *soak) start() {
	if len(s.processes) >= soakMembers {
		return
	}
	s.started++
	p := s.size()
	p.Addrs, p.Layout, p.Topic, p.Member = s.home.addrs, s.layout, s.topic, "process-"+strconv.Itoa(s.started)
	s.processes = append(s.processes, s.processAs(p))
}

func (s *soak) kill() {
	if len(s.processes) > 0 {
		die(s.processes[0])
		delete(s.paused, s.processes[0])
		s.processes = s.processes[1:]
	}
}

// stopOrContinue pauses a process as a machine that stands still does, or lets it go on with what it believes.
func (s *soak) stopOrContinue() {
	if len(s.processes) == 0 {
		return
	}
	p := s.processes[s.rng.IntN(len(s.processes))]
	signal := syscall.SIGSTOP
	if s.paused[p] {
		signal = syscall.SIGCONT
	}
	require.NoError(s.t, p.Process.Signal(signal))
	s.paused[p] = !s.paused[p]
}

func (s *soak) endProcesses() {
	for len(s.processes) > 0 {
		s.kill()
	}
	for _, m := range s.members {
		m.Resume()
	}
}

// check looks at what handlers have seen, in its order.
func (s *soak) check(ctx context.Context, client rueidis.Client) {
	for at := int64(0); ctx.Err() == nil; {
		texts, err := client.Do(ctx, client.B().Lrange().Key(seenList(s.topic)).Start(at).Stop(at+999).Build()).AsStrSlice()
		for _, text := range texts {
			if problem := s.saw(text); problem != "" {
				s.problem.CompareAndSwap(nil, &problem)
			}
		}
		at += int64(len(texts))
		if err != nil || len(texts) == 0 {
			<-time.After(20 * time.Millisecond)
		}
	}
}

// saw looks at one run; it returns what is wrong with it.
func (s *soak) saw(text string) string {
	var d Delivery
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err.Error()
	}
	s.runs.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran[d.UUID] {
		return ""
	}
	s.ran[d.UUID] = true
	before, any := s.last[d.Key]
	n, err := strconv.Atoi(string(d.Payload))
	if err != nil || any && n != before+1 || !any && n != 0 {
		return fmt.Sprintf("key %s: first run of %s after that of %d", d.Key, d.Payload, before)
	}
	s.last[d.Key] = n
	return ""
}

// done tells that everything ran, and nothing is pending or waits.
func (s *soak) done() bool {
	s.mu.Lock()
	all := len(s.ran) == s.published
	s.mu.Unlock()
	if !all {
		return false
	}
	for p := range soakPartitions {
		if s.pending(p, "g") != 0 || s.rig.number("EXISTS", s.source(p).Retry()) != 0 {
			return false
		}
	}
	return true
}

// settledOnce looks at the entries whose handlers were told that they had acknowledged them.
func (s *soak) settledOnce() {
	list := s.do("LRANGE", settledList(s.topic), "0", "-1")
	entries, err := list.AsStrSlice()
	require.NoError(s.t, err)
	settled := map[string]bool{}
	for _, e := range entries {
		require.False(s.t, settled[e], "%s was acknowledged by two", e)
		settled[e] = true
	}
	require.True(s.t, len(settled) > 0 || s.published < 30*soakPublishers, "every tenth message of a key is settled by its handler")
}
