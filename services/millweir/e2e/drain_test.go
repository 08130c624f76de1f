package e2e

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
)

// doer is the process that took a task last.
func (w *installation) doer(id string) string {
	w.t.Helper()
	var rows page[struct{ Reason, Actor string }]
	w.get(tasks+"/"+id+"/transitions").into(w.t, http.StatusOK, &rows)
	name := ""
	for _, r := range rows.Items {
		if kind, by, _ := strings.Cut(r.Actor, ":"); kind == "worker" && r.Reason == "CLAIMED" {
			name = by
		}
	}
	return name
}

// A worker that is drained ends what it has and takes nothing else, while another takes all that comes; once the drain has ended it takes
// tasks again.
func TestADrainedWorkerTakesNothingNew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"MariaDB", "Postgres", "partitions", "Kafka"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			embed := embedtest.Start(t, embedtest.Options{})
			var held atomic.Value // the first task hangs
			embed.Set(embedtest.Fault{Kind: embedtest.Hang, Match: func(e embedtest.Effect) bool {
				return held.CompareAndSwap(nil, e.Task) || held.Load() == e.Task
			}})
			w := installations[name](t, []string{"AUTH_MODE=none", "EMBEDDING_BASE_URL=" + embed.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_LEASE_MS=3000"})
			first := w.begin()
			id := w.reaches(w.upload(), "RUNNING").TaskID
			drained := w.doer(id)
			require.NotEmpty(t, drained)
			step := func(what string) {
				w.do(http.MethodPost, "/internal/workers/"+drained+"/"+what, nil).into(t, http.StatusNoContent, nil)
			}
			step("drain")
			first.printed("(an operator drains this process; it takes no more work)")
			others := func(take bool) { // or the one that is let go
				for range 10 {
					by := w.doer(w.finish(w.upload()))
					require.Equal(t, take, by != drained, "%s, drained is %s", by, drained)
				}
			}
			second := w.begin()
			others(true)
			require.Equal(t, "RUNNING", w.task(id).Status, "it keeps what it has")
			embed.Clear() // its request fails
			w.finish(id)
			require.Equal(t, "SUCCEEDED", w.task(id).Status)
			first.printed("(drained: it has no task and has left its group)")
			eventually(t, "the list says that it has drained", func() bool {
				var listed struct {
					Items []struct {
						Name, DrainAt, DrainedAt string
						Slots                    int
					}
				}
				w.get("/internal/workers").into(t, http.StatusOK, &listed)
				for _, worker := range listed.Items {
					if worker.Name == drained {
						return worker.DrainAt != "" && worker.DrainedAt != "" && worker.Slots > 0
					}
				}
				return false
			})
			others(true)
			second.stop()
			step("resume")
			first.printed("(an operator has ended the draining; it takes work again)")
			others(false)
		})
	}
}

// A check that is asked for on the command line ends there with its report.
func TestChecksRunWaitsForTheGateway(t *testing.T) {
	t.Parallel()
	x := newChecked(t, "sqlite")
	lost := x.c.ingested("lost.txt", []byte("the heron waits"))
	server := []string{"MILLWEIR_SERVER=" + x.c.url}
	code, out := run(t, "millweir", server, "checks", "run", "--deep", "--wait")
	require.Zero(t, code, out)
	require.Contains(t, out, "SUCCEEDED")
	x.exec("DELETE FROM knowledge_segment WHERE document_id = '" + lost.DocumentID + "'")
	code, out = run(t, "millweir", server, "checks", "run", "--wait", "--timeout", "2m")
	require.NotZero(t, code, out)
	require.Contains(t, out, lost.DocumentID)
}
