-- What chats are told of their messages (services/telegram-gateway). A row is written with its task, before Telegram is told that the
-- message came, and kept for two days after the task's end: Telegram sends a message again for a day.
CREATE TABLE telegram_reply (
    chat_id INTEGER NOT NULL,
    message_id INTEGER NOT NULL, -- the user's
    task_id TEXT NOT NULL,
    name TEXT NOT NULL,
    reply_id INTEGER NOT NULL, -- the message that tells it; 0: none yet
    shown TEXT NOT NULL,
    told INTEGER NOT NULL, -- 1: the task has ended, and the chat knows
    leased_until TEXT NOT NULL, -- by the process that talks to Telegram
    created_at TEXT NOT NULL,
    PRIMARY KEY (chat_id, message_id)
);
CREATE INDEX ix_telegram_reply_told ON telegram_reply (told, chat_id, message_id);
