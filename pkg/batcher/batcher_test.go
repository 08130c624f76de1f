package batcher_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/batcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const workTime = 10 * time.Millisecond

var errBad = errors.New("a bad item")

// log notes the batches that were worked on, each of which takes workTime.
type log struct {
	mu      sync.Mutex
	batches [][]int
	after   func(b *batcher.Batch[int]) error
}

func (l *log) work(ctx context.Context, b *batcher.Batch[int]) error {
	l.mu.Lock()
	l.batches = append(l.batches, b.Items())
	l.mu.Unlock()
	select {
	case <-time.After(workTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.after != nil {
		return l.after(b)
	}
	return nil
}

// inOrder calls f for each n in a goroutine of its own and waits each time until all of them stand still, then for their end.
func inOrder(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
		synctest.Wait()
	}
	wg.Wait()
}

func TestAnItemAloneWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{MaxWait: time.Hour}, l.work)
		for range 3 {
			started := time.Now()
			require.Equal(t, []error{nil}, b.Do(t.Context(), 7))
			require.Equal(t, workTime, time.Since(started))
		}
		require.Equal(t, [][]int{{7}, {7}, {7}}, l.batches)
		require.Empty(t, b.Do(t.Context()))
	})
}

func TestWhatComesMeanwhileIsTheNextBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{Most: 4}, l.work)
		started := time.Now()
		inOrder(7, func(i int) { require.Equal(t, []error{nil}, b.Do(t.Context(), i)) })
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {5, 6}}, l.batches)
		require.Equal(t, 3*workTime, time.Since(started))
	})
}

func TestAFullBatchTakesAFreeLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{Workers: 2, Most: 2}, l.work)
		inOrder(6, func(i int) { b.Do(t.Context(), i) })
		require.Equal(t, [][]int{{0}, {1, 2}, {3, 4}, {5}}, l.batches)
	})
}

func TestEnoughIsWorthABatchBesideAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{Workers: 2, MinConcurrent: 3, Most: 10}, l.work)
		inOrder(9, func(i int) { b.Do(t.Context(), i) })
		require.Equal(t, [][]int{{0}, {1, 2, 3}, {4, 5, 6, 7, 8}}, l.batches, "no third worker, and the first takes what waits")
	})
}

func TestTheWaitingLosePatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var l log
		b := batcher.New(batcher.Config{Workers: 2, MaxWait: time.Second}, func(ctx context.Context, b *batcher.Batch[int]) error {
			if b.Items()[0] == 0 {
				<-stuck
			}
			return l.work(ctx, b)
		})
		var first sync.WaitGroup
		first.Go(func() { b.Do(t.Context(), 0) })
		synctest.Wait()
		started := time.Now()
		inOrder(3, func(i int) { b.Do(t.Context(), i+1) })
		require.Equal(t, time.Second+workTime, time.Since(started))
		require.Equal(t, [][]int{{1, 2, 3}}, l.batches)
		close(stuck)
		first.Wait()
	})
}

func TestTheItemsOfACallStayTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{Most: 2}, l.work)
		require.Equal(t, []error{nil, nil, nil}, b.Do(t.Context(), 1, 2, 3))
		require.Equal(t, [][]int{{1, 2}, {3}}, l.batches)
	})
}

func TestItemsWaitForThoseThatAreComing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		coming := true
		b := batcher.New(batcher.Config{MinConcurrent: 3, Gather: time.Minute, Expect: func(int) bool { return coming }}, l.work)
		started := time.Now()
		inOrder(3, func(i int) { b.Do(t.Context(), i) })
		require.Equal(t, workTime, time.Since(started), "three are enough")

		started = time.Now()
		b.Do(t.Context(), 3)
		require.Equal(t, time.Minute+workTime, time.Since(started), "nobody waits for ever")

		started = time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { b.Do(t.Context(), 4) })
		synctest.Wait()
		coming = false
		b.Look()
		wg.Wait()
		b.Do(t.Context(), 5)
		require.Equal(t, 2*workTime, time.Since(started), "nothing comes, nothing is waited for")
		require.Equal(t, [][]int{{0, 1, 2}, {3}, {4}, {5}}, l.batches)
	})
}

func TestABadItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{after: func(b *batcher.Batch[int]) error {
			for _, n := range b.Items() {
				if n == 2 {
					return errBad
				}
			}
			return nil
		}}
		b := batcher.New(batcher.Config{Split: func(err error) bool { return errors.Is(err, errBad) }}, l.work)
		require.Equal(t, []error{nil, errBad, nil}, b.Do(t.Context(), 1, 2, 3))
		require.Equal(t, [][]int{{1, 2, 3}, {1}, {2}, {3}}, l.batches)

		whole := batcher.New(batcher.Config{}, l.work)
		require.Equal(t, []error{errBad, errBad, errBad}, whole.Do(t.Context(), 1, 2, 3))
	})
}

func TestAPanicIsItsCallersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{after: func(b *batcher.Batch[int]) error {
			for _, n := range b.Items() {
				if n == 2 {
					panic("two")
				}
			}
			return nil
		}}
		b := batcher.New(batcher.Config{}, l.work)
		inOrder(4, func(i int) {
			if i == 2 {
				defer func() {
					err, ok := recover().(error)
					require.True(t, ok)
					require.ErrorContains(t, err, "panic over a batch: two")
					require.ErrorContains(t, err, "batcher_test.go", "where it was")
				}()
				b.Do(t.Context(), i)
				require.Fail(t, "no panic")
			}
			require.Equal(t, []error{nil}, b.Do(t.Context(), i))
		})
		require.Equal(t, [][]int{{0}, {1, 2, 3}, {1}, {2}, {3}}, l.batches)
	})
}

func TestWhoGoesHarmsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{}, l.work)
		cause := errors.New("gone")
		inOrder(5, func(i int) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			switch i {
			case 1: // waits, and goes before its batch begins
				time.AfterFunc(workTime/2, func() { cancel(cause) })
			case 3: // goes while its batch is at work
				time.AfterFunc(workTime+workTime/2, func() { cancel(cause) })
			}
			errs := b.Do(ctx, i)
			if i == 1 || i == 3 {
				require.Equal(t, []error{cause}, errs)
				return
			}
			require.Equal(t, []error{nil}, errs)
		})
		require.Equal(t, [][]int{{0}, {2, 3, 4}}, l.batches)
	})
}

func TestWorkForNobodyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		b := batcher.New(batcher.Config{}, func(ctx context.Context, _ *batcher.Batch[int]) error {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil
		})
		inOrder(2, func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			defer cancel()
			require.Equal(t, []error{context.DeadlineExceeded}, b.Do(ctx, i))
		})
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestAgainLeadsTheNextBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.after = func(b *batcher.Batch[int]) error {
			if items := b.Items(); len(items) > 1 {
				b.Requeue(1)
			}
			return nil
		}
		b := batcher.New(batcher.Config{}, l.work)
		inOrder(5, func(i int) { require.Equal(t, []error{nil}, b.Do(t.Context(), i)) })
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {2}}, l.batches)
		require.Equal(t, []error{nil, nil, nil}, b.Do(t.Context(), 5, 6, 7))
		require.Equal(t, [][]int{{5, 6, 7}, {6}}, l.batches[3:])
	})
}

func TestAgainGoesBeforeWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, free := range []bool{false, true} {
			l := &log{}
			l.after = func(b *batcher.Batch[int]) error {
				items := b.Items() // after Release they may be another batch's
				if len(items) > 1 && items[0] == 1 {
					b.Requeue(0)
				}
				if free {
					b.Release()
				}
				return nil
			}
			b := batcher.New(batcher.Config{Most: 3}, l.work)
			inOrder(6, func(i int) { require.Equal(t, []error{nil}, b.Do(t.Context(), i)) })
			require.Equal(t, [][]int{{0}, {1, 2, 3}, {1, 4, 5}, {1}}, l.batches[:4])
		}
	})
}

func TestAgainAfterFreeWaitsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.after = func(b *batcher.Batch[int]) error {
			b.Release()
			if len(b.Items()) > 1 {
				b.Requeue(1)
			}
			return nil
		}
		b := batcher.New(batcher.Config{}, l.work)
		require.Equal(t, []error{nil, nil}, b.Do(t.Context(), 1, 2))
		require.Equal(t, [][]int{{1, 2}, {2}}, l.batches)
	})
}

func TestAFailureAfterFreeLeavesAloneWhatWasPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.after = func(b *batcher.Batch[int]) error {
			if len(b.Items()) == 3 {
				b.Requeue(1)
				b.Release()
				panic("late")
			}
			return nil
		}
		b := batcher.New(batcher.Config{}, l.work)
		require.Equal(t, []error{nil, nil, nil}, b.Do(t.Context(), 1, 2, 3))
		require.ElementsMatch(t, [][]int{{1, 2, 3}, {2}, {1}, {3}}, l.batches)
	})
}

func TestFreeLetsTheNextBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		b := batcher.New(batcher.Config{}, func(ctx context.Context, b *batcher.Batch[int]) error {
			b.Release()
			return l.work(ctx, b)
		})
		started := time.Now()
		inOrder(3, func(i int) { b.Do(t.Context(), i) })
		require.Equal(t, workTime, time.Since(started))
		require.Equal(t, [][]int{{0}, {1}, {2}}, l.batches)
	})
}

// A machine that stops for longer than Gather while an item comes does not leave it waiting: then nobody would begin it, unless
// another came.
func TestAPauseWhileAnItemComesLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := batcher.New(batcher.Config{Gather: time.Millisecond, Expect: func(int) bool {
			<-time.After(2 * time.Millisecond) // of the bubble's clock
			return true
		}}, func(context.Context, *batcher.Batch[int]) error { return nil })
		require.NoError(t, b.Do(t.Context(), 1)[0])
	})
}
