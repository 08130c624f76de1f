DROP TABLE IF EXISTS mirror_failure;
