package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/servertest"
)

// nodeJS returns the path of Node.js, for programs that need the packages in peers.
func nodeJS(t *testing.T) string {
	t.Helper()
	program := servertest.Program(t, "install Node.js (Debian: apt-get install nodejs npm)", "node")
	if _, err := os.Stat("peers/node_modules"); err != nil {
		servertest.Missing(t, "install the packages for Node.js (npm ci --prefix e2e/peers)")
	}
	return program
}

func node(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(nodeJS(t), args...).CombinedOutput()
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
