package telegram

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
)

// Config are the settings of telegram-gateway.
type Config struct {
	Shared documents.Shared
	Search gateway.Search
	Bot    Bot
}

// Bot says which bot it is, and whom it serves.
type Bot struct {
	Token         process.Secret `envconfig:"TELEGRAM_BOT_TOKEN" desc:"the bot's token, as @BotFather gives it"`
	API           string         `envconfig:"TELEGRAM_API_URL" default:"https://api.telegram.org" desc:"server of the Bot API"`
	Chats         string         `envconfig:"TELEGRAM_CHATS" desc:"chats that are served, each with the user whose tasks it makes: chat=user,… ; others are told their id and refused"`
	WebhookURL    string         `envconfig:"TELEGRAM_WEBHOOK_URL" desc:"where Telegram sends updates, over HTTPS; not set: the bot asks for them (long polling)"`
	WebhookAddr   string         `envconfig:"TELEGRAM_WEBHOOK_ADDR" default:"127.0.0.1:8088" desc:"where the webhook listens, behind what ends TLS"`
	WebhookSecret process.Secret `envconfig:"TELEGRAM_WEBHOOK_SECRET" desc:"compared with X-Telegram-Bot-Api-Secret-Token; needed with a webhook: 1 to 256 of A-Z, a-z, 0-9, _ and -"`
}

// Validate joins the problems of all parts.
func (c *Config) Validate() error {
	return errors.Join(c.Shared.Validate(), c.Search.Validate(), c.Bot.validate())
}

func (b Bot) validate() error {
	var problems []error
	add := func(name, format string, args ...any) {
		problems = append(problems, process.BadSetting(name, format, args...))
	}
	if b.Token.Empty() {
		add("TELEGRAM_BOT_TOKEN", "is not set: @BotFather gives one")
	}
	if u, err := url.Parse(b.API); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		add("TELEGRAM_API_URL", "is not an http or https URL")
	}
	if _, err := b.chats(); err != nil {
		add("TELEGRAM_CHATS", "%s", err)
	}
	if b.WebhookURL == "" {
		return errors.Join(problems...)
	}
	if u, err := url.Parse(b.WebhookURL); err != nil || u.Scheme != "https" || u.Host == "" {
		add("TELEGRAM_WEBHOOK_URL", "is not an https URL")
	}
	if secret := b.WebhookSecret.Reveal(); len(secret) < 1 || len(secret) > 256 || strings.Trim(secret, secretLetters) != "" {
		add("TELEGRAM_WEBHOOK_SECRET", "needs 1 to 256 of A-Z, a-z, 0-9, _ and -: without it anybody could send updates")
	}
	return errors.Join(problems...)
}

const secretLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// chats are the users of the chats that are served.
func (b Bot) chats() (map[int64]string, error) {
	users := map[int64]string{}
	for pair := range strings.SplitSeq(b.Chats, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		chat, user, found := strings.Cut(pair, "=")
		id, err := strconv.ParseInt(strings.TrimSpace(chat), 10, 64)
		if !found || err != nil {
			return nil, errors.New(strconv.Quote(pair) + " is not chat=user, where chat is a number")
		}
		user = strings.TrimSpace(user)
		if err := auth.CheckUserID(user); err != nil {
			return nil, errors.New("user of chat " + chat + ": " + err.Error())
		}
		if _, twice := users[id]; twice {
			return nil, errors.New("chat " + chat + " stands twice")
		}
		users[id] = user
	}
	return users, nil
}
