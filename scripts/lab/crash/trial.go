package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	exitLimit = 10 * time.Second       // for a process that was told to die
	zombieFor = 2 * lease              // how long a stopped process stays away, or a point sleeps
	wakingFor = 500 * time.Millisecond // what a zombie gets for its late writes before anything is judged
	lookEvery = 20 * time.Millisecond
)

// scene is how a point is reached and what has to be true after it.
type scene struct {
	service string   // whose process is to die
	args    []string // of that process; the rehydrator's alone has some
	env     []string // of that process
	nth     int      // which passage; 0: the first
	upTo    int      // any of the first so many passages, by the seed; 0: nth
	// before makes the situation; no process of the lane but the gateway runs before and after it.
	before step
	// during gives the armed process what it meets the point with; nil: it finds that by itself.
	// It is not waited for before the point is reached, and may be cut off by it.
	during step
	// after does what a user does next, while others mend; nil: nothing.
	after step
	// sweeper: a reclaimer is needed to mend, for it alone removes documents.
	sweeper bool
	Kafka   bool // in a lane of the Kafka transport
	Rabbit  bool // in a lane with copies in RabbitMQ: no copy of an ended task may be left
	doubled bool // one message of the bot may come twice
	paid    bool // no text of the trial's documents may have been paid for twice
	ended   bool // the point is met for deliveries of ended tasks and for those that came twice: paid is asked for the first
	slow    bool // it waits for something long, and begins first
	// alone takes the place of all of the above.
	alone step
}

// servers are those that the scene is played on.
func (s scene) servers() servers {
	switch {
	case s.Kafka:
		return onKafka
	case s.Rabbit:
		return onRabbit
	}
	return onRedis
}

// trial is one point in one lane.
type trial struct {
	*lane
	at    point
	kind  string
	scene scene

	armed *proc.Proc
	docs  []sent // of this trial
	more  []apiclient.Doc

	deadLetter string // the id of a dead letter
	said       []int  // the ids of the messages in the trial's chat
	spareHook  string // where the webhook of who mends listens
	hit        bool

	failed atomic.Pointer[error] // of during
}

// dir is the folder in which the armed process leaves its traces.
func (t *trial) dir() string { return filepath.Join(t.Dir, "points", t.at.name) }

// arm are the variables that make a process act at a point.
func arm(dir, name, kind string, nth int) []string {
	if kind == "sleep" {
		kind += "=" + zombieFor.String()
	}
	return []string{fmt.Sprintf("MILLWEIR_CRASH=%s:%d:%s", name, max(1, nth), kind), "MILLWEIR_CRASH_DIR=" + dir}
}

// run reaches the point, mends and judges.
func (t *trial) run(ctx context.Context) error {
	if err := os.MkdirAll(t.dir(), 0o755); err != nil {
		return err
	}
	defer t.Embed.Clear()
	if t.scene.alone != nil {
		return t.scene.alone(ctx, t)
	}
	if t.scene.before != nil {
		if err := t.scene.before(ctx, t); err != nil {
			return fmt.Errorf("before: %w", err)
		}
	}
	var err error
	if t.scene.upTo > 0 {
		t.scene.nth = 1 + int(t.seed%uint64(t.scene.upTo)) //nolint:gosec // a small number
	}
	env := append(arm(t.dir(), t.at.name, t.kind, t.scene.nth), t.scene.env...)
	if t.scene.Kafka && t.scene.service != relay {
		sends, err := t.Start(relay)
		if err != nil {
			return err
		}
		defer sends.Kill()
	}
	if t.scene.args != nil {
		t.armed, err = t.Rehydrate(t.scene.args, env...)
	} else {
		t.armed, err = t.Start(t.scene.service, env...)
	}
	if err != nil {
		return err
	}
	defer t.armed.Kill()
	during := t.begin(ctx)
	if err := t.fired(ctx, t.armed); err != nil {
		t.armed.Kill() // so that what it was given comes to its end
		_ = during()   // said already
		return err
	}
	t.hit = true
	t.Embed.Clear()
	helpers, err := t.helpers()
	for _, h := range helpers {
		defer h.Kill()
	}
	if err == nil {
		err = t.mend(ctx)
	}
	if duringErr := during(); err == nil {
		err = duringErr
	}
	if err != nil {
		return err
	}
	if t.scene.after != nil {
		if err := t.scene.after(ctx, t); err != nil {
			return fmt.Errorf("after: %w", err)
		}
	}
	return t.judge(ctx)
}

