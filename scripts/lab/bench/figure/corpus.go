package figure

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millweir/millweir/scripts/lab/apiclient"
)

// Corpus reads the sample files: those with text, and the hostile ones that get as far as a reader.
func Corpus(root string) (good, hostile []apiclient.Doc, err error) {
	dir := filepath.Join(root, "pkg", "ingest", "extract", "testdata")
	raw, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, nil, err
	}
	var samples []struct {
		File     string   `json:"file"`
		Codes    []string `json:"codes"`
		Either   bool     `json:"either"`
		AtUpload bool     `json:"atUpload"`
	}
	if err := json.Unmarshal(raw, &samples); err != nil {
		return nil, nil, fmt.Errorf("manifest.json: %w", err)
	}
	for _, s := range samples {
		if s.AtUpload {
			continue
		}
		d, err := apiclient.FileDoc(filepath.Join(dir, "corpus", s.File))
		if err != nil {
			return nil, nil, err
		}
		if len(s.Codes) > 0 || s.Either {
			hostile = append(hostile, d)
		} else {
			good = append(good, d)
		}
	}
	return good, hostile, nil
}
