package telemetry

import (
	"regexp"
	"strings"
)

// Hidden stands where a secret was.
const Hidden = "***"

// rule hides one shape of secret. hint is a cheap test that the shape may be there at all.
type rule struct {
	hint func(s string) bool
	re   *regexp.Regexp
	to   string
	keep func(match string) bool // nil: replace every match
}

// The rules in the order in which they run. Where a rule must choose, it hides too much rather than too little.
var rules = []rule{
	{hint: contains("PRIVATE KEY"), re: regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), to: Hidden},
	// user:password@tcp(host) of the MySQL driver; the password may hold anything but white space and quotes
	{hint: contains("@"), re: regexp.MustCompile(`[^\s"'` + "`" + `/@(]+:[^\s"'` + "`" + `]*@(tcp[46]?|unix)\(`), to: Hidden + "@$1("},
	// scheme://user:password@host, the password may hold / ? # although it must not
	{hint: contains("://"), re: regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s"'` + "`" + `<>/?#@:]*:[^\s"'` + "`" + `<>]*@`), to: "${1}" + Hidden + "@", keep: portNotPassword},
	{hint: contains("://"), re: regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s"'` + "`" + `<>/?#]*@`), to: "${1}" + Hidden + "@"},
	// net/url quotes the broken part of a password that holds a slash once more
	{hint: contains("invalid port"), re: regexp.MustCompile(`invalid port "[^"]*"`), to: `invalid port "` + Hidden + `"`},
	{hint: contains("invalid userinfo"), re: regexp.MustCompile(`(?:parse )?"[^"]*": net/url: invalid userinfo`), to: `"` + Hidden + `": net/url: invalid userinfo`},
	{hint: containsFold("authorization"), re: regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*\[?["']?)(?:[a-z]+\s+)?[^\s"',;\]]+`), to: "${1}" + Hidden},
	{hint: containsFold("bearer"), re: regexp.MustCompile(`(?i)\b(bearer)\s+[a-z0-9._~+/=*-]{6,}`), to: "${1} " + Hidden, keep: bearerWord},
	// name=value and "name": "value" where the name says that the value is a secret
	{hint: containsAny("=:"), re: regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:password|passwd|pwd|passphrase|secret|token|api[ _-]?key|apikey|access[_-]?key|signature|credential|cookie)["']?\s*(?:=|:\s?)\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s&"',;)}\]]+)`), to: "${1}" + Hidden},
	{hint: containsAny("?&"), re: regexp.MustCompile(`(?i)([?&](?:key|sig|auth|code|pass|jwt|sas|sv|access)=)[^\s&"'#]+`), to: "${1}" + Hidden},
	// shapes that are secrets wherever they stand
	{hint: contains("mw_"), re: regexp.MustCompile(`\b(mw_[a-z]+_)[A-Za-z0-9]+`), to: "${1}" + Hidden},
	{hint: contains("eyJ"), re: regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), to: Hidden},
	{hint: contains("-"), re: regexp.MustCompile(`\b(?:sk|pk|rk|xox[abeoprs])-[A-Za-z0-9_-]{12,}`), to: Hidden},
	{hint: contains("_"), re: regexp.MustCompile(`\b(?:gh[opusr]|github_pat|hf|glpat|sk_live|rk_live)_[A-Za-z0-9_]{16,}`), to: Hidden},
	{hint: contains("A"), re: regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}`), to: Hidden},
	{hint: contains(":"), re: regexp.MustCompile(`[0-9]{6,}:[A-Za-z0-9_-]{30,}`), to: Hidden}, // Telegram bot
}

// Redact returns text without the secrets in it: user and password of URLs and DSNs, Authorization values,
// values named like a secret (also in query strings), our own API keys, the known shapes of others, and what Conceal was told.
// It is for text that people will read (lastError, log lines); it is idempotent and never fails.
func Redact(text string) string {
	if r := concealed.hide.Load(); r != nil {
		text = r.Replace(text)
	}
	for i := range rules {
		r := &rules[i]
		if !r.hint(text) {
			continue
		}
		if r.keep == nil {
			text = r.re.ReplaceAllString(text, r.to)
			continue
		}
		text = r.re.ReplaceAllStringFunc(text, func(m string) string {
			if r.keep(m) {
				return m
			}
			return r.re.ReplaceAllString(m, r.to)
		})
	}
	return text
}

var portStart = regexp.MustCompile(`^[0-9]{1,5}[/?#]`)

// portNotPassword tells http://host:8080/path@x from http://user:pass/word@host.
func portNotPassword(match string) bool {
	_, rest, _ := strings.Cut(match, "://")
	_, rest, _ = strings.Cut(rest, ":")
	return portStart.MatchString(rest)
}

// bearerWord is true of "bearer authentication" and the like: prose, not a token.
func bearerWord(match string) bool {
	word := strings.ToLower(strings.Fields(match)[1])
	switch strings.TrimRight(word, ".") {
	case "authentication", "authorization", "scheme", "tokens", "credentials", "required":
		return true
	default:
		return false
	}
}

func contains(sub string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, sub) }
}

func containsAny(chars string) func(string) bool {
	return func(s string) bool { return strings.ContainsAny(s, chars) }
}

func containsFold(sub string) func(string) bool {
	return func(s string) bool { return strings.Contains(strings.ToLower(s), sub) }
}
