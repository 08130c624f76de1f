package labserver

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

func chromaClass() class {
	return class{
		prepare: func(context.Context, *Server) error { return nil },
		commands: func(s *Server) ([]child.Command, error) {
			chroma, err := installed.Chroma()
			if err != nil {
				return nil, err
			}
			args := []string{"run", "--path", s.data(), "--host", loopback, "--port", strconv.Itoa(s.Port)}
			env := []string{"HOME=" + s.Dir, "ANONYMIZED_TELEMETRY=False"}
			return []child.Command{{Path: chroma, Args: append(args, s.opts.Args...), Dir: s.Dir, Env: env}}, nil
		},
		probe: func(ctx context.Context, s *Server) error { return s.get(ctx, "/api/v2/heartbeat") },
		url:   func(s *Server, _ string) string { return "http://" + s.Addr },
		stop:  syscall.SIGTERM,
	}
}

//go:embed qdrant.py
var qdrantScript string

// qdrantClass serves Qdrant's REST API before Qdrant's own engine: no registry has the server itself. See qdrant.py for what it cannot show.
// Options.Args may hold --api-key.
func qdrantClass() class {
	return class{
		prepare: func(context.Context, *Server) error { return nil },
		commands: func(s *Server) ([]child.Command, error) {
			python, err := installed.QdrantPython()
			if err != nil {
				return nil, err
			}
			args := []string{"-c", qdrantScript, "--path", s.data(), "--port", strconv.Itoa(s.Port)}
			return []child.Command{{Path: python, Args: append(args, s.opts.Args...), Dir: s.Dir, Env: []string{"HOME=" + s.Dir}}}, nil
		},
		probe: func(ctx context.Context, s *Server) error { return s.get(ctx, "/readyz") },
		url:   func(s *Server, _ string) string { return "http://" + s.Addr },
		stop:  syscall.SIGTERM,
	}
}

// get asks an HTTP server for a path, once.
func (s *Server) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+path, http.NoBody)
	if err != nil {
		return err
	}
	// A transport of its own: the proxy of the environment and kept connections have no place in a probe.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to lose
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}
