package local

import "sync"

// Calls are the claiming calls of this process that are not over, by owner text: what they have claimed is this process's
// own although it does not run yet. A process can stand still between a COMMIT and what follows it.
type Calls struct {
	mu     sync.Mutex
	Owners map[string]bool // true: a try has claimed what nobody knows yet
}

func NewCalls() *Calls { return &Calls{Owners: map[string]bool{}} }

func (a *Calls) End(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.Owners, owner)
}

// Note begins a call, or says whether one of its COMMITs had no answer.
func (a *Calls) Note(owner string, unheard bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Owners[owner] = unheard
}

// Has reports whether the owner of a row is a call that is not over.
func (a *Calls) Has(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.Owners[owner]
	return known
}

// UnheardOf reports whether a COMMIT of this call had no answer.
func (a *Calls) UnheardOf(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Owners[owner]
}

// Unsure reports whether some call may have claimed what nobody knows yet.
func (a *Calls) Unsure() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, yes := range a.Owners {
		if yes {
			return true
		}
	}
	return false
}
