package taskstate

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		base, limit time.Duration
		attempt     int
		want        time.Duration
	}{
		{time.Second, time.Minute, 1, time.Second}, {time.Second, time.Minute, 2, 2 * time.Second},
		{time.Second, time.Minute, 6, 32 * time.Second}, {time.Second, time.Minute, 7, time.Minute},
		{time.Second, time.Minute, math.MaxInt, time.Minute}, {time.Second, math.MaxInt64, 64, math.MaxInt64 / 1000 * 1000},
		{3 * time.Hour, math.MaxInt64, 1000, math.MaxInt64 / 1000 * 1000},
		{0, time.Minute, 50, 0}, {time.Minute, 0, 3, 0}, {time.Minute, time.Second, 1, time.Second},
		{1500 * time.Nanosecond, time.Minute, 1, time.Microsecond}, {time.Second, time.Minute, 0, time.Second},
	} {
		if got := (Policy{BaseBackoff: tt.base, MaxBackoff: tt.limit}).Backoff(tt.attempt); got != tt.want {
			t.Errorf("base %s, max %s, attempt %d: got %s, want %s", tt.base, tt.limit, tt.attempt, got, tt.want)
		}
	}
	p := Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Jitter: func() float64 { return 0.25 }}
	if got := p.Backoff(1); got != 750*time.Millisecond {
		t.Errorf("jitter: got %s", got)
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	if err := rules.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (Policy{Lease: 1, MaxCrashes: 2, Slack: 1}).Validate(); err != nil {
		t.Errorf("zero backoffs are allowed: %v", err)
	}
	err := Policy{BaseBackoff: -1, MaxBackoff: -1, MaxCrashes: 1}.Validate()
	for _, word := range []string{"base backoff", "max backoff", "lease", "max crashes", "promise slack"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("長", MaxErrorChars)} {
		if Shorten(text, MaxErrorChars) != text {
			t.Errorf("%d characters were cut", utf8.RuneCountInString(text))
		}
	}
	cut := Shorten(strings.Repeat("😀", MaxErrorChars+1), MaxErrorChars)
	if utf8.RuneCountInString(cut) != MaxErrorChars || !strings.HasSuffix(cut, "…") {
		t.Errorf("got %d characters", utf8.RuneCountInString(cut))
	}
}

func TestDBTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, v := range map[string]any{
		"text": "2026-01-02 03:04:05.000006", "bytes": []byte("2026-01-02 03:04:05.000006"),
		"time": want.In(time.FixedZone("x", 3600)),
	} {
		var s DBTime
		if err := s.Scan(v); err != nil || !s.Equal(want) || s.Location() != time.UTC {
			t.Errorf("%s: got %v, %v", name, s, err)
		}
	}
	for name, v := range map[string]any{"null": nil, "text": "9999-12-31 00:00:00.000000", "time": time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		s := DBTime{want}
		if err := s.Scan(v); err != nil || !s.IsZero() {
			t.Errorf("none as %s: got %v, %v", name, s, err)
		}
	}
	var s DBTime
	if s.Scan(5) == nil || s.Scan("yesterday") == nil {
		t.Error("no error for what is no time")
	}
	if want.Format(DBTimeLayout) >= want.Add(time.Microsecond).Format(DBTimeLayout) {
		t.Error("text order is not time order")
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	if !System().All() || (Scope{UserID: "u", Role: RoleUser}).All() || (Scope{}).All() || (Scope{Role: "Operator"}).All() {
		t.Error("who sees all")
	}
	for want, s := range map[string]Scope{"user:u": {UserID: "u", Role: RoleUser}, "operator:o": {UserID: "o", Role: RoleOperator}, "user:": {}} {
		if got := s.Actor().String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	out, err := Each(func(_ DBClock, t Task) Decision { return leave(t, AnswerKept) })(context.Background(), nil, moment, []Task{{ID: "a"}, {ID: "b"}})
	if err != nil || len(out) != 2 || out[0].TaskID != "a" || out[1].TaskID != "b" {
		t.Errorf("got %v, %v", out, err)
	}
	if Never().Kind != DelayNever || In(5).In != 5 {
		t.Error("delays")
	}
}

func TestReserved(t *testing.T) {
	t.Parallel()
	r := row(StatusQueued)
	r.LeaseOwner, r.WakeAt = "p/1", now.Add(time.Microsecond)
	running := r
	running.Status = StatusRunning
	if !r.Reserved(now) || r.Reserved(now.Add(time.Microsecond)) || running.Reserved(now) {
		t.Error("reserved")
	}
}
