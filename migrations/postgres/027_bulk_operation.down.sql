DROP TABLE IF EXISTS bulk_operation;
