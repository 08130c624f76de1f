package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	firstHeld   = 1_000_000        // number of the first document that is held
	listedLimit = 60 * time.Second // for the row of a task without a copy
	lateAfter   = 5 * time.Second  // the kills
	runLimit    = 30 * time.Second // for one task to run
	heads       = 50               // suspended tasks at the queue's head
	maxLength   = 1040             // of a queue that is to be full: the mirror stops 1,000 below
	most        = 40               // copies of it
)

// hold uploads and suspends n documents: their tasks stay unfinished. first is the number of the first.
func hold(ctx context.Context, c *stage.Cluster, first, n int) (held []string, err error) {
	for i := range n {
		task, err := c.Client.Upload(ctx, apiclient.Text(first+i, stage.DocBytes))
		if err == nil {
			err = c.Client.Suspend(ctx, task.TaskID)
		}
		if err != nil {
			return held, err
		}
		held = append(held, task.TaskID)
	}
	return held, nil
}

// resume lets held tasks run.
func resume(ctx context.Context, c *stage.Cluster, held []string) error {
	for _, id := range held {
		if err := c.Client.Resume(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// runs uploads a document, whose task must succeed now.
func runs(ctx context.Context, c *stage.Cluster, number int) error {
	task, err := c.Client.Upload(ctx, apiclient.Text(number, stage.DocBytes))
	if err == nil {
		_, err = c.Client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, runLimit, every)
	}
	return err
}

// listed are the tasks with a row of mirror_failure. The gateway lists those of them that are not suspended, as these are.
func listed(ctx context.Context, c *stage.Cluster) (map[string]bool, error) {
	ids, err := tables.Texts(ctx, c.DB.Reader(), "SELECT task_id FROM mirror_failure")
	out := map[string]bool{}
	for _, id := range ids {
		out[id] = true
	}
	return out, err
}

// cleared waits until no task is listed any more.
func cleared(ctx context.Context, c *stage.Cluster) error {
	return await.Until(ctx, copiedLimit, every, func(ctx context.Context) error {
		tasks, err := listed(ctx, c)
		if err == nil && len(tasks) > 0 {
			err = fmt.Errorf("%d tasks are still listed as ones without a copy", len(tasks))
		}
		return err
	})
}

// tries is the greatest number of tries that a listed task had.
func tries(ctx context.Context, c *stage.Cluster) (n int, err error) {
	err = c.DB.Reader().QueryRowContext(ctx, "SELECT COALESCE(MAX(tries), 0) FROM mirror_failure").Scan(&n)
	return n, err
}

// Confirm pauses RabbitMQ, so that it confirms nothing: tasks run on, those that have no copy after three tries are listed, and a confirm
// takes them off the list.
func Confirm(ctx context.Context, s *stage.Stage) (string, error) {
	var saw string
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			await.Pause(ctx, s.Load/4)
			if err := c.Rabbit.Pause(); err != nil {
				return err
			}
			began := time.Now()
			kept, err := hold(ctx, c, firstHeld, held)
			if err != nil {
				return err
			}
			if err := runs(ctx, c, firstHeld+held); err != nil {
				return fmt.Errorf("while RabbitMQ is paused: %w", err)
			}
			err = await.Until(ctx, listedLimit, every, func(ctx context.Context) error {
				tasks, err := listed(ctx, c)
				for _, id := range kept {
					if err == nil && !tasks[id] {
						err = fmt.Errorf("task %s is not listed; %d are", id, len(tasks))
					}
				}
				return err
			})
			took := time.Since(began)
			n, triesErr := tries(ctx, c)
			if n > 3 {
				triesErr = fmt.Errorf("%d tries, 3 are allowed", n)
			}
			if err := errors.Join(err, triesErr, c.Rabbit.Continue()); err != nil {
				return err
			}
			back, err := copied(ctx, c, kept)
			if err == nil {
				err = cleared(ctx, c)
			}
			saw = fmt.Sprintf("listed after %.1f s and %d tries, copied %.1f s after the pause", took.Seconds(), n, back.Seconds())
			await.Pause(ctx, s.Load/4)
			return errors.Join(err, resume(ctx, c, kept))
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return saw, errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// Heads holds 50 tasks at the head of the queue: what ends behind them loses its copy all the same.
func Heads(ctx context.Context, s *stage.Stage) (string, error) {
	var passed, worst time.Duration
	var rounds int
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			front, err := hold(ctx, c, firstHeld, heads)
			if err != nil {
				return err
			}
			if passed, err = copied(ctx, c, front); err != nil {
				return err
			}
			rounds, err = s.Rounds(ctx, func(round int) error {
				behind, err := hold(ctx, c, firstHeld+heads+round*held, held)
				if err == nil {
					_, err = copied(ctx, c, behind)
				}
				if err == nil {
					err = resume(ctx, c, behind)
				}
				if err != nil {
					return err
				}
				for _, id := range behind {
					if _, err := c.Client.Await(ctx, id, taskstate.StatusSucceeded, runLimit, every); err != nil {
						return err
					}
				}
				ended := time.Now()
				err = await.Until(ctx, goneLimit, every, func(ctx context.Context) error {
					met, err := c.Copies(ctx)
					for _, id := range behind {
						if _, there := met[id]; there && err == nil {
							err = fmt.Errorf("task %s has ended behind %d suspended ones and has a copy", id, heads)
						}
					}
					return err
				})
				worst = max(worst, time.Since(ended))
				return err
			})
			if err == nil {
				_, err = copied(ctx, c, front)
			}
			return errors.Join(err, resume(ctx, c, front))
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return fmt.Sprintf("%d suspended tasks copied after %.1f s; %d times %d tasks ended behind them, their copies gone after at most %.1f s",
				heads, passed.Seconds(), rounds, held, worst.Seconds()), errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// figure is what the mirror that acts tells of itself; -1: none tells it now.
func figure(ctx context.Context, c *stage.Cluster, name string) (int, error) {
	for _, p := range c.Of("stream-mirror") {
		_, body, err := apiclient.NewClient(p.Operator).Get(ctx, "/metrics")
		if err != nil {
			return -1, err
		}
		for line := range strings.Lines(string(body)) {
			if value, found := strings.CutPrefix(line, name+" "); found {
				n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				return int(n), err
			}
		}
	}
	return -1, nil
}

// Full fills the queue up to its bound: tasks run on without copies, and get theirs when there is room. Nobody looks at the queue
// meanwhile: for a mirror what others hold is not there.
func Full(ctx context.Context, s *stage.Stage) (string, error) {
	peak, missing := 0, 0
	return stage.Storm{
		Opts: world.Options{Env: []string{fmt.Sprintf("RABBITMQ_QUEUE_MAX_LENGTH=%d", maxLength)}},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			kept, err := hold(ctx, c, firstHeld, 2*most)
			if err != nil {
				return err
			}
			_, err = s.Rounds(ctx, func(int) error {
				copies, err := figure(ctx, c, "mirror_copies")
				lack, lackErr := figure(ctx, c, "mirror_missing")
				peak, missing = max(peak, copies), max(missing, lack)
				await.Pause(ctx, every)
				return errors.Join(err, lackErr)
			})
			if err == nil && (peak != most || missing < most) {
				err = fmt.Errorf("%d copies at most, %d fit; %d tasks without one", peak, most, missing)
			}
			if err == nil {
				err = runs(ctx, c, firstHeld+2*most)
			}
			if err == nil {
				err = resume(ctx, c, kept[:most+most/2])
			}
			if err == nil {
				_, err = copied(ctx, c, kept[most+most/2:])
			}
			return errors.Join(err, resume(ctx, c, kept[most+most/2:]))
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return fmt.Sprintf("%d copies at most, all that fit; up to %d tasks without one", peak, missing), errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// Node kills one node of three after the other, the queue's leader first.
func Node(ctx context.Context, s *stage.Stage) (string, error) {
	var saw []string
	return stage.Storm{
		Opts: world.Options{RabbitNodes: true},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			kept, err := hold(ctx, c, firstHeld, held)
			if err == nil {
				_, err = copied(ctx, c, kept)
			}
			if err != nil {
				return err
			}
			for i, node := range c.RabbitNodes.Nodes {
				if err := node.Kill(ctx); err != nil {
					return err
				}
				more, err := hold(ctx, c, firstHeld+(i+1)*held, held)
				if err != nil {
					return err
				}
				kept = append(kept, more...)
				took, err := copied(ctx, c, kept)
				if err != nil {
					return fmt.Errorf("node %d killed: %w", i+1, err)
				}
				saw = append(saw, fmt.Sprintf("%.1f s", took.Seconds()))
				if err := errors.Join(node.Restart(ctx), c.AllRun()); err != nil {
					return err
				}
			}
			return resume(ctx, c, kept)
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return fmt.Sprintf("with node 1, 2, 3 killed all were copied after %v", saw), errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// Quorum kills two nodes of three: nothing is confirmed, tasks run on, and when the nodes are back everything is copied.
func Quorum(ctx context.Context, s *stage.Stage) (string, error) {
	var saw string
	return stage.Storm{
		Opts: world.Options{RabbitNodes: true},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			kept, err := hold(ctx, c, firstHeld, held)
			if err == nil {
				_, err = copied(ctx, c, kept)
			}
			if err != nil {
				return err
			}
			nodes := c.RabbitNodes.Nodes
			if err := errors.Join(nodes[0].Kill(ctx), nodes[1].Kill(ctx)); err != nil {
				return err
			}
			began := time.Now()
			late := map[string]bool{} // tasks that no connection from before the kills was asked for
			err = await.Until(ctx, listedLimit, time.Second, func(ctx context.Context) error {
				more, err := hold(ctx, c, firstHeld+len(kept), 1)
				kept = append(kept, more...)
				for _, id := range more {
					late[id] = time.Since(began) > lateAfter
				}
				tasks, listErr := listed(ctx, c)
				if err = errors.Join(err, listErr); err != nil {
					return err
				}
				for id := range tasks {
					if late[id] {
						return nil
					}
				}
				return fmt.Errorf("%d tasks are listed as ones without a copy, none of them was made %s after the kills", len(tasks), lateAfter)
			})
			if err != nil {
				return err
			}
			took := time.Since(began)
			if err := runs(ctx, c, firstHeld+len(kept)); err != nil {
				return fmt.Errorf("without a quorum: %w", err)
			}
			if err := errors.Join(nodes[0].Restart(ctx), nodes[1].Restart(ctx), c.AllRun()); err != nil {
				return err
			}
			back, err := copied(ctx, c, kept)
			if err == nil {
				err = cleared(ctx, c)
			}
			saw = fmt.Sprintf("listed %.1f s after the kills; %d tasks copied %.1f s after the nodes' return", took.Seconds(), len(kept), back.Seconds())
			return errors.Join(err, resume(ctx, c, kept))
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return saw, errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}
