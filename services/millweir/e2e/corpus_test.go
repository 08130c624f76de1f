package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// corpus is where the readers keep their sample files.
const corpus = "../../../pkg/ingest/extract/testdata"

// sample is one file of the corpus and what must come of it; see the readers' own tests.
type sample struct {
	File     string   `json:"file"`
	Contains []string `json:"contains"` // with white space removed
	Excludes []string `json:"excludes"`
	Codes    []string `json:"codes"`
	Either   bool     `json:"either"`
	AtUpload bool     `json:"atUpload"`
}

func samples(t *testing.T) (all []sample) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(corpus, "manifest.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &all))
	require.NotEmpty(t, all)
	return all
}

func (s sample) content(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(corpus, "corpus", s.File))
	require.NoError(t, err)
	return b
}

// refusals are the codes that an upload can be refused with for its content, and their statuses.
var refusals = map[string]int{
	"EMPTY_FILE": 422, "ENCRYPTED": 422, "CORRUPT": 422, "LIMIT_EXCEEDED": 422, "ENCODING_UNKNOWN": 422, "NEEDS_OCR": 422, "UNSUPPORTED_TYPE": 415,
}

// requireDead checks the end of a task whose file nobody can read: at once, with cause and remedy.
func requireDead(t *testing.T, v task, codes []string) {
	t.Helper()
	require.Equal(t, "DEAD", v.Status, "%+v", v)
	require.Equal(t, 1, v.AttemptCount, "no retry")
	require.Empty(t, v.NextRetryAt)
	if len(codes) > 0 {
		require.Contains(t, codes, v.ErrorCode, "%+v", v)
	}
	require.NotEmpty(t, v.LastError)
	require.Greater(t, len(v.ErrorMessage), len(v.LastError), "the message for the user also says what to do: %+v", v)
	require.NotContains(t, v.LastError+v.ErrorMessage, "goroutine")
	require.NotContains(t, v.LastError+v.ErrorMessage, "/uploads")
}

// requireOutcome sends a file and checks that it comes to what the sample says; it returns the task, if there is one.
func requireOutcome(t *testing.T, c *client, s sample, content []byte) task {
	t.Helper()
	c.newBase("kb " + s.File) // of its own, so that equal sentences of other samples are not in the way
	a := c.send(s.File, content, "knowledgeBase", "kb "+s.File)
	if a.status != 202 {
		var p problem
		require.NoError(t, json.Unmarshal(a.body, &p))
		require.True(t, s.AtUpload, "refused at upload: %s", a.body)
		require.Contains(t, s.Codes, p.Code)
		a.refused(t, refusals[p.Code], p.Code)
		return task{}
	}
	require.False(t, s.AtUpload, "an upload is refused when its head shows that it cannot be read")
	var v task
	a.into(t, 202, &v)
	v = c.ended(v.TaskID)
	if len(s.Codes) > 0 || s.Either && v.Status != "SUCCEEDED" {
		requireDead(t, v, s.Codes)
		return v
	}
	require.Equal(t, "SUCCEEDED", v.Status, "%+v", v)
	require.Equal(t, 100, v.Progress)
	require.Positive(t, v.TotalSegments)
	require.Equal(t, v.TotalSegments, v.ProcessedSegments)
	return v
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	for _, s := range samples(t) {
		t.Run(s.File, func(t *testing.T) {
			c := c.in(t)
			v := requireOutcome(t, c, s, s.content(t))
			if v.Status != "SUCCEEDED" {
				return
			}
			text := c.segments(v.DocumentID)
			squeezed := withoutSpace(text)
			for _, want := range s.Contains {
				require.Contains(t, squeezed, withoutSpace(want))
			}
			for _, no := range s.Excludes {
				require.NotContains(t, text, no)
			}
			requireFound(t, c, s, v)
		})
	}
	c.ready()
}

// requireFound searches each expected piece of text in the document's base. Words whose letters stand apart in the text, as in a
// PDF that places each glyph, are no words to search for.
func requireFound(t *testing.T, c *client, s sample, v task) {
	t.Helper()
	text := strings.Join(strings.Fields(c.segments(v.DocumentID)), " ")
	for _, want := range s.Contains {
		if !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
			t.Logf("%q is not in the text as words", want)
			continue
		}
		hits := c.search(want, "kb "+s.File, 50)
		require.NotEmpty(t, hits, "search %q", want)
		at := slices.IndexFunc(hits, func(h hit) bool { return strings.Contains(withoutSpace(h.Text), withoutSpace(want)) })
		require.True(t, at >= 0 && at < 3, "%q is among the first hits, not %d of %d", want, at, len(hits))
		for _, h := range hits {
			require.Equal(t, v.DocumentID, h.DocumentID)
			if strings.HasSuffix(s.File, ".pdf") && s.File != "docx_named.pdf" {
				require.Positive(t, h.Page)
			}
		}
	}
}
