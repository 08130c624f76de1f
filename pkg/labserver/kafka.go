package labserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

const (
	kafkaClusterID = "4L6g3nShT-eMCtK--X86sw" // any base64 UUID; fixed, so that a data folder can be used again
	kafkaReadyLine = "Kafka Server started"
)

func kafkaClass() class {
	return class{
		prepare: kafkaPrepare, commands: kafkaCommands, probe: kafkaProbe,
		url:   func(s *Server, _ string) string { return s.Addr },
		stop:  syscall.SIGTERM,
		ports: 2, // the controller's is the next one
	}
}

func kafkaPrepare(ctx context.Context, s *Server) error {
	conf := filepath.Join(s.Dir, "server.properties")
	controller := s.Port + 1
	lines := []string{
		"process.roles=broker,controller", "node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@%s:%d", loopback, controller),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s:%d", s.Addr, loopback, controller),
		"advertised.listeners=PLAINTEXT://" + s.Addr,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT",
		"log.dirs=" + s.data(), "num.partitions=3", "auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=5",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=5",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "num.network.threads=2", "num.io.threads=2",
	}
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.data(), "meta.properties")); err == nil {
		return nil
	}
	format, err := java(s, 128, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", conf)
	if err != nil {
		return err
	}
	return format.Run(ctx)
}

func kafkaCommands(s *Server) ([]child.Command, error) {
	// The log of an earlier start would say "started" too early.
	if err := removeIfThere(s.LogFile()); err != nil {
		return nil, err
	}
	c, err := java(s, 512, append([]string{"kafka.Kafka", filepath.Join(s.Dir, "server.properties")}, s.opts.Args...)...)
	return []child.Command{c}, err
}

func java(s *Server, heapMB int, args ...string) (child.Command, error) {
	program, err := installed.Program("java", "default-jre-headless")
	if err != nil {
		return child.Command{}, err
	}
	home, err := installed.Kafka()
	if err != nil {
		return child.Command{}, err
	}
	jvm := []string{
		fmt.Sprintf("-Xmx%dm", heapMB), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(home, "libs", "*") + ":" + s.Dir,
	}
	return child.Command{Path: program, Args: append(jvm, args...), Dir: s.Dir}, nil
}

// kafkaProbe wants the broker's own word in the log, then an answer to ApiVersions.
func kafkaProbe(ctx context.Context, s *Server) error {
	log, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err
	}
	if !bytes.Contains(log, []byte(kafkaReadyLine)) {
		return errors.New("its log does not say that it started")
	}
	// size, api key 18, version 0, correlation id 7, no client id
	request := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}
	answer := make([]byte, 8)
	if err := talk(ctx, s.Addr, request, answer); err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(answer[4:]); id != 7 {
		return fmt.Errorf("answers correlation id %d, want 7", id)
	}
	return nil
}
