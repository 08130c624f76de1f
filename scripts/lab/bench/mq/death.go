package mq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

const (
	mqMemberArg  = "streammq-member"
	mqSpread     = 64 // partitions
	mqMembers    = 4
	mqDeathLimit = 2 * time.Minute
)

// IsMember tells whether this process is a member that is to be killed: death that a process plays to itself is tidier
// than one that comes from outside.
func IsMember(args []string) bool { return len(args) == 3 && args[1] == mqMemberArg }

// RunMember is such a process; it handles nothing to its end, and ends with its stdin.
func RunMember(ctx context.Context, addr string) int {
	client, err := mqClient(addr)
	if err != nil {
		return 1
	}
	defer client.Close()
	q, err := streammq.New(client, streammq.NewDefaultConfig())
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	r := &mqRig{client: client, mq: q}
	stop, err := r.subscribe(ctx, func(ctx context.Context, _ *streammq.Delivery) streammq.Result {
		<-ctx.Done()
		return streammq.Retry(nil)
	}, func(c *streammq.SubscriberConfig) { c.Member = mqMemberArg })
	if err != nil {
		return 1
	}
	<-ctx.Done()
	_ = stop() // it was killed, or nobody needs it any more
	return 0
}

// mqMember is a running one.
type mqMember struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (r *mqRig) startMember() (*mqMember, error) {
	cmd := exec.Command("/proc/self/exe", mqMemberArg, r.server.Addr) //nolint:gosec // our own program; it ends with its stdin
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	return &mqMember{cmd, in}, err
}

// kill is kill -9.
func (m *mqMember) kill() {
	_ = m.cmd.Process.Kill() // gone already is as good
	_ = m.cmd.Wait()
	_ = m.in.Close()
}

// takeover kills the owner of a partition in the middle of a message, and waits until another member runs that message.
func (r *mqRig) takeover(ctx context.Context) ([]figure.Figure, error) {
	if err := r.fresh(ctx, 1, false); err != nil {
		return nil, err
	}
	m, err := r.startMember()
	if err != nil {
		return nil, err
	}
	defer m.kill()
	if _, err := r.mq.NewProducer(nil).Publish(ctx, mqTopic, streammq.Message{Payload: []byte("x")}); err != nil {
		return nil, err
	}
	ran := make(chan time.Time, 1)
	err = r.until(ctx, func(owners []string, pending int64) bool { return owners[0] != "" && pending == 1 })
	if err != nil {
		return nil, err
	}
	stop, err := r.subscribe(ctx, func(context.Context, *streammq.Delivery) streammq.Result {
		ran <- time.Now()
		return streammq.Success()
	}, nil)
	if err != nil {
		return nil, err
	}
	await.Pause(ctx, streammq.DefaultRebalance) // the other member has looked, and waits
	killed := time.Now()
	m.kill()
	select {
	case at := <-ran:
		return []figure.Figure{{
			Name: "kill -9 of the owner → its message runs elsewhere", Measured: at.Sub(killed).Seconds(), Unit: "s",
			Asked: streammq.DefaultLease.Seconds() + 1, Relation: "≤", Note: fmt.Sprintf("default lease of %s + 1 s", streammq.DefaultLease),
		}}, stop()
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), stop())
	}
}

// rebalance kills one of four members and waits until the others own all partitions in even shares.
func (r *mqRig) rebalance(ctx context.Context) ([]figure.Figure, error) {
	if err := r.fresh(ctx, mqSpread, false); err != nil {
		return nil, err
	}
	m, err := r.startMember()
	if err != nil {
		return nil, err
	}
	defer m.kill()
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			_ = stop() // only measured
		}
	}()
	for i := range mqMembers - 1 {
		stop, err := r.subscribe(ctx, func(context.Context, *streammq.Delivery) streammq.Result { return streammq.Success() },
			func(c *streammq.SubscriberConfig) { c.Member = "member-" + strconv.Itoa(i) })
		if err != nil {
			return nil, err
		}
		stops = append(stops, stop)
	}
	if err := r.until(ctx, func(owners []string, _ int64) bool { return even(owners, mqMembers) }); err != nil {
		return nil, fmt.Errorf("%d members: %w", mqMembers, err)
	}
	// Its last renewal may be as old as the time between two; from then on the lease runs out.
	m.kill()
	killed := time.Now()
	if err := r.until(ctx, func(owners []string, _ int64) bool { return even(owners, mqMembers-1) }); err != nil {
		return nil, fmt.Errorf("%d members: %w", mqMembers-1, err)
	}
	over := time.Since(killed) - streammq.DefaultLease
	return []figure.Figure{{
		Name: "64 partitions, one of 4 members killed: even again, after its lease", Measured: max(0, over.Seconds()), Unit: "s",
		Asked: 2, Relation: "≤", Note: fmt.Sprintf("%.1f s after the kill, the lease is %s", time.Since(killed).Seconds(), streammq.DefaultLease),
	}}, nil
}

// until looks at the leases' owners, and the pending entries of all partitions, until a condition holds.
func (r *mqRig) until(ctx context.Context, holds func(owners []string, pending int64) bool) error {
	return await.Until(ctx, mqDeathLimit, 10*time.Millisecond, func(ctx context.Context) error {
		stats, err := r.mq.GroupStats(ctx, mqTopic, mqGroup)
		if err != nil {
			return err
		}
		var pending int64
		owners := make([]string, len(stats))
		for i, s := range stats {
			owners[i] = s.Owner
			pending += s.Pending
		}
		if !holds(owners, pending) {
			return fmt.Errorf("owners %v, %d pending", owners, pending)
		}
		return nil
	})
}

// even tells that so many members own everything in shares that differ by one at most.
func even(owners []string, members int) bool {
	shares := map[string]int{}
	for _, o := range owners {
		shares[o]++
	}
	for _, n := range shares {
		if n < len(owners)/members || n > (len(owners)+members-1)/members {
			return false
		}
	}
	return shares[""] == 0 && len(shares) == members
}
