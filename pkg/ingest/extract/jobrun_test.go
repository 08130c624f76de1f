package extract

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

func TestBadVerdictsAreRefused(t *testing.T) {
	t.Parallel()
	run := &jobRun{job: frame.Job{Limits: document.Limits{MaxPages: 10}}}
	for _, pages := range []string{"[0]", "[4]", "[2,2]", "[3,1]", "[-1]"} {
		_, err := run.verdict([]byte(`{"extraction":{"Pages":3,"Unread":` + pages + `}}`))
		require.ErrorIs(t, err, frame.ErrBad, pages)
	}
}

// FuzzVerdict reads any verdict of a child: what is taken over lies within the limits.
func FuzzVerdict(f *testing.F) {
	f.Add([]byte(`{"code":"EMPTY"}`))
	f.Add([]byte(`{"extraction":{"Pages":3,"Unread":[2]}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		run := &jobRun{pool: &Pool{log: testLog(t)}, job: frame.Job{Limits: document.Limits{MaxPages: 10}}}
		if ex, err := run.verdict(payload); err == nil {
			require.LessOrEqual(t, ex.Pages, 10)
		}
	})
}
