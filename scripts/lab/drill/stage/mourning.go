package stage

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// orphan is a task whose holder was killed.
type orphan struct {
	Task  string
	Fence int64
	At    time.Time
}

// Mourning notes whom kills left behind.
type Mourning struct {
	Kills   int
	Orphans []orphan
}

// Kill ends a process that may hold tasks, and notes them.
func (m *Mourning) Kill(ctx context.Context, c *Cluster, victims ...*proc.Proc) error {
	held, err := tables.Running(ctx, c.DB.Reader())
	if err != nil {
		return err
	}
	for _, p := range victims {
		at := time.Now()
		p.Kill()
		c.Drop(p)
		m.Kills++
		for _, h := range held {
			if p.Owns(h.Owner) {
				m.Orphans = append(m.Orphans, orphan{Task: h.TaskID, Fence: h.Fence, At: at})
			}
		}
	}
	return nil
}

// TakenOver looks up how soon each orphan ran again; those that had ended before the kill count for nothing.
func (m *Mourning) TakenOver(ctx context.Context, c *Cluster) (n int, slowest time.Duration, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, 0, err
	}
	for _, o := range m.Orphans {
		for _, t := range logs[o.Task] {
			if t.Fence == o.Fence+1 && t.From == "RUNNING" && t.To == "RUNNING" {
				n++
				slowest = max(slowest, t.CreatedAt.Sub(o.At))
			}
		}
	}
	return n, slowest, nil
}

// Within words the takeovers, an error when they came too late or there was none.
func (m *Mourning) Within(ctx context.Context, c *Cluster, goal time.Duration) (string, error) {
	n, slowest, err := m.TakenOver(ctx, c)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", fmt.Errorf("%d kills met no task at work", m.Kills)
	case slowest > goal:
		return "", fmt.Errorf("a killed holder's task ran again after %.1f s, the goal is %.1f s (lease + 2 s)", slowest.Seconds(), goal.Seconds())
	}
	return fmt.Sprintf("%d kills, %d tasks of the killed ran again within %.1f s (goal %.1f s)", m.Kills, n, slowest.Seconds(), goal.Seconds()), nil
}
