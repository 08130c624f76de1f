-- Where the vectors of a knowledge base lie, and where they are made anew with another model (design D26).
ALTER TABLE knowledge_base ADD COLUMN collection VARCHAR(36) NOT NULL DEFAULT ''; -- of its vectors; empty: named by the base's id
ALTER TABLE knowledge_base ADD COLUMN shadow VARCHAR(36) NOT NULL DEFAULT ''; -- the collection that is being made; empty: none
ALTER TABLE knowledge_base ADD COLUMN shadow_model VARCHAR(190) NOT NULL DEFAULT '';
ALTER TABLE knowledge_base ADD COLUMN shadow_dim INTEGER NOT NULL DEFAULT 0;
ALTER TABLE knowledge_base ADD COLUMN closing_until TIMESTAMPTZ NULL; -- until then no version becomes visible
ALTER TABLE document_version ADD COLUMN collection VARCHAR(36) NOT NULL DEFAULT ''; -- the last one that all its vectors were written to

-- Collections that no base uses any more; the sweeper drops each twice.
CREATE TABLE retired_collection (
    id CHAR(36) NOT NULL,
    base_id CHAR(36) NOT NULL,
    sweep_at TIMESTAMPTZ NOT NULL,
    sweep_pass INTEGER NOT NULL DEFAULT 0, -- times that it was dropped
    PRIMARY KEY (id)
);
CREATE INDEX ix_retired_sweep ON retired_collection (sweep_at, id);
