package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// TopicParams say how the two topics are made.
type TopicParams struct {
	Partitions  int           // of the topic of deliveries; the one of dead letters has one
	Replication int           // copies; 0: the brokers' default
	Retention   time.Duration // 0: the brokers' default; negative: for ever
}

// TopicReport is what there is now.
type TopicReport struct {
	Name        string
	Made        bool // by this call
	Partitions  int
	Replication int
	AppendTime  bool // records carry the broker's time, as design D5 needs it
}

// settings of a topic that this project cares about.
const (
	settingTime      = "message.timestamp.type"
	settingRetention = "retention.ms"
	settingReplicas  = "min.insync.replicas"
	appendTime       = "LogAppendTime"
)

// Init makes the topics of deliveries and dead letters where they are missing, and reports both. What exists is left as it is.
func Init(ctx context.Context, cfg Config, p TopicParams) ([]TopicReport, error) {
	client, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	reports, err := ask(ctx, client, func(lib sarama.Client) ([]TopicReport, error) { return initTopics(lib, cfg, p) })
	return reports, errors.Join(failure(ctx, "make topics", err), client.Close())
}

func initTopics(lib sarama.Client, cfg Config, p TopicParams) ([]TopicReport, error) {
	// The metadata names the controller, whether it knows the topic or not.
	if err := lib.RefreshMetadata(cfg.Topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(lib)
	if err != nil {
		return nil, err
	}
	var out []TopicReport
	for _, t := range []struct {
		name       string
		partitions int
	}{{cfg.Topic, p.Partitions}, {cfg.DLQTopic(), 1}} {
		made, err := makeTopic(admin, t.name, t.partitions, p)
		if err != nil {
			return out, fmt.Errorf("topic %s: %w", t.name, err)
		}
		report, err := describeTopic(lib, admin, t.name)
		if err != nil {
			return out, fmt.Errorf("topic %s: %w", t.name, err)
		}
		report.Made = made
		out = append(out, report)
	}
	return out, nil
}

// makeTopic returns false for a topic that exists.
func makeTopic(admin sarama.ClusterAdmin, name string, partitions int, p TopicParams) (made bool, err error) {
	entries := map[string]*string{settingTime: new(appendTime)}
	if p.Retention != 0 {
		entries[settingRetention] = new(strconv.FormatInt(max(-1, p.Retention.Milliseconds()), 10))
	}
	replication := int16(-1)
	if p.Replication > 0 {
		replication = int16(p.Replication)
	}
	if p.Replication > 2 { // acks=all means nothing while one copy is enough
		entries[settingReplicas] = new("2")
	}
	err = admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: replication, ConfigEntries: entries}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return false, nil
	}
	return err == nil, err
}

// describeTopic reads what the brokers have.
func describeTopic(lib sarama.Client, admin sarama.ClusterAdmin, name string) (TopicReport, error) {
	out := TopicReport{Name: name}
	if err := awaitTopic(lib, name); err != nil {
		return out, err
	}
	topics, err := admin.DescribeTopics([]string{name})
	if err != nil {
		return out, err
	}
	for _, t := range topics {
		out.Partitions = len(t.Partitions)
		for _, p := range t.Partitions {
			out.Replication = len(p.Replicas)
		}
	}
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: name, ConfigNames: []string{settingTime}}},
		sarama.DescribeConfigsOptions{})
	if err != nil {
		return out, err
	}
	for _, a := range answers {
		if a.ErrorCode != sarama.ErrNoError {
			return out, a.ErrorCode
		}
		for _, s := range a.Configs {
			out.AppendTime = out.AppendTime || s.Name == settingTime && s.Value == appendTime
		}
	}
	return out, nil
}

// awaitTopic waits until the brokers' metadata has a new topic, with a leader for each partition.
func awaitTopic(lib sarama.Client, name string) (err error) {
	const tries, pause = 50, 100 * time.Millisecond
	for range tries {
		if err = lib.RefreshMetadata(name); err == nil {
			return nil
		}
		<-time.After(pause)
	}
	return err
}
