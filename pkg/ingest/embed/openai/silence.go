package openai

import (
	"sync"
	"time"
)

// quietMost is the longest time in which nobody asks a service that named a longer wait. An account that was topped up,
// or a wait that was named too long, is noticed after it; the service pays for it with one refusal in this time.
const quietMost = 10 * time.Second

// silence is the time that a service asked for; all callers of the process share its budget, and so keep it together.
// It is safe for concurrent use.
type silence struct {
	mu    sync.Mutex
	until time.Time // as the service named it; zero: it may be called
	ask   time.Time // from then on one caller may ask all the same
}

// enter returns how long a caller must wait (0: it may call), and whether it asks for all while they wait.
func (p *silence) enter(now time.Time) (wait time.Duration, asks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !now.Before(p.until):
		return 0, false
	case now.Before(p.ask):
		return p.until.Sub(now), false
	}
	p.ask = now.Add(quietMost)
	return 0, true
}

// begin notes a refusal with a wait. The last word counts; of calls that ran side by side it is the longest wait.
func (p *silence) begin(now time.Time, wait time.Duration, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now.Add(wait); asked || until.After(p.until) {
		p.until = until
	}
	p.ask = now.Add(min(wait, quietMost))
}

// end notes that the service served the one who asked.
func (p *silence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}
