package monitor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMovesAreReadFromMonitor(t *testing.T) {
	t.Parallel()
	const at = "+1700000000.000001 [0 "
	lease := `"streaming:mq:lease:orders:g:3"`
	r := moveReader{db: "0"}
	read := func(line string) fsck.Move {
		t.Helper()
		got := r.line(at + line + "\r\n")
		require.Len(t, got, 1, line)
		require.Equal(t, time.Unix(1700000000, 1000).UTC(), got[0].At)
		got[0].At = time.Time{}
		return got[0]
	}
	of := func(m fsck.Move) fsck.Move {
		m.Topic, m.Group, m.Partition = "orders", "g", 3
		return m
	}
	none := func(line string) {
		t.Helper()
		require.Empty(t, r.line(at+line+"\r\n"), line)
	}
	none(`127.0.0.1:5] "EVALSHA" "x" "2" ` + lease + ` "streaming:mq:lease:orders:g:3:epoch" "m1" "15000"`)
	none(`lua] "SET" ` + lease + ` "m1" "NX" "PX" "15000"`)
	require.Equal(t, of(fsck.Move{Op: fsck.MoveTake, Owner: "m1", Epoch: "77", TTL: 15 * time.Second}),
		read(`lua] "SET" "streaming:mq:lease:orders:g:3:epoch" "77"`))
	require.Equal(t, of(fsck.Move{Op: fsck.MoveTake, Epoch: "78"}), read(`lua] "SET" "streaming:mq:lease:orders:g:3:epoch" "78"`), "an operator's")
	require.Equal(t, of(fsck.Move{Op: fsck.MoveRenew, TTL: time.Second}), read(`lua] "PEXPIRE" `+lease+` "1000"`))
	fence := `127.0.0.1:5] "EVALSHA" "x" "4" "stream:topic:orders:p:3" "streaming:mq:lease:orders:g:3:epoch" "d" "a" "77" "g" "m1" "1-0" "1"`
	none(fence)
	require.Equal(t, of(fsck.Move{Op: fsck.MoveEffect, Owner: "m1", Epoch: "77"}), read(`lua] "XACK" "stream:topic:orders:p:3" "g" "1-0"`))
	none(`lua] "XACK" "stream:topic:orders:p:3" "g" "2-0"`) // one script is one effect
	none(fence)
	require.Empty(t, r.line(""), "a line that was too long")
	none(`lua] "XACK" "stream:topic:orders:p:3" "g" "2-0"`)
	require.Equal(t, of(fsck.Move{Op: fsck.MoveEffect, Owner: "m1"}),
		read(`127.0.0.1:5] "XREADGROUP" "GROUP" "g" "m1" "COUNT" "10" "STREAMS" "stream:topic:orders:p:3" ">"`))
	require.Equal(t, fsck.Move{Op: fsck.MoveStatus, Message: "u", State: "failed", Updated: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		read(`lua] "SET" "task:status:u" "{\"error\":{\"message\":\"a \\\" \\\" b\"},\"status\":\"failed\",\"updatedAt\":\"2026-01-02T03:04:05Z\"}" "EX" "9"`))
	require.Equal(t, of(fsck.Move{Op: fsck.MoveRelease}), read(`lua] "DEL" "other" `+lease))
	require.Equal(t, fsck.Move{Op: fsck.MoveGap}, read(`127.0.0.1:5] "flushall"`))
	none(`127.0.0.1:5] "SET" "task:status:u" "{}" "NX" "EX" "9"`) // a producer's
	require.Empty(t, r.line("+1700000000.000001 [7 lua] \"DEL\" "+lease), "of another database")
}

// What the probe does on a real server is seen and judged by every rule of partitions.
func TestProbeLeavesEvidence(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	var out, acks bytes.Buffer
	log := NewMoveLog(&out)
	stop := Monitor{Addr: server.Addr, DB: "0", Acks: &acks, Moves: log}.Record()
	p := StartProbe("redis://"+server.Addr, log)
	seen := func(op fsck.MoveOp) int {
		log.mu.Lock()
		defer log.mu.Unlock()
		return strings.Count(out.String(), `"op":"`+string(op)+`"`)
	}
	require.Eventually(t, func() bool {
		return seen(fsck.MoveTake) > 4 && seen(fsck.MoveRenew) > 0 && seen(fsck.MoveRelease) > 0 && seen(fsck.MoveEffect) > 0 &&
			seen(fsck.MoveHandle) > 0 && seen(fsck.MoveStatus) > 0
	}, time.Minute, 50*time.Millisecond)
	before := seen(fsck.MoveGap)
	require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
	handled := seen(fsck.MoveHandle)
	require.Eventually(t, func() bool { return seen(fsck.MoveGap) > before && seen(fsck.MoveHandle) > handled }, time.Minute, 50*time.Millisecond)
	p.Stop()
	require.NoError(t, stop())
	owners := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var m fsck.Move
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		owners[m.Owner] = true
	}
	require.Greater(t, len(owners), 2, "members came and went")
}
