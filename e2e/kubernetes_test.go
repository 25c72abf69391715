//go:build schemas

package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"

	"github.com/ampcors/ampcors/configfile"
)

// A serviceMonitor has the fields that the example uses of the Prometheus Operator's resource, whose Go module would bring all of Prometheus.
// https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.ServiceMonitor
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		JobLabel  string               `json:"jobLabel"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// The manifests have only fields that the API knows, and their parts fit together.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../examples/kubernetes/ampcors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var (
		config     corev1.ConfigMap
		deployment appsv1.Deployment
		service    corev1.Service
		budget     policyv1.PodDisruptionBudget
		network    networkingv1.NetworkPolicy
		monitor    serviceMonitor
	)
	kinds := map[string]any{"v1 ConfigMap": &config, "apps/v1 Deployment": &deployment, "v1 Service": &service,
		"policy/v1 PodDisruptionBudget": &budget, "networking.k8s.io/v1 NetworkPolicy": &network, "monitoring.coreos.com/v1 ServiceMonitor": &monitor}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := strict.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		name := kind.APIVersion + " " + kind.Kind
		if kinds[name] == nil {
			t.Errorf("%s is not known, or is there twice", name)
			continue
		}
		if err := strict.UnmarshalStrict(document, kinds[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if broken := bytes.Replace(document, []byte("spec:"), []byte("spek:"), 1); !bytes.Equal(broken, document) &&
			strict.UnmarshalStrict(broken, kinds[name]) == nil {
			t.Errorf("%s: a misspelt field is accepted", name)
		}
		delete(kinds, name)
	}
	for name := range kinds {
		t.Errorf("there is no %s", name)
	}
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	ports := make(map[string]int32)
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, s := range []*metav1.LabelSelector{deployment.Spec.Selector, budget.Spec.Selector, &network.Spec.PodSelector,
		metav1.SetAsLabelSelector(service.Spec.Selector)} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%v does not select the pods, %v", s, err)
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector); err != nil || !selector.Matches(labels.Set(service.Labels)) ||
		service.Labels[monitor.Spec.JobLabel] != "ampcors" {
		t.Errorf("the ServiceMonitor does not select the Service, %v", err)
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.String()] != p.Port {
			t.Errorf("the port %s of the Service leads nowhere", p.Name)
		}
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet == nil || probe.HTTPGet.Port.String() != "metrics" || probe.HTTPGet.Path != "/healthz" && probe.HTTPGet.Path != "/readyz" {
			t.Errorf("%+v", probe.HTTPGet)
		}
	}
	if !*container.SecurityContext.ReadOnlyRootFilesystem || !*pod.Spec.SecurityContext.RunAsNonRoot || container.VolumeMounts[0].SubPath != "" {
		t.Error("the root can be written, the user may be root, or the list is not followed")
	}

	// The program takes the flags, and the configuration is right.
	dir := t.TempDir()
	for name, text := range config.Data {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (configfile.File{Path: dir + "/ampcors.json"}).Config(); err != nil {
		t.Error(err)
	}
	help, err := exec.Command("go", "run", "github.com/ampcors/ampcors/cmd/ampcors", "serve-authz", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range container.Args[1:] {
		if name, _, _ := strings.Cut(arg, "="); !strings.Contains(string(help), " "+name+" ") {
			t.Errorf("serve-authz has no flag %s", name)
		}
	}
	// Within the time that the pod has to end, the Service forgets it, and then the server ends what was begun.
	if stop := container.Lifecycle.PreStop.Sleep; stop == nil || *pod.Spec.TerminationGracePeriodSeconds < stop.Seconds+10 {
		t.Errorf("%+v, and %v seconds to end", stop, *pod.Spec.TerminationGracePeriodSeconds)
	}
	if ref := container.Env[0].ValueFrom.SecretKeyRef; !*ref.Optional { // README.md says how it is made
		t.Errorf("%+v", ref)
	}
	if container.Args[0] != "serve-authz" || container.Env[0].Name != "AMPCORS_DATABASE" {
		t.Errorf("%q, %v", container.Args, container.Env)
	}
}
