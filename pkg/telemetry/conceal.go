package telemetry

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// minConcealed is the shortest value that is hidden wherever it stands. Shorter ones are words of other texts too;
// the rules of Redact still hide them where they look like a secret.
const minConcealed = 12

// concealed are the secrets that this process holds, by value.
var concealed struct {
	mu     sync.Mutex
	values map[string]bool
	hide   atomic.Pointer[strings.Replacer] // nil: none yet
}

// Conceal makes Redact hide a secret by its value, also as part of a URL: a service may repeat it in words that no rule knows
// ("incorrect key provided: …"). It holds for the life of the process; values of less than 12 bytes are left to the rules.
func Conceal(secret string) {
	secret = strings.TrimSpace(secret)
	if len(secret) < minConcealed {
		return
	}
	concealed.mu.Lock()
	defer concealed.mu.Unlock()
	if concealed.values[secret] {
		return
	}
	if concealed.values == nil {
		concealed.values = map[string]bool{}
	}
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		concealed.values[form] = true
	}
	// The longest first: one secret may begin another.
	longest := slices.SortedFunc(maps.Keys(concealed.values), func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(longest))
	for _, v := range longest {
		pairs = append(pairs, v, Hidden)
	}
	concealed.hide.Store(strings.NewReplacer(pairs...))
}
