package ingestq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

// An outage is told once when it begins and once when it ends, however many beats it takes.
func TestAMemberBeatsAndTellsOfAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		beats, sweeps := 0, 0
		m := ingestq.Member{
			Queue: "q", HeartbeatTTL: 30 * time.Second, ZombieInterval: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Beat: func(context.Context) error {
				beats++
				if beats >= 3 && beats <= 6 {
					return errors.New("gone")
				}
				return nil
			},
			RemoveZombies: func(context.Context) error { sweeps++; return errors.New("not now") },
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		m.Live(ctx)
		require.Equal(t, 1, strings.Count(log.String(), "q: no heartbeat"))
		require.Equal(t, 1, strings.Count(log.String(), "q: heartbeat again"))
		require.GreaterOrEqual(t, sweeps, 9, "the first within an interval, then one each")
		require.Equal(t, sweeps, strings.Count(log.String(), "q: zombie members not removed"))
		require.GreaterOrEqual(t, beats, 60, "three in each life of the key")
	})
}
