package taskrun

import "sync"

// asking are the claiming calls of this process that are not over, by owner text: what they have claimed is this process's
// own although it does not run yet. A process can stand still between a COMMIT and what follows it.
type asking struct {
	mu     sync.Mutex
	owners map[string]bool // true: a try has claimed what nobody knows yet
}

func newAsking() *asking { return &asking{owners: map[string]bool{}} }

func (a *asking) begin(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[owner] = false
}

func (a *asking) end(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, owner)
}

// unheard notes whether a COMMIT of the call had no answer.
func (a *asking) unheard(owner string, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[owner] = yes
}

// has reports whether the owner of a row is a call that is not over.
func (a *asking) has(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.owners[owner]
	return known
}

// unheardOf reports whether a COMMIT of this call had no answer.
func (a *asking) unheardOf(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owners[owner]
}

// unsure reports whether some call may have claimed what nobody knows yet.
func (a *asking) unsure() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, yes := range a.owners {
		if yes {
			return true
		}
	}
	return false
}
