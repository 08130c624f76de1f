-- Where the vectors of a knowledge base lie, and where they are made anew with another model (design D26).
ALTER TABLE knowledge_base ADD COLUMN collection TEXT NOT NULL DEFAULT ''; -- of its vectors; empty: named by the base's id
ALTER TABLE knowledge_base ADD COLUMN shadow TEXT NOT NULL DEFAULT ''; -- the collection that is being made; empty: none
ALTER TABLE knowledge_base ADD COLUMN shadow_model TEXT NOT NULL DEFAULT '';
ALTER TABLE knowledge_base ADD COLUMN shadow_dim INTEGER NOT NULL DEFAULT 0;
ALTER TABLE knowledge_base ADD COLUMN closing_until TEXT NULL; -- until then no version becomes visible
ALTER TABLE document_version ADD COLUMN collection TEXT NOT NULL DEFAULT ''; -- the last one that all its vectors were written to

-- Collections that no base uses any more; the sweeper drops each twice.
CREATE TABLE retired_collection (
    id TEXT NOT NULL,
    base_id TEXT NOT NULL,
    sweep_at TEXT NOT NULL,
    sweep_pass INTEGER NOT NULL DEFAULT 0, -- times that it was dropped
    PRIMARY KEY (id)
);
CREATE INDEX ix_retired_sweep ON retired_collection (sweep_at, id);
