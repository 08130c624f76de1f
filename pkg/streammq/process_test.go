package streammq

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// memberProcess names the environment variable that makes this test binary a member of a group; see place.
const memberProcess = "STREAMMQ_TEST_MEMBER"

// place is where a member process works.
type place struct {
	Addrs  []string
	DB     int
	Layout Layout
	Topic  string
	Member string
	// Batch and Concurrency of the member, if they are not 0.
	Batch, Concurrency int
}

// seenList is a LIST of what handlers of all processes have seen, in the order in which they saw it.
func seenList(topic string) string { return "seen:" + topic }

// runMember is the whole life of a member process: it ends when it is killed.
func runMember(text string) {
	err := func() error {
		var p place
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: p.Addrs, SelectDB: p.DB, DisableCache: true, ForceSingleClient: len(p.Addrs) == 1,
		})
		if err != nil {
			return err
		}
		cfg := NewDefaultConfig()
		cfg.Layout = p.Layout
		q, err := New(client, cfg)
		if err != nil {
			return err
		}
		sub := NewDefaultSubscriberConfig(p.Topic, "g", witness(client, p.Topic))
		hasty(&sub)
		mortal(&sub)
		sub.Member = p.Member
		p.size(&sub)
		s, err := q.NewSubscriber(sub)
		if err != nil {
			return err
		}
		return s.Run(context.Background())
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// size gives a member its size, and longest wait for a day with many faults.
func (p place) size(c *SubscriberConfig) {
	if p.Batch > 0 {
		c.Batch, c.Concurrency = p.Batch, p.Concurrency
		c.Retry.MaxAttempts, c.MaxUnanswered, c.StopTimeout = model.MaxAttempts, 0, waitLimit/3
	}
}

// settledList is a LIST of the entries that handlers acknowledged themselves, and were told that they did.
func settledList(topic string) string { return "settled:" + topic }

// witness notes what it is given. The payload's last digit tells what it does: 7 fails once, 3 it acknowledges itself.
func witness(client rueidis.Client, topic string) Handler {
	return func(ctx context.Context, d *Delivery) Result {
		seen, err := json.Marshal(d)
		if err != nil {
			return Fail(err)
		}
		for note(ctx, client, seenList(topic), string(seen)) != nil {
			if ctx.Err() != nil {
				return Settled() // it is not: what was not noted is to be delivered again, before those behind it
			}
			<-time.After(10 * time.Millisecond)
		}
		payload := string(d.Payload)
		switch {
		case d.Attempt == 1 && strings.HasSuffix(payload, "7"):
			return Retry(errBoom)
		case !strings.HasSuffix(payload, "3"):
			return Success()
		case d.Ack(ctx) == nil:
			_ = note(ctx, client, settledList(topic), StreamKey(topic, d.Partition)+" "+d.ID) // one that is missing accuses nobody
		}
		return Settled()
	}
}

func note(ctx context.Context, client rueidis.Client, list, text string) error {
	return client.Do(ctx, client.B().Rpush().Key(list).Element(text).Build()).Error()
}

// process starts a member; it dies with the test.
func (r *rig) process(member string) *exec.Cmd {
	return r.processAs(place{Addrs: r.home.addrs, DB: r.home.db, Layout: r.layout, Topic: r.topic, Member: member})
}

func (r *rig) processAs(p place) *exec.Cmd {
	r.t.Helper()
	text, err := json.Marshal(p)
	require.NoError(r.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberProcess+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() { die(cmd) })
	return cmd
}

func die(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may be dead
	_ = cmd.Wait()         // its exit says that it was killed
}

// owns is the number of partitions whose lease a member has.
func (r *rig) owns(partitions int, member string) int {
	r.t.Helper()
	n := 0
	for p := range partitions {
		if owner, err := r.client.Do(context.Background(), r.client.B().Get().Key(r.source(p).Lease("g")).Build()).ToString(); err == nil &&
			strings.HasPrefix(owner, member+"-") {
			n++
		}
	}
	return n
}

// Members are real processes: one is paused until its leases are others', goes on as if nothing had been, and is killed.
// Nothing is lost, nothing an old owner does counts, and per key the order of first runs is the order of publishing.
func TestPausedAndKilledProcesses(t *testing.T) {
	t.Parallel()
	for _, h := range []home{homes[0], homes[2]} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			r := newRigIn(t, h)
			const partitions, perKey, rounds = 4, 120, 2
			q := r.mq(nil)
			r.topicOf(q, partitions)
			r.process("steady")
			victim := r.process("victim-0")
			done := publishing(r, q, perKey, 20*time.Millisecond)
			for round := range rounds {
				name := fmt.Sprintf("victim-%d", round)
				eventually(t, func() bool { return r.owns(partitions, name) == partitions/2 }, "%s has its share", name)
				require.NoError(t, victim.Process.Signal(syscall.SIGSTOP))
				eventually(t, func() bool { return r.owns(partitions, "steady") == partitions }, "its leases are the other's")
				require.NoError(t, victim.Process.Signal(syscall.SIGCONT))
				eventually(t, func() bool { return r.owns(partitions, name) == partitions/2 }, "it has a share again")
				die(victim)
				victim = r.process(fmt.Sprintf("victim-%d", round+1))
			}
			<-done
			var seen log
			read := func() *log {
				list := r.do("LRANGE", seenList(r.topic), "0", "-1")
				texts, err := list.AsStrSlice()
				require.NoError(t, err)
				seen = log{seen: make([]Delivery, len(texts))}
				for i, text := range texts {
					require.NoError(t, json.Unmarshal([]byte(text), &seen.seen[i]))
				}
				return &seen
			}
			eventually(t, func() bool { return distinct(read().all()) == 4*perKey }, "all messages ran")
			r.allDone(partitions, 4*perKey, read())
			checkOrder(t, seen.all())
		})
	}
}
