//go:build schemas

package e2e

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// problemsOf returns what Grafana's own types find in a dashboard, besides fields that are missing: Grafana fills them in.
func problemsOf(data []byte) (problems []string) {
	plugins.RegisterDefaultPlugins()
	err := new(dashboard.Dashboard).UnmarshalJSONStrict(data)
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasSuffix(strings.TrimSpace(line), "required field is missing from input") {
			problems = append(problems, line)
		}
	}
	return problems
}

// A field that Grafana does not know would be ignored there without a word.
func TestGrafanasTypesKnowTheDashboard(t *testing.T) {
	data, err := os.ReadFile("../metrics/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if problems := problemsOf(data); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
	for right, wrong := range map[string]string{`"gridPos"`: `"gridpos"`, `"fieldConfig"`: `"fieldconfig"`, `"timeseries"`: `7`} {
		if problems := problemsOf(bytes.Replace(data, []byte(right), []byte(wrong), 1)); len(problems) == 0 {
			t.Errorf("%s in place of %s is not found", wrong, right)
		}
	}
}
