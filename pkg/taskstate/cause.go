package taskstate

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"
)

// GroupLength is the number of hexadecimal digits of a failure group's id.
const GroupLength = 16

const (
	causeRead    = 1000 // bytes of an error that its pattern is made of
	patternChars = 200
)

// Cause is what failures have in common: the code, and the error without what differs from one to the next (numbers, ids, hosts,
// paths, quoted texts). Failures with the same cause are one group.
type Cause struct {
	Code    string // UPPER_SNAKE; empty: none
	Pattern string // at most 200 characters; <n>, <id>, <name>, <path>, <url> and <text> stand for what was taken out
}

// varying is what differs, the alternatives in the order in which they are tried at a place.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|` + "`[^`]*`" + `|\B'[^']*'\B|[“„«][^”“»]*[”“»]` + // 1: a quoted text
	`|([A-Za-z][A-Za-z0-9+.\-]*://[^\s"'<>]*[^\s"'<>:,.;)])` +
	`|([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})` +
	`|([0-9]+(?:[.,:/][0-9]+)*\b)` +
	`|([\pL\pN_\-]+(?:\.[\pL\pN_\-]+)+(?::[0-9]+)?|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[^\]\s]*)?\](?::[0-9]+)?)` +
	`|([\pL_\-]*\pN[\pL\pN_\-]*)` +
	`|((?:[A-Za-z]:)?(?:[\\/][^\s:"'\\/<>]+)+[\\/]?)`)

// stands are what stands for the groups of varying.
var stands = []string{"<url>", "<id>", "<n>", "<name>", "<id>", "<path>"}

// CauseOf is the cause of a failure with a code and an error's text.
func CauseOf(code, text string) Cause {
	if len(text) > causeRead {
		text = text[:causeRead]
	}
	text = strings.ToValidUTF8(text, "")
	var b strings.Builder
	from := 0
	for _, m := range varying.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[from:m[0]])
		from = m[1]
		stand := "<text>"
		for i, s := range stands {
			if m[2*(i+1)] >= 0 {
				stand = s
			}
		}
		b.WriteString(stand)
	}
	b.WriteString(text[from:])
	pattern := strings.Join(strings.Fields(b.String()), " ")
	if utf8.RuneCountInString(pattern) > patternChars {
		pattern = string([]rune(pattern)[:patternChars])
	}
	return Cause{Code: code, Pattern: pattern}
}

// Group is the id of the failures with this cause.
func (c Cause) Group() string { return hashOf(c.Code, c.Pattern) }

// hashOf is 64 bits of SHA-256 over the parts, as hexadecimal digits.
func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:GroupLength/2])
}

// Failing is a task's place among the failures: which group it is counted in, apart by user, base and stage.
type Failing struct {
	ID    string // of its row in failure_group: a hash of all that follows
	Cause Cause
	User  string
	Base  string // empty: a task without a document
	Stage Stage
}

// FailingOf is the place of a task that has failed with its present error.
func FailingOf(t Task) Failing {
	c := CauseOf(t.ErrorCode, t.LastError)
	return Failing{
		ID: hashOf(c.Code, c.Pattern, t.UserID, t.KnowledgeBase, string(t.Progress.Stage)), Cause: c, User: t.UserID, Base: t.KnowledgeBase,
		Stage: t.Progress.Stage,
	}
}

// Fails reports whether a task is among the failures: its last attempt failed, and nobody has withdrawn it.
func (t Task) Fails() bool { return t.LastError != "" && t.Status != StatusCancelled }

// Fails reports whether the change tells of a failure: one more in its group.
func (c *Change) Fails() bool {
	switch c.Reason {
	case ReasonFailed, ReasonExhausted, ReasonPermanent, ReasonStalled, ReasonThrottled, ReasonCrashLimit:
		return c.LastError != ""
	case ReasonSuspended: // by its worker: an operator says no error
		return c.LastError != "" && c.Actor.Kind == ActorWorker
	case ReasonAccepted, ReasonClaimed, ReasonTakeover, ReasonDone, ReasonHandedBack, ReasonRetryNow, ReasonCancelled, ReasonDeleted,
		ReasonSuperseded, ReasonResumed, ReasonReplayed:
	}
	return false
}
