package labserver

import (
	"context"
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
		probe: chromaProbe,
		url:   func(s *Server, _ string) string { return "http://" + s.Addr },
		stop:  syscall.SIGTERM,
	}
}

func chromaProbe(ctx context.Context, s *Server) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/api/v2/heartbeat", http.NoBody)
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
		return fmt.Errorf("heartbeat answers %s", resp.Status)
	}
	return nil
}
