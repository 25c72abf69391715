package pgsource

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A server that ends, or is no PostgreSQL, may answer the question whether it is a standby with no row. pgx's own check panics then.
func TestAServerThatDoesNotSayWhetherItIsAStandby(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		answer []pgproto3.BackendMessage
		want   string // in the error; "" for none
	}{
		{"no row", nil, "does not say whether it is a standby"},
		{"a standby", rowOf("on"), "is a standby"},
		{"a primary", rowOf("off"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go answerEachQuery(l, test.answer)
			cfg, err := pgx.ParseConfig("postgres://u@" + l.Addr().String() + "/db?sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			cfg.ValidateConnect = isWritable
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
			if err == nil {
				_ = conn.Close(t.Context())
			}
		})
	}
}

func rowOf(value string) []pgproto3.BackendMessage {
	return []pgproto3.BackendMessage{
		&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("transaction_read_only"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}},
		&pgproto3.DataRow{Values: [][]byte{[]byte(value)}},
	}
}

// answerEachQuery is a server of one connection.
func answerEachQuery(l net.Listener, answer []pgproto3.BackendMessage) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		message, err := b.Receive()
		if _, isQuery := message.(*pgproto3.Query); err != nil || !isQuery {
			return
		}
		for _, m := range answer {
			b.Send(m)
		}
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SHOW")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}
