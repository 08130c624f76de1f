package streammq

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"embed"
	"encoding/hex"

	"github.com/redis/rueidis"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is a Lua script; see the head of its file in lua/.
type script struct{ text, sha string }

// scripts are all of them.
type scripts struct {
	topicCreate, publishBeside                script
	leaseTake, leaseRenew, leaseRelease, beat script
	fetch, recover, claim, ack, touch         script
	retryInPlace, retryLater, deadLetter      script
	retryDue, retryMove, retryQuarantine      script
	letterReplay, letterDelete, streamTrim    script
	consumerRemove, groupLag, statusWrite     script
	members, groupReset, groupDelete          script
	retryDrop, topicMark, streamMake          script
	replyKeep, letterAdd, retryAdopt          script
	entriesDrop, letterPart                   script
}

// loadScripts reads the files by read; tests give one that changes them.
func loadScripts(read func(name string) string) scripts {
	plain := func(name string) script { return newScript(read(name)) }
	ordered := func(name string) script { return newScript(read("ids") + read(name)) }
	fenced := func(name string) script { return newScript(read("fence") + read(name)) }
	return scripts{
		topicCreate: plain("topic_create"), publishBeside: plain("publish_beside"),
		leaseTake: plain("lease_take"), leaseRenew: plain("lease_renew"), leaseRelease: plain("lease_release"),
		beat: plain("group_beat"), fetch: fenced("entries_fetch"), recover: fenced("entries_recover"),
		claim: fenced("entries_claim"), ack: fenced("entries_ack"), touch: fenced("entries_touch"),
		retryInPlace: fenced("entry_retry_in_place"), retryLater: fenced("entry_retry_later"),
		deadLetter: fenced("entry_dead_letter"), retryDue: plain("retry_due"), retryMove: plain("retry_move"),
		retryQuarantine: plain("retry_quarantine"), letterReplay: plain("letter_replay"),
		letterDelete: plain("letter_delete"), letterAdd: plain("letter_add"), streamTrim: ordered("stream_trim"), entriesDrop: ordered("entries_drop"),
		consumerRemove: plain("consumer_remove"), groupLag: plain("group_lag"), statusWrite: plain("status_write"),
		members: plain("group_members"), groupReset: plain("group_reset"), groupDelete: plain("group_delete"), retryDrop: plain("retry_drop"),
		topicMark: plain("topic_mark"), streamMake: plain("stream_make"),
		replyKeep: plain("reply_keep"), retryAdopt: plain("retry_adopt"),
		letterPart: fenced("letter_part"),
	}
}

// flag is true as a script's argument: "1", otherwise empty.
func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// readLua is the text of an embedded script; a missing one is a mistake that the first test finds.
func readLua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// scriptCall is one run of a script.
type scriptCall struct {
	script     script
	keys, args []string
}

// run runs a script. It is not repeated when the connection breaks: the caller must not take silence for a refusal.
func (q *MQ) run(ctx context.Context, s script, keys []string, args ...string) rueidis.RedisResult {
	result := q.client.Do(ctx, q.evalSHA(scriptCall{s, keys, args}))
	if unknownScript(result) {
		return q.client.Do(ctx, q.eval(scriptCall{s, keys, args}))
	}
	return result
}

// runAll runs scripts in pipelines, and again those that their server did not know.
func (q *MQ) runAll(ctx context.Context, calls []scriptCall) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	commands := make(rueidis.Commands, len(calls))
	for i, c := range calls {
		commands[i] = q.evalSHA(c)
	}
	results := q.client.DoMulti(ctx, commands...)
	var unknown []int
	commands = commands[:0]
	for i, r := range results {
		if unknownScript(r) {
			unknown, commands = append(unknown, i), append(commands, q.eval(calls[i]))
		}
	}
	if len(unknown) == 0 {
		return results
	}
	for j, r := range q.client.DoMulti(ctx, commands...) {
		results[unknown[j]] = r
	}
	return results
}

func (q *MQ) evalSHA(c scriptCall) rueidis.Completed {
	return q.client.B().Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

func (q *MQ) eval(c scriptCall) rueidis.Completed {
	return q.client.B().Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

func unknownScript(r rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(r.Error())
	return ok && err.IsNoScript()
}
