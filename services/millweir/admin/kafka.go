package admin

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
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
	flags := flag.NewFlagSet("kafka init", flag.ContinueOnError)
	flags.SetOutput(std.Err)
	var p kafkaq.TopicParams
	envFile := flags.String("env-file", "", "read settings from FILE; the real environment wins")
	flags.IntVar(&p.Partitions, "partitions", defaultPartitions, "partitions of the topic of deliveries: the most consumers that share it")
	flags.IntVar(&p.Replication, "replication", 0, "copies of each partition; 0: the brokers' default")
	flags.DurationVar(&p.Retention, "retention", 0, "how long records are kept, as 168h; 0: the brokers' default; negative: for ever")
	if err := flags.Parse(args); err != nil {
		return cli.Usage(err.Error())
	}
	if flags.NArg() > 0 {
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
	return report(std, topics, err)
}

// report shows what there is now, also of what went well before an error.
func report(std cli.IO, topics []kafkaq.TopicReport, err error) error {
	if len(topics) > 0 {
		w := tabwriter.NewWriter(std.Out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "TOPIC\tSTATE\tPARTITIONS\tREPLICATION\tTIME")
		for _, t := range topics {
			topicLine(w, t)
		}
		if flushed := w.Flush(); err == nil {
			err = flushed
		}
	}
	for _, t := range topics {
		if !t.AppendTime {
			_, _ = fmt.Fprintf(std.Err, "topic %s has the producers' times: set message.timestamp.type=LogAppendTime, or lost deliveries are judged by clocks that nobody compares\n", t.Name)
		}
	}
	return err
}

// topicLine writes one topic.
func topicLine(w io.Writer, t kafkaq.TopicReport) {
	state, stamps := "existed", "CreateTime"
	if t.Made {
		state = "made"
	}
	if t.AppendTime {
		stamps = "LogAppendTime"
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Name, state, t.Partitions, t.Replication, stamps)
}
