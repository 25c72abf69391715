-- River's tables are in this schema too, so that they are not those of other programs.
CREATE SCHEMA IF NOT EXISTS outbox;

CREATE TABLE IF NOT EXISTS outbox.page (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	url      text NOT NULL, -- as it is sent
	host     text NOT NULL, -- and the key file, if it is not at its usual place: what is sent together
	version  bigint NOT NULL DEFAULT 1, -- one more with each change
	ready_at timestamptz,      -- when it is to be sent; NULL if it is not
	sent_at  timestamptz,
	error    text,             -- why the engine rejected it
	added_at    timestamptz NOT NULL DEFAULT clock_timestamp(), -- last
	tried_at    timestamptz, -- when it was sent alone and not accepted, last
	rejected_at timestamptz -- since when the engine has accepted nothing of its host
);
-- A URL has up to 8,000 bytes, an entry of an index up to 2,704.
CREATE UNIQUE INDEX IF NOT EXISTS page_url ON outbox.page (sha256(url::bytea));
CREATE INDEX IF NOT EXISTS page_ready ON outbox.page (host, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS page_sent ON outbox.page (sent_at) WHERE ready_at IS NULL AND error IS NULL;
