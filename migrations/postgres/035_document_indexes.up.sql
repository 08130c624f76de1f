-- Searches that filter by media type find their documents by an index, and lists by creation or of a status their page.
CREATE INDEX ix_document_media ON knowledge_document (base_id, media_type, visible_version_id);
CREATE INDEX ix_document_created ON knowledge_document (created_at, id);
CREATE INDEX ix_document_status ON knowledge_document (status, updated_at, id);
