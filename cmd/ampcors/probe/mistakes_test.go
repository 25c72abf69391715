package probe_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cmd/ampcors/probe"
	"github.com/ampcors/ampcors/cmd/ampcors/probe/probetest"
)

// TestEachMistakeIsFound: exactly the ids of the backend's mistake are found.
func TestEachMistakeIsFound(t *testing.T) {
	for _, c := range probetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.Backend())
			defer server.Close()
			c.Endpoint.URL = server.URL + "/"
			report, err := probe.Run(t.Context(), probe.Config{Endpoints: []probe.Endpoint{c.Endpoint}, Publishers: []string{c.Publisher}, Unsafe: c.Unsafe, Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, f.ID)
				if f.Title == "" || f.Remedy == "" || f.Evidence == "" || !strings.HasPrefix(f.Curl, "curl -si ") || strings.Contains(f.Remedy, "%!") {
					t.Errorf("%+v", f)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.Want) {
				t.Errorf("got %q; want %q\n%+v", got, c.Want, report)
			}
		})
	}
}

// TestEachIDHasABackend: an id that no backend shows is not tested.
func TestEachIDHasABackend(t *testing.T) {
	var shown []string
	for _, c := range probetest.Cases() {
		shown = append(shown, c.Want...)
	}
	for _, id := range probe.IDs() {
		if !slices.Contains(shown, id) {
			t.Errorf("no backend shows %s", id)
		}
	}
}
