CREATE TABLE IF NOT EXISTS outbox (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	url      text NOT NULL, -- as it is sent
	host     text NOT NULL,
	version  bigint NOT NULL DEFAULT 1, -- one more with each change
	ready_at timestamptz,      -- when it is to be sent; NULL if it is not
	job      bigint,           -- the River job that sends it, once it has begun
	sent_at  timestamptz,
	error    text              -- why the engine rejected it
);
-- A URL has up to 8,000 bytes, an entry of an index up to 2,704.
CREATE UNIQUE INDEX IF NOT EXISTS outbox_url ON outbox (sha256(url::bytea));
CREATE INDEX IF NOT EXISTS outbox_ready ON outbox (host, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_sent ON outbox (sent_at) WHERE ready_at IS NULL AND error IS NULL;

-- outbox_window returns the end of the window that contains a time. Each window has this length.
CREATE OR REPLACE FUNCTION outbox_window(at timestamptz, length interval) RETURNS timestamptz
	LANGUAGE sql IMMUTABLE AS 'SELECT date_bin(length, at, timestamptz ''epoch'') + length';
