// Package relay is the body of outbox-relay.
//
// What a crash leaves, and who mends it:
//
//	died after …    left                                      mended by
//	look            an open transaction, rolled back          any relay's next turn
//	lease           events leased and not sent                any relay, once the lease is over
//	send            events sent, leased and not marked        any relay sends them again; the claim answers skipped or busy
//	mark            SENT                                      nothing: the consumers have it
//	revival         DEAD events, some of them NEW             any relay: each revives while the broker answers
//	retention       old events, some of them gone             the next pass of any relay
package relay

import (
	"context"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
)

// Run sends until ctx ends; what is under way then is waited for and written down.
func Run(ctx context.Context, env *process.Env, cfg *suite.Relay) error {
	return suite.RunRelay(ctx, env, cfg)
}
