package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	checkTimeout = 2 * time.Second // kubelet's default longest wait is 1 s, but a slow answer with names helps a person
	checkFresh   = time.Second     // probes of several sides share one look at a dependency
)

// errSlow is the state of a check that did not come back in time.
var errSlow = errors.New("no answer in time")

// notStarted is what is missing before the body has registered its first check.
const notStarted = "start"

// Ready knows whether the process can do its work: checks are registered, every one passes, and it is not draining.
// It is safe for concurrent use.
type Ready struct {
	now func() time.Time

	mu       sync.Mutex
	draining bool
	order    []string
	checks   map[string]*check
}

// check runs one function, never twice at a time.
type check struct {
	fn func(ctx context.Context) error

	mu      sync.Mutex
	running chan struct{} // closed at the end of the run in progress; nil: none
	at      time.Time     // end of the last run
	err     error
}

// NewReady returns a registry without checks: not ready until the first is registered.
func NewReady() *Ready { return &Ready{now: time.Now, checks: map[string]*check{}} }

// Register adds a check under the name of what it looks at ("mysql", "redis"), or replaces it.
// fn returns nil if the dependency answers, or a Warning; it should heed its ctx, which ends after 2 s.
func (r *Ready) Register(name string, fn func(ctx context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.checks[name]; !ok {
		r.order = append(r.order, name)
	}
	r.checks[name] = &check{fn: fn}
}

// Drain makes the process not ready from now on: it is stopping.
func (r *Ready) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Draining tells whether Drain was called.
func (r *Ready) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// CheckResult is the state of one dependency.
type CheckResult struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`   // without secrets
	Warning string `json:"warning,omitempty"` // what a person has to look at although the process can work; without secrets
}

// Warning is an error of a check that does not make the process unready.
type Warning string

// Error is the warning's text.
func (w Warning) Error() string { return string(w) }

// Report is the body of /readyz.
type Report struct {
	Ready    bool          `json:"ready"`
	Draining bool          `json:"draining"`
	Missing  []string      `json:"missing"` // names of the checks that fail, never null
	Checks   []CheckResult `json:"checks"`
}

// Check runs all checks side by side (results of the last second are used again) and reports.
func (r *Ready) Check(ctx context.Context) Report {
	r.mu.Lock()
	names, draining := append([]string{}, r.order...), r.draining
	checks := make([]*check, len(names))
	for i, n := range names {
		checks[i] = r.checks[n]
	}
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	report := Report{Ready: !draining, Draining: draining, Missing: []string{}, Checks: make([]CheckResult, len(names))}
	if len(checks) == 0 {
		// The operator server answers before the body has begun: work must not come yet.
		report.Ready, report.Missing = false, []string{notStarted}
	}
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { report.Checks[i] = result(names[i], c.look(ctx, r.now)) })
	}
	wg.Wait()
	for _, c := range report.Checks {
		if !c.OK {
			report.Ready = false
			report.Missing = append(report.Missing, c.Name)
		}
	}
	return report
}

func result(name string, err error) CheckResult {
	var w Warning
	if errors.As(err, &w) {
		return CheckResult{Name: name, OK: true, Warning: telemetry.Redact(err.Error())}
	}
	if err != nil {
		return CheckResult{Name: name, Error: telemetry.Redact(err.Error())}
	}
	return CheckResult{Name: name, OK: true}
}

// look waits for the run in progress, or starts one if the last result is old.
func (c *check) look(ctx context.Context, now func() time.Time) error {
	c.mu.Lock()
	if c.running == nil {
		if !c.at.IsZero() && now().Sub(c.at) < checkFresh {
			defer c.mu.Unlock()
			return c.err
		}
		c.running = make(chan struct{})
		// Not the request's context: others wait for this run too. It ends by its own time-out;
		// a check that ignores that stays the run in progress, so at most one goroutine a check hangs.
		go c.run(context.WithoutCancel(ctx), now)
	}
	done := c.running
	c.mu.Unlock()
	select {
	case <-done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-ctx.Done():
		return errSlow
	}
}

func (c *check) run(ctx context.Context, now func() time.Time) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.call(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.at = err, now()
	close(c.running)
	c.running = nil
}

// call turns a panic of a check into its failure: looking must not end the process.
func (c *check) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("check panicked: %v", p)
		}
	}()
	return c.fn(ctx)
}
