package scale

import (
	"os"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/readme"
)

// writeTable writes a table into results.txt if UPDATE_README is set.
func writeTable(t *testing.T, name string, rows []string) {
	t.Helper()
	if os.Getenv("UPDATE_README") != "" && !t.Failed() {
		readme.Write(t, "results.txt", name, strings.Join(rows, "\n")+"\n")
	}
}
