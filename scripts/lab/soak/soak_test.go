package soak

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/verb"
)

func TestARequestWithoutAnAnswerStaysUnknown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "client.jsonl")
	j, err := openJournal(path)
	require.NoError(t, err)
	for _, c := range []apiclient.Call{
		{Op: "upload", Key: "k", BodyHash: "h", Status: http.StatusAccepted, Task: "t"},
		{Op: "upload", Err: errors.New("connection reset")},
		{Op: "upload", Status: http.StatusInternalServerError, Code: "INTERNAL"},
		{Op: "upload", Status: http.StatusServiceUnavailable, Code: "UNAVAILABLE"},
		{Op: "upload", Status: http.StatusServiceUnavailable, Code: "BACKLOG_FULL"},
		{Op: "retry", Status: http.StatusConflict, Code: "TASK_NOT_REPLAYABLE"},
		{Op: "list", Status: http.StatusOK},
	} {
		j.call(c)
	}
	j.event(j.watcher(), "anna", apiclient.Event{ID: 4, TaskID: "t", Status: "QUEUED"})
	require.NoError(t, j.close())
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	var outcomes []string
	require.NoError(t, fsck.ReadClientLog(file, func(r fsck.ClientRecord) error {
		outcomes = append(outcomes, r.Op+" "+string(r.Outcome))
		return nil
	}))
	require.Equal(t, []string{
		"upload ok", "upload maybe", "upload maybe", "upload maybe", "upload refused", "retry refused", "read ok", "event ok",
	}, outcomes)
	require.Contains(t, j.summary(), "upload maybe 3")
}

func TestOneSeedGivesTheSameWorld(t *testing.T) {
	t.Parallel()
	first, second := &soak{options: options{Flags: verb.Flags{Seed: 7}}}, &soak{options: options{Flags: verb.Flags{Seed: 7}}}
	require.Equal(t, first.randomOf("faults").Uint64(), second.randomOf("faults").Uint64())
	require.NotEqual(t, first.randomOf("faults").Uint64(), first.randomOf("user-1/0").Uint64())
	a := &actor{crowd: &crowd{seed: 7}, random: first.randomOf("x")}
	b := &actor{crowd: &crowd{seed: 7}, random: second.randomOf("x")}
	require.Equal(t, a.fresh(), b.fresh())
	require.NotEqual(t, a.fresh().Body, a.fresh().Body)
}

func TestAUserComesBackToHisLastDocuments(t *testing.T) {
	t.Parallel()
	u := &user{}
	a := &actor{crowd: &crowd{}, user: u, random: (&soak{}).randomOf("x")}
	_, ok := a.known()
	require.False(t, ok)
	for i := range remembered + 10 {
		u.remember(held{task: string(rune('a' + i%26)), document: "d"})
		h, ok := a.known()
		require.True(t, ok)
		require.Equal(t, "d", h.document)
	}
	require.Len(t, u.recent, remembered)
}

func TestFaultsAreChosenByName(t *testing.T) {
	t.Parallel()
	for choice, n := range map[string]int{"": len(faults) - 4, "none": 0, "kill-all,redis": 4} {
		chosen, err := matching(choice, stage.Redis)
		require.NoError(t, err)
		require.Len(t, chosen, n, choice)
	}
	of := map[string]bool{}
	for _, transport := range stage.All {
		chosen, err := matching("", transport)
		require.NoError(t, err)
		for _, f := range chosen {
			of[f.name] = true
		}
	}
	require.Len(t, of, len(faults), "each fault is for one of the transports")
	_, err := matching("redis", stage.Kafka)
	require.ErrorContains(t, err, `"redis"`)
	names := map[string]bool{}
	for _, f := range faults {
		require.False(t, names[f.name], f.name)
		names[f.name] = true
	}
}

func TestAFleetHasOneMoreOfEachService(t *testing.T) {
	t.Parallel()
	for transport, n := range map[string]int{"main": 7, "streammq": 7, "kafka": 9, "mirror": 10} {
		on, err := stage.On(transport)
		require.NoError(t, err)
		require.Len(t, services(on), n, transport)
	}
	_, err := stage.On("nats")
	require.ErrorContains(t, err, "nats")
}

func TestWhatWentWrongUnderWayIsTold(t *testing.T) {
	t.Parallel()
	var p problems
	require.NoError(t, p.err())
	for range maxProblems + 5 {
		p.add("it broke")
	}
	require.ErrorContains(t, p.err(), "25 things")
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
