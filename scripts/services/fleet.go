package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
)

// database is made on MariaDB and Postgres.
const database = "millweir"

// member is one server of the fleet with its fixed port.
type member struct {
	kind labserver.Kind
	port int
}

// members in the order of the output; Kafka takes port + 1 too, RabbitMQ up to port + 3.
var members = []member{
	{labserver.KindMariaDB, 13306},
	{labserver.KindPostgres, 15432},
	{labserver.KindRedis, 16379},
	{labserver.KindChroma, 18000},
	{labserver.KindKafka, 19092},
	{labserver.KindRabbitMQ, 25672},
}

// fleet is the set of servers under one folder.
type fleet struct {
	dir     string   // absolute
	members []member // the chosen ones

	mu  sync.Mutex // guards out
	out io.Writer
}

func newFleet(dir, chosen string, out io.Writer) (*fleet, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: abs, out: out}
	want := strings.FieldsFunc(chosen, func(r rune) bool { return r == ' ' || r == ',' })
	for _, name := range want {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("SERVICES=%q: there is no %q, only %s", chosen, name, strings.Join(names(), ", "))
		}
	}
	for _, m := range members {
		if len(want) > 0 && !slices.Contains(want, string(m.kind)) {
			continue
		}
		if m.port, err = portOf(m); err != nil {
			return nil, err
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

// portOf reads MILLWEIR_<KIND>_PORT.
func portOf(m member) (int, error) {
	name := portVariable(m)
	v := os.Getenv(name)
	if v == "" {
		return m.port, nil
	}
	port, err := strconv.Atoi(v)
	if err != nil || port < 1 || port > 65532 {
		return 0, fmt.Errorf("%s=%q: want a port from 1 to 65532", name, v)
	}
	return port, nil
}

func portVariable(m member) string { return "MILLWEIR_" + strings.ToUpper(string(m.kind)) + "_PORT" }

// up installs what is missing, starts what is not running, and writes services.env.
func (f *fleet) up(ctx context.Context) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(f.dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	var kinds []labserver.Kind
	for _, m := range f.members {
		kinds = append(kinds, m.kind)
	}
	if err := f.install(ctx, kinds); err != nil {
		return err
	}
	start := time.Now()
	if err := f.each(func(m member) error { return f.upOne(ctx, m) }); err != nil {
		return err
	}
	envFile := filepath.Join(f.dir, "services.env")
	if err := f.writeEnvFile(envFile); err != nil {
		return err
	}
	f.say("ready in %.1fs; settings are in %s", time.Since(start).Seconds(), envFile)
	return nil
}

func (f *fleet) upOne(ctx context.Context, m member) error {
	opts := f.options(m)
	if s, ok := labserver.Attach(m.kind, opts); ok {
		if err := s.Ready(ctx); err != nil {
			return fmt.Errorf("%s runs (pid %d) and does not answer (%w): run `make services-down`, then `make services-up`", m.kind, s.PID(), err)
		}
		f.say("up    %-9s %s  pid %d (already)", m.kind, s.Addr, s.PID())
		return nil
	}
	if err := errors.Join(f.orphan(m), f.link(m)); err != nil {
		return err
	}
	start := time.Now()
	s, err := labserver.Start(ctx, m.kind, opts)
	if err != nil {
		if strings.Contains(err.Error(), "port is taken") {
			return fmt.Errorf("%w: another program has port %d; stop it, or choose another port with %s=…", err, m.port, portVariable(m))
		}
		return err
	}
	f.say("up    %-9s %s  pid %d  %.1fs", m.kind, s.Addr, s.PID(), time.Since(start).Seconds())
	return nil
}

// orphan looks for a server of ours whose records are gone because .run was removed while it ran.
func (f *fleet) orphan(m member) error {
	for _, dir := range []string{filepath.Join(f.dir, string(m.kind)), f.outside(m)} {
		if pids := processesIn(dir); len(pids) > 0 {
			return fmt.Errorf("%s of an earlier %s still runs, although its folder was removed: "+
				"end it with `kill %s`, then run `make services-up` again", m.kind, f.dir, strings.Join(pids, " "))
		}
	}
	return nil
}

// down stops what runs; wipe removes the data too.
func (f *fleet) down(ctx context.Context, wipe bool) error {
	if _, err := os.Stat(f.dir); err != nil {
		return f.each(f.orphan) // nothing recorded: say so if something runs all the same
	}
	unlock, err := lock(filepath.Join(f.dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	err = f.each(func(m member) error { return f.downOne(ctx, m, wipe) })
	if wipe && err == nil {
		f.say("data removed")
	}
	return err
}

func (f *fleet) downOne(ctx context.Context, m member, wipe bool) error {
	if s, ok := labserver.Attach(m.kind, f.options(m)); ok {
		if err := s.Stop(ctx); err != nil {
			return err
		}
		f.say("down  %s", m.kind)
	} else if err := f.orphan(m); err != nil {
		return err
	}
	if !wipe {
		return nil
	}
	err := errors.Join(os.RemoveAll(f.outside(m)), os.RemoveAll(filepath.Join(f.dir, string(m.kind))))
	_ = os.Remove(filepath.Dir(f.outside(m))) // works for the last one, when it is empty
	return err
}

// status prints one line each; it fails if one of the chosen ones does not answer.
func (f *fleet) status(ctx context.Context) error {
	return f.each(func(m member) error {
		s, ok := labserver.Attach(m.kind, f.options(m))
		if !ok {
			f.say("off   %s", m.kind)
			return fmt.Errorf("%s is not running", m.kind)
		}
		if err := s.Ready(ctx); err != nil {
			f.say("deaf  %-9s %s  pid %d", m.kind, s.Addr, s.PID())
			return fmt.Errorf("%s: %w", m.kind, err)
		}
		f.say("up    %-9s %s  pid %d", m.kind, s.Addr, s.PID())
		return nil
	})
}

// options of a member. Its folder is a link to one outside when the servers' users cannot enter ours
// (a clone below a home with mode 700).
func (f *fleet) options(m member) labserver.Options {
	opts := labserver.Options{Dir: filepath.Join(f.dir, string(m.kind)), Port: m.port, Detached: true}
	if m.kind == labserver.KindMariaDB || m.kind == labserver.KindPostgres {
		opts.Database = database
	}
	if f.linked() {
		opts.Dir = f.outside(m)
	}
	return opts
}

func (f *fleet) linked() bool { return os.Geteuid() == 0 && !reachable(f.dir) }

// link makes the folder outside and the link to it, if they are needed.
func (f *fleet) link(m member) error {
	if !f.linked() {
		return nil
	}
	if err := os.MkdirAll(f.outside(m), 0o755); err != nil {
		return err
	}
	err := os.Symlink(f.outside(m), filepath.Join(f.dir, string(m.kind)))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// outside is the folder for a member's data beyond a home that nobody else may enter.
func (f *fleet) outside(m member) string {
	sum := sha256.Sum256([]byte(f.dir))
	return filepath.Join("/var/tmp", fmt.Sprintf("millweir-run-%x", sum[:6]), string(m.kind))
}

// lock keeps two calls from making the same.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // closing lets the lock go
}

// each runs do for all members side by side and joins the errors in their order.
func (f *fleet) each(do func(m member) error) error {
	errs := make([]error, len(f.members))
	var wg sync.WaitGroup
	for i, m := range f.members {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *fleet) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, format+"\n", args...)
}

// processesIn are the pids of processes that work in the folder (all servers of ours do).
func processesIn(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var pids []string
	for _, l := range links {
		cwd, err := os.Readlink(l)
		cwd = strings.TrimSuffix(cwd, " (deleted)")
		if err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pids = append(pids, filepath.Base(filepath.Dir(l)))
		}
	}
	return pids
}

// reachable tells whether every user may enter the folder.
func reachable(dir string) bool {
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err == nil && st.Mode().Perm()&0o001 == 0 {
			return false
		}
	}
	return true
}

// names are those of all members.
func names() []string {
	all := make([]string, len(members))
	for i, m := range members {
		all[i] = string(m.kind)
	}
	return all
}
