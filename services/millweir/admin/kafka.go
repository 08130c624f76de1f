package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
	"github.com/millweir/millweir/services/millweir/cli"
)

const (
	kafkaInitTimeout  = time.Minute
	defaultPartitions = 12
	maxPartitions     = 10_000
)

// kafkaInit makes the topics that the settings name, where they are missing. Nothing else makes any.
func kafkaInit(ctx context.Context, std cli.IO, args []string) error {
	flags := cli.NewFlags(std, "kafka init")
	var p kafkaq.TopicParams
	envFile := flags.String("env-file", "", "read settings from FILE; the real environment wins")
	flags.IntVar(&p.Partitions, "partitions", defaultPartitions, "partitions of the topic of deliveries: the most consumers that share it")
	flags.IntVar(&p.Replication, "replication", 0, "copies of each partition; 0: the brokers' default")
	flags.DurationVar(&p.Retention, "retention", 0, "how long records are kept, as 168h; 0: the brokers' default; negative: for ever")
	rest, err := flags.ParseAll(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return cli.Usage("kafka init takes no arguments")
	}
	if p.Partitions < 1 || p.Partitions > maxPartitions || p.Replication < 0 || p.Replication > maxPartitions {
		return cli.Usage(fmt.Sprintf("--partitions is 1 to %d, --replication 0 to %d", maxPartitions, maxPartitions))
	}
	if *envFile != "" {
		if err := process.LoadEnvFile(*envFile); err != nil {
			return cli.BadInput(err)
		}
	}
	settings, err := process.Load[suite.Kafka]()
	if err != nil {
		return cli.BadInput(err)
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaInitTimeout)
	defer cancel()
	topics, err := kafkaq.Init(ctx, settings.Config(), p)
	return report(flags, std, topics, err)
}

// shownTopic is a topic as it is shown.
type shownTopic struct {
	Name        string `json:"name"`
	Made        bool   `json:"made"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replication"`
	AppendTime  bool   `json:"appendTime"`
}

// report shows what there is now, also of what went well before an error.
func report(flags cli.Flags, std cli.IO, topics []kafkaq.TopicReport, err error) error {
	all := make([]shownTopic, len(topics))
	for i, t := range topics {
		all[i] = shownTopic{t.Name, t.Made, t.Partitions, t.Replication, t.AppendTime}
		if !t.AppendTime {
			_, _ = fmt.Fprintf(std.Err, "topic %s has the producers' times: set message.timestamp.type=LogAppendTime, or lost deliveries are judged by clocks that nobody compares\n", t.Name)
		}
	}
	if len(all) == 0 && err != nil {
		return err
	}
	return errors.Join(err, cli.Emit(flags, all, "TOPIC\tSTATE\tPARTITIONS\tREPLICATION\tTIME", func(t shownTopic) string {
		state, stamps := "existed", "CreateTime"
		if t.Made {
			state = "made"
		}
		if t.AppendTime {
			stamps = "LogAppendTime"
		}
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%s", t.Name, state, t.Partitions, t.Replication, stamps)
	}))
}
