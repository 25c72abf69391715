package servertest

// Secret is the password, or a part of it, in each of [WrongConnStrings].
const Secret = "s3cret"

// WrongConnStrings returns connection strings of PostgreSQL that cannot be used, in each of the ways in which
// people write them. No output may have the Secret. Where they name a host and a port, nothing listens.
func WrongConnStrings() []string {
	return []string{
		// They cannot be parsed.
		"postgres://u:s3cret@127.0.0.1:x/db",
		"postgres://u:%zzs3cret@127.0.0.1:1/db",
		"postgres://u:s3 s3cret@127.0.0.1:1/db",
		"postgres://u:s3cret@127.0.0.1:1/db?sslmode=none",
		"postgres://u:s3cret@127.0.0.1:1/db?connect_timeout=soon",
		"postgres://u:s3cret@[::1/db",
		"postgres://u:s3cret@127.0.0.1:1/db?pool_max_conns=many",
		"host=127.0.0.1 port=1 user=u password = s3cret dbname",
		"host=127.0.0.1 port = x user=u password = s3cret",
		"host=127.0.0.1 port=1 user=u password='s3cret",
		"host=127.0.0.1 port=1 user=u password=1 s3cret",
		" postgres://u:s3cret@127.0.0.1:1/db",
		"redis://:s3cret@127.0.0.1:1",
		"u:s3cret@tcp(127.0.0.1:1)/db",
		"s3cret",
		// A part of the password would be a port, a database, a setting or a user.
		"postgres://u:1/s3cret@127.0.0.1:1/db",
		"postgres://u:1?s3cret=1@127.0.0.1:1/db",
		"postgres://u:1#s3cret@127.0.0.1:1/db",
		"postgres://u:1@127.0.0.1:1/s3cret@127.0.0.1:1/db",
		"postgres://u:1@s3cret@127.0.0.1:1/db",
		"postgres://127.0.0.1:1/db?user=u&password=1&s3cret=1",
		"host=127.0.0.1 port=1 user=u passwd=1 s3cret=1",
		"host=127.0.0.1 port=1 user=u sslpassword=1 s3cret=1",
		"host=127.0.0.1 port=1 user=u password=1 s3cret=1",
		"host=127.0.0.1 port=1 user=u password=1 s3cret = dbname=db",
		"postgres:/u:s3cret=1@127.0.0.1:1/db",
		"Postgres://u:s3cret=1@127.0.0.1:1/db",
		" postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable",
		"jdbc:postgresql://127.0.0.1:1/db?user=u&password=s3cret",
		// They are right, and nothing answers.
		"host=127.0.0.1 port=1 user=u password=s3cret\\",
		"postgres://u:s3cret@127.0.0.1:1/db\n",
		"postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable",
		"postgres://u:s3cret%2F%40%3A@127.0.0.1:1/db?sslmode=prefer",
		"host=127.0.0.1 port=1 user=u password = 's3cret s3cret' dbname=db",
		"host=127.0.0.1,127.0.0.1 port=1,2 user=u password=s3cret",
	}
}
