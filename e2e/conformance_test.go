package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/servertest"
)

func node(t *testing.T, args ...string) string {
	t.Helper()
	program := servertest.Program(t, "install Node.js (Debian: apt-get install nodejs)", "node")
	if _, err := os.Stat("peers/node_modules/ajv"); err != nil {
		servertest.Missing(t, "install the peers (npm ci --prefix e2e/peers)")
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// The toolbox gives what the vectors say of it, and differs where they say that it does.
func TestToolboxAgreesWithTheVectors(t *testing.T) {
	readme, err := os.ReadFile("../conformance/README.md")
	if out := node(t, "../conformance/toolbox.mjs", "peers"); err != nil || !strings.Contains(string(readme), "```console\n"+out+"```\n") {
		t.Errorf("%v; conformance/README.md does not show\n%s", err, out)
	}
}

// A validator that is not ours accepts the vectors by their schema.
func TestVectorsAreValid(t *testing.T) {
	files, err := filepath.Glob("../conformance/*.json")
	if err != nil || len(files) != 8 {
		t.Fatalf("%q, %v", files, err)
	}
	if out := node(t, append([]string{"peers/validate.js"}, files...)...); out != "7 files are valid\n" {
		t.Error(out)
	}
}
