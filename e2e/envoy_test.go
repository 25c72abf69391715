//go:build schemas

package e2e

import (
	"bytes"
	"os"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
)

// Envoy's own types accept the configuration, and their rules for values hold. No Envoy runs.
func TestEnvoysConfigurationIsThatOfItsTypes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../authz/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decode := func(data []byte) (*bootstrap.Bootstrap, error) {
		text, err := yaml.YAMLToJSONStrict(data)
		if err != nil {
			return nil, err
		}
		var b bootstrap.Bootstrap
		if err := protojson.Unmarshal(text, &b); err != nil { // resolves each "@type", and rejects unknown fields in it
			return nil, err
		}
		return &b, b.ValidateAll()
	}
	b, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"status_on_error", "allowed_client_headers_on_success", "headers_with_underscores_action",
		"explicit_http_config"} {
		misspelt := bytes.Replace(data, []byte(field), []byte(field[1:]), 1)
		if _, err := decode(misspelt); err == nil || bytes.Equal(misspelt, data) {
			t.Errorf("a misspelt %s is accepted", field)
		}
	}
	var connection manager.HttpConnectionManager
	if err := b.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&connection); err != nil {
		t.Fatal(err)
	}
	if err := connection.ValidateAll(); err != nil {
		t.Error(err)
	}
	var check authz.ExtAuthz
	if err := connection.HttpFilters[0].GetTypedConfig().UnmarshalTo(&check); err != nil {
		t.Fatal(err)
	}
	if err := check.ValidateAll(); err != nil || check.FailureModeAllow ||
		len(check.GetHttpService().AuthorizationResponse.AllowedClientHeadersOnSuccess.Patterns) == 0 {
		t.Errorf("%v, %v", &check, err)
	}
}
