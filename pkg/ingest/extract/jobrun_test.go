package extract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadVerdictsAreRefused(t *testing.T) {
	t.Parallel()
	run := &jobRun{job: job{Limits: limits{MaxPages: 10}}}
	for _, pages := range []string{"[0]", "[4]", "[2,2]", "[3,1]", "[-1]"} {
		_, err := run.verdict([]byte(`{"extraction":{"Pages":3,"Unread":` + pages + `}}`))
		require.ErrorIs(t, err, errBadFrame, pages)
	}
}

// FuzzVerdict reads any verdict of a child: what is taken over lies within the limits.
func FuzzVerdict(f *testing.F) {
	f.Add([]byte(`{"code":"EMPTY"}`))
	f.Add([]byte(`{"extraction":{"Pages":3,"Unread":[2]}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		run := &jobRun{pool: &Pool{log: testLog(t)}, job: job{Limits: limits{MaxPages: 10}}}
		if ex, err := run.verdict(payload); err == nil {
			require.LessOrEqual(t, ex.Pages, 10)
		}
	})
}
