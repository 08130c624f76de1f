package world

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/proxy"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// startRabbitNodes starts a cluster and what stands in front of it.
func (w *World) startRabbitNodes(ctx context.Context) (err error) {
	if w.RabbitNodes, err = labserver.StartRabbitCluster(ctx, ""); err != nil {
		return err
	}
	var addrs []string
	for _, n := range w.RabbitNodes.Nodes {
		addrs = append(addrs, n.Addr)
	}
	w.rabbits, err = proxy.NewBalancer(addrs...)
	return err
}

// rabbitURL is that of the broker, or of the balancer.
func (w *World) rabbitURL() string {
	if w.rabbits != nil {
		return strings.Replace(w.RabbitNodes.Nodes[0].URL(""), w.RabbitNodes.Nodes[0].Addr, w.rabbits.Addr, 1)
	}
	return w.Rabbit.URL("")
}

// Copies looks at the queue of copies and returns their tasks, each with the status of its row; StatusNone: there is none.
func (w *World) Copies(ctx context.Context) (map[string]taskstate.Status, error) {
	look, err := w.copies()
	if err != nil {
		return nil, err
	}
	met := map[string]taskstate.Status{}
	return met, look(ctx, func(task string, row taskstate.Status) { met[task] = row })
}

// auditStream is the audit stream of processes with AuditEnv.
const auditStream = "rise.tasks.audit"

// AuditEnv lets a mirror append to the audit stream.
func AuditEnv() []string { return []string{"RABBITMQ_AUDIT_STREAM=" + auditStream} }

// Unaudited returns an error that names a change of a task which the audit stream does not have, or has before an earlier one of that task.
func (w *World) Unaudited(ctx context.Context) error {
	met, err := w.audited(ctx)
	if err != nil {
		return err
	}
	logs, err := tables.Logs(ctx, w.DB.Reader())
	if err != nil {
		return err
	}
	for task, log := range logs {
		last := 0
		for _, t := range log {
			switch at := met[fmt.Sprintf("%d.%s", t.ID, task)]; {
			case at == 0:
				return fmt.Errorf("change %d of task %s is not in the audit stream, which has %d", t.ID, task, len(met))
			case at < last:
				return fmt.Errorf("change %d of task %s is in the audit stream before an earlier one", t.ID, task)
			default:
				last = at
			}
		}
	}
	return nil
}

// audited reads the audit stream to its end and returns where it has each change first, by the number of its call and its task.
func (w *World) audited(ctx context.Context) (met map[string]int, err error) {
	conn, err := amqp.Dial(w.rabbitURL())
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	end := uuid.NewString()
	if err := ch.PublishWithContext(ctx, "", auditStream, false, false, amqp.Publishing{MessageId: end}); err != nil {
		return nil, err
	}
	if err := ch.Qos(1000, 0, false); err != nil {
		return nil, err
	}
	in, err := ch.ConsumeWithContext(ctx, auditStream, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		return nil, err
	}
	met = map[string]int{}
	for at := 1; ; at++ {
		d, open := <-in
		switch {
		case !open || d.Ack(false) != nil:
			return nil, errors.Join(ctx.Err(), errors.New("the audit stream ended"))
		case d.MessageId == end:
			return met, nil
		case met[d.MessageId] == 0:
			met[d.MessageId] = at
		}
	}
}
