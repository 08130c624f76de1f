package labserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

const (
	clusterMasters = 3     // the least that can vote for a new one
	clusterSlots   = 16384 // of Redis Cluster
)

// Cluster is a Redis Cluster of three masters that share the slots evenly, in their order.
type Cluster struct {
	Masters []*Server
	// Replica follows Masters[0]; nil without one. After a failover their parts are exchanged.
	Replica *Server
}

// StartCluster starts a cluster, with a replica of its first master or without, and returns when all its nodes know
// each other and serve all slots. A master that does not answer for 10 s counts as dead if there is a replica: less, and a
// machine that stalls would promote it by itself.
func StartCluster(ctx context.Context, replica bool) (*Cluster, error) {
	c := &Cluster{Masters: make([]*Server, clusterMasters)}
	if err := c.start(ctx, replica); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Kill(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, replica bool) error {
	nodes := clusterMasters
	timeout := "60000" // without a replica nobody could take over, and a busy machine must not look like a dead node
	if replica {
		nodes, timeout = clusterMasters+1, "10000"
	}
	servers, errs := make([]*Server, nodes), make([]error, nodes)
	var starting sync.WaitGroup
	for i := range nodes {
		starting.Go(func() { servers[i], errs[i] = startNode(ctx, timeout) })
	}
	starting.Wait()
	copy(c.Masters, servers)
	if replica {
		c.Replica = servers[clusterMasters]
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, m := range c.Masters {
		first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
		if err := m.expectOK(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			return err
		}
		if err := m.expectOK(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, one := range servers { // all pairs: news of others' nodes would come late
		for _, other := range servers[:i] {
			if err := one.expectOK(ctx, "CLUSTER", "MEET", loopback, strconv.Itoa(other.Port), strconv.Itoa(other.busPort)); err != nil {
				return err
			}
		}
	}
	if err := c.awaitAll(ctx, "cluster_state:ok", "cluster_known_nodes:"+strconv.Itoa(nodes), "cluster_size:3"); err != nil || !replica {
		return err
	}
	return c.follow(ctx)
}

// startNode starts a node on its own; the port of the bus is chosen as the other, 10,000 more may be too many.
func startNode(ctx context.Context, timeout string) (*Server, error) {
	bus, err := ReservePorts(1)
	if err != nil {
		return nil, err
	}
	s, err := Start(ctx, KindRedis, Options{Args: []string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", timeout,
		"--cluster-announce-ip", loopback, "--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
	}})
	if s != nil {
		s.busPort = bus
	}
	return s, err
}

// follow makes Replica a replica, and waits until it has the data and the others know.
func (c *Cluster) follow(ctx context.Context) error {
	id, err := c.Masters[0].redisText(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if err := c.Replica.expectOK(ctx, "CLUSTER", "REPLICATE", id); err != nil {
		return err
	}
	return await(ctx, readyTimeout, func(ctx context.Context) error {
		info, err := c.Replica.redisInfo(ctx, "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("replica %s has no link", c.Replica.Addr)
		}
		for _, m := range c.Masters {
			if err == nil {
				err = m.expect(ctx, ",fail,", false, "CLUSTER", "NODES")
			}
			if err == nil {
				err = m.expect(ctx, "slave "+id, true, "CLUSTER", "NODES")
			}
		}
		return err
	})
}

// Synced waits until the replica has what its master had at the call.
func (c *Cluster) Synced(ctx context.Context) error {
	info, err := c.Masters[0].redisInfo(ctx, "replication")
	if err != nil {
		return err
	}
	want := numbers(info, ":")["master_repl_offset"]
	return await(ctx, readyTimeout, func(ctx context.Context) error {
		info, err := c.Replica.redisInfo(ctx, "replication")
		if got := numbers(info, ":")["slave_repl_offset"]; err == nil && got < want {
			err = fmt.Errorf("replica %s is at %.0f of %.0f", c.Replica.Addr, got, want)
		}
		return err
	})
}

// Promote makes the replica the master, also of slots whose master is dead, without asking the others, and waits until
// the other masters know. Replica is then Masters[0] and the other way round.
func (c *Cluster) Promote(ctx context.Context) error {
	err := c.Replica.expectOK(ctx, "CLUSTER", "FAILOVER", "TAKEOVER")
	if err != nil && !strings.Contains(err.Error(), "to a replica") { // else it became the master by itself
		return err
	}
	c.Masters[0], c.Replica = c.Replica, c.Masters[0]
	id, err := c.Masters[0].redisText(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	return await(ctx, readyTimeout, func(ctx context.Context) error {
		for _, m := range c.Masters {
			nodes, err := m.redisText(ctx, "CLUSTER", "NODES")
			if err != nil {
				return err
			}
			if !ownsSlots(nodes, id) {
				return fmt.Errorf("node %s does not know the new master %s yet", m.Addr, id)
			}
		}
		return c.told(ctx, c.Masters, "cluster_state:ok")
	})
}

// ownsSlots tells whether a node has slots in the answer of CLUSTER NODES.
func ownsSlots(nodes, id string) bool {
	for line := range strings.Lines(nodes) {
		if fields := strings.Fields(line); len(fields) > 8 && fields[0] == id {
			return true
		}
	}
	return false
}

// awaitAll waits until CLUSTER INFO of all nodes has these lines.
func (c *Cluster) awaitAll(ctx context.Context, lines ...string) error {
	return await(ctx, readyTimeout, func(ctx context.Context) error { return c.told(ctx, c.nodes(), lines...) })
}

func (c *Cluster) told(ctx context.Context, nodes []*Server, lines ...string) error {
	for _, s := range nodes {
		for _, line := range lines {
			if err := s.expect(ctx, line+"\r\n", true, "CLUSTER", "INFO"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) nodes() []*Server { return started(append(slices.Clone(c.Masters), c.Replica)) }

// started leaves out those that never came to be.
func started(servers []*Server) []*Server {
	return slices.DeleteFunc(servers, func(s *Server) bool { return s == nil })
}

// Addrs are the addresses of all nodes, each enough for a client to find the others.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.nodes() {
		addrs = append(addrs, net.JoinHostPort(loopback, strconv.Itoa(s.Port)))
	}
	return addrs
}

// URL is the address of the cluster as a setting.
func (c *Cluster) URL() string { return "redis-cluster://" + strings.Join(c.Addrs(), ",") }

// Kill is kill -9 of all nodes.
func (c *Cluster) Kill(ctx context.Context) error {
	var errs []error
	for _, s := range c.nodes() {
		errs = append(errs, s.Kill(ctx))
	}
	return errors.Join(errs...)
}

// expectOK sends a command that answers OK.
func (s *Server) expectOK(ctx context.Context, args ...string) error {
	answer, err := s.RedisCommand(ctx, args...)
	if err == nil && answer != "+OK" {
		err = fmt.Errorf("%s on %s answers %q", strings.Join(args, " "), s.Addr, answer)
	}
	return err
}

// expect sends a command whose text has a part, or has not.
func (s *Server) expect(ctx context.Context, part string, has bool, args ...string) error {
	text, err := s.redisText(ctx, args...)
	if err == nil && strings.Contains(text, part) != has {
		err = fmt.Errorf("%s on %s, with %q expected to be there %t:\n%s", strings.Join(args, " "), s.Addr, part, has, text)
	}
	return err
}

// await asks until there is no error, within a limit.
func await(ctx context.Context, limit time.Duration, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil || !pause.For(ctx, pollInterval) {
			return err
		}
	}
}
