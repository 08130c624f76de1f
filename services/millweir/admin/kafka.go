package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/kafka"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/services/millweir/cli"
)

const (
	kafkaInitTimeout  = time.Minute
	defaultPartitions = 12
	maxPartitions     = 10_000
)

// kafkaInit makes the topics that the settings name, where they are missing. Nothing else makes any.
func kafkaInit(a *cli.App) *cobra.Command {
	var p kafkaq.TopicParams
	use := "init [--partitions 12] [--replication N] [--retention 168h] [--env-file FILE]"
	c := envVerb(use, "make the topics of deliveries and dead letters", cli.Needs(), func(ctx context.Context, _ []string) error {
		if p.Partitions < 1 || p.Partitions > maxPartitions || p.Replication < 0 || p.Replication > maxPartitions {
			return cli.Usage(fmt.Sprintf("--partitions is 1 to %d, --replication 0 to %d", maxPartitions, maxPartitions))
		}
		settings, err := process.Load[queue.KafkaSettings]()
		if err != nil {
			return cli.BadInput(err)
		}
		ctx, cancel := context.WithTimeout(ctx, kafkaInitTimeout)
		defer cancel()
		topics, err := kafkaq.Init(ctx, kafka.Config(settings), p)
		return report(a, topics, err)
	})
	f := c.Flags()
	f.IntVar(&p.Partitions, "partitions", defaultPartitions, "partitions of the topic of deliveries: the most consumers that share it")
	f.IntVar(&p.Replication, "replication", 0, "copies of each partition; 0: the brokers' default")
	f.DurationVar(&p.Retention, "retention", 0, "how long records are kept, as 168h; 0: the brokers' default; negative: for ever")
	return c
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
func report(a *cli.App, topics []kafkaq.TopicReport, err error) error {
	all := make([]shownTopic, len(topics))
	for i, t := range topics {
		all[i] = shownTopic(t)
		if !t.AppendTime {
			_, _ = fmt.Fprintf(a.Err, "topic %s has the producers' times: set message.timestamp.type=LogAppendTime, or lost deliveries are judged by clocks that nobody compares\n", t.Name)
		}
	}
	if len(all) == 0 && err != nil {
		return err
	}
	return errors.Join(err, cli.Table(a, all, "TOPIC\tSTATE\tPARTITIONS\tREPLICATION\tTIME", func(t shownTopic) []any {
		state, stamps := "existed", "CreateTime"
		if t.Made {
			state = "made"
		}
		if t.AppendTime {
			stamps = "LogAppendTime"
		}
		return []any{t.Name, state, t.Partitions, t.Replication, stamps}
	}))
}
