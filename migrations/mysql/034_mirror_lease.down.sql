DROP TABLE IF EXISTS mirror_lease;
