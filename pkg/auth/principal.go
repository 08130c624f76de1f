// Package auth says who asks: API keys, their storage and their check.
// It knows nothing of HTTP; Keys.Authenticate is the entry point of a service, Keys.Create that of an operator.
package auth

import (
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Errors of Authenticate.
var (
	// ErrInvalidKey: no key, not a key, unknown, expired or revoked. The caller is told no more than that.
	ErrInvalidKey = errors.New("invalid API key")
	// ErrSessionEnded (an ErrInvalidKey): there was such a session, and it is over.
	ErrSessionEnded = fmt.Errorf("%w: the session has ended", ErrInvalidKey)
	// ErrLoginUsed (an ErrInvalidKey): a session was made of this log-in before.
	ErrLoginUsed = fmt.Errorf("%w: the log-in was used before", ErrInvalidKey)
	// ErrKeyNotFound: no such key (an operator's question).
	ErrKeyNotFound = errors.New("API key not found")
)

// LocalUser is everyone with AUTH_MODE=none (contract §4).
const LocalUser = "local"

// Principal is who asks.
type Principal struct {
	UserID string
	Name   string // of a session of a log-in at an identity provider: the provider and the user's name there; empty otherwise
	Role   taskstate.Role
	Scopes Scopes
	KeyID  string   // the API key's id, of a session that of its key, or its own when it has none; empty without either
	Bases  []string // ids of the knowledge bases that the key is limited to; nil: none, all of its user's
}

// Local is the principal of AUTH_MODE=none: the user local with the operator role.
func Local() Principal {
	return Principal{UserID: LocalUser, Role: taskstate.RoleOperator, Scopes: AllScopes()}
}

// Scope is what the principal reaches.
func (p Principal) Scope() taskstate.Scope { return taskstate.Scope{UserID: p.UserID, Role: p.Role} }

// May reports whether the principal's key or token is good for a scope.
func (p Principal) May(s Scope) bool { return p.Scopes.Has(s) }

// Operator reports whether the principal has the operator role.
func (p Principal) Operator() bool { return p.Role == taskstate.RoleOperator }
