package document

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	stubArg  = "embedding-stub"
	stubWait = 5 * time.Millisecond // of each batch
	stubDim  = 384
)

// IsStub tells whether this process is the embedding service of the documents benchmark.
// It is a process of its own so that what a real service would compute elsewhere counts in no figure.
func IsStub(args []string) bool { return len(args) == 3 && args[1] == stubArg }

// stub is a running embedding service.
type stub struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

// startStub starts the service; it ends with its stdin.
func startStub(ctx context.Context) (*stub, error) {
	addr := world.FreeAddr()
	cmd := exec.Command("/proc/self/exe", stubArg, addr) //nolint:gosec // our own program; it ends with its stdin
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("embedding stub: %w", err)
	}
	s := &stub{url: "http://" + addr + "/v1", cmd: cmd, in: in}
	err = await.Until(ctx, figure.StartLimit, 10*time.Millisecond, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("embedding stub: %w", err)
	}
	return s, nil
}

// close ends it.
func (s *stub) close() {
	_ = s.in.Close()
	_ = s.cmd.Wait() // only its end matters
}

// RunStub is the whole life of the service.
func RunStub(ctx context.Context, addr string) int {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "embedding stub:", err)
		return process.ExitFailed
	}
	server := &http.Server{Handler: http.HandlerFunc(embedStub), ReadHeaderTimeout: figure.StartLimit}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the benchmark, however that ends
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		_, _ = fmt.Fprintln(os.Stderr, "embedding stub:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}

// embedStub returns in OpenAI's way, after stubWait, with vectors that follow from the texts.
func embedStub(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(stubWait)
	defer timer.Stop()
	var body struct {
		Input  []string `json:"input"`
		Format string   `json:"encoding_format"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := []byte(`{"data":[`)
	for i, text := range body.Input {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `{"index":%d,"embedding":`, i)
		out = appendVector(out, stubVector(text), body.Format)
		out = append(out, '}')
	}
	out = append(out, "]}"...)
	<-timer.C
	_, _ = w.Write(out) // a client that is gone wants none
}

// stubVector is the same for the same text and far from all others.
func stubVector(text string) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	random := rand.New(rand.NewPCG(h.Sum64(), stubDim)) //nolint:gosec // sample data, no secret
	out := make([]float32, stubDim)
	for i := range out {
		out[i] = 2*random.Float32() - 1
	}
	return out
}

// appendVector writes a vector as JSON numbers, or as the base64 text of its little endian bytes.
func appendVector(b []byte, v []float32, format string) []byte {
	if format != "base64" {
		numbers, _ := json.Marshal(v) // finite numbers always are JSON
		return append(b, numbers...)
	}
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, raw)
	return append(b, '"')
}
