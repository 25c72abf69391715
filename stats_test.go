package ampcors_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"

	"testing"

	"github.com/ampcors/ampcors"
)

func TestStatsSurviveJSON(t *testing.T) {
	t.Parallel()
	m := newMiddleware(t, testConfig())
	for _, origin := range []string{cacheOrigin, "null"} {
		m.Handle(httptest.NewRecorder(), &http.Request{Method: "GET", Header: headers("Origin: " + origin)})
	}
	data, err := json.Marshal(m.Stats())
	var back ampcors.Stats
	if err = errors.Join(err, json.Unmarshal(data, &back)); err != nil || !reflect.DeepEqual(back, m.Stats()) || back.Allowed() != 1 || back.Denied() != 1 {
		t.Errorf("%s\nis read as %v, %v", data, back, err)
	}
	stats := ampcors.SourceStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	data, err = json.Marshal(stats)
	var source ampcors.SourceStats
	if err = errors.Join(err, json.Unmarshal(data, &source)); err != nil || source != stats || !strings.Contains(string(data), `"rateLimited":5`) {
		t.Errorf("%s\nis read as %v, %v", data, source, err)
	}
}

func TestAddSumsEachCount(t *testing.T) {
	t.Parallel()
	sum := ampcors.SourceStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}.Add(ampcors.SourceStats{100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300, 1400})
	if want := (ampcors.SourceStats{101, 202, 303, 404, 505, 606, 707, 808, 909, 1010, 1111, 1212, 1313, 1414}); sum != want {
		t.Errorf("%+v; want %+v", sum, want)
	}
}
