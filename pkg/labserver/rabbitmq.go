package labserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// The ports of a node beside its AMQP port, as distances from it.
const (
	rabbitDist       = 1
	rabbitPrometheus = 2
	rabbitEpmd       = 3
	rabbitPorts      = 4
)

func rabbitClass() class {
	return class{
		prepare: rabbitPrepare, commands: rabbitCommands, probe: rabbitProbe,
		url: func(s *Server, vhost string) string {
			return fmt.Sprintf("amqp://guest:guest@%s/%s", s.Addr, vhost)
		},
		stop:  syscall.SIGTERM,
		ports: rabbitPorts,
	}
}

// rabbitPeers is what the nodes of a cluster share.
type rabbitPeers struct {
	nodes  []string // their names
	cookie string
	epmd   int // port of the one epmd that knows all of them
}

// rabbitNode names the node with a port.
func rabbitNode(port int) string { return "r" + strconv.Itoa(port) + "@localhost" }

func rabbitPrepare(_ context.Context, s *Server) error {
	peers := s.opts.rabbit
	if peers == nil {
		peers = &rabbitPeers{cookie: rand.Text()}
	}
	home := filepath.Join(s.Dir, "home")
	if err := errors.Join(os.MkdirAll(home, 0o755), os.MkdirAll(filepath.Join(s.Dir, "log"), 0o755)); err != nil {
		return err
	}
	cookie := filepath.Join(home, ".erlang.cookie")
	if _, err := os.Stat(cookie); err != nil {
		if err := os.WriteFile(cookie, []byte(peers.cookie), 0o400); err != nil {
			return err
		}
	}
	conf := []string{
		fmt.Sprintf("listeners.tcp.1 = %s", s.Addr),
		"prometheus.tcp.ip = " + loopback, fmt.Sprintf("prometheus.tcp.port = %d", s.Port+rabbitPrometheus),
		"vm_memory_high_watermark.absolute = 512MB", "disk_free_limit.absolute = 100MB",
	}
	for i, node := range peers.nodes {
		conf = append(conf, fmt.Sprintf("cluster_formation.classic_config.nodes.%d = %s", i+1, node))
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(s.Dir, "enabled_plugins"), []byte("[rabbitmq_prometheus].\n"), 0o644),
		os.WriteFile(filepath.Join(s.Dir, "rabbitmq.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o644),
	)
	return errors.Join(err, child.GiveTo(s.Dir, "rabbitmq"))
}

// rabbitEpmdCommand starts the registry of Erlang nodes as a process of its own: one that a node starts would outlive it.
func rabbitEpmdCommand(port int, dir string) (child.Command, error) {
	path, err := installed.Program("epmd", "erlang-base")
	return child.Command{Path: path, Args: []string{"-address", loopback, "-port", strconv.Itoa(port)}, User: "rabbitmq", Dir: dir}, err
}

// rabbitCommands start epmd first, unless the node's cluster has one.
func rabbitCommands(s *Server) ([]child.Command, error) {
	port := s.Port + rabbitEpmd
	if s.opts.rabbit != nil {
		port = s.opts.rabbit.epmd
	}
	epmd, err := rabbitEpmdCommand(port, s.Dir)
	if err != nil {
		return nil, err
	}
	// Not the wrapper in /usr/sbin: it changes user by runuser, which would end the tie to this process.
	server := "/usr/lib/rabbitmq/bin/rabbitmq-server"
	if _, err := os.Stat(server); err != nil {
		return nil, fmt.Errorf("%w: %s (run `make services-up`, or apt-get install rabbitmq-server)", installed.ErrMissing, server)
	}
	in := func(name string) string { return filepath.Join(s.Dir, name) }
	env := []string{
		"HOME=" + in("home"), "RABBITMQ_NODENAME=" + rabbitNode(s.Port),
		"RABBITMQ_NODE_IP_ADDRESS=" + loopback, "RABBITMQ_NODE_PORT=" + strconv.Itoa(s.Port),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(s.Port+rabbitDist),
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"), "RABBITMQ_LOG_BASE=" + in("log"), "RABBITMQ_PID_FILE=" + in("node.pid"),
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_CONF_ENV_FILE=" + in("none"), "RABBITMQ_ADVANCED_CONFIG_FILE=" + in("advanced"),
		"RUNNING_UNDER_SYSTEMD=true", // the script then becomes the node instead of starting it, and dies with us
		"ERL_EPMD_ADDRESS=" + loopback, "ERL_EPMD_PORT=" + strconv.Itoa(port),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
	}
	node := child.Command{Path: server, Env: env, User: "rabbitmq", Dir: s.Dir}
	if s.opts.rabbit != nil {
		return []child.Command{node}, nil
	}
	return []child.Command{epmd, node}, nil
}

// rabbitProbe sends the AMQP 0-9-1 header; a broker that serves answers with a method frame (type 1).
func rabbitProbe(ctx context.Context, s *Server) error {
	answer := make([]byte, 1)
	if err := talk(ctx, s.Addr, []byte("AMQP\x00\x00\x09\x01"), answer); err != nil {
		return err
	}
	if answer[0] != 1 {
		return fmt.Errorf("answers %d to the AMQP header, want 1", answer[0])
	}
	return nil
}

// RabbitMetricsURL is where a node's exporter for Prometheus listens.
func (s *Server) RabbitMetricsURL() string {
	return "http://" + net.JoinHostPort(loopback, strconv.Itoa(s.Port+rabbitPrometheus))
}

// RabbitControl runs rabbitmqctl with arguments against the node. It costs one or two seconds of CPU.
func (s *Server) RabbitControl(ctx context.Context, args ...string) error {
	commands, err := rabbitCommands(s)
	if err != nil {
		return err
	}
	c := child.Command{Path: "/usr/lib/rabbitmq/bin/rabbitmqctl", Args: args, Env: commands[len(commands)-1].Env, Dir: s.Dir, User: "rabbitmq"}
	return c.Run(ctx)
}
