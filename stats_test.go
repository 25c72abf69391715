package ampcors_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
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
}
