// Command outbox-relay sends the events of the outbox to Kafka.
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
package main

import (
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/relay"
)

func main() {
	process.Main(process.Spec{Name: "outbox-relay", OperatorAddr: "127.0.0.1:9084"}, relay.Run)
}
