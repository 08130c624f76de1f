package redisq

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	_ "embed"
	"encoding/hex"

	"github.com/redis/rueidis"
)

var (
	//go:embed lua/delivery_requeue.lua
	requeueText string
	//go:embed lua/delivery_quarantine.lua
	quarantineText string
	//go:embed lua/letter_add.lua
	deadLetterAddText string
	//go:embed lua/delivery_let_go.lua
	unpinText string
	//go:embed lua/stream_trim.lua
	trimText string
	//go:embed lua/group_horizon.lua
	watermarkText string
	//go:embed lua/member_remove.lua
	removeText string
	//go:embed lua/member_leave.lua
	leaveText string

	requeueScript       = newScript(requeueText)
	quarantineScript    = newScript(quarantineText)
	deadLetterAddScript = newScript(deadLetterAddText)
	unpinScript         = newScript(unpinText)
	trimScript          = newScript(trimText)
	watermarkScript     = newScript(watermarkText)
	removeScript        = newScript(removeText)
	leaveScript         = newScript(leaveText)
)

// script is a Lua script that may run twice: each of ours finds its work done the second time.
// rueidis' own Lua type sends SCRIPT LOAD before each batch and asks for the nodes without a context.
type script struct{ text, sha string }

// scriptCall is one run of a script.
type scriptCall struct{ keys, args []string }

func (c scriptCall) bytes() int {
	n := 0
	for _, arg := range c.args {
		n += len(arg)
	}
	return n
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

func (s script) run(ctx context.Context, client rueidis.Client, keys, args []string) rueidis.RedisResult {
	return s.runAll(ctx, client, []scriptCall{{keys, args}})[0]
}

// runAll runs the calls in one pipeline, and again those that the server did not know the script for.
func (s script) runAll(ctx context.Context, client rueidis.Client, calls []scriptCall) []rueidis.RedisResult {
	commands := make(rueidis.Commands, len(calls))
	for i, c := range calls {
		commands[i] = client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).
			Build().ToRetryable()
	}
	results := client.DoMulti(ctx, commands...)
	var unknown []int
	commands = commands[:0]
	for i, r := range results {
		if err, ok := rueidis.IsRedisErr(r.Error()); !ok || !err.IsNoScript() {
			continue
		}
		c := calls[i]
		eval := client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		// The pipeline is served in order: the first one makes it known. While a slot moves, two nodes serve a pipeline.
		if len(unknown) == 0 || isCluster(client) {
			eval = client.B().Eval().Script(s.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		}
		unknown, commands = append(unknown, i), append(commands, eval.ToRetryable())
	}
	if len(unknown) == 0 {
		return results
	}
	for j, r := range client.DoMulti(ctx, commands...) {
		results[unknown[j]] = r
	}
	return results
}
