package world

import (
	"context"
	"strings"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/proxy"
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
