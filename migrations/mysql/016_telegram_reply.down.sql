DROP TABLE IF EXISTS telegram_reply;
