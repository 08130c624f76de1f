// Package mirror has the scenes of the copies in RabbitMQ.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telegramtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	goneLimit    = 10 * time.Second // for the copies of ended tasks
	copiedLimit  = 60 * time.Second // for the copies of unfinished tasks, a start of RabbitMQ included
	restoreLimit = 60 * time.Second
	rabbitAway   = 5 * time.Second
	redisAway    = 30 * time.Second
	held         = 5  // tasks that are suspended, so that some stay unfinished
	unfinished   = 60 // tasks of the lost database
	every        = 100 * time.Millisecond
)

// copied waits until each of tasks has a copy.
func copied(ctx context.Context, c *stage.Cluster, tasks []string) (time.Duration, error) {
	began := time.Now()
	err := await.Until(ctx, copiedLimit, every, func(ctx context.Context) error {
		met, err := c.Copies(ctx)
		for _, id := range tasks {
			if _, there := met[id]; !there && err == nil {
				err = fmt.Errorf("task %s has no copy; %d have", id, len(met))
			}
		}
		return err
	})
	return time.Since(began), err
}

// gone waits until no copy is left.
func gone(ctx context.Context, c *stage.Cluster) (time.Duration, error) {
	began := time.Now()
	err := await.Until(ctx, goneLimit, every, func(ctx context.Context) error {
		met, err := c.Copies(ctx)
		if err == nil && len(met) > 0 {
			err = fmt.Errorf("%d copies are left although every task has ended: %v", len(met), met)
		}
		return err
	})
	return time.Since(began), err
}