// begin runs the scene's during beside what follows; the answer waits for its end.
func (t *trial) begin(ctx context.Context) func() error {
	if t.scene.during == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := t.during(ctx); err != nil {
			t.failed.Store(&err)
		}
	}()
	return func() error {
		defer cancel()
		select {
		case <-done:
		case <-time.After(settleLimit):
			return errors.New("what was to reach the point does not end")
		}
		if err := t.failed.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// during waits until the armed process serves, or has met its point in starting, and plays the scene.
func (t *trial) during(ctx context.Context) error {
	if err := t.armed.AwaitReady(ctx, readyLimit); err != nil {
		if t.acted() {
			return nil
		}
		return err
	}
	if err := t.scene.during(ctx, t); err != nil {
		return fmt.Errorf("during: %w", err)
	}
	return nil
}

// acted tells whether the point was met.
func (t *trial) acted() bool {
	_, err := os.Stat(filepath.Join(t.dir(), "fired"))
	return err == nil
}

// fired waits until the point has acted, and with kill until it has ended its process.
func (t *trial) fired(ctx context.Context, p *proc.Proc) error {
	var stuck error // nothing more will reach the point
	err := await.Until(ctx, fireLimit, lookEvery, func(ctx context.Context) error {
		exited := p.Exited() // before the look: a process acts first and ends then
		switch {
		case t.acted():
			return nil
		case t.failed.Load() != nil:
			stuck = *t.failed.Load()
			return nil
		case exited:
			stuck = fmt.Errorf("%s ended before it came to %s; end of %s:\n%s", p.Name, t.at.name, p.Log, p.Tail(12))
			return nil
		}
		return fmt.Errorf("%s was never hit", t.at.name)
	})
	if err = errors.Join(stuck, err); err != nil {
		return fmt.Errorf("%w%s", err, t.audit().Unfinished(ctx))
	}
	by, err := os.ReadFile(filepath.Join(t.dir(), "fired"))
	if err == nil && string(by) != "" && string(by) != strconv.Itoa(p.PID) {
		err = fmt.Errorf("process %s acted at %s, not %s (%d)", by, t.at.name, p.Name, p.PID)
	}
	if err != nil || t.kind != "kill" {
		return err
	}
	return killed(ctx, p)
}

// killed expects a process to have ended by a signal.
func killed(ctx context.Context, p *proc.Proc) error {
	ctx, cancel := context.WithTimeoutCause(ctx, exitLimit, fmt.Errorf("the point did not end %s: %w", p.Name, await.ErrTimeout))
	defer cancel()
	code, err := p.Wait(ctx)
	if err == nil && code != -1 {
		err = fmt.Errorf("%s exits with %d, must be killed; end of %s:\n%s", p.Name, code, p.Log, p.Tail(12))
	}
	return err
}

// helpers starts who mends: a worker, and a reclaimer, a mirror or another telegram-gateway if the scene asks for it.
func (t *trial) helpers() ([]*proc.Proc, error) {
	names := t.workers()
	if t.scene.Kafka && t.scene.service != relay {
		names = names[:1] // it runs already
	}
	if t.scene.sweeper {
		names = append(names, reclaimer)
	}
	if t.scene.Rabbit {
		names = append(names, copier)
	}
	var env []string
	switch t.scene.service {
	case copier:
		env = t.scene.env
	case telegram:
		names, t.spareHook = append(names, telegram), world.FreeAddr()
		env = append(slices.Clone(t.scene.env), "TELEGRAM_WEBHOOK_ADDR="+t.spareHook)
	}
	var out []*proc.Proc
	for _, name := range names {
		p, err := t.Start(name, env...)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// mend lets a stopped process come back as a zombie.
func (t *trial) mend(ctx context.Context) error {
	if t.kind != "stop" {
		return nil
	}
	await.Pause(ctx, zombieFor)
	if err := t.armed.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	await.Pause(ctx, wakingFor)
	return nil
}
