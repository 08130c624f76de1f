-- One row: which stream-mirror acts, and until when (design D19).
CREATE TABLE mirror_lease (
    id SMALLINT NOT NULL,
    holder VARCHAR(190) COLLATE "C" NOT NULL, -- host-process-random; empty: the last one has left
    lease_until TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT mirror_lease_one_row CHECK (id = 1)
);
INSERT INTO mirror_lease (id, holder, lease_until) VALUES (1, '', '1970-01-01 00:00:00Z');
