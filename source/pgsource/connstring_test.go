package pgsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A server that ends, or is no PostgreSQL, may answer the question whether it is a standby with no row. pgx's own check panics then.
func TestAServerThatDoesNotSayWhetherItIsAStandby(t *testing.T) {
	t.Parallel()
	answer := func(rows ...[][]byte) []*pgconn.Result { return []*pgconn.Result{{Rows: rows}} }
	for want, results := range map[string][]*pgconn.Result{
		"does not say": nil, "does not say whether": answer(), "is a standby": answer([][]byte{[]byte("on"), []byte("t"), []byte("1")}),
		"default_transaction_read_only is on": answer([][]byte{[]byte("on"), []byte("f"), []byte("1")}),
		"<nil>":                               answer([][]byte{[]byte("off"), []byte("f"), []byte("1")}),
	} {
		if _, err := writable(results, nil); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
