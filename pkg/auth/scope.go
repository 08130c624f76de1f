package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is one sort of request that a key or token is good for. Whose rows it reaches is the role's matter:
// a key with the operator role and the scope read is for watching, one with both scopes for acting.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"  // look at things, search
	ScopeWrite Scope = "write" // upload, change, delete
)

// Scopes is a set of them. The zero set is good for nothing.
type Scopes struct{ read, write bool }

// AllScopes is read and write.
func AllScopes() Scopes { return Scopes{read: true, write: true} }

// ParseScopes reads names; none at all is AllScopes. ErrInvalidInput names an unknown one.
func ParseScopes(names ...string) (Scopes, error) {
	if len(names) == 0 {
		return AllScopes(), nil
	}
	var s Scopes
	for _, name := range names {
		switch Scope(name) {
		case ScopeRead:
			s.read = true
		case ScopeWrite:
			s.write = true
		default:
			return Scopes{}, fmt.Errorf("%w: scope %q is not read or write", ErrInvalidInput, name)
		}
	}
	return s, nil
}

// Has reports whether a scope is in the set.
func (s Scopes) Has(scope Scope) bool {
	return scope == ScopeRead && s.read || scope == ScopeWrite && s.write
}

// Names lists the set, read first.
func (s Scopes) Names() []string {
	out := []string{}
	for _, scope := range []Scope{ScopeRead, ScopeWrite} {
		if s.Has(scope) {
			out = append(out, string(scope))
		}
	}
	return out
}

// String is the set as it is stored: read,write.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// stored reads String's form; what it does not know gives nothing.
func stored(text string) Scopes {
	names := strings.Split(text, ",")
	return Scopes{read: slices.Contains(names, string(ScopeRead)), write: slices.Contains(names, string(ScopeWrite))}
}
