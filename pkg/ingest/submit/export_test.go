package submit

import "context"

type KeyChange = keyChange

const KeyLease = keyLease

// Change is the claim or the release of a key by a request.
func (a *Keys) Change(user, key, request string, claim bool) *KeyChange {
	return &keyChange{heldKey: heldKey{a: a, user: user, key: key, request: request}, claim: claim}
}

// Together makes changes in one transaction.
func (a *Keys) Together(ctx context.Context, changes ...*KeyChange) []error {
	return a.keys.Do(ctx, changes...)
}

// Released is the release of what was claimed.
func (c *keyChange) Released() *KeyChange { return &keyChange{heldKey: c.heldKey} }

// Claim claims the key in a transaction of its own.
func (c *keyChange) Claim(ctx context.Context) error { return c.do(ctx, true) }

func (c *keyChange) Err() error { return c.err }
