-- One row: which stream-mirror acts, and until when (design D19).
CREATE TABLE IF NOT EXISTS mirror_lease (
    id TINYINT NOT NULL,
    holder VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- host-process-random; empty: the last one has left
    lease_until DATETIME(6) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT mirror_lease_one_row CHECK (id = 1)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO mirror_lease (id, holder, lease_until) VALUES (1, '', '1970-01-01 00:00:00');
