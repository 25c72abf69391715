package ampcors

import (
	"encoding/json"
	"fmt"
	"time"
)

// A jsonDuration is a duration that is a string in JSON, such as "10m".
type jsonDuration time.Duration

// MarshalText returns what [time.Duration.String] does.
func (d jsonDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what [time.ParseDuration] does.
func (d *jsonDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("ampcors: %.80q is not a duration; want one such as %q", text, "10m")
	}
	*d = jsonDuration(parsed)
	return nil
}

// A configJSON has Config's fields without its methods, so that encoding/json does not recurse.
// Its durations are strings.
type configJSON struct {
	*plainConfig
	MaxAge jsonDuration `json:"maxAge,omitzero"`
}

type plainConfig Config

// MarshalJSON implements [json.Marshaler].
func (cfg Config) MarshalJSON() ([]byte, error) {
	plain := plainConfig(cfg)
	return json.Marshal(configJSON{&plain, jsonDuration(cfg.MaxAge)})
}

// UnmarshalJSON implements [json.Unmarshaler]. Fields of missing members are unchanged.
// Package configfile is stricter, and says where in a file an error is.
func (cfg *Config) UnmarshalJSON(data []byte) error {
	v := configJSON{(*plainConfig)(cfg), jsonDuration(cfg.MaxAge)}
	err := json.Unmarshal(data, &v)
	cfg.MaxAge = time.Duration(v.MaxAge)
	return err
}
