-- What chats are told of their messages (services/telegram-gateway). A row is written with its task, before Telegram is told that the
-- message came, and kept for two days after the task's end: Telegram sends a message again for a day.
CREATE TABLE IF NOT EXISTS telegram_reply (
    chat_id BIGINT NOT NULL,
    message_id BIGINT NOT NULL, -- the user's
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    reply_id BIGINT NOT NULL, -- the message that tells it; 0: none yet
    shown TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    told TINYINT NOT NULL, -- 1: the task has ended, and the chat knows
    leased_until DATETIME(6) NOT NULL, -- by the process that talks to Telegram
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (chat_id, message_id),
    KEY ix_telegram_reply_told (told, chat_id, message_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
