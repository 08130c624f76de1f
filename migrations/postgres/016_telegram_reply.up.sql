-- What chats are told of their messages (services/telegram-gateway). A row is written with its task, before Telegram is told that the
-- message came, and kept for two days after the task's end: Telegram sends a message again for a day.
CREATE TABLE telegram_reply (
    chat_id BIGINT NOT NULL,
    message_id BIGINT NOT NULL, -- the user's
    task_id CHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    reply_id BIGINT NOT NULL, -- the message that tells it; 0: none yet
    shown TEXT NOT NULL,
    told SMALLINT NOT NULL, -- 1: the task has ended, and the chat knows
    leased_until TIMESTAMPTZ NOT NULL, -- by the process that talks to Telegram
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (chat_id, message_id)
);
CREATE INDEX ix_telegram_reply_told ON telegram_reply (told, chat_id, message_id);
