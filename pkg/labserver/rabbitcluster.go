package labserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/millweir/millweir/pkg/labserver/child"
)

const rabbitNodes = 3 // the least that go on without one

// RabbitCluster is a RabbitMQ cluster of three nodes.
type RabbitCluster struct {
	Nodes []*Server

	epmd *child.Process
}

// StartRabbitCluster starts a cluster in a folder and returns when its nodes know each other; an empty dir is a new one. Each node can be
// stopped, killed, paused and restarted. The registry by which they find each other is none of them.
func StartRabbitCluster(ctx context.Context, dir string) (*RabbitCluster, error) {
	c := &RabbitCluster{}
	if err := c.start(ctx, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("start RabbitMQ cluster: %w", err), c.Kill(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *RabbitCluster) start(ctx context.Context, dir string) (err error) {
	if dir == "" {
		if dir, err = tempDir("rabbitmq-cluster"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	peers := &rabbitPeers{cookie: rand.Text()}
	if peers.epmd, err = ReservePorts(1); err != nil {
		return err
	}
	ports := make([]int, rabbitNodes)
	for i := range ports {
		if ports[i], err = ReservePorts(rabbitPorts); err != nil {
			return err
		}
		peers.nodes = append(peers.nodes, rabbitNode(ports[i]))
	}
	epmd, err := rabbitEpmdCommand(peers.epmd, dir)
	if err != nil {
		return err
	}
	if c.epmd, err = epmd.Start(filepath.Join(dir, "epmd.log"), false); err != nil {
		return err
	}
	servers, errs := make([]*Server, rabbitNodes), make([]error, rabbitNodes)
	var starting sync.WaitGroup
	for i, port := range ports {
		starting.Go(func() {
			servers[i], errs[i] = Start(ctx, KindRabbitMQ, Options{Dir: filepath.Join(dir, "node"+strconv.Itoa(i+1)), Port: port, rabbit: peers})
		})
	}
	starting.Wait()
	for _, s := range servers {
		if s != nil {
			c.Nodes = append(c.Nodes, s)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.Nodes[0].RabbitControl(ctx, "await_online_nodes", strconv.Itoa(rabbitNodes))
}

// Kill is kill -9 of all, the registry too, and waits until they are gone.
func (c *RabbitCluster) Kill(ctx context.Context) error {
	var errs []error
	for _, s := range c.Nodes {
		errs = append(errs, s.Kill(ctx))
	}
	if c.epmd != nil {
		errs = append(errs, c.epmd.End(ctx, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// PrivateRabbitCluster starts a cluster for one test alone.
func PrivateRabbitCluster(t testing.TB) *RabbitCluster {
	t.Helper()
	c := private(t, func(ctx context.Context) (*RabbitCluster, error) { return StartRabbitCluster(ctx, "") }, func(c *RabbitCluster) []*Server { return c.Nodes })
	t.Cleanup(func() { _ = c.Kill(context.WithoutCancel(t.Context())) })
	return c
}
