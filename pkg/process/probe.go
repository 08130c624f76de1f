package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// probeTimeout is a little more than the longest check behind /readyz.
const probeTimeout = checkTimeout + time.Second

// maxReport bounds what is read of an answer.
const maxReport = 64 << 10

// probe asks the running process of the same settings whether it is ready and prints its report:
// the health check of a container that holds nothing but this program.
func probe(ctx context.Context, w io.Writer, operatorAddr string) error {
	host, port, err := net.SplitHostPort(operatorAddr)
	if err != nil {
		return BadSetting("OPERATOR_ADDR", "%v", err)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: it is this very machine
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	_, copyErr := io.Copy(w, io.LimitReader(resp.Body, maxReport))
	if err := errors.Join(copyErr, resp.Body.Close()); err != nil {
		return fmt.Errorf("probe: read the report: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("probe: not ready: %s", resp.Status)
	}
	return nil
}
