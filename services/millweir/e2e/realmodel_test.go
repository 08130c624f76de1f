package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// With a real model a question finds the text that has its meaning and none of its words. The base was made with the built-in one, which
// knows words alone, and is moved.
func TestARealModelFindsMeaning(t *testing.T) {
	t.Parallel()
	questions := map[string]string{ // by the text that says it
		"The physician prescribed antibiotics against an infection.":      "which medicine did a doctor give his patient",
		"Our dog barks whenever the postman arrives.":                     "pet that makes noise at mail delivery",
		"Earnings of this company fell sharply during the last quarter.":  "business profits went down",
		"Bake your bread at 220 degrees for thirty minutes.":              "how hot must an oven be to make a loaf",
		"A train to Hamburg was cancelled because of snow.":               "railway service stopped by winter weather",
		"She plays violin in a symphony orchestra.":                       "musician who performs on a string instrument",
		"Der Vertrag kann mit einer Frist von drei Monaten enden.":        "Vertrag Frist Monate",
		"Photosynthesis turns sunlight into sugar inside of green leaves": "how plants get energy from the sun",
	}
	folder := t.TempDir()
	p := start(t, "dev", nil, "--data", folder, "--addr", "127.0.0.1:0")
	c := newClient(t, p.printed(`ready (http://\S+)`))
	documents := map[string]string{} // by text
	for text := range questions {
		documents[text] = c.ingested("note.txt", []byte(text)).DocumentID
	}
	p.stop()
	model := labserver.Model(t)
	p = start(t, "dev", []string{"EMBEDDING_BASE_URL=" + model.URL(""), "EMBEDDING_API=openai", "EMBEDDING_MODEL=all-MiniLM-L6-v2"}, "--data", folder, "--addr", "127.0.0.1:0")
	c = newClient(t, p.printed(`ready (http://\S+)`))

	found := func(mode string) (n int) {
		for text, question := range questions {
			var v struct {
				Hits []hit `json:"hits"`
			}
			c.json(http.MethodPost, "/api/knowledge/search", `{"topK":3,"mode":"`+mode+`","query":"`+question+`"}`).into(t, http.StatusOK, &v)
			if len(v.Hits) > 0 && v.Hits[0].DocumentID == documents[text] {
				n++
			}
		}
		return n
	}
	words := found("vector")
	require.Less(t, words, len(questions), "the built-in model")
	var run applied
	c.json(http.MethodPost, bases+"/default/reindex?waitSeconds=60", `{}`).into(t, http.StatusOK, &run)
	require.Equal(t, "SUCCEEDED", run.Data.Status, "%+v", run.Data.Error)
	require.Equal(t, len(questions), found("vector"))
	require.Greater(t, found("hybrid"), words)
}
