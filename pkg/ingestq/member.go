package ingestq

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"time"
)

const maxHostInName = 64 // bytes

// MemberName is host-pid-random (oban#862: a name that comes back inherits what it never read).
func MemberName() string { return HostPID() + "-" + strings.ToLower(rand.Text()[:10]) }

// HostPID names this process; what names of members cannot hold becomes a dash.
func HostPID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%s-%d", host[:min(len(host), maxHostInName)], os.Getpid())
}

// BeatsPerTTL is how often a heartbeat is written in the time after which it ends.
const BeatsPerTTL = 3

// Member is a consumer of a group on Redis Streams, as Live keeps it.
type Member struct {
	Queue          string // whose lines are logged
	HeartbeatTTL   time.Duration
	ZombieInterval time.Duration
	Beat           func(ctx context.Context) error // writes the heartbeat
	RemoveZombies  func(ctx context.Context) error
	Log            *slog.Logger
}

// Live writes the heartbeat and removes zombie members until ctx ends. Failures are logged: the first of a row of beats.
func (m Member) Live(ctx context.Context) {
	beat := time.NewTicker(m.HeartbeatTTL / BeatsPerTTL)
	defer beat.Stop()
	// Members that start together do not look for zombies together.
	zombies := time.NewTimer(mathrand.N(m.ZombieInterval))
	defer zombies.Stop()
	broken := false
	for {
		err := m.Beat(ctx)
		if err != nil && !broken && ctx.Err() == nil {
			m.Log.WarnContext(ctx, m.Queue+": no heartbeat", slog.Any("error", err))
		}
		if err == nil && broken {
			m.Log.InfoContext(ctx, m.Queue+": heartbeat again")
		}
		broken = err != nil
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-zombies.C:
			zombies.Reset(m.ZombieInterval)
			if err := m.RemoveZombies(ctx); err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, m.Queue+": zombie members not removed", slog.Any("error", err))
			}
		}
	}
}
