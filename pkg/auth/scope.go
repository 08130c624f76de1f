package auth

import (
	"fmt"
	"strings"
)

// Scope is one sort of request that a key or token is good for. Whose rows it reaches is the role's matter:
// a key with the operator role and the scope read is for watching, one with both scopes for acting.
type Scope string

// The scopes.
const (
	ScopeRead   Scope = "read"   // look at things, search
	ScopeWrite  Scope = "write"  // upload, change, delete
	ScopeSearch Scope = "search" // search alone; read has it too
	ScopeUpload Scope = "upload" // take documents in alone; write has it too
	ScopeStatus Scope = "status" // look at states alone, without names and texts of documents; read has it too
)

// allScopes are all there are, in the order in which they are shown.
func allScopes() []Scope {
	return []Scope{ScopeRead, ScopeWrite, ScopeSearch, ScopeUpload, ScopeStatus}
}

// Scopes is a set of them, as it was asked for. The zero set is good for nothing.
type Scopes struct{ read, write, search, upload, status bool }

// of is the place of a scope in the set; nil: there is no such scope.
func (s *Scopes) of(scope Scope) *bool {
	switch scope {
	case ScopeRead:
		return &s.read
	case ScopeWrite:
		return &s.write
	case ScopeSearch:
		return &s.search
	case ScopeUpload:
		return &s.upload
	case ScopeStatus:
		return &s.status
	}
	return nil
}

// AllScopes is read and write, which have the others.
func AllScopes() Scopes { return Scopes{read: true, write: true} }

// ParseScopes reads names; none at all is AllScopes. ErrInvalidInput names an unknown one, and says that status stands alone:
// what the others are good for shows what it hides.
func ParseScopes(names ...string) (Scopes, error) {
	if len(names) == 0 {
		return AllScopes(), nil
	}
	var s Scopes
	for _, name := range names {
		place := s.of(Scope(name))
		if place == nil {
			return Scopes{}, fmt.Errorf("%w: scope %q is not read, write, search, upload or status", ErrInvalidInput, name)
		}
		*place = true
	}
	if s.status && s != (Scopes{status: true}) {
		return Scopes{}, fmt.Errorf("%w: the scope status stands alone; the others show what it hides", ErrInvalidInput)
	}
	return s, nil
}

// Has reports whether the set is good for a scope.
func (s Scopes) Has(scope Scope) bool {
	place := s.of(scope)
	return place != nil && *place || (scope == ScopeSearch || scope == ScopeStatus) && s.read || scope == ScopeUpload && s.write
}

// Names lists the set, read first.
func (s Scopes) Names() []string {
	out := []string{}
	for _, scope := range allScopes() {
		if *s.of(scope) {
			out = append(out, string(scope))
		}
	}
	return out
}

// String is the set as it is stored: read,write.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// stored reads String's form; what it does not know gives nothing.
func stored(text string) (s Scopes) {
	for _, name := range strings.Split(text, ",") {
		if place := s.of(Scope(name)); place != nil {
			*place = true
		}
	}
	return s
}
