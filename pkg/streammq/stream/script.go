// Package stream works on one Redis Stream with its groups: the scripts of streammq and what reads their server's answers.
// It knows neither topics nor messages. Keys and their layout are its callers' data: all keys of one script lie in one slot.
package stream

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"embed"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// Script is a Lua script; see the head of its file in lua/.
type Script struct{ text, sha string }

// Scripts are all of them.
type Scripts struct {
	TopicCreate, TopicMark, StreamMake, PublishBeside       Script
	LeaseTake, LeaseRenew, LeaseRelease, Beat               Script
	Fetch, Recover, Claim, Ack, Touch, Unpin, Drop          Script
	RetryInPlace, RetryLater, Move                          Script
	RetryDue, RetryMove, RetryQuarantine, RetryDrop, Adopt  Script
	LetterAdd, LetterReplay, LetterDelete, LetterPart       Script
	ConsumerRemove, GroupLag, GroupReset, GroupDelete, Read Script
	Members, StatusWrite, Trim                              Script
}

// Load reads the files by read; tests give one that changes them.
func Load(read func(name string) string) Scripts {
	plain := func(name string) Script { return newScript(read(name)) }
	ordered := func(name string) Script { return newScript(read("ids") + read(name)) }
	fenced := func(name string) Script { return newScript(read("fence") + read(name)) }
	return Scripts{
		TopicCreate: plain("topic_create"), TopicMark: plain("topic_mark"), StreamMake: plain("stream_make"),
		PublishBeside: plain("publish_beside"),
		LeaseTake:     plain("lease_take"), LeaseRenew: plain("lease_renew"), LeaseRelease: plain("lease_release"), Beat: plain("group_beat"),
		Fetch: fenced("entries_fetch"), Recover: fenced("entries_recover"), Claim: fenced("entries_claim"), Ack: fenced("entries_ack"),
		Touch: fenced("entries_touch"), Unpin: plain("entry_unpin"), Drop: ordered("entries_drop"),
		RetryInPlace: fenced("entry_retry_in_place"), RetryLater: fenced("entry_retry_later"), Move: fenced("entry_move"),
		RetryDue: plain("retry_due"), RetryMove: plain("retry_move"), RetryQuarantine: plain("retry_quarantine"),
		RetryDrop: plain("retry_drop"), Adopt: plain("retry_adopt"),
		LetterAdd: plain("letter_add"), LetterReplay: plain("letter_replay"), LetterDelete: plain("letter_delete"),
		LetterPart:     fenced("letter_part"),
		ConsumerRemove: plain("consumer_remove"), GroupLag: plain("group_lag"), GroupReset: plain("group_reset"),
		GroupDelete: plain("group_delete"), Read: ordered("group_read"),
		Members: plain("group_members"), StatusWrite: plain("status_write"), Trim: ordered("stream_trim"),
	}
}

// Loaded are the scripts as they are.
var Loaded = sync.OnceValue(func() Scripts { return Load(ReadLua) })

// ReadLua is the text of an embedded script; a missing one is a mistake that the first test finds.
func ReadLua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

func newScript(text string) Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Flag is true as a script's argument: "1", otherwise empty.
func Flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// Millis is a time as a script's argument.
func Millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Call is one run of a script.
type Call struct {
	Script     Script
	Keys, Args []string
}

// Size is the number of bytes of the arguments.
func (c Call) Size() int {
	n := 0
	for _, arg := range c.Args {
		n += len(arg)
	}
	return n
}

// Runner runs scripts. rueidis' own Lua type sends SCRIPT LOAD before each batch and asks for the nodes without a context.
type Runner struct {
	Client rueidis.Client
	// Again repeats a script when its connection breaks; for callers whose script finds its work done the second time.
	// Without it silence is an error: a repeat might take its own first run for a refusal.
	Again bool
}

// Run runs a script.
func (r Runner) Run(ctx context.Context, s Script, keys []string, args ...string) rueidis.RedisResult {
	c := Call{s, keys, args}
	result := r.Client.Do(ctx, r.EvalSHA(c))
	if UnknownScript(result) {
		return r.Client.Do(ctx, r.Eval(c))
	}
	return result
}

// RunAll runs scripts in one pipeline, and again those that their server did not know.
func (r Runner) RunAll(ctx context.Context, calls []Call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	commands := make(rueidis.Commands, len(calls))
	for i, c := range calls {
		commands[i] = r.EvalSHA(c)
	}
	results := r.Client.DoMulti(ctx, commands...)
	var unknown []int
	commands = commands[:0]
	known := map[string]bool{} // the pipeline is served in order: the first text makes it known; of a cluster each node has its own
	for i, result := range results {
		if !UnknownScript(result) {
			continue
		}
		again := r.Eval
		if sha := calls[i].Script.sha; known[sha] {
			again = r.EvalSHA
		} else if r.Client.Mode() != rueidis.ClientModeCluster {
			known[sha] = true
		}
		unknown, commands = append(unknown, i), append(commands, again(calls[i]))
	}
	if len(unknown) == 0 {
		return results
	}
	for j, result := range r.Client.DoMulti(ctx, commands...) {
		results[unknown[j]] = result
	}
	return results
}

// EvalSHA is the command that runs a script which its server knows.
func (r Runner) EvalSHA(c Call) rueidis.Completed {
	return r.build(r.Client.B().Evalsha().Sha1(c.Script.sha).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build())
}

// Eval is the command that runs a script and makes it known.
func (r Runner) Eval(c Call) rueidis.Completed {
	return r.build(r.Client.B().Eval().Script(c.Script.text).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build())
}

func (r Runner) build(command rueidis.Completed) rueidis.Completed {
	if r.Again {
		return command.ToRetryable()
	}
	return command
}

// UnknownScript tells that the server did not know a script: nothing was run.
func UnknownScript(r rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(r.Error())
	return ok && err.IsNoScript()
}

// IsMissing tells that the stream or the group is not there: NOGROUP, or on 7.0 a blocked reader's UNBLOCKED.
func IsMissing(err error) bool {
	return IsError(err, "NOGROUP", "no such key", "requires the key to exist", "UNBLOCKED")
}

// IsError tells that the server refused a command in words that have one of the signs in them.
func IsError(err error, signs ...string) bool {
	redis, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(redis.Error(), sign) })
}

// FirstError is the first real error of a pipeline; nil of the server is none.
func FirstError(results []rueidis.RedisResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
	}
	return nil
}

// Text is a text of the server's; "" for anything else.
func Text(m rueidis.RedisMessage) string {
	s, _ := m.ToString()
	return s
}

// Number is a number of the server's, or otherwise.
func Number(m rueidis.RedisMessage, otherwise int64) int64 {
	n, err := m.AsInt64()
	if err != nil {
		return otherwise
	}
	return n
}
