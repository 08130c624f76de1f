package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// stopLimit is how long an orderly stop may take on a loaded machine with faults around it.
const stopLimit = 60 * time.Second

// fleet is the processes that should be running.
type fleet struct {
	world   *world.World
	members []*member
}

// member is a place in the fleet; its process changes. A fault holds mu while it harms it, so no two meet.
type member struct {
	service string
	env     []string
	world   *world.World

	mu   sync.Mutex
	proc *proc.Proc
}

// newFleet starts one process for each service named; a service's environment comes after the world's.
func newFleet(ctx context.Context, w *world.World, services ...string) (*fleet, error) {
	f := &fleet{world: w}
	for _, service := range services {
		m := &member{service: service, world: w}
		if service == "ingest-api" {
			m.env = []string{"HTTP_ADDR=" + world.FreeAddr()} // the same after a restart
		}
		if err := m.start(); err != nil {
			return nil, err
		}
		f.members = append(f.members, m)
	}
	return f, f.ready(ctx, readyLimit)
}

// start starts the member's process; the caller holds mu or is alone.
func (m *member) start() error {
	p, err := m.world.Start(m.service, m.env...)
	if err == nil {
		m.proc = p
	}
	return err
}

// clients are the gateways' addresses.
func (f *fleet) clients() []*apiclient.Client {
	var out []*apiclient.Client
	for _, m := range f.members {
		if m.proc.HTTP != "" {
			out = append(out, apiclient.NewClient(m.proc.HTTP))
		}
	}
	return out
}

// ready waits until every process says that it is ready.
func (f *fleet) ready(ctx context.Context, limit time.Duration) error {
	for _, m := range f.members {
		m.mu.Lock()
		p := m.proc
		m.mu.Unlock()
		if err := p.AwaitReady(ctx, limit); err != nil {
			return err
		}
	}
	return nil
}

// any is a random member of a service ("": of all) that no fault holds, held for the caller; nil when there is none.
func (f *fleet) any(random *rand.Rand, service string) *member {
	for _, i := range random.Perm(len(f.members)) {
		m := f.members[i]
		if strings.HasPrefix(m.service, service) && m.mu.TryLock() {
			return m
		}
	}
	return nil
}

// kill is kill -9 and a new start.
func (m *member) kill() error {
	m.proc.Kill()
	return m.start()
}

// stop is SIGTERM and a new start; a process that does not end in order is an error. One that has said nothing yet does not
// listen to signals either: the kernel ends it.
func (m *member) stop(ctx context.Context) error {
	code, err := m.proc.Stop(context.WithoutCancel(ctx), stopLimit)
	if said := m.proc.Tail(12); err == nil && code != 0 && (code != -1 || said != "") {
		err = fmt.Errorf("%s ended with %d after SIGTERM; end of %s:\n%s", m.proc.Name, code, m.proc.Log, said)
	}
	return errors.Join(err, m.start())
}

// pause is SIGSTOP, and SIGCONT after d or when ctx ends.
func (m *member) pause(ctx context.Context, d time.Duration) error {
	if err := m.proc.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	await.Pause(ctx, d)
	return m.proc.Signal(syscall.SIGCONT)
}

// unasked returns an error that names a process which ended although nobody ended it, and starts another one in its place.
func (f *fleet) unasked() error {
	var errs []error
	for _, m := range f.members {
		if !m.mu.TryLock() {
			continue // a fault is at it
		}
		if m.proc.Exited() {
			errs = append(errs, fmt.Errorf("%s ended by itself; end of %s:\n%s", m.proc.Name, m.proc.Log, m.proc.Tail(12)), m.start())
		}
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}
