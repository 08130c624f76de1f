package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/telegramtest"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/world"
)

// chatID is the chat that the bot serves.
const chatID = 7

// hooked are the settings of a bot with a webhook.
var hooked = []string{"TELEGRAM_WEBHOOK_URL=https://bot.example/hook"}

// botEnv are the settings of the lane's bot.
func botEnv(bot *telegramtest.Server, hook string) []string {
	return []string{
		"TELEGRAM_BOT_TOKEN=" + telegramtest.Token, "TELEGRAM_API_URL=" + bot.URL, fmt.Sprintf("TELEGRAM_CHATS=%d=%s", chatID, world.Everybody),
		"TELEGRAM_WEBHOOK_SECRET=of_the_lab", "TELEGRAM_WEBHOOK_ADDR=" + hook,
	}
}

// chat sends a text and a file to the bot.
func chat(_ context.Context, t *trial) error {
	text := t.doc(smallDoc)
	t.said = append(t.said, t.number)
	t.bot.Message(chatID, t.number, string(text.Body), nil)
	file := t.doc(smallDoc)
	t.said = append(t.said, t.number)
	t.bot.Document(chatID, t.number, file.Name, file.Body)
	t.chatted += 3 // a workflow with its document, and a document
	return nil
}

// confirmed waits until the offset has moved and the answers are written down, or the point was met: a process that dies between
// sending an answer and writing it down may send it twice, and that is another scene's.
func confirmed(ctx context.Context, t *trial) error {
	return await.Until(ctx, fireLimit, lookEvery, func(ctx context.Context) error {
		switch n, err := t.count(ctx, "SELECT COUNT(*) FROM telegram_reply WHERE reply_id = 0"); {
		case t.acted():
			return nil
		case err != nil:
			return err
		case !t.bot.Confirmed():
			return errors.New("updates are not confirmed")
		case n > 0:
			return fmt.Errorf("%d answers are not written down", n)
		}
		return nil
	})
}

// chatThere is chat with a webhook: the updates go to the armed process until it has met its point.
func chatThere(ctx context.Context, t *trial) error {
	if err := chat(ctx, t); err != nil {
		return err
	}
	stop := t.delivering(ctx, t.hook)
	defer func() { _ = stop() }() // it has no error
	return await.Until(ctx, fireLimit, lookEvery, func(context.Context) error {
		if t.acted() {
			return nil
		}
		return errors.New("the point was not reached")
	})
}

// chatAgain gives what was not taken to who mends.
func chatAgain(ctx context.Context, t *trial) error {
	stop := t.delivering(ctx, t.spareHook)
	defer func() { _ = stop() }() // it has no error
	return answered(ctx, t)
}

// delivering sends updates to a webhook.
func (t *trial) delivering(ctx context.Context, host string) (stop func() error) {
	return await.Beside(ctx, func(ctx context.Context) error { t.bot.Deliver(ctx, host); return nil })
}

// acknowledged is chat with a bot that has told of the tasks, and is gone before they run.
func acknowledged(ctx context.Context, t *trial) error {
	p, err := t.StartReady(ctx, telegram)
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := chat(ctx, t); err != nil {
		return err
	}
	err = await.Until(ctx, settleLimit, lookEvery, func(context.Context) error {
		for _, id := range t.said {
			if len(t.bot.Replies(chatID, int64(id))) == 0 {
				return fmt.Errorf("message %d has no answer", id)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if code, err := p.Stop(ctx, exitLimit); err != nil || code != 0 { // what was told is written down
		return fmt.Errorf("%s exits with %d: %w", p.Name, code, err)
	}
	return nil
}

// answered waits until the chat knows the end of each message. Then it looks from outside: each has one answer (in a scene that says
// so one of them two) and no task more than it makes.
func answered(ctx context.Context, t *trial) error {
	err := await.Until(ctx, settleLimit, lookEvery, func(ctx context.Context) error {
		for _, id := range t.said {
			all := t.bot.Replies(chatID, int64(id))
			if len(all) == 0 || !strings.Contains(all[len(all)-1].Last(), "Done") {
				return fmt.Errorf("message %d is not told its end: %v", id, all)
			}
		}
		n, err := t.count(ctx, "SELECT COUNT(*) FROM telegram_reply WHERE told = 0")
		if err == nil && n > 0 {
			err = fmt.Errorf("%d replies are open", n)
		}
		if err == nil && !t.bot.Confirmed() {
			err = errors.New("updates are not confirmed")
		}
		return err
	})
	if err != nil {
		return err
	}
	more := 0
	for _, id := range t.said {
		more += len(t.bot.Replies(chatID, int64(id))) - 1
	}
	if more > 1 || more == 1 && !t.scene.doubled {
		return fmt.Errorf("the chat has %d messages too many", more)
	}
	n, err := t.count(ctx, "SELECT COUNT(*) FROM ingest_task WHERE channel = 'telegram'")
	if err == nil && n != t.chatted {
		err = fmt.Errorf("the messages of chats made %d tasks, not %d", n, t.chatted)
	}
	return err
}
