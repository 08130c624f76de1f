package orders

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

func TestOrdersOfEachCustomerRunInTheirOrder(t *testing.T) {
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
	_, err = Report(ctx, q)
	require.ErrorIs(t, err, streammq.ErrUnknownTopic)
	_, err = q.CreateTopic(ctx, streammq.Topic{Name: Topic, Partitions: 4})
	require.NoError(t, err)
	_, err = Report(ctx, q)
	require.ErrorIs(t, err, streammq.ErrNotFound)

	var mu sync.Mutex
	billed := map[string][]int{}
	var open atomic.Bool // the account of customer b
	bill := func(_ context.Context, o Order) error {
		if o.Customer == "b" && !open.Load() {
			return errors.Join(streammq.ErrPermanent, errors.New("account is closed"))
		}
		mu.Lock()
		defer mu.Unlock()
		billed[o.Customer] = append(billed[o.Customer], o.Number)
		return nil
	}
	told := make(chan streammq.Letter, 10)
	var runs []func(context.Context) error
	for range 2 {
		s, err := NewBilling(q, bill)
		require.NoError(t, err)
		runs = append(runs, s.Run)
	}
	support, err := NewSupport(q, "desk", func(letter streammq.Letter) { told <- letter })
	require.NoError(t, err)
	for _, run := range append(runs, support.Run) {
		runCtx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(runCtx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	ready := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			text, err := Report(ctx, q)
			return err == nil && text == "2 members, 0 partitions unowned, 0 entries not read, 0 pending"
		}, time.Minute, 10*time.Millisecond)
	}
	ready()
	require.NoError(t, Publish(ctx, q, Order{"a", 1}, Order{"b", 1}, Order{"a", 2}, Order{"c", 1}, Order{"a", 3}))
	all := func(want map[string][]int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for customer, numbers := range want {
				if len(billed[customer]) < len(numbers) {
					return false
				}
			}
			return true
		}
	}
	require.Eventually(t, all(map[string][]int{"a": {1, 2, 3}, "c": {1}}), time.Minute, 10*time.Millisecond)
	select {
	case letter := <-told:
		require.Contains(t, letter.Error, "account is closed")
	case <-time.After(30 * time.Second):
		t.Fatal("support was not told")
	}
	open.Store(true)
	n, err := ReplayAll(ctx, q)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Eventually(t, all(map[string][]int{"b": {1}}), time.Minute, 10*time.Millisecond)
	mu.Lock()
	require.Equal(t, map[string][]int{"a": {1, 2, 3}, "b": {1}, "c": {1}}, billed)
	mu.Unlock()
	ready()
}
