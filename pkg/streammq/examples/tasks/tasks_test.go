package tasks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

var errDisk = errors.New("disk is full")

func TestTasksOfThreeStreams(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	options, err := rueidis.ParseURL(redistest.RedisURL(t))
	require.NoError(t, err)
	options.DisableCache = true
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, q.Check(ctx))
	p, err := NewPublisher(q)
	require.NoError(t, err)

	// One task is read by a worker of another kind that dies with it, and leaves its name behind.
	orphan, err := p.Submit(ctx, KB, Task{File: "orphan.pdf"})
	require.NoError(t, err)
	require.NoError(t, client.Do(ctx, client.B().XgroupCreate().Key(KB).Group(Group).Id("0").Build()).Error())
	require.NoError(t, client.Do(ctx, client.B().Xreadgroup().Group(Group, "dead").Streams().Key(KB).Id(">").Build()).Error())
	require.NoError(t, client.Do(ctx, client.B().XgroupCreateconsumer().Key(KB).Group(Group).Consumer("idle").Build()).Error())

	run := func(_ context.Context, task Task) error {
		if task.File == "broken.wav" {
			return fmt.Errorf("read %s: %w: %w", task.File, streammq.ErrPermanent, errDisk)
		}
		return nil
	}
	start := func(s *streammq.Subscriber, err error) {
		require.NoError(t, err)
		runCtx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(runCtx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	for _, stream := range []string{ASR, KB, Export} {
		start(NewMain(q, stream, "main", run))
	}
	claiming := worker(KB, "claiming", streammq.RoleClaim, run)
	claiming.ClaimIdle, claiming.PendingScan = 300*time.Millisecond, 50*time.Millisecond // nobody waits for ten minutes here
	claiming.Janitor.Interval = 100 * time.Millisecond
	start(q.NewSubscriber(claiming))
	start(NewClaiming(q, ASR, "claiming", run))

	good, err := p.Submit(ctx, Export, Task{File: "report.csv"})
	require.NoError(t, err)
	bad, err := p.Submit(ctx, ASR, Task{File: "broken.wav"})
	require.NoError(t, err)
	_, err = p.Submit(ctx, "ocr-tasks", Task{})
	require.ErrorIs(t, err, streammq.ErrStreamKey)
	for id, want := range map[string]streammq.State{good: streammq.StateCompleted, bad: streammq.StateFailed, orphan: streammq.StateCompleted} {
		require.Eventually(t, func() bool {
			status, err := StateOf(ctx, q, id)
			return err == nil && status.State == want
		}, time.Minute, 10*time.Millisecond, "%s is to be %s", id, want)
	}
	status, err := StateOf(ctx, q, bad)
	require.NoError(t, err)
	require.Contains(t, status.Error.Message, "disk is full")
	_, err = StateOf(ctx, q, "01890000-0000-7000-8000-000000000000")
	require.ErrorIs(t, err, streammq.ErrNotFound)
	require.Eventually(t, func() bool { // the status goes first
		letters, err := q.StreamLetters(ASR).List(ctx, streammq.LetterQuery{Partition: -1})
		return err == nil && len(letters) == 1
	}, time.Minute, 10*time.Millisecond, "what cannot be cured is put aside")
	require.Eventually(t, func() bool {
		flight, err := q.StreamAdmin(KB).InFlight(ctx, Group)
		if err != nil {
			return false
		}
		for _, c := range flight {
			if c.Consumer == "dead" || c.Consumer == "idle" {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "the names of the dead are cleaned up")
}