// Calm breaks nothing: documents come by HTTP, and texts by Telegram at the same time. The copies of all are gone soon after the last end,
// and each text has one answer that says its end.
func Calm(ctx context.Context, s *stage.Stage) (string, error) {
	most, texts := 0, 0
	bot := telegramtest.NewServer()
	defer bot.Close()
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			_, err := c.Add("telegram-gateway", "TELEGRAM_BOT_TOKEN="+telegramtest.Token, "TELEGRAM_API_URL="+bot.URL,
				fmt.Sprintf("TELEGRAM_CHATS=%d=%s", chat, world.Everybody))
			if err != nil {
				return err
			}
			_, err = s.Rounds(ctx, func(round int) error {
				texts++
				bot.Message(chat, texts, fmt.Sprintf("Text %d of a chat.", texts), nil)
				met, err := c.Copies(ctx)
				most = max(most, len(met))
				return err
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			answered := await.Until(ctx, copiedLimit, every, func(context.Context) error { return allTold(bot, texts) })
			took, err := gone(ctx, c)
			if err == nil && most == 0 {
				err = errors.New("no task was ever seen to have a copy")
			}
			return fmt.Sprintf("up to %d copies at once, none left after %.1f s; %d texts answered", most, took.Seconds(), texts),
				errors.Join(answered, err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// chat is who talks to the bot.
const chat = 7

// allTold says which text of the chat has no answer, more than one, or one that does not say the end.
func allTold(bot *telegramtest.Server, texts int) error {
	for id := 1; id <= texts; id++ {
		all := bot.Replies(chat, int64(id))
		if len(all) != 1 || !strings.Contains(all[0].Last(), "Done") {
			return fmt.Errorf("text %d has the answers %v", id, all)
		}
	}
	return nil
}

// RabbitLost takes the copies away in every way: those of unfinished tasks are made again, and the tasks run on.
func RabbitLost(ctx context.Context, s *stage.Stage) (string, error) {
	var saw []string
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			kept, err := hold(ctx, c, firstHeld, held)
			if err != nil {
				return err
			}
			losses := []struct {
				name string
				do   func() error
			}{
				{"nothing lost", func() error { return nil }},
				{"purged", func() error { return c.Rabbit.RabbitControl(ctx, "purge_queue", "rise.tasks.quorum") }},
				{"stopped", func() error { return restart(ctx, c, false) }},
				{"wiped", func() error { return restart(ctx, c, true) }},
			}
			for _, l := range losses {
				if err := errors.Join(l.do(), c.AllRun()); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				took, err := copied(ctx, c, kept)
				if err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				saw = append(saw, fmt.Sprintf("%s, copied after %.1f s", l.name, took.Seconds()))
				await.Pause(ctx, s.Load/time.Duration(2*len(losses)))
			}
			return resume(ctx, c, kept)
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			return fmt.Sprint(saw), errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// restart stops RabbitMQ and starts it after a while, with its data or without.
func restart(ctx context.Context, c *stage.Cluster, empty bool) error {
	if err := c.Rabbit.Stop(ctx); err != nil {
		return err
	}
	await.Pause(ctx, rabbitAway)
	if empty {
		if err := os.RemoveAll(filepath.Join(c.Rabbit.Dir, "mnesia")); err != nil {
			return err
		}
	}
	return c.Rabbit.Restart(ctx)
}

// RedisAway takes Redis away for half a minute: what is uploaded then succeeds before its return, out of its copy.
func RedisAway(ctx context.Context, s *stage.Stage) (string, error) {
	var ran int
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			p, err := c.Rehydrate([]string{"--mode", "auto"})
			if err != nil {
				return err
			}
			c.Adopt(p)
			if err := p.AwaitReady(ctx, stage.LiveLimit); err != nil {
				return err
			}
			await.Pause(ctx, max(5*time.Second, (s.Load-redisAway)/2))
			if err := c.Redis.Kill(ctx); err != nil {
				return err
			}
			end := time.Now().Add(redisAway)
			for n := 0; time.Now().Before(end); n++ {
				task, err := c.Client.Upload(ctx, apiclient.Text(firstHeld+n, stage.DocBytes))
				if err != nil {
					return err
				}
				if _, err := c.Client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, redisAway, every); err != nil {
					return fmt.Errorf("uploaded while Redis was away: %w", err)
				}
				ran++
			}
			if err := errors.Join(c.Redis.Restart(ctx), c.AllRun()); err != nil {
				return err
			}
			await.Pause(ctx, max(5*time.Second, (s.Load-redisAway)/2))
			return nil
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			_, err := gone(ctx, c)
			if err == nil && ran < 3 {
				err = fmt.Errorf("only %d of one client's tasks ran one after the other while Redis was away", ran)
			}
			return fmt.Sprintf("%d tasks of one client ran one after the other while Redis was away", ran), errors.Join(err, stage.Undisturbed(load))
		},
	}.Run(ctx, s)
}

// ended starts services, judges what became of the load, and waits until no copy is left.
func ended(ctx context.Context, c *stage.Cluster, load *apiclient.Record, services ...string) error {
	for _, name := range services {
		if _, err := c.Add(name); err != nil {
			return err
		}
	}
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return err
	}
	if err := c.Verify(ctx, load, nil); err != nil {
		return err
	}
	_, err := gone(ctx, c)
	return err
}

// DatabaseLost drops the database while no task has run yet: each is back with its id out of its copy, and becomes visible once.
func DatabaseLost(ctx context.Context, s *stage.Stage) (saw string, err error) {
	api := world.FreeAddr()
	c, err := s.NewCluster(ctx, world.Options{Env: []string{"HTTP_ADDR=" + api}}, "ingest-api", "stream-mirror")
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = c.Blame(err) }()
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	load := apiclient.Load{Target: c.Client, Clients: 4, Count: unfinished, Bytes: stage.DocBytes}.Run(ctx)
	if len(load.Accepted) != unfinished {
		return "", fmt.Errorf("%d of %d uploads were accepted", len(load.Accepted), unfinished)
	}
	var tasks []string
	for id := range load.Accepted {
		tasks = append(tasks, id)
	}
	lag, err := copied(ctx, c, tasks)
	if err == nil {
		err = c.Look(ctx) // in the end no copy may be left to judge
	}
	if err != nil {
		return "", err
	}
	for _, p := range append(c.Of("ingest-api"), c.Of("stream-mirror")...) {
		p.Kill()
		c.Drop(p)
	}
	if err := c.LoseDatabase(ctx); err != nil {
		return "", err
	}
	began := time.Now()
	if err := rehydrated(ctx, c, "--restore"); err != nil {
		return "", err
	}
	took := time.Since(began)
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	if err != nil || counts[taskstate.StatusQueued] != unfinished {
		return "", fmt.Errorf("after the restore the tasks are %v (%w), all must be QUEUED", counts, err)
	}
	if err := ended(ctx, c, load, s.Services...); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d tasks copied after %.1f s, restored in %.1f s; %s", len(tasks), lag.Seconds(), took.Seconds(), stage.Summary(load)), nil
}

// rehydrated runs a rehydrator once.
func rehydrated(ctx context.Context, c *stage.Cluster, args ...string) error {
	p, err := c.Rehydrate(append([]string{"--mode", "rehydrate", "--once"}, args...))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restoreLimit)
	defer cancel()
	if code, err := p.Wait(ctx); err != nil || code != 0 {
		return fmt.Errorf("rehydrator: exit code %d, %w; end of %s:\n%s", code, err, p.Log, p.Tail(12))
	}
	return nil
}
