package labserver

import (
	"context"
	_ "embed"
	"net"
	"strconv"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

//go:embed model.py
var modelScript string

// modelClass serves a model behind OpenAI's API, with the onnxruntime that comes with Chroma. Another jar than that of
// installed.Model is the only one of Options.Args.
func modelClass() class {
	return class{
		prepare: func(context.Context, *Server) error { return nil },
		commands: func(s *Server) ([]child.Command, error) {
			python, jar, err := installed.Model()
			if err != nil {
				return nil, err
			}
			if len(s.opts.Args) > 0 {
				jar = s.opts.Args[0]
			}
			return []child.Command{{Path: python, Args: []string{"-c", modelScript, jar, strconv.Itoa(s.Port)}, Dir: s.Dir, Env: []string{"HOME=" + s.Dir}}}, nil
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
